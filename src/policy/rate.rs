//! How many requests in a time.
//!
//! Owns the arithmetic of a token bucket. Does not know whose it is (`front`). Invariant: over any time as long as the
//! rate's own, no more than twice its number passes; over many of them, no more than its number each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// So many in this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// How many; never zero.
    pub count: u32,
    /// In what time.
    pub per: Duration,
}

/// A bucket that is filled at a rate and holds what the rate allows in its time: a client that was silent may ask for
/// all of that at once.
#[derive(Debug)]
pub struct TokenBucket {
    rate: RequestRate,
    epoch: Instant,
    /// When the bucket will be full again, in nanoseconds since the epoch.
    full_at: AtomicU64,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: RequestRate) -> Self {
        TokenBucket { rate, epoch: Instant::now(), full_at: AtomicU64::new(0) }
    }

    /// The rate that it is filled at.
    pub fn rate(&self) -> RequestRate {
        self.rate
    }

    /// Takes what `count` requests need. Fails with how long to wait until there is as much again; what the bucket can
    /// never hold is let through once it is full.
    pub fn take(&self, count: usize) -> Result<(), Duration> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(self.epoch.elapsed());
        let per = nanos(self.rate.per);
        let each = per / u64::from(self.rate.count.max(1));
        let needed = each.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX)).min(per);
        let take = |full_at: u64| {
            let next = full_at.max(now).saturating_add(needed);
            (next - now <= per).then_some(next)
        };
        let taken = self.full_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        taken.map(drop).map_err(|full_at| Duration::from_nanos((full_at.max(now) - now + needed).saturating_sub(per)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate() {
        let bucket = TokenBucket::new(RequestRate { count: 10, per: Duration::from_secs(1) });
        assert!((0..10).all(|_| bucket.take(1).is_ok()));
        assert_eq!(bucket.take(1), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(3), Err(Duration::from_millis(300)));
        tokio::time::advance(Duration::from_millis(250)).await;
        assert!(bucket.take(1).is_ok() && bucket.take(1).is_ok());
        assert_eq!(bucket.take(1), Err(Duration::from_millis(50)));
        // A long silence fills it once, and no more.
        tokio::time::advance(Duration::from_secs(100)).await;
        assert!(bucket.take(10).is_ok());
        assert!(bucket.take(1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_more_than_the_bucket_waits_for_a_full_one() {
        let bucket = TokenBucket::new(RequestRate { count: 2, per: Duration::from_secs(1) });
        assert!(bucket.take(5).is_ok());
        assert_eq!(bucket.take(5), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(bucket.take(5).is_ok());
    }
}
