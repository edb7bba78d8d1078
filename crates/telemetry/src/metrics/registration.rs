//! Registration of metrics. Owns the registry while metrics are added, and the buckets of the
//! histograms.
//!
//! Does not name metrics (`areas.rs`). Invariant: a name that is registered twice, or is not valid,
//! fails the start.

use prometheus::core::Collector;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry,
};

use super::family::{CounterFamily, GaugeFamily, LabelKeys};

/// Buckets in seconds, from half a millisecond to the longest tool calls.
// Coarse above a second, since each bucket is a series for each tool and ending.
const CALL_BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0, 300.0, 600.0,
];
/// Buckets in seconds for the gateway's own time, which is microseconds.
const OVERHEAD_BUCKETS: [f64; 11] = [
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1.0,
];
/// Labels of both operation histograms, as OpenTelemetry names them.
const OPERATION_LABELS: [&str; 6] = [
    "mcp_method_name",
    "mcp_server",
    "gen_ai_tool_name",
    "error_type",
    "rpc_response_status_code",
    "mcp_protocol_version",
];

const VALID: &str = "metric names and labels are literals of ours, each registered once";

/// Registry that metrics are being added to.
pub(super) struct MetricRegistrar<'a>(pub(super) &'a Registry);

impl MetricRegistrar<'_> {
    fn add<M: Collector + Clone + 'static>(&self, metric: prometheus::Result<M>) -> M {
        let metric = metric.expect(VALID);
        self.0.register(Box::new(metric.clone())).expect(VALID);
        metric
    }

    pub(super) fn counters<K: LabelKeys>(&self, name: &str, help: &str) -> CounterFamily<K> {
        let family = CounterFamily::new(name, help).expect(VALID);
        self.add(Ok(family.0.clone()));
        family
    }

    pub(super) fn gauges<K: LabelKeys>(&self, name: &str, help: &str) -> GaugeFamily<K> {
        let family = GaugeFamily::new(name, help).expect(VALID);
        self.add(Ok(family.0.clone()));
        family
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    pub(super) fn float_counter(&self, name: &str, help: &str) -> Counter {
        self.add(Counter::new(name, help))
    }

    pub(super) fn float_gauge(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    pub(super) fn operations(&self, name: &str, help: &str) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(CALL_BUCKETS.to_vec());
        self.add(HistogramVec::new(options, &OPERATION_LABELS))
    }

    pub(super) fn overhead(&self, name: &str, help: &str) -> Histogram {
        self.add(Histogram::with_opts(
            HistogramOpts::new(name, help).buckets(OVERHEAD_BUCKETS.to_vec()),
        ))
    }
}
