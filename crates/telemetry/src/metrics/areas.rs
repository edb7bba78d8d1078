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
use super::registration::Registration;
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
    pub(super) fn register(r: &Registration) -> Self {
        CallMetrics {
            server_operation: r.operations(
                "mcp_server_operation_duration_seconds",
                "Time of a client's request, from its arrival to its answer.",
            ),
            client_operation: r.operations(
                "mcp_client_operation_duration_seconds",
                "Time of a request to a server, from sending it to its answer.",
            ),
            overhead: r.overhead(
                "moongate_overhead_seconds",
                "The gateway's own time in a call: all of it except the server's.",
            ),
            inflight: r.gauge("moongate_inflight", "Calls that are being served."),
            translated: r.counters(
                "moongate_translated_total",
                "Calls by the client's revision and the server's.",
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
    pub(super) fn register(r: &Registration) -> Self {
        ServerMetrics {
            up: r.gauges("moongate_server_up", "1 for the state that a server is in."),
            restarts: r.counters(
                "moongate_server_restarts_total",
                "Child processes started \
                again.",
            ),
            reconnects: r.counters(
                "moongate_server_reconnects_total",
                "Attempts to connect \
                again.",
            ),
            resumed: r.counters(
                "moongate_server_resumed_total",
                "Event streams of a server that were resumed where they ended.",
            ),
            connections: r.gauges(
                "moongate_server_connections",
                "Connections to a server for single clients, besides the shared one.",
            ),
            pings_missed: r.counters(
                "moongate_server_pings_missed_total",
                "Pings that a server \
                left unanswered.",
            ),
            requests: r.counters(
                "moongate_server_requests_total",
                "Requests of a server that the gateway answered itself: answered, delayed (it asks \
                 too fast), dropped (it reads no answers).",
            ),
            garbage: r.counters(
                "moongate_garbage_total",
                "Lines and events from a server that were not messages.",
            ),
            mended: r.counters(
                "moongate_mended_messages_total",
                "Messages of a server with bytes \
                that are not UTF-8.",
            ),
            backlog_bytes: r.gauges(
                "moongate_backlog_bytes",
                "Bytes from a server that wait for clients.",
            ),
            breaker_opened: r.counters(
                "moongate_breaker_opened_total",
                "How often the circuit breaker of a server opened.",
            ),
            retries: r.counters(
                "moongate_retries_total",
                "Failed calls that were sent again, or were not because there were too many \
                 (over_budget).",
            ),
            queue_depth: r.gauges(
                "moongate_queue_depth",
                "Calls that wait for a server's \
                max_concurrency.",
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
    pub(super) fn register(r: &Registration) -> Self {
        ClientMetrics {
            sessions: r.gauge("moongate_sessions", "Sessions of legacy clients."),
            sessions_asleep: r.gauge(
                "moongate_sessions_asleep",
                "Sessions that nobody used for a minute, or since an earlier run.",
            ),
            sessions_restored: r.counter(
                "moongate_sessions_restored_total",
                "Sessions of an earlier run whose clients came back.",
            ),
            streams: r.gauge("moongate_streams", "Open event streams to clients."),
            replay_bytes: r.gauge(
                "moongate_replay_bytes",
                "Bytes of events kept for clients that may come back.",
            ),
            replay_dropped: r.counter(
                "moongate_replay_dropped_total",
                "Events that were not kept, or not long enough, for lack of room.",
            ),
            resumed: r.counters(
                "moongate_resumed_total",
                "Clients that came back for the rest of a stream.",
            ),
            outbox_bytes: r.gauge(
                "moongate_outbox_bytes",
                "Bytes that wait for sessions' own streams.",
            ),
            subscriptions: r.gauges(
                "moongate_subscriptions",
                "Resources of a server that clients subscribe to.",
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
    pub(super) fn register(r: &Registration) -> Self {
        InputMetrics {
            asks: r.counters("moongate_asks_total", "Requests of servers to clients."),
            parked: r.gauge(
                "moongate_parked",
                "Calls whose server waits while the client is away \
                to answer.",
            ),
            parked_expired: r.counter(
                "moongate_parked_expired_total",
                "Parked calls that no \
                client came back for.",
            ),
            state_refused: r.counters(
                "moongate_state_refused_total",
                "Retries whose requestState \
                could not be used.",
            ),
            tasks: r.gauges(
                "moongate_tasks",
                "Tasks for which the gateway keeps something: asked (a request to the client), \
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
    pub(super) fn register(r: &Registration) -> Self {
        let auth: CounterFamily<(AuthOutcome,)> =
            r.counters("moongate_auth_total", "Requests by their credentials.");
        AccessMetrics {
            auth_accepted: auth.series(AuthOutcome::Accepted),
            policy_denied: r.counters(
                "moongate_policy_denied_total",
                "Requests refused by a rule.",
            ),
            tls_not_after: r.gauge(
                "moongate_tls_not_after_seconds",
                "When the listener's certificate expires (Unix time); 0 where there is none.",
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
    pub(super) fn register(r: &Registration) -> Self {
        CatalogMetrics {
            items: r.gauges(
                "moongate_catalog_items",
                "Items that a server has in the catalogue.",
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
                "Items that a server lists and that \
                cannot be exposed.",
            ),
            mended: r.gauges(
                "moongate_catalog_mended",
                "Items that are listed in a form other than their server's.",
            ),
            stale: r.gauges(
                "moongate_catalog_stale",
                "1 while a server's lists are those of an earlier run, until the server \
                 confirms them.",
            ),
            filters_unmatched: r.gauges(
                "moongate_filters_unmatched",
                "Patterns and names in the config that match nothing; those of views and keys if \
                 no server is named.",
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
    pub(super) fn register(r: &Registration) -> Self {
        ConfigMetrics {
            reloads: r.counters(
                "moongate_config_reloads_total",
                "Reloads of the config: applied, unchanged, refused (nothing changed).",
            ),
            reload_failed: r.gauge(
                "moongate_config_reload_failed",
                "1 while the last reload was refused.",
            ),
            reloaded_at: r.float_gauge(
                "moongate_config_last_reload_success_timestamp_seconds",
                "When the config that is in use was read (Unix time).",
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
    pub(super) fn register(r: &Registration) -> Self {
        StoreMetrics {
            open: r.gauge("moongate_store_open", "1 while the state has a file."),
            waiting: r.gauge(
                "moongate_store_waiting",
                "Changes of the state that are not written yet.",
            ),
            dropped: r.counter(
                "moongate_store_dropped_total",
                "Changes of the state that were not kept, for lack of room.",
            ),
            errors: r.counter(
                "moongate_store_errors_total",
                "Writes of the state that failed.",
            ),
        }
    }
}
