//! Limit of wrong keys for each address.
//!
//! Owns the count of guesses. Does not know which keys are right. Invariants: an address learns of
//! at most ten wrong keys a minute that they are wrong, a right key always passes, and the table is
//! bounded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use moongate_access::auth::KeyHash;

/// Wrong keys that an address may try in one window.
const GUESSES_MAX: usize = 10;
/// Window of the count. It starts with the first wrong key.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses in the table.
const ADDRESSES_MAX: usize = 1024;
/// Bits of an IPv6 address that one network shares. A guest of it picks the others freely.
const NETWORK_BITS: u32 = 64;

/// Limit of wrong keys for each address.
#[derive(Default)]
pub struct WrongKeyLimit(Mutex<HashMap<Option<IpAddr>, WrongGuesses>>);

/// Outcome of a comparison of keys.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyAttempt<T> {
    /// The key is right.
    Right(T),
    /// The key is wrong.
    Wrong,
    /// The key is wrong, and there were too many. The next may come after this time.
    Refused(Duration),
}

/// Wrong keys of one address.
struct WrongGuesses {
    since: Instant,
    /// Only different keys count: a program that repeats an old key guesses nothing, and must not
    /// lock out its neighbours.
    wrong: Vec<KeyHash>,
}

impl WrongKeyLimit {
    /// Compares a key. `address` is `None` on a Unix socket.
    ///
    /// A right key passes, however many wrong ones came before: programs with an old key may share
    /// the address, and would lock an operator out. Keys are too long to be guessed, so that
    /// nothing is lost by it.
    pub fn attempt<T>(
        &self,
        address: Option<IpAddr>,
        hash: KeyHash,
        compare: impl FnOnce(&KeyHash) -> Option<T>,
    ) -> KeyAttempt<T> {
        // Also compared if it was wrong before: a reload may have made it right.
        if let Some(right) = compare(&hash) {
            return KeyAttempt::Right(right);
        }
        let address = address.map(network);
        let now = Instant::now();
        // Locked until the end: guesses that come at the same time count one by one.
        let mut addresses = self.0.lock();
        if addresses
            .get(&address)
            .is_some_and(|guesses| now >= guesses.since + WINDOW)
        {
            addresses.remove(&address);
        }
        let known = addresses.get(&address);
        let repeats = known.is_some_and(|guesses| guesses.wrong.contains(&hash));
        if let Some(guesses) =
            known.filter(|guesses| guesses.wrong.len() >= GUESSES_MAX && !repeats)
        {
            return KeyAttempt::Refused(guesses.since + WINDOW - now);
        }
        if !repeats {
            make_room(&mut addresses, address, now);
            addresses
                .entry(address)
                .or_insert(WrongGuesses {
                    since: now,
                    wrong: Vec::new(),
                })
                .wrong
                .push(hash);
        }
        KeyAttempt::Wrong
    }
}

fn make_room(
    addresses: &mut HashMap<Option<IpAddr>, WrongGuesses>,
    address: Option<IpAddr>,
    now: Instant,
) {
    if addresses.len() < ADDRESSES_MAX || addresses.contains_key(&address) {
        return;
    }
    addresses.retain(|_, guesses| now < guesses.since + WINDOW);
    // Memory comes first: whoever has a thousand networks can push out its own count.
    let oldest = addresses
        .iter()
        .min_by_key(|(_, guesses)| guesses.since)
        .map(|(address, _)| *address);
    if let Some(oldest) = oldest.filter(|_| addresses.len() >= ADDRESSES_MAX) {
        addresses.remove(&oldest);
    }
}

/// Returns the table's entry for an address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> (Ipv6Addr::BITS - NETWORK_BITS)
                << (Ipv6Addr::BITS - NETWORK_BITS);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(limit: &WrongKeyLimit, address: impl Into<IpAddr>, key: &str) -> KeyAttempt<()> {
        limit.attempt(Some(address.into()), KeyHash::of(key), |hash| {
            (*hash == KeyHash::of("right")).then_some(())
        })
    }

    fn address(network: u128, host: u128) -> Ipv6Addr {
        Ipv6Addr::from_bits((network << 64) | host)
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_tries_ten_wrong_keys_a_minute() {
        let limit = WrongKeyLimit::default();
        for n in 0..10 {
            assert_eq!(
                attempt(&limit, [192, 0, 2, 1], &format!("{n}")),
                KeyAttempt::Wrong
            );
            assert_eq!(
                attempt(&limit, [192, 0, 2, 1], "0"),
                KeyAttempt::Wrong,
                "the same key is no new guess"
            );
        }
        for _ in 0..3 {
            assert_eq!(
                attempt(&limit, [192, 0, 2, 1], "11"),
                KeyAttempt::Refused(WINDOW)
            );
            assert_eq!(
                attempt(&limit, [192, 0, 2, 1], "right"),
                KeyAttempt::Right(()),
                "nobody is locked out"
            );
        }
        assert_eq!(attempt(&limit, [192, 0, 2, 2], "11"), KeyAttempt::Wrong);
        tokio::time::sleep(WINDOW).await;
        assert_eq!(attempt(&limit, [192, 0, 2, 1], "11"), KeyAttempt::Wrong);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_network_count_together_and_the_table_is_bounded() {
        let limit = WrongKeyLimit::default();
        for n in 0..10 {
            assert_eq!(
                attempt(&limit, address(1, n), &format!("{n}")),
                KeyAttempt::Wrong
            );
        }
        assert!(matches!(
            attempt(&limit, address(1, 99), "99"),
            KeyAttempt::Refused(_)
        ));
        for network in 2..5000 {
            attempt(&limit, address(network, 1), "wrong");
        }
        assert_eq!(limit.0.lock().len(), ADDRESSES_MAX);
    }
}
