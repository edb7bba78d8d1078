//! Areas: the metrics of one part of the gateway each. Owns their names, help texts and labels.
//!
//! Does not decide when something is counted. Invariant: each name is registered once.

use prometheus::{Gauge, Histogram, HistogramVec};

use super::family::{ByServer, CounterFamily, GaugeFamily};
use super::labels::{
    AuthOutcome, CertificateReload, ClientRevision, ConfigReload, DeniedRule, DroppedItem,
    InputKindName, InputOutcome, ItemKindName, Limit, ReplyOutcome, ResumeOutcome, RetryOutcome,
    ServerRevision, ServerStateName, StateRefusal, TaskRetention,
};
use super::registration::MetricRegistrar;
use super::{CounterHandle, GaugeHandle};

/// Calls of clients, and what was refused or lost.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct CallMetrics {
    pub(crate) server_operation: HistogramVec,
    pub(crate) client_operation: HistogramVec,
    pub overhead: Histogram,
    pub inflight: GaugeHandle,
    pub translated: CounterFamily<(ClientRevision, ServerRevision)>,
    pub cancelled: CounterHandle,
    pub panics: CounterHandle,
    pub refused: CounterFamily<(Limit,)>,
    pub dropped: CounterFamily<(DroppedItem,)>,
}

impl CallMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        CallMetrics {
            server_operation: r.operations(
                "mcp_server_operation_duration_seconds",
                "Time from the arrival of a client's request to its response.",
            ),
            client_operation: r.operations(
                "mcp_client_operation_duration_seconds",
                "Time from sending a request to a server to its response.",
            ),
            overhead: r.overhead(
                "moongate_overhead_seconds",
                "The gateway's own share of a call's time, without the server's.",
            ),
            inflight: r.gauge("moongate_inflight", "Calls in progress."),
            translated: r.counters(
                "moongate_translated_total",
                "Calls by client revision and server revision.",
            ),
            cancelled: r.counter(
                "moongate_cancelled_total",
                "Calls that the client cancelled.",
            ),
            panics: r.counter(
                "moongate_panics_total",
                "Requests that failed because of a bug in the gateway.",
            ),
            refused: r.counters(
                "moongate_refused_total",
                "Requests refused because a limit was reached.",
            ),
            dropped: r.counters(
                "moongate_dropped_total",
                "Messages that could not be delivered.",
            ),
        }
    }
}

/// Connections to servers.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct ServerMetrics {
    pub up: GaugeFamily<(ByServer, ServerStateName)>,
    pub restarts: CounterFamily<ByServer>,
    pub reconnects: CounterFamily<ByServer>,
    pub resumed: CounterFamily<ByServer>,
    pub connections: GaugeFamily<ByServer>,
    pub pings_missed: CounterFamily<ByServer>,
    pub requests: CounterFamily<(ByServer, ReplyOutcome)>,
    pub garbage: CounterFamily<ByServer>,
    pub mended: CounterFamily<ByServer>,
    pub backlog_bytes: GaugeFamily<ByServer>,
    pub breaker_opened: CounterFamily<ByServer>,
    pub retries: CounterFamily<(ByServer, RetryOutcome)>,
    pub queue_depth: GaugeFamily<ByServer>,
}

impl ServerMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        ServerMetrics {
            up: r.gauges(
                "moongate_server_up",
                "1 for the server's current state, 0 for the other states.",
            ),
            restarts: r.counters(
                "moongate_server_restarts_total",
                "Restarts of the server's program.",
            ),
            reconnects: r.counters("moongate_server_reconnects_total", "Attempts to reconnect."),
            resumed: r.counters(
                "moongate_server_resumed_total",
                "Broken event streams that the gateway asked the server to resume.",
            ),
            connections: r.gauges(
                "moongate_server_connections",
                "Connections to a server for single clients, besides the shared one.",
            ),
            pings_missed: r.counters(
                "moongate_server_pings_missed_total",
                "Pings that the server did not answer.",
            ),
            requests: r.counters(
                "moongate_server_requests_total",
                "Requests from a server that the gateway answered itself: answered, delayed (they \
                 came too fast), dropped (the server reads no responses).",
            ),
            garbage: r.counters(
                "moongate_garbage_total",
                "Lines and events from a server that are not valid messages.",
            ),
            mended: r.counters(
                "moongate_mended_messages_total",
                "Messages from a server with bytes that are not UTF-8.",
            ),
            backlog_bytes: r.gauges(
                "moongate_backlog_bytes",
                "Bytes from a server that clients have not read yet.",
            ),
            breaker_opened: r.counters(
                "moongate_breaker_opened_total",
                "Times that the server's circuit breaker opened.",
            ),
            retries: r.counters(
                "moongate_retries_total",
                "Failed calls: sent again, or not retried because there were too many \
                 (over_budget).",
            ),
            queue_depth: r.gauges(
                "moongate_queue_depth",
                "Calls that are queued because of a server's max_concurrency.",
            ),
        }
    }
}

/// Connections and sessions of clients.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct ClientMetrics {
    pub sessions: GaugeHandle,
    pub sessions_asleep: GaugeHandle,
    pub sessions_restored: CounterHandle,
    pub streams: GaugeHandle,
    pub replay_bytes: GaugeHandle,
    pub replay_dropped: CounterHandle,
    pub resumed: CounterFamily<(ResumeOutcome,)>,
    pub outbox_bytes: GaugeHandle,
    pub subscriptions: GaugeFamily<ByServer>,
    pub connections: GaugeHandle,
    pub admin_connections: GaugeHandle,
    pub admin_streams: GaugeHandle,
}

impl ClientMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        ClientMetrics {
            sessions: r.gauge("moongate_sessions", "Sessions of legacy clients."),
            sessions_asleep: r.gauge(
                "moongate_sessions_asleep",
                "Sessions that have been unused for a minute, or since the restart.",
            ),
            sessions_restored: r.counter(
                "moongate_sessions_restored_total",
                "Sessions whose clients came back after a restart.",
            ),
            streams: r.gauge("moongate_streams", "Open event streams to clients."),
            replay_bytes: r.gauge(
                "moongate_replay_bytes",
                "Bytes of events kept for clients that may reconnect.",
            ),
            replay_dropped: r.counter(
                "moongate_replay_dropped_total",
                "Events dropped too early for lack of space.",
            ),
            resumed: r.counters(
                "moongate_resumed_total",
                "Clients that reconnected to resume a stream.",
            ),
            outbox_bytes: r.gauge(
                "moongate_outbox_bytes",
                "Bytes that wait to be sent on session streams.",
            ),
            subscriptions: r.gauges(
                "moongate_subscriptions",
                "Resources of a server that clients are subscribed to.",
            ),
            connections: r.gauge("moongate_connections", "Open connections of clients."),
            admin_connections: r.gauge(
                "moongate_admin_connections",
                "Open connections to the admin listener.",
            ),
            admin_streams: r.gauge("moongate_admin_streams", "Open event streams of operators."),
        }
    }
}

/// Input that servers ask for, and tasks.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct InputMetrics {
    pub asks: CounterFamily<(InputKindName, InputOutcome)>,
    pub parked: GaugeHandle,
    pub parked_expired: CounterHandle,
    pub state_refused: CounterFamily<(StateRefusal,)>,
    pub tasks: GaugeFamily<(TaskRetention,)>,
}

impl InputMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        InputMetrics {
            asks: r.counters("moongate_asks_total", "Requests from servers to clients."),
            parked: r.gauge(
                "moongate_parked",
                "Calls whose server waits for a modern client's answer.",
            ),
            parked_expired: r.counter(
                "moongate_parked_expired_total",
                "Parked calls whose client did not come back in time.",
            ),
            state_refused: r.counters(
                "moongate_state_refused_total",
                "Answers with a requestState that could not be used.",
            ),
            tasks: r.gauges(
                "moongate_tasks",
                "Tasks for which the gateway keeps data: asked (a request to the user), \
                 finished (the result).",
            ),
        }
    }
}

/// Credentials, rules and the certificate.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct AccessMetrics {
    pub auth: CounterFamily<(AuthOutcome,)>,
    /// Series of `auth` that every accepted request counts.
    pub auth_accepted: CounterHandle,
    pub policy_denied: CounterFamily<(DeniedRule,)>,
    pub tls_not_after: GaugeHandle,
    pub tls_reloads: CounterFamily<(CertificateReload,)>,
}

impl AccessMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        let auth: CounterFamily<(AuthOutcome,)> = r.counters(
            "moongate_auth_total",
            "Requests by the state of their credentials.",
        );
        AccessMetrics {
            auth_accepted: auth.series(AuthOutcome::Accepted),
            policy_denied: r.counters(
                "moongate_policy_denied_total",
                "Requests refused by a rule.",
            ),
            tls_not_after: r.gauge(
                "moongate_tls_not_after_seconds",
                "Time when the listener's certificate expires (Unix time). 0: no certificate.",
            ),
            tls_reloads: r.counters(
                "moongate_tls_reloads_total",
                "Changed certificate files that were loaded or refused.",
            ),
            auth,
        }
    }
}

/// Items that servers have in the catalogue.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct CatalogMetrics {
    pub items: GaugeFamily<(ByServer, ItemKindName)>,
    pub bytes: GaugeFamily<ByServer>,
    pub tokens: GaugeFamily<ByServer>,
    pub left_out: GaugeFamily<ByServer>,
    pub mended: GaugeFamily<ByServer>,
    pub stale: GaugeFamily<ByServer>,
    pub filters_unmatched: GaugeFamily<ByServer>,
}

impl CatalogMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        CatalogMetrics {
            items: r.gauges(
                "moongate_catalog_items",
                "Items of a server in the catalogue.",
            ),
            bytes: r.gauges(
                "moongate_catalog_bytes",
                "Size of a server's tool definitions.",
            ),
            tokens: r.gauges(
                "moongate_catalog_tokens",
                "Estimated context cost of a server's tool definitions (bytes / 4.25).",
            ),
            left_out: r.gauges(
                "moongate_catalog_left_out",
                "Items of a server that cannot be exposed.",
            ),
            mended: r.gauges(
                "moongate_catalog_mended",
                "Items that are listed in a form other than their server's.",
            ),
            stale: r.gauges(
                "moongate_catalog_stale",
                "1 while a server's lists come from before the restart.",
            ),
            filters_unmatched: r.gauges(
                "moongate_filters_unmatched",
                "Patterns and names in the config that match nothing. Without a server: those of \
                 views and keys.",
            ),
        }
    }
}

/// Reloads of the config.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct ConfigMetrics {
    pub reloads: CounterFamily<(ConfigReload,)>,
    pub reload_failed: GaugeHandle,
    pub reloaded_at: Gauge,
}

impl ConfigMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        ConfigMetrics {
            reloads: r.counters(
                "moongate_config_reloads_total",
                "Reloads of the config: applied, unchanged, refused (nothing changed).",
            ),
            reload_failed: r.gauge(
                "moongate_config_reload_failed",
                "1 if the last reload was refused.",
            ),
            reloaded_at: r.float_gauge(
                "moongate_config_last_reload_success_timestamp_seconds",
                "Time when the config in use was read (Unix time).",
            ),
        }
    }
}

/// State that outlives the process.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct StoreMetrics {
    pub open: GaugeHandle,
    pub waiting: GaugeHandle,
    pub dropped: CounterHandle,
    pub errors: CounterHandle,
}

impl StoreMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        StoreMetrics {
            open: r.gauge("moongate_store_open", "1 while the state file is open."),
            waiting: r.gauge(
                "moongate_store_waiting",
                "State changes that have not been written yet.",
            ),
            dropped: r.counter(
                "moongate_store_dropped_total",
                "State changes that were lost for lack of space.",
            ),
            errors: r.counter(
                "moongate_store_errors_total",
                "Failed writes to the state file.",
            ),
        }
    }
}
