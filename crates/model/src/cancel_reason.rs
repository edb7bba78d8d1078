//! Reason of a client's cancellation, on its way to the server.
//!
//! Owns the slot that a call and its client's connection share. Does not cancel. Invariant: a
//! reason is short, and a copy.

use std::sync::{Arc, OnceLock};

use moongate_jsonrpc::json::RawJson;

/// Limit in bytes. A longer reason is left out.
const REASON_MAX: usize = 1024;

/// Slot for the reason of one call's cancellation. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CancelReason(Arc<OnceLock<RawJson>>);

impl CancelReason {
    /// Sets the reason that the client gave, if it is a text and short. Only the first one counts.
    pub fn set(&self, reason: Option<&RawJson>) {
        if let Some(reason) =
            reason.filter(|reason| reason.bytes().len() <= REASON_MAX && reason.as_text().is_some())
        {
            let _ = self.0.set(reason.detached());
        }
    }

    /// Returns the reason, if the client gave one.
    pub fn get(&self) -> Option<&RawJson> {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_short_text() {
        let long = RawJson::string(&"x".repeat(REASON_MAX));
        for refused in [RawJson::literal("7"), RawJson::literal(r#"{"a":1}"#), long] {
            let reason = CancelReason::default();
            reason.set(Some(&refused));
            assert!(reason.get().is_none(), "{refused:?}");
        }
        let reason = CancelReason::default();
        reason.set(None);
        reason.set(Some(&RawJson::string("too slow")));
        reason.set(Some(&RawJson::string("another")));
        assert_eq!(reason.get(), Some(&RawJson::string("too slow")));
    }
}
