//! The connections of calls at a server that asks in the middle of them.
//!
//! On a pipe a question of a server with sessions names no call (`revision::Calls`). At a server that was seen to ask, a
//! client that can answer leaves the shared connection: a session as soon as another's call is open there, for one of its
//! own and for as long as it lives; a stateless client for each call. Owns which of these are in use. Invariant: two
//! calls of stateless clients are on one of these connections only where there are more calls than connections.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::json::Text;
use crate::model::{Caller, Can};
use crate::revision::Era;
use crate::telemetry::Metrics;
use crate::upstream::Active;
use crate::upstream::sharing::{session_key, stateless_key};

/// Connections for the calls of one principal's stateless clients.
const CONNECTIONS_MAX: usize = 16;

/// The connections of stateless clients that a call is using.
#[derive(Clone, Default)]
pub(super) struct InUse(Arc<Mutex<HashSet<Text>>>);

/// The name of a connection; it is in use until this is dropped.
pub(super) struct Reserved {
    pub(super) key: Text,
    in_use: InUse,
    counts: bool,
}

impl InUse {
    /// The connection for a caller's next call: its session's, or the first of its principal's that no call is using.
    pub(super) fn reserve(&self, caller: &Caller, metrics: &Metrics) -> Reserved {
        if let Some(session) = &caller.session {
            return Reserved { key: session_key(session), in_use: self.clone(), counts: false };
        }
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |n| stateless_key(caller, n);
        let free = (0..CONNECTIONS_MAX).map(key).find(|key| !taken.contains(key));
        let (key, counts) = match free {
            Some(key) => (key, true),
            // There, a question finds its call only if no other can be meant.
            None => {
                metrics.refused.with_label_values(&["asked_connections"]).inc();
                (key(0), false)
            }
        };
        if counts {
            taken.insert(key.clone());
        }
        Reserved { key, in_use: self.clone(), counts }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.counts {
            self.in_use.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        }
    }
}

/// Whether questions on this connection may belong to any of several calls, this client's among them.
pub(super) fn is_ambiguous(active: &Active, caller: &Caller) -> bool {
    caller.can != Can::default() && active.era == Era::Legacy && active.link.is_pipe()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn stateless_calls_have_a_connection_each() {
        let (in_use, metrics) = (InUse::default(), Metrics::new());
        let caller = testing::caller(1, None);
        let first = in_use.reserve(&caller, &metrics);
        let second = in_use.reserve(&caller, &metrics);
        assert_ne!(first.key, second.key);
        assert_ne!(in_use.reserve(&testing::caller(2, None), &metrics).key, first.key, "another principal");
        let freed = first.key.clone();
        drop(first);
        assert_eq!(in_use.reserve(&caller, &metrics).key, freed);
    }

    #[test]
    fn a_session_keeps_its_connection() {
        let (in_use, metrics) = (InUse::default(), Metrics::new());
        let keys = ["a", "b"].map(|session| in_use.reserve(&testing::caller(1, Some(session)), &metrics).key.clone());
        assert_ne!(keys[0], keys[1]);
        assert_eq!(in_use.reserve(&testing::caller(1, Some("a")), &metrics).key, keys[0]);
    }

    #[test]
    fn there_are_not_more_connections_than_may_be() {
        let (in_use, metrics) = (InUse::default(), Metrics::new());
        let caller = testing::caller(1, None);
        let all: Vec<Reserved> = (0..CONNECTIONS_MAX + 5).map(|_| in_use.reserve(&caller, &metrics)).collect();
        let keys: HashSet<&Text> = all.iter().map(|reserved| &reserved.key).collect();
        assert_eq!(keys.len(), CONNECTIONS_MAX);
        drop(all);
        assert!(in_use.0.lock().unwrap().is_empty());
        assert_eq!(metrics.refused.with_label_values(&["asked_connections"]).get(), 5);
    }
}
