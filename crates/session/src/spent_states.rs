//! Sealed states that were used, until they expire.
//!
//! Owns their bound. Does not open seals (`sealed_state.rs`). Invariant: a state that was used is
//! refused, and so is one whose use may have been forgotten.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use moongate_model::PrincipalKey;

/// Maximum number of states of all principals that are remembered. The principal with the most
/// forgets its oldest one.
const SPENT_MAX: usize = 65_536;

/// Mark of one sealed state: when it expires, in milliseconds since 1970, and the random part of
/// its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealMark {
    pub(super) expires_ms: u64,
    pub(super) nonce: [u8; 12],
}

/// States that were used.
#[derive(Default)]
pub(super) struct SpentStates(Mutex<SpentTable>);

#[derive(Default)]
struct SpentTable {
    by_principal: HashMap<PrincipalKey, SpentOfPrincipal>,
    count: usize,
}

#[derive(Default)]
struct SpentOfPrincipal {
    marks: BTreeSet<SealMark>,
    /// Expiry of the newest state that was forgotten. Others that expire no later may be forgotten
    /// ones, too.
    forgotten_ms: u64,
}

impl SpentStates {
    /// Records the use of a state. Returns false if it was used before, or may have been.
    pub(super) fn spend(&self, principal: &PrincipalKey, mark: SealMark, now_ms: u64) -> bool {
        let mut table = self.0.lock();
        table.forget_expired(now_ms);
        let own = table.by_principal.entry(*principal).or_default();
        if mark.expires_ms <= own.forgotten_ms || !own.marks.insert(mark) {
            return false;
        }
        table.count += 1;
        if table.count > SPENT_MAX {
            table.forget_oldest();
        }
        true
    }

    /// Takes back the use of a state that changed nothing.
    pub(super) fn give_back(&self, principal: &PrincipalKey, mark: &SealMark) {
        let mut table = self.0.lock();
        if table
            .by_principal
            .get_mut(principal)
            .is_some_and(|own| own.marks.remove(mark))
        {
            table.count -= 1;
        }
    }
}

impl SpentTable {
    fn forget_expired(&mut self, now_ms: u64) {
        let count = &mut self.count;
        self.by_principal.retain(|_, own| {
            while own
                .marks
                .first()
                .is_some_and(|mark| mark.expires_ms < now_ms)
            {
                own.marks.pop_first();
                *count -= 1;
            }
            !own.marks.is_empty() || own.forgotten_ms >= now_ms
        });
    }

    /// Makes room at the cost of the principal that uses the most.
    fn forget_oldest(&mut self) {
        let Some(most) = self
            .by_principal
            .values_mut()
            .max_by_key(|own| own.marks.len())
        else {
            return;
        };
        if let Some(oldest) = most.marks.pop_first() {
            most.forgotten_ms = most.forgotten_ms.max(oldest.expires_ms);
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(n: u64) -> SealMark {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&n.to_be_bytes());
        SealMark {
            expires_ms: 1000 + n,
            nonce,
        }
    }

    #[test]
    fn a_state_is_spent_once_and_can_be_given_back() {
        let states = SpentStates::default();
        let one = [1; 16];
        let other = [2; 16];
        assert!(states.spend(&one, mark(1), 0));
        assert!(!states.spend(&one, mark(1), 0));
        assert!(
            states.spend(&other, mark(1), 0),
            "another principal's state is another one"
        );
        states.give_back(&one, &mark(1));
        assert!(states.spend(&one, mark(1), 0));
        // After its expiry no seal opens, so nothing is remembered.
        assert!(states.spend(&one, mark(500), 1200));
        assert_eq!(states.0.lock().count, 1);
        assert_eq!(states.0.lock().by_principal.len(), 1);
    }

    #[test]
    fn a_forgotten_state_stays_refused_and_others_keep_theirs() {
        let states = SpentStates::default();
        let busy = [1; 16];
        let quiet = [2; 16];
        assert!(states.spend(&quiet, mark(0), 0));
        let many = u64::try_from(SPENT_MAX).unwrap() + 10;
        for n in 0..many {
            assert!(states.spend(&busy, mark(n), 0));
        }
        assert_eq!(states.0.lock().count, SPENT_MAX);
        for n in [0, 5, 10, many - 1] {
            assert!(!states.spend(&busy, mark(n), 0), "{n}");
        }
        assert!(!states.spend(&quiet, mark(0), 0));
        assert!(states.spend(&quiet, mark(1), 0));
    }
}
