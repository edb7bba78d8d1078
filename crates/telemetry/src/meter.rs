//! Handles to the operation histograms, cached for each item. Owns the series that each meter has
//! used.
//!
//! Does not time calls (`gateway`). Invariant: a call looks up no label, which would cost
//! measurable time, and each meter has a bounded number of series.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use prometheus::core::Metric;
use prometheus::{Histogram, HistogramVec};

use crate::{CallTotals, Metrics};

/// Maximum number of failure series of one meter at each hop. Further kinds share one series. In
/// months, a gateway meets every kind of failure at every tool: without a bound each of them would
/// be another series.
const FAILURES_MAX: usize = 16;
/// Ending of all failures beyond that bound.
const OTHER: CallEnding = CallEnding {
    error: "_OTHER",
    code: "",
};

/// Ending of a call, as metrics and logs name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallEnding {
    /// Kind of failure. Empty for success.
    pub error: &'static str,
    /// JSON-RPC code that the client got. Empty if it got a result.
    pub code: &'static str,
}

impl CallEnding {
    /// Ending of a successful call.
    pub const FINE: CallEnding = CallEnding {
        error: "",
        code: "",
    };

    /// True if the call failed.
    pub fn is_error(self) -> bool {
        !self.error.is_empty()
    }
}

/// Exchange of one call with its server.
#[derive(Clone, Copy, Debug)]
pub struct ServerHop {
    /// Revision that the server was called in. Empty if the call did not get that far.
    pub revision: &'static str,
    /// Time from sending the call to its response.
    pub time: Duration,
}

/// Meter of one item of the catalogue, or of one method.
pub struct CallMeter {
    metrics: Arc<Metrics>,
    method: String,
    server: String,
    tool: String,
    used_series: RwLock<KnownSeries>,
}

/// Series that were used so far.
#[derive(Default)]
struct KnownSeries {
    server_operation: Vec<OperationSeries>,
    client_operation: Vec<OperationSeries>,
}

struct OperationSeries {
    revision: &'static str,
    ending: CallEnding,
    // A handle: an observation then needs no look-up by labels.
    histogram: Histogram,
}

/// Factory of meters for one registry.
pub struct MeterFactory {
    metrics: Arc<Metrics>,
    hasher: RandomState,
    /// Meters in use, by the hash of their labels.
    // A rebuilt catalogue keeps the meters of the previous one, or its counts would start at zero
    // again.
    meters: Mutex<HashMap<u64, Weak<CallMeter>>>,
}

impl MeterFactory {
    /// Creates a factory without meters.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        MeterFactory {
            metrics,
            hasher: RandomState::new(),
            meters: Mutex::default(),
        }
    }

    /// Returns the meter of one item: the one that is in use, or a new one.
    pub fn meter(&self, method: &str, server: &str, tool: &str) -> Arc<CallMeter> {
        let key = self.hasher.hash_one((method, server, tool));
        let mut meters = self.meters.lock();
        let known = meters.get(&key).and_then(Weak::upgrade);
        // Two labels may have one hash.
        if let Some(meter) = known.filter(|meter| meter.is_for(method, server, tool)) {
            return meter;
        }
        let meter = Arc::new(self.shared_meter(method, server, tool));
        // Before the map grows, what is no longer in use makes room.
        if meters.len() == meters.capacity() {
            meters.retain(|_, meter| meter.strong_count() > 0);
            let room = 2 * meters.len();
            meters.shrink_to(room);
        }
        meters.insert(key, Arc::downgrade(&meter));
        meter
    }

    /// Creates a meter that shares its series with others. `server` and `tool` are empty if there
    /// is none.
    pub fn shared_meter(&self, method: &str, server: &str, tool: &str) -> CallMeter {
        CallMeter {
            metrics: self.metrics.clone(),
            method: method.to_owned(),
            server: server.to_owned(),
            tool: tool.to_owned(),
            used_series: RwLock::default(),
        }
    }
}

impl CallMeter {
    fn is_for(&self, method: &str, server: &str, tool: &str) -> bool {
        self.method == method && self.server == server && self.tool == tool
    }

    /// Records a finished call: its total time and the server's part of it. `revision` is the
    /// client's.
    pub fn record(
        &self,
        revision: &'static str,
        ending: CallEnding,
        total: Duration,
        hop: Option<ServerHop>,
    ) {
        // A call to no item was routed to no server that the labels could name.
        let hop = hop.filter(|_| !self.server.is_empty());
        {
            // Under the shared lock: almost every call finds its series here.
            let known = self.used_series.read();
            if let Some(client) = find(&known.server_operation, revision, ending)
                && let Some(server) = hop.map_or(Some(None), |hop| {
                    find(&known.client_operation, hop.revision, ending)
                        .map(|server| Some((server, hop.time)))
                })
            {
                return self.observe(client, server, total);
            }
        }
        // Another call may have added the series since: `series` checks again.
        let mut known = self.used_series.write();
        let KnownSeries {
            server_operation,
            client_operation,
        } = &mut *known;
        let client = self.series(
            &self.metrics.calls.server_operation,
            server_operation,
            revision,
            ending,
        );
        let server = hop.map(|hop| {
            (
                self.series(
                    &self.metrics.calls.client_operation,
                    client_operation,
                    hop.revision,
                    ending,
                ),
                hop.time,
            )
        });
        self.observe(client, server, total);
    }

    fn observe(&self, client: &Histogram, server: Option<(&Histogram, Duration)>, total: Duration) {
        client.observe(total.as_secs_f64());
        if let Some((server, time)) = server {
            server.observe(time.as_secs_f64());
            self.metrics
                .calls
                .overhead
                .observe(total.saturating_sub(time).as_secs_f64());
        }
    }

    fn series<'a>(
        &self,
        family: &HistogramVec,
        known: &'a mut Vec<OperationSeries>,
        revision: &'static str,
        ending: CallEnding,
    ) -> &'a Histogram {
        let at = position(known, revision, ending).unwrap_or_else(|| {
            // Only failures are bounded. Successes have one series for each revision.
            let is_full = ending.is_error()
                && known.iter().filter(|s| s.ending.is_error()).count() >= FAILURES_MAX;
            // Without its revision, too: else a failure would have a shared series for each
            // revision.
            let (revision, ending) = if is_full {
                ("", OTHER)
            } else {
                (revision, ending)
            };
            let labels = [
                self.method.as_str(),
                &self.server,
                &self.tool,
                ending.error,
                ending.code,
                revision,
            ];
            known.push(OperationSeries {
                revision,
                ending,
                histogram: family.with_label_values(&labels),
            });
            known.len() - 1
        });
        &known[at].histogram
    }
}

impl CallMeter {
    /// Returns the counts of the calls, by the client's side. They start when an item is listed
    /// that was not before.
    pub fn totals(&self) -> CallTotals {
        let mut totals = CallTotals::default();
        for series in &self.used_series.read().server_operation {
            let count = series.histogram.get_sample_count();
            match series.ending.error {
                "" => totals.ok += count,
                "tool_error" => totals.tool_errors += count,
                _ => totals.errors += count,
            }
            totals.add_buckets(series.histogram.metric().get_histogram());
        }
        totals
    }
}

fn find<'a>(
    known: &'a [OperationSeries],
    revision: &str,
    ending: CallEnding,
) -> Option<&'a Histogram> {
    position(known, revision, ending).map(|at| &known[at].histogram)
}

/// Returns the index of a series. A failure beyond the bound gets the index of the shared one.
fn position(known: &[OperationSeries], revision: &str, ending: CallEnding) -> Option<usize> {
    let own = known
        .iter()
        .position(|s| s.ending == ending && s.revision == revision);
    own.or_else(|| {
        if ending.is_error() {
            known.iter().position(|s| s.ending == OTHER)
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_in_use_is_made_once_and_keeps_its_counts() {
        let meters = MeterFactory::new(Arc::new(Metrics::new()));
        let meter = meters.meter("tools/call", "a", "a__x");
        meter.record(
            "2025-11-25",
            CallEnding::FINE,
            Duration::from_millis(2),
            None,
        );
        assert_eq!(meters.meter("tools/call", "a", "a__x").totals().ok, 1);
        assert_eq!(meters.meter("tools/call", "a", "a__y").totals().ok, 0);
        for n in 0..10_000 {
            meters.meter("tools/call", "b", &n.to_string());
        }
        assert!(
            meters.meters.lock().len() < 100,
            "meters that nobody uses are forgotten"
        );
        assert_eq!(meters.meter("tools/call", "a", "a__x").totals().ok, 1);
    }

    fn series(metrics: &Metrics, with: &str) -> Vec<String> {
        let text = String::from_utf8(metrics.render()).unwrap();
        let count =
            |line: &&str| line.contains("operation_duration_seconds_count") && line.contains(with);
        text.lines().filter(count).map(str::to_owned).collect()
    }

    #[test]
    fn both_hops_carry_their_revision_the_failure_and_its_code() {
        let metrics = Arc::new(Metrics::new());
        let meter = MeterFactory::new(metrics.clone()).meter("tools/call", "a", "a__echo");
        let hop = Some(ServerHop {
            revision: "old",
            time: Duration::from_millis(1),
        });
        let refused = CallEnding {
            error: "-32602",
            code: "-32602",
        };
        meter.record("new", CallEnding::FINE, Duration::from_millis(2), hop);
        meter.record("new", refused, Duration::from_millis(2), hop);
        for (error, code) in [
            ("error_type=\"\"", "code=\"\""),
            ("error_type=\"-32602\"", "code=\"-32602\""),
        ] {
            for (hop, revision) in [
                ("mcp_server_operation", "version=\"new\""),
                ("mcp_client_operation", "version=\"old\""),
            ] {
                let lines = series(&metrics, hop);
                let found = lines.iter().filter(|line| {
                    [error, code, revision]
                        .iter()
                        .all(|label| line.contains(label))
                });
                assert_eq!(found.count(), 1, "{hop} {error}");
            }
        }
    }

    #[test]
    fn failures_of_one_tool_make_a_bounded_number_of_series() {
        const KINDS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let metrics = Arc::new(Metrics::new());
        let meter = MeterFactory::new(metrics.clone()).meter("tools/call", "a", "a__echo");
        for revision in ["1", "2", "3", "4", "5"] {
            let hop = Some(ServerHop {
                revision,
                time: Duration::ZERO,
            });
            for error in KINDS {
                for _ in 0..2 {
                    meter.record(
                        revision,
                        CallEnding { error, code: "" },
                        Duration::ZERO,
                        hop,
                    );
                }
            }
            meter.record(revision, CallEnding::FINE, Duration::ZERO, hop);
        }
        for hop in ["mcp_server_operation", "mcp_client_operation"] {
            let lines = series(&metrics, hop);
            assert_eq!(lines.len(), 5 + FAILURES_MAX + 1, "{lines:?}");
            let all: u64 = lines
                .iter()
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum();
            assert_eq!(all, 5 * (12 * 2 + 1), "none is lost");
        }
    }
}
