//! Registry with every metric. Owns their names, labels and help texts.
//!
//! Does not decide when something is counted. Invariant: each name is registered once, and no label holds a client's
//! text.

use std::time::Duration;

use prometheus::{
    Counter as FloatCounter, Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::{CallEnding, process};

/// Buckets in seconds, from half a millisecond to the longest tool calls.
const CALL_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 300.0, 600.0];
/// Buckets in seconds for the gateway's own time, which is microseconds.
const OVERHEAD_BUCKETS: [f64; 11] =
    [0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1.0];
/// Labels of both operation histograms, as OpenTelemetry names them.
pub(crate) const OPERATION_LABELS: [&str; 6] = [
    "mcp_method_name",
    "mcp_server",
    "gen_ai_tool_name",
    "error_type",
    "rpc_response_status_code",
    "mcp_protocol_version",
];

/// Handle to one counter.
pub type CounterHandle = IntCounter;

/// Counters of server requests.
pub type ServerRequests = IntCounterVec;

/// Handle to one gauge.
pub type GaugeHandle = IntGauge;

/// Metrics of a running gateway.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct Metrics {
    registry: Registry,
    pub(crate) server_operation: HistogramVec,
    pub(crate) client_operation: HistogramVec,
    pub overhead: Histogram,
    pub server_up: IntGaugeVec,
    pub server_restarts: IntCounterVec,
    pub server_reconnects: IntCounterVec,
    pub server_resumed: IntCounterVec,
    pub server_connections: IntGaugeVec,
    pub pings_missed: IntCounterVec,
    pub server_requests: ServerRequests,
    pub retries: IntCounterVec,
    pub breaker_opened: IntCounterVec,
    pub sessions: IntGauge,
    pub sessions_asleep: IntGauge,
    pub sessions_restored: CounterHandle,
    pub streams: IntGauge,
    pub replay_bytes: IntGauge,
    pub replay_dropped: CounterHandle,
    pub resumed: IntCounterVec,
    pub tasks: IntGaugeVec,
    pub outbox_bytes: IntGauge,
    pub backlog_bytes: IntGaugeVec,
    pub subscriptions: IntGaugeVec,
    pub connections: IntGauge,
    /// Open connections to the admin listener.
    pub admin_connections: IntGauge,
    pub inflight: IntGauge,
    pub queue_depth: IntGaugeVec,
    pub catalog_items: IntGaugeVec,
    pub catalog_bytes: IntGaugeVec,
    pub catalog_tokens: IntGaugeVec,
    pub catalog_left_out: IntGaugeVec,
    pub filters_unmatched: IntGaugeVec,
    pub auth: IntCounterVec,
    /// Series of `auth` that every accepted request counts.
    pub auth_accepted: IntCounter,
    pub policy_denied: IntCounterVec,
    pub translated: IntCounterVec,
    pub cancelled: IntCounter,
    pub asks: IntCounterVec,
    pub parked: IntGauge,
    pub parked_expired: IntCounter,
    pub state_refused: IntCounterVec,
    pub garbage: IntCounterVec,
    pub dropped: IntCounterVec,
    pub refused: IntCounterVec,
    pub config_reloads: IntCounterVec,
    pub config_reload_failed: IntGauge,
    pub config_reloaded_at: Gauge,
    pub tls_not_after: IntGauge,
    pub tls_reloads: IntCounterVec,
    pub panics: CounterHandle,
    pub store_open: IntGauge,
    pub store_waiting: IntGauge,
    pub store_dropped: CounterHandle,
    pub store_errors: CounterHandle,
    pub catalog_stale: IntGaugeVec,
    cpu_seconds: FloatCounter,
    resident_bytes: Gauge,
    open_fds: Gauge,
    threads: Gauge,
    heap_bytes: Option<Gauge>,
    pub(crate) memory_limit: IntGauge,
}

impl Metrics {
    /// Creates a registry with every metric at zero.
    #[expect(clippy::too_many_lines, reason = "a table: an entry for each metric")]
    pub fn new() -> Self {
        let registry = Registry::new();
        let r = &registry;
        let info = ints(r, "moongate_build_info", "Always 1; the version is a label.", &["version"]);
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let start = Gauge::new("process_start_time_seconds", "When the process started (Unix time).");
        register(r, start).set(process::start_time());
        let auth = counters(r, "moongate_auth_total", "Requests by what their credentials were.", &["outcome"]);
        Metrics {
            server_operation: histograms(
                r,
                "mcp_server_operation_duration_seconds",
                "Time of a client's request, from its arrival to its answer.",
            ),
            client_operation: histograms(
                r,
                "mcp_client_operation_duration_seconds",
                "Time of a request to a server, from sending it to its answer.",
            ),
            overhead: register(
                r,
                Histogram::with_opts(
                    HistogramOpts::new(
                        "moongate_overhead_seconds",
                        "The gateway's own time in a call: all of it but the server's.",
                    )
                    .buckets(OVERHEAD_BUCKETS.to_vec()),
                ),
            ),
            server_up: ints(r, "moongate_server_up", "1 for the state that a server is in.", &["mcp_server", "state"]),
            server_restarts: counters(
                r,
                "moongate_server_restarts_total",
                "Child processes started again.",
                &["mcp_server"],
            ),
            server_reconnects: counters(
                r,
                "moongate_server_reconnects_total",
                "Attempts to connect again.",
                &["mcp_server"],
            ),
            server_resumed: counters(
                r,
                "moongate_server_resumed_total",
                "Event streams of a server that were asked for again where they ended.",
                &["mcp_server"],
            ),
            server_connections: ints(
                r,
                "moongate_server_connections",
                "Connections to a server for single clients, beside the one that all share.",
                &["mcp_server"],
            ),
            pings_missed: counters(
                r,
                "moongate_server_pings_missed_total",
                "Pings that a server left unanswered.",
                &["mcp_server"],
            ),
            server_requests: counters(
                r,
                "moongate_server_requests_total",
                "Requests of a server that the gateway answered by itself: answered, delayed (it asks too fast, and is read \
                 no faster), dropped (it takes no answers).",
                &["mcp_server", "outcome"],
            ),
            retries: counters(
                r,
                "moongate_retries_total",
                "Calls that failed and were sent again, or were not because that happened too often (over_budget).",
                &["mcp_server", "outcome"],
            ),
            breaker_opened: counters(
                r,
                "moongate_breaker_opened_total",
                "How often a server failed so much that its calls ended at once for a while.",
                &["mcp_server"],
            ),
            sessions: gauge(r, "moongate_sessions", "Sessions of legacy clients."),
            sessions_asleep: gauge(
                r,
                "moongate_sessions_asleep",
                "Sessions that nobody used for a minute, or since an earlier run.",
            ),
            sessions_restored: plain(
                r,
                "moongate_sessions_restored_total",
                "Sessions of an earlier run whose clients came back.",
            ),
            streams: gauge(r, "moongate_streams", "Open event streams to clients."),
            replay_bytes: gauge(r, "moongate_replay_bytes", "Bytes of events kept for clients that may come back."),
            replay_dropped: plain(
                r,
                "moongate_replay_dropped_total",
                "Events that were not kept, or not for long enough, for want of room.",
            ),
            resumed: counters(
                r,
                "moongate_resumed_total",
                "Clients that came back for the rest of a stream.",
                &["outcome"],
            ),
            tasks: ints(
                r,
                "moongate_tasks",
                "Tasks that something is kept for: asked (its questions wait for a client), finished (its end does).",
                &["kept"],
            ),
            outbox_bytes: gauge(r, "moongate_outbox_bytes", "Bytes that wait for sessions' own streams."),
            backlog_bytes: ints(
                r,
                "moongate_backlog_bytes",
                "Bytes that a server said and that wait for clients.",
                &["mcp_server"],
            ),
            subscriptions: ints(
                r,
                "moongate_subscriptions",
                "Resources of a server that clients listen to.",
                &["mcp_server"],
            ),
            connections: gauge(r, "moongate_connections", "Open connections of clients."),
            admin_connections: gauge(r, "moongate_admin_connections", "Open connections to the admin listener."),
            inflight: gauge(r, "moongate_inflight", "Calls that are being served."),
            queue_depth: ints(
                r,
                "moongate_queue_depth",
                "Calls that wait for a server's max_concurrency.",
                &["mcp_server"],
            ),
            catalog_items: ints(
                r,
                "moongate_catalog_items",
                "Items that a server has in the catalogue.",
                &["mcp_server", "kind"],
            ),
            catalog_bytes: ints(r, "moongate_catalog_bytes", "Size of a server's tool definitions.", &["mcp_server"]),
            catalog_tokens: ints(
                r,
                "moongate_catalog_tokens",
                "Estimated context cost of a server's tool definitions (bytes / 4).",
                &["mcp_server"],
            ),
            catalog_left_out: ints(
                r,
                "moongate_catalog_left_out",
                "Items that a server lists and that cannot be exposed.",
                &["mcp_server"],
            ),
            filters_unmatched: ints(
                r,
                "moongate_filters_unmatched",
                "Patterns and names in the config that match nothing; of views and keys where no server is named.",
                &["mcp_server"],
            ),
            auth_accepted: auth.with_label_values(&["accepted"]),
            auth,
            policy_denied: counters(r, "moongate_policy_denied_total", "Requests refused by a rule.", &["rule"]),
            translated: counters(
                r,
                "moongate_translated_total",
                "Calls by the client's revision and the server's.",
                &["from", "to"],
            ),
            cancelled: plain(r, "moongate_cancelled_total", "Calls that the client cancelled."),
            asks: counters(r, "moongate_asks_total", "Requests of servers to clients.", &["kind", "outcome"]),
            parked: gauge(r, "moongate_parked", "Calls whose server waits while the client is away to answer."),
            parked_expired: plain(r, "moongate_parked_expired_total", "Parked calls that no client came back for."),
            state_refused: counters(
                r,
                "moongate_state_refused_total",
                "Retries whose requestState could not be used.",
                &["reason"],
            ),
            garbage: counters(
                r,
                "moongate_garbage_total",
                "Lines and events from a server that were no messages.",
                &["mcp_server"],
            ),
            dropped: counters(r, "moongate_dropped_total", "Messages that could not be delivered.", &["what"]),
            refused: counters(r, "moongate_refused_total", "Requests refused because a limit was reached.", &["limit"]),
            config_reloads: counters(
                r,
                "moongate_config_reloads_total",
                "Reloads of the config: applied, unchanged, refused (nothing changed).",
                &["outcome"],
            ),
            config_reload_failed: gauge(r, "moongate_config_reload_failed", "1 while the last reload was refused."),
            config_reloaded_at: register(
                r,
                Gauge::new(
                    "moongate_config_last_reload_success_timestamp_seconds",
                    "When the config that is in use was read (Unix time).",
                ),
            ),
            tls_not_after: gauge(
                r,
                "moongate_tls_not_after_seconds",
                "When the listener's certificate expires (Unix time); 0 where there is none.",
            ),
            tls_reloads: counters(
                r,
                "moongate_tls_reloads_total",
                "Changed certificate files that were taken, or could not be.",
                &["outcome"],
            ),
            panics: plain(r, "moongate_panics_total", "Requests that failed by a mistake in the gateway."),
            store_open: gauge(r, "moongate_store_open", "1 while what is to outlive the process has a file."),
            store_waiting: gauge(r, "moongate_store_waiting", "Changes of the state that are not written yet."),
            store_dropped: plain(
                r,
                "moongate_store_dropped_total",
                "Changes of the state that were not kept, for want of room.",
            ),
            store_errors: plain(r, "moongate_store_errors_total", "Writes of the state that failed."),
            catalog_stale: ints(
                r,
                "moongate_catalog_stale",
                "1 while a server's lists are those of an earlier run, until the server confirms them.",
                &["mcp_server"],
            ),
            cpu_seconds: register(r, FloatCounter::new("process_cpu_seconds_total", "CPU time of the process.")),
            resident_bytes: register(r, Gauge::new("process_resident_memory_bytes", "Resident memory of the process.")),
            open_fds: register(r, Gauge::new("process_open_fds", "Open file descriptors of the process.")),
            threads: register(r, Gauge::new("process_threads", "Threads of the process.")),
            // Only where the allocator counts: a constant zero would look like a measurement.
            heap_bytes: process::usage().heap_bytes.map(|_| {
                register(r, Gauge::new("moongate_heap_bytes", "Bytes that the process has allocated and not freed."))
            }),
            memory_limit: gauge(r, "moongate_memory_limit_bytes", "Memory that the gateway may use; 0: any."),
            registry,
        }
    }

    /// Renders the Prometheus text format.
    pub fn render(&self) -> Vec<u8> {
        // Read at each scrape, so an idle gateway does no work for these.
        let usage = process::usage();
        // Scrapes may overlap, and a counter must not go back.
        self.cpu_seconds.inc_by((usage.cpu_seconds - self.cpu_seconds.get()).max(0.0));
        self.resident_bytes.set(usage.resident_bytes);
        self.open_fds.set(usage.open_fds);
        self.threads.set(usage.threads);
        if let (Some(gauge), Some(bytes)) = (&self.heap_bytes, usage.heap_bytes) {
            gauge.set(bytes);
        }
        let mut text = Vec::new();
        if let Err(e) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!("metrics cannot be encoded: {e}");
        }
        text
    }

    /// Counts a request that the gateway answered without any server. `method` is one of a few.
    pub fn record_gateway_request(
        &self,
        method: &'static str,
        ending: CallEnding,
        revision: &'static str,
        took: Duration,
    ) {
        let labels = [method, "", "", ending.error, ending.code, revision];
        self.server_operation.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Removes the gauges of a server that is no longer configured, for these states and kinds of items. Its counters
    /// stay.
    pub fn forget_server(&self, server: &str, states: &[&str], kinds: &[&str]) {
        let each = [&self.queue_depth, &self.catalog_bytes, &self.catalog_tokens, &self.catalog_left_out];
        let each = each.into_iter().chain([
            &self.backlog_bytes,
            &self.subscriptions,
            &self.catalog_stale,
            &self.filters_unmatched,
        ]);
        for gauges in each.chain([&self.server_connections]) {
            // `Err` means that the server never had this series.
            let _ = gauges.remove_label_values(&[server]);
        }
        for state in states {
            let _ = self.server_up.remove_label_values(&[server, state]);
        }
        for kind in kinds {
            let _ = self.catalog_items.remove_label_values(&[server, kind]);
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

/// Guard that counts one in a gauge while it lives.
pub struct CountGuard(IntGauge);

impl CountGuard {
    /// Adds one to the gauge until the guard is dropped.
    pub fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        CountGuard(gauge.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

// === registering ===

const VALID: &str = "metric names and labels are literals of ours, each registered once";

fn register<M: prometheus::core::Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect(VALID);
    registry.register(Box::new(metric.clone())).expect(VALID);
    metric
}

fn histograms(registry: &Registry, name: &str, help: &str) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(CALL_BUCKETS.to_vec());
    register(registry, HistogramVec::new(options, &OPERATION_LABELS))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn plain(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::new(name, help))
}

fn ints(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::new(name, help))
}
