//! Reasons of a client's cancellations, on their way to the server.
//!
//! Owns the slots that calls and their client's connection share. Does not cancel. Invariant: a
//! reason is short, and a copy.

use std::collections::VecDeque;
use std::sync::Arc;

use moongate_jsonrpc::json::RawJson;
use parking_lot::Mutex;

/// Limit in bytes. A longer reason is left out.
const REASON_MAX: usize = 1024;
/// Limit of the reasons of one client that wait to be sent. The oldest makes room.
const REASONS_MAX: usize = 64;

/// Reasons of one client's cancelled calls. Clones share them.
// One for all calls: few are cancelled, and a slot for each would be an allocation for each.
#[derive(Clone, Debug, Default)]
pub struct CancelReasons(Arc<Mutex<VecDeque<(u64, RawJson)>>>);

impl CancelReasons {
    /// Returns the slot of a call. Its number must be the only one of that client.
    pub fn of_call(&self, call: u64) -> CancelReason {
        CancelReason {
            reasons: self.clone(),
            call,
        }
    }
}

/// Slot for the reason of one call's cancellation. Clones share it.
#[derive(Clone, Debug)]
pub struct CancelReason {
    reasons: CancelReasons,
    call: u64,
}

impl CancelReason {
    /// Sets the reason that the client gave, if it is a text and short. Only the first one counts.
    pub fn set(&self, reason: Option<&RawJson>) {
        let is_short_text =
            |reason: &&RawJson| reason.bytes().len() <= REASON_MAX && reason.as_text().is_some();
        let Some(reason) = reason.filter(is_short_text) else {
            return;
        };
        let mut reasons = self.reasons.0.lock();
        if reasons.iter().any(|(call, _)| *call == self.call) {
            return;
        }
        if reasons.len() == REASONS_MAX {
            reasons.pop_front();
        }
        reasons.push_back((self.call, reason.detached()));
    }

    /// Returns the reason, if the client gave one.
    pub fn get(&self) -> Option<RawJson> {
        let reasons = self.reasons.0.lock();
        let mut own = reasons.iter().filter(|(call, _)| *call == self.call);
        own.next().map(|(_, reason)| reason.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_short_text() {
        let long = RawJson::string(&"x".repeat(REASON_MAX));
        let reasons = CancelReasons::default();
        for refused in [RawJson::literal("7"), RawJson::literal(r#"{"a":1}"#), long] {
            let reason = reasons.of_call(1);
            reason.set(Some(&refused));
            assert!(reason.get().is_none(), "{refused:?}");
        }
        let reason = reasons.of_call(1);
        reason.set(None);
        reason.set(Some(&RawJson::string("too slow")));
        reason.set(Some(&RawJson::string("another")));
        assert_eq!(reason.get(), Some(RawJson::string("too slow")));
        assert_eq!(reasons.of_call(2).get(), None);
    }

    #[test]
    fn the_oldest_reason_makes_room() {
        let reasons = CancelReasons::default();
        for call in 0..=REASONS_MAX as u64 {
            reasons.of_call(call).set(Some(&RawJson::string("no")));
        }
        assert_eq!(reasons.of_call(0).get(), None);
        assert!(reasons.of_call(1).get().is_some());
        assert!(reasons.of_call(REASONS_MAX as u64).get().is_some());
    }
}
