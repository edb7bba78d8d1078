//! Ids of client assertions that were used.
//!
//! Owns how long they are remembered. Does not verify assertions. Invariant: an id is accepted
//! once, and a flood of ids never evicts an earlier one.

use std::collections::HashMap;

use aws_lc_rs::digest::{Context, SHA256};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::login_row::ClientMark;

/// Maximum number of ids.
const COUNT_MAX: usize = 10_000;

/// Ids of assertions that were used, with the times from which they are refused anyway.
#[derive(Default)]
pub(crate) struct AssertionIds(Mutex<HashMap<[u8; 32], Timestamp>>);

/// Outcome of using an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdUse {
    /// First use.
    First,
    /// The client has used it before.
    Repeated,
    /// Table full.
    Full,
}

impl AssertionIds {
    /// Records the use of an id by a client.
    pub(crate) fn record(
        &self,
        client: &ClientMark,
        id: &str,
        expires: Timestamp,
        now: Timestamp,
    ) -> IdUse {
        let mut context = Context::new(&SHA256);
        // The mark has a fixed length, so the concatenation is unambiguous.
        context.update(client);
        context.update(id.as_bytes());
        let digest = context.finish();
        let digest: [u8; 32] = *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let mut used = self.0.lock();
        if used.get(&digest).is_some_and(|expires| now < *expires) {
            return IdUse::Repeated;
        }
        if used.len() >= COUNT_MAX {
            used.retain(|_, expires| now < *expires);
        }
        if used.len() >= COUNT_MAX {
            return IdUse::Full;
        }
        used.insert(digest, expires);
        IdUse::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_id_counts_once_for_its_client_until_it_expires() {
        let ids = AssertionIds::default();
        assert_eq!(ids.record(&[1; 16], "a", at(10), at(0)), IdUse::First);
        assert_eq!(ids.record(&[1; 16], "a", at(10), at(9)), IdUse::Repeated);
        assert_eq!(ids.record(&[2; 16], "a", at(10), at(9)), IdUse::First);
        assert_eq!(ids.record(&[1; 16], "b", at(10), at(9)), IdUse::First);
        assert_eq!(ids.record(&[1; 16], "a", at(20), at(10)), IdUse::First);
    }

    #[test]
    fn a_flood_makes_none_forgotten() {
        let ids = AssertionIds::default();
        for n in 0..COUNT_MAX {
            let used = ids.record(&[1; 16], &n.to_string(), at(10), at(0));
            assert_eq!(used, IdUse::First);
        }
        assert_eq!(ids.record(&[1; 16], "new", at(10), at(0)), IdUse::Full);
        assert_eq!(ids.record(&[1; 16], "0", at(10), at(0)), IdUse::Repeated);
        assert_eq!(ids.record(&[1; 16], "new", at(20), at(10)), IdUse::First);
    }
}
