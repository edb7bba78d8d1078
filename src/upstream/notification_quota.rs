//! How much the notifications of one call may be.
//!
//! Owns the count of one call. Does not drop anything itself (`run`). Invariant: in any minute no more passes than twice
//! the quota and one message, and a call that is quiet for a minute has all of it again.

use std::time::Duration;

use tokio::time::Instant;

/// After so long without any, all of the quota is there again.
const REFILL: Duration = Duration::from_secs(60);

/// What one call has used of its quota.
#[derive(Debug, Default)]
pub(super) struct NotificationQuota {
    used: usize,
    /// Until when that is counted.
    at: Option<Instant>,
}

impl NotificationQuota {
    /// Counts a notification of so many bytes. False: it is too much. One that is larger than all may pass alone.
    pub(super) fn admit(&mut self, size: usize, most: usize, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(*self.at.get_or_insert(now));
        let refilled = (most as f64 * quiet.as_secs_f64() / REFILL.as_secs_f64()) as usize;
        // Not with every message: what is less than a byte would be lost each time.
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

    #[test]
    fn a_flood_is_cut_and_a_trickle_is_not() {
        let (mut quota, start) = (NotificationQuota::default(), Instant::now());
        let passed = |quota: &mut NotificationQuota, from: Duration, each: Duration, messages: u32| {
            (0..messages).filter(|n| quota.admit(100, 10_000, start + from + each * *n)).count()
        };
        assert_eq!(passed(&mut quota, Duration::ZERO, Duration::ZERO, 100_000), 100);
        // A minute of a thousand a second: what is refilled meanwhile, and no more.
        let flood = passed(&mut quota, Duration::ZERO, Duration::from_millis(1), 60_000);
        assert!((95..=101).contains(&flood), "{flood}");
        let trickle = passed(&mut quota, REFILL * 2, Duration::from_secs(1), 10_000);
        assert_eq!(trickle, 10_000, "a hundred bytes a second are within it for ever");
        assert!(NotificationQuota::default().admit(1 << 20, 10_000, start), "a large one, alone");
    }
}
