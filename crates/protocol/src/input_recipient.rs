//! Recipient of an input request on a pipe: the likeliest of several calls of one client.
//!
//! Owns the choice. Does not decide which calls may get input requests (`correlation.rs`).
//! Invariant: the recipient is one of the given calls.

use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use moongate_model::Call;

/// Limit of remembered targets on one connection.
const TARGETS_MAX: usize = 64;
/// Limit of targets that are known not to ask. All others count as unknown.
const QUIET_MAX: usize = 4096;

/// Digest of a call's method and target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallTarget(u64);

impl CallTarget {
    /// Digests a call.
    pub fn from_call(call: &Call) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(call.method.name().as_bytes());
        for member in ["name", "uri"] {
            hasher.write(call.params.get(member).map_or(b"", |raw| raw.bytes()));
        }
        CallTarget(hasher.finish())
    }
}

/// Open call that an input request may be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCandidate {
    pub(super) id: u64,
    pub(super) target: CallTarget,
    /// Number of input requests that the call received.
    pub(super) input_count: u32,
    /// Last request id at its latest input request, while the user has not answered that.
    pub(super) waits_since_id: Option<u64>,
}

/// Targets that received an input request while no other call was open.
#[derive(Default)]
pub(super) struct InteractiveTargets(VecDeque<CallTarget>);

impl InteractiveTargets {
    pub(super) fn record(&mut self, target: CallTarget) {
        if !self.0.contains(&target) {
            if self.0.len() == TARGETS_MAX {
                // A forgotten target is recorded again by its next input request.
                self.0.pop_front();
            }
            self.0.push_back(target);
        }
    }

    /// Picks the call that an input request is most likely about.
    ///
    /// The order of preference:
    ///
    /// - a call sent since all known targets started to wait for their users;
    /// - a call of a known target, or of the newest call's target if none is known;
    /// - among those, the call with the fewest input requests, then the oldest.
    pub(super) fn pick_recipient(&self, candidates: &[CallCandidate]) -> Option<u64> {
        let newest = candidates.iter().max_by_key(|call| call.id)?;
        // `None` if one of the known calls does not wait for its user.
        let since = self
            .known_calls(candidates)
            .filter(|call| call.id != newest.id)
            .map(|call| call.waits_since_id);
        if let Some(since) = since
            .collect::<Option<Vec<u64>>>()
            .and_then(|since| since.into_iter().max())
            && newest.id > since
        {
            return Some(newest.id);
        }
        let has_known = self.known_calls(candidates).next().is_some();
        candidates
            .iter()
            .filter(|call| match has_known {
                true => self.0.contains(&call.target),
                false => call.target == newest.target,
            })
            .min_by_key(|call| (call.input_count, call.id))
            .map(|call| call.id)
    }

    /// Returns the calls whose target received an input request before.
    fn known_calls<'a>(
        &self,
        candidates: &'a [CallCandidate],
    ) -> impl Iterator<Item = &'a CallCandidate> {
        candidates
            .iter()
            .filter(move |call| self.0.contains(&call.target))
    }
}

/// Targets of calls that were answered without an input request, though their clients could have
/// been asked.
#[derive(Default)]
pub(super) struct QuietTargets(Mutex<HashSet<CallTarget>>);

impl QuietTargets {
    pub(super) fn contains(&self, target: CallTarget) -> bool {
        self.0.lock().contains(&target)
    }

    pub(super) fn record(&self, target: CallTarget) {
        // Before the lock: over HTTP no call has a target.
        if target == CallTarget::default() {
            return;
        }
        let mut targets = self.0.lock();
        if targets.len() < QUIET_MAX {
            targets.insert(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: u64, target: u64, asked: u32) -> CallCandidate {
        CallCandidate {
            id,
            target: CallTarget(target),
            input_count: asked,
            waits_since_id: None,
        }
    }

    #[test]
    fn equal_calls_are_asked_in_turn() {
        let targets = InteractiveTargets::default();
        assert_eq!(
            targets.pick_recipient(&[candidate(1, 7, 0), candidate(2, 7, 0)]),
            Some(1)
        );
        assert_eq!(
            targets.pick_recipient(&[candidate(1, 7, 1), candidate(2, 7, 0)]),
            Some(2)
        );
        assert_eq!(targets.pick_recipient(&[]), None);
    }

    #[test]
    fn a_call_that_is_sent_while_another_waits_for_its_user_is_asked() {
        let mut targets = InteractiveTargets::default();
        targets.record(CallTarget(7));
        let waits = CallCandidate {
            waits_since_id: Some(2),
            ..candidate(1, 7, 1)
        };
        assert_eq!(
            targets.pick_recipient(&[waits, candidate(3, 8, 0)]),
            Some(3),
            "sent since then"
        );
        assert_eq!(
            targets.pick_recipient(&[waits, candidate(2, 8, 0)]),
            Some(1),
            "it was there before: the other asks twice"
        );
        let too = CallCandidate {
            waits_since_id: Some(3),
            ..candidate(3, 8, 1)
        };
        assert_eq!(
            targets.pick_recipient(&[waits, too]),
            Some(3),
            "it asks for several things"
        );
        assert_eq!(
            targets.pick_recipient(&[candidate(1, 7, 1), candidate(3, 8, 0)]),
            Some(1),
            "the user has answered"
        );
        assert_eq!(
            targets.pick_recipient(&[waits, candidate(3, 8, 0), candidate(4, 7, 0)]),
            Some(4),
            "one that is known"
        );
    }

    #[test]
    fn a_call_that_runs_for_long_is_not_taken_for_one_that_asks() {
        let mut targets = InteractiveTargets::default();
        assert_eq!(
            targets.pick_recipient(&[candidate(1, 7, 0), candidate(2, 8, 0)]),
            Some(2),
            "the last one"
        );
        targets.record(CallTarget(7));
        assert_eq!(
            targets.pick_recipient(&[candidate(1, 7, 0), candidate(2, 8, 0)]),
            Some(1),
            "known to ask"
        );
        for other in 100..100 + TARGETS_MAX as u64 {
            targets.record(CallTarget(other));
        }
        assert_eq!(targets.0.len(), TARGETS_MAX);
        assert_eq!(
            targets.pick_recipient(&[candidate(1, 7, 0), candidate(2, 8, 0)]),
            Some(2),
            "forgotten"
        );
    }
}
