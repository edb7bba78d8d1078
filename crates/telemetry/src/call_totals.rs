//! Totals of calls since the start of the process, from the series of a meter.
//!
//! Owns their sum and quantiles. Does not count (`meter.rs`). Invariant: a quantile is as exact as
//! the buckets.

use prometheus::proto;

/// Counts of calls, and how long they took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTotals {
    /// Calls that ended with a result.
    pub ok: u64,
    /// Calls whose result says `isError`.
    pub tool_errors: u64,
    /// Calls that ended with an error.
    pub errors: u64,
    /// Cumulative counts by upper bound in seconds.
    buckets: Vec<(f64, u64)>,
}

impl CallTotals {
    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.ok + self.tool_errors + self.errors
    }

    /// Adds the totals of another item.
    pub fn add(&mut self, other: &CallTotals) {
        self.ok += other.ok;
        self.tool_errors += other.tool_errors;
        self.errors += other.errors;
        self.merge(other.buckets.iter().copied());
    }

    pub(super) fn add_buckets(&mut self, histogram: &proto::Histogram) {
        self.merge(
            histogram
                .get_bucket()
                .iter()
                .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count())),
        );
    }

    /// Adds buckets. All histograms of calls have the same bounds.
    fn merge(&mut self, buckets: impl Iterator<Item = (f64, u64)>) {
        for (at, (bound, count)) in buckets.enumerate() {
            match self.buckets.get_mut(at) {
                Some(known) => known.1 += count,
                None => self.buckets.push((bound, count)),
            }
        }
    }

    /// Returns the time in seconds that this part of the calls stayed below, by linear
    /// interpolation in its bucket.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let total = self.calls();
        if total == 0 {
            return None;
        }
        let wanted = part * total as f64;
        let mut below = (0.0, 0);
        for &(bound, count) in &self.buckets {
            if count as f64 >= wanted && count > below.1 {
                // Calls within a bucket count as evenly spread, as `histogram_quantile` of
                // Prometheus assumes.
                let share = (wanted - below.1 as f64) / (count - below.1) as f64;
                return Some(below.0 + (bound - below.0) * share.clamp(0.0, 1.0));
            }
            below = (bound, count);
        }
        // Beyond the last bound nothing more is known.
        Some(below.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::{CallEnding, MeterFactory, Metrics};

    #[test]
    fn totals_of_several_series_add_up() {
        let meter = MeterFactory::new(Arc::new(Metrics::new())).meter("tools/call", "a", "a__x");
        assert_eq!(meter.totals(), CallTotals::default());
        assert_eq!(meter.totals().quantile(0.95), None);
        for (error, ms) in [("", 2), ("", 2), ("tool_error", 3), ("x", 900)] {
            let ending = CallEnding { error, code: "" };
            meter.record("2025-11-25", ending, Duration::from_millis(ms), None);
        }
        let mut totals = meter.totals();
        assert_eq!(totals.ok, 2);
        assert_eq!(totals.tool_errors, 1);
        assert_eq!(totals.errors, 1);
        assert_eq!(totals.calls(), 4);
        let half = totals.quantile(0.5).unwrap();
        let most = totals.quantile(0.95).unwrap();
        assert!(half < 0.01 && most > 0.4, "{half} {most}");
        totals.add(&meter.totals());
        assert_eq!(totals.calls(), 8);
        assert_eq!(totals.quantile(0.5), Some(half));
    }
}
