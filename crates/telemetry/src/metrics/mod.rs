//! Registry with every metric, in one struct an area (`areas.rs`).
//!
//! Does not decide when something is counted. Invariant: each name is registered once, and no label
//! holds a client's text.

mod areas;
mod broker;
mod family;
mod labels;
mod process_metrics;
mod registration;

use std::time::Duration;

use prometheus::{Encoder, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::CallEnding;
use process_metrics::ProcessMetrics;
use registration::MetricRegistrar;

pub use areas::{
    AccessMetrics, CallMetrics, CatalogMetrics, ClientMetrics, ConfigMetrics, InputMetrics,
    ServerMetrics, StoreMetrics,
};
pub use broker::BrokerMetrics;
pub use family::{ByServer, CounterFamily, GaugeFamily, LabelKeys, LabelValues, MetricLabel};
pub use labels::{
    AuthOutcome, BrokerLimit, CertificateReload, ClientRevision, ConfigReload, DeniedRule,
    DroppedItem, InputKindName, InputOutcome, ItemKindName, Limit, LoginEnd, MemoryHolderKind,
    ProviderOutcome, ReplyOutcome, ResumeOutcome, RetryOutcome, ServerRevision, ServerStateName,
    StateRefusal, TaskRetention,
};

/// Handle to one counter.
pub type CounterHandle = IntCounter;

/// Handle to one gauge.
pub type GaugeHandle = IntGauge;

/// Metrics of a running gateway.
pub struct Metrics {
    registry: Registry,
    /// Calls of clients, and what was refused or lost.
    pub calls: CallMetrics,
    /// Connections to servers.
    pub servers: ServerMetrics,
    /// Connections and sessions of clients.
    pub clients: ClientMetrics,
    /// Input that servers ask for, and tasks.
    pub inputs: InputMetrics,
    /// Credentials, rules and the certificate.
    pub access: AccessMetrics,
    /// Items that servers have in the catalogue.
    pub catalog: CatalogMetrics,
    /// Reloads of the config.
    pub config: ConfigMetrics,
    /// State that outlives the process.
    pub store: StoreMetrics,
    /// Logins of people.
    pub broker: BrokerMetrics,
    pub(crate) process: ProcessMetrics,
}

impl Metrics {
    /// Creates a registry with every metric at zero.
    pub fn new() -> Self {
        let registry = Registry::new();
        let version = Opts::new("moongate_build_info", "Always 1. The version is a label.");
        let info = IntGaugeVec::new(version, &["version"]).expect("a name and a label of ours");
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(info)).expect("the first metric");
        let r = MetricRegistrar(&registry);
        Metrics {
            calls: CallMetrics::register(&r),
            servers: ServerMetrics::register(&r),
            clients: ClientMetrics::register(&r),
            inputs: InputMetrics::register(&r),
            access: AccessMetrics::register(&r),
            catalog: CatalogMetrics::register(&r),
            config: ConfigMetrics::register(&r),
            store: StoreMetrics::register(&r),
            broker: BrokerMetrics::register(&r),
            process: ProcessMetrics::register(&r),
            registry,
        }
    }

    /// Renders the Prometheus text format.
    pub fn render(&self) -> Vec<u8> {
        // Read at each scrape, so an idle gateway does no work for these.
        self.process.update();
        let mut text = Vec::new();
        if let Err(e) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!("metrics not encoded: {e}");
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
        self.calls
            .server_operation
            .with_label_values(&labels)
            .observe(took.as_secs_f64());
    }

    /// Removes the gauges of a server that is no longer configured, for these states and kinds of
    /// items. Its counters stay.
    pub fn forget_server(&self, server: &str, states: &[&'static str], kinds: &[&'static str]) {
        let Metrics {
            servers,
            catalog,
            clients,
            ..
        } = self;
        // A gauge that stays would show an old state for ever. A counter that vanishes would look
        // like a reset.
        let gauges = [
            &servers.queue_depth,
            &servers.backlog_bytes,
            &servers.connections,
            &clients.subscriptions,
        ];
        let of_catalog = [
            &catalog.bytes,
            &catalog.tokens,
            &catalog.left_out,
            &catalog.mended,
            &catalog.stale,
            &catalog.filters_unmatched,
        ];
        for gauges in gauges.into_iter().chain(of_catalog) {
            gauges.remove(server);
        }
        for state in states {
            servers.up.remove((server, ServerStateName(state)));
        }
        for kind in kinds {
            catalog.items.remove((server, ItemKindName(kind)));
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
