//! Request rates and their token bucket.
//!
//! Owns the arithmetic. Does not know whose bucket it is (`listener`). Invariant: a single period
//! lets through at most twice the rate's count, and over many periods the average approaches the
//! count.

use std::cmp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum number of requests within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Number of requests. Never zero.
    pub count: u32,
    /// Period of the count.
    pub per: Duration,
}

impl RequestRate {
    /// Compares two rates by how much they let through. `None` means no limit.
    pub(super) fn cmp_generosity(
        one: Option<RequestRate>,
        other: Option<RequestRate>,
    ) -> cmp::Ordering {
        // The shorter the interval is, the more pass.
        other
            .map_or(Duration::ZERO, RequestRate::interval)
            .cmp(&one.map_or(Duration::ZERO, RequestRate::interval))
    }

    /// Returns the time for one request.
    fn interval(self) -> Duration {
        self.per / self.count.max(1)
    }
}

/// Token bucket that fills at a rate and holds one period's requests. A client that was silent may
/// send all of those at once.
#[derive(Debug)]
pub struct TokenBucket {
    rate: RequestRate,
    epoch: Instant,
    /// Time at which the bucket will be full again, in nanoseconds since the epoch.
    full_at: AtomicU64,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(rate: RequestRate) -> Self {
        TokenBucket {
            rate,
            epoch: Instant::now(),
            full_at: AtomicU64::new(0),
        }
    }

    /// Returns the rate that the bucket fills at.
    pub fn rate(&self) -> RequestRate {
        self.rate
    }

    /// Returns true if it holds all of its tokens, so that a new one would be the same.
    pub fn is_full(&self) -> bool {
        let now = nanos(self.epoch.elapsed());
        self.full_at.load(Ordering::Acquire) <= now
    }

    /// Takes tokens for `count` requests. Fails with the wait until there are as many again. A
    /// batch larger than the bucket passes once the bucket is full.
    pub fn take(&self, count: usize) -> Result<(), Duration> {
        // The bucket is stored as the time when it is full again: one atomic word, without a task
        // that refills it.
        let now = nanos(self.epoch.elapsed());
        let per = nanos(self.rate.per);
        let each = per / u64::from(self.rate.count.max(1));
        // At most a full bucket. A larger batch could otherwise never pass, however long its client
        // waits.
        let needed = each
            .saturating_mul(u64::try_from(count).unwrap_or(u64::MAX))
            .min(per);
        // A lost race is retried, so no two requests take the same tokens.
        let taken = self
            .full_at
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |full_at| {
                let next = full_at.max(now).saturating_add(needed);
                (next - now <= per).then_some(next)
            });
        taken.map(drop).map_err(|full_at| {
            Duration::from_nanos((full_at.max(now) - now + needed).saturating_sub(per))
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate() {
        let bucket = TokenBucket::new(RequestRate {
            count: 10,
            per: Duration::from_secs(1),
        });
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
    async fn a_cost_over_the_burst_waits_for_a_full_bucket() {
        let bucket = TokenBucket::new(RequestRate {
            count: 2,
            per: Duration::from_secs(1),
        });
        assert!(bucket.take(5).is_ok());
        assert_eq!(bucket.take(5), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(bucket.take(5).is_ok());
    }
}
