//! Quota of the notifications of one call. Owns the count of one call. Does not drop anything
//! (`call`). Invariant: in any minute at most twice the quota and one message pass, and a minute of
//! silence refills the quota.

use std::time::Duration;

use tokio::time::Instant;

/// Time in which an unused quota refills.
const REFILL: Duration = Duration::from_secs(60);

/// Used part of the quota of one call.
#[derive(Debug, Default)]
pub(crate) struct NotificationQuota {
    used: usize,
    /// Time up to which the refill is counted.
    at: Option<Instant>,
}

impl NotificationQuota {
    /// Counts a notification of this size in bytes. Returns false if it is over the quota. A single
    /// notification larger than the quota may pass alone.
    pub(crate) fn admit(&mut self, size: usize, most: usize, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(*self.at.get_or_insert(now));
        let refilled = (most as f64 * quiet.as_secs_f64() / REFILL.as_secs_f64()) as usize;
        // Only whole bytes: a refill of a fraction at each message would be rounded away every
        // time.
        if refilled > 0 {
            (self.used, self.at) = (self.used.saturating_sub(refilled), Some(now));
        }
        if self.used >= most {
            return false;
        }
        self.used = self.used.saturating_add(size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages at an interval. Returns the number of those that were admitted.
    fn count_admitted(
        quota: &mut NotificationQuota,
        start: Instant,
        interval: Duration,
        messages: u32,
    ) -> usize {
        (0..messages)
            .filter(|n| quota.admit(100, 10_000, start + interval * *n))
            .count()
    }

    #[test]
    fn a_flood_is_cut_and_a_trickle_is_not() {
        let mut quota = NotificationQuota::default();
        let start = Instant::now();
        assert_eq!(
            count_admitted(&mut quota, start, Duration::ZERO, 100_000),
            100
        );
        // A minute with a thousand messages a second: only the refill passes.
        let flood = count_admitted(&mut quota, start, Duration::from_millis(1), 60_000);
        assert!((95..=101).contains(&flood), "{flood}");
        let trickle = count_admitted(
            &mut quota,
            start + REFILL * 2,
            Duration::from_secs(1),
            10_000,
        );
        assert_eq!(
            trickle, 10_000,
            "a hundred bytes a second are within it for ever"
        );
        assert!(
            NotificationQuota::default().admit(1 << 20, 10_000, start),
            "a large one, alone"
        );
    }
}
