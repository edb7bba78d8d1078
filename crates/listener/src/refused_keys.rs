//! Log of refused keys. Owns the rate of its lines for each address.
//!
//! Does not authenticate (`access`). Invariant: a line names the cause and the address, never the
//! key. An address has at most one line a second for each cause.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use moongate_access::auth::AuthError;

/// Minimum time between two lines about one address and cause.
const LOG_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of remembered addresses, with a cause each. In a second with more, the others
/// have no line.
const ADDRESSES_MAX: usize = 1024;

/// Address and cause of a refusal. Without the cause, a client that sends no key would hide one
/// whose key has ended.
type RefusedSource = (Option<IpAddr>, &'static str);

/// Logs refused keys.
#[derive(Default)]
pub struct RefusedKeys(Mutex<HashMap<RefusedSource, LoggedAddress>>);

/// Address with a recent line.
struct LoggedAddress {
    logged_at: Instant,
    /// Refusals since that line.
    suppressed: u64,
}

impl RefusedKeys {
    /// Logs a refusal. `address` is `None` on a Unix socket.
    pub fn log(&self, address: Option<IpAddr>, denied: &AuthError) {
        let now = Instant::now();
        let Some(repeated) = self.due_count((address, denied.cause()), now) else {
            return;
        };
        let from = address.map_or_else(|| "local".to_owned(), |address| address.to_string());
        let cause = denied.cause();
        let key = denied.principal_name().unwrap_or_default();
        tracing::warn!(address = from, cause, key, repeated, "key refused");
    }

    /// Returns the number of refusals without a line since the last one, or `None` if it is too
    /// early for another.
    fn due_count(&self, source: RefusedSource, now: Instant) -> Option<u64> {
        let mut addresses = self.0.lock();
        if let Some(logged) = addresses.get_mut(&source) {
            if now < logged.logged_at + LOG_INTERVAL {
                logged.suppressed += 1;
                return None;
            }
            logged.logged_at = now;
            return Some(std::mem::take(&mut logged.suppressed));
        }
        // An attacker may have many addresses. Old entries make room, and without any the new
        // address has no line.
        if addresses.len() >= ADDRESSES_MAX {
            addresses.retain(|_, logged| now < logged.logged_at + LOG_INTERVAL);
        }
        if addresses.len() >= ADDRESSES_MAX {
            return None;
        }
        addresses.insert(
            source,
            LoggedAddress {
                logged_at: now,
                suppressed: 0,
            },
        );
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use moongate_testing::logs::capture;

    #[tokio::test(start_paused = true)]
    async fn an_address_has_a_line_a_second_with_the_cause() {
        let refused = RefusedKeys::default();
        let logged = capture();
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        for _ in 0..10 {
            refused.log(address, &AuthError::Missing);
        }
        refused.log(None, &AuthError::Missing);
        refused.log(address, &AuthError::invalid("the key has ended"));
        tokio::time::sleep(LOG_INTERVAL).await;
        refused.log(address, &AuthError::Missing);
        let lines = logged.lines();
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[0].contains("key refused")
                && lines[0].contains("192.0.2.1")
                && lines[0].contains("cause=no key")
        );
        assert!(
            lines[1].contains("address=local") && lines[3].contains("repeated=9"),
            "{lines:?}"
        );
        assert!(
            lines[2].contains("192.0.2.1") && lines[2].contains("cause=the key has ended"),
            "{lines:?}"
        );
    }

    fn source(n: u32) -> RefusedSource {
        let address = Ipv6Addr::from_bits(u128::from(n));
        (Some(IpAddr::from(address)), "no key")
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_are_not_remembered() {
        let refused = RefusedKeys::default();
        let now = Instant::now();
        let logged = (0..5000)
            .filter(|n| refused.due_count(source(*n), now).is_some())
            .count();
        assert_eq!(logged, ADDRESSES_MAX);
        assert_eq!(
            refused.due_count(source(9000), now + LOG_INTERVAL),
            Some(0),
            "room is made for those that come later"
        );
        assert_eq!(refused.0.lock().len(), 1);
    }
}
