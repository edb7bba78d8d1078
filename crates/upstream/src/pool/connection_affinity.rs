//! Affinity of clients to connections, at a server that sends input requests in the middle of
//! calls. Owns which clients the shared connection belongs to. Does not open connections
//! (`dedicated/`). Invariant: at any moment, all clients of a principal without sessions have the
//! same affinity.
//!
//! On a pipe, an input request of a legacy server names no call (`protocol::PendingCalls`). At a
//! server that is known to send them, a call does not start where the request could belong to
//! another client.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::connection::UpstreamConnection;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Principal};
use moongate_protocol::{Era, SeenInputFlag};

/// Connection that a client's calls stick to, at a server that sends input requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAffinity {
    /// Shared connection: the client's state is there, or no other client's is.
    Shared,
    /// Connection of the client's session or, without one, of its principal.
    Dedicated,
    /// Connection that clients with sessions share. The same principal's clients without sessions
    /// have the shared one.
    SessionShared,
}

/// Clients that have called on the shared connection: the clients of one principal, either with
/// sessions or without.
#[derive(Default)]
pub(crate) struct SharedConnectionClients {
    group: AtomicU64,
    /// Digests of the sessions that called before the first input request was seen.
    sessions: Mutex<HashSet<u64>>,
}

/// Limit of remembered sessions. All others count as sessions that have called.
const SESSIONS_MAX: usize = 4096;

/// No client so far.
const NO_GROUP: u64 = 0;
/// Several principals, or both kinds of clients: they came before the first input request was seen.
const SEVERAL_GROUPS: u64 = 1;

fn digest(session: &ByteString) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(session.as_bytes());
    hasher.finish()
}

fn group_of(caller: &Caller) -> u64 {
    // The numbers below 2 are the constants above.
    2 + u64::from(caller.principal.id) * 2 + u64::from(caller.session.is_some())
}

/// Returns the principal of a group, if it is a single one's.
fn principal_of(group: u64) -> Option<u32> {
    u32::try_from(group.checked_sub(2)? / 2).ok()
}

impl SharedConnectionClients {
    /// Records that a client's call starts on the shared connection.
    pub(crate) fn record_call(&self, caller: &Caller) {
        let group = group_of(caller);
        // Read first: in the common case nothing is written.
        if self.group.load(Ordering::Relaxed) == group || caller.principal.id == Principal::GATEWAY
        {
            return;
        }
        // An error means that the group is the same already.
        let _ =
            self.group
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |before| match before {
                    NO_GROUP => Some(group),
                    _ if before == group => None,
                    _ => Some(SEVERAL_GROUPS),
                });
    }

    /// Records the session of a call, before the first input request was seen.
    pub(crate) fn record_session(&self, session: &ByteString) {
        let mut sessions = self.sessions.lock();
        if sessions.len() < SESSIONS_MAX {
            sessions.insert(digest(session));
        }
    }

    /// Returns true if a session may have state on the shared connection.
    pub(crate) fn has_called(&self, session: &ByteString) -> bool {
        let sessions = self.sessions.lock();
        sessions.len() >= SESSIONS_MAX || sessions.contains(&digest(session))
    }

    /// Returns the affinity of a client. Clients with state on the shared connection stay there.
    /// Principals are kept apart.
    pub(crate) fn affinity_of(&self, caller: &Caller) -> ConnectionAffinity {
        match self.group.load(Ordering::Acquire) {
            NO_GROUP | SEVERAL_GROUPS => ConnectionAffinity::Shared,
            group if group == group_of(caller) => ConnectionAffinity::Shared,
            group
                if principal_of(group) == Some(caller.principal.id) && caller.session.is_some() =>
            {
                ConnectionAffinity::SessionShared
            }
            _ => ConnectionAffinity::Dedicated,
        }
    }

    /// Forgets all clients, because the shared connection is new.
    pub(crate) fn reset(&self) {
        self.group.store(NO_GROUP, Ordering::Release);
        self.sessions.lock().clear();
    }

    /// Forgets a principal that was revoked.
    pub(crate) fn revoke_principals(&self, revoked: &(dyn Fn(u32) -> bool + Sync)) {
        // An error means that the group was not revoked.
        let _ = self
            .group
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |group| {
                revoked(principal_of(group)?).then_some(NO_GROUP)
            });
    }
}

/// Returns true if input requests on this connection name no call.
///
/// Over HTTP they come on the stream of their call. Only servers that send them on the GET stream
/// instead set `seen_input`.
pub(crate) fn input_is_ambiguous(
    connection: &UpstreamConnection,
    seen_input: &SeenInputFlag,
) -> bool {
    connection.era == Era::Legacy && (connection.link.is_multiplexed() || seen_input.is_set())
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_testing as testing;

    #[test]
    fn the_first_caller_keeps_the_shared_connection() {
        let one = testing::caller(1, None);
        let other = testing::caller(2, None);
        let session = testing::caller(1, Some("s"));
        let group = SharedConnectionClients::default();
        assert_eq!(
            [&one, &other, &session].map(|caller| group.affinity_of(caller)),
            [ConnectionAffinity::Shared; 3]
        );
        group.record_call(&one);
        assert_eq!(group.affinity_of(&one), ConnectionAffinity::Shared);
        assert_eq!(group.affinity_of(&other), ConnectionAffinity::Dedicated);
        assert_eq!(
            group.affinity_of(&session),
            ConnectionAffinity::SessionShared
        );
        // Another principal is revoked: the group stays.
        group.revoke_principals(&|id| id == 2);
        assert_eq!(group.affinity_of(&other), ConnectionAffinity::Dedicated);
        group.revoke_principals(&|id| id == 1);
        assert_eq!(group.affinity_of(&other), ConnectionAffinity::Shared);
    }

    #[test]
    fn clients_with_sessions_are_one_group_and_who_was_there_before_stays() {
        let one = testing::caller(1, None);
        let session = testing::caller(1, Some("s"));
        let group = SharedConnectionClients::default();
        group.record_call(&session);
        group.record_call(&testing::caller(1, Some("t")));
        assert_eq!(
            group.affinity_of(&testing::caller(2, Some("u"))),
            ConnectionAffinity::Dedicated,
            "another principal's"
        );
        assert_eq!(group.affinity_of(&session), ConnectionAffinity::Shared);
        assert_eq!(group.affinity_of(&one), ConnectionAffinity::Dedicated);
        // Calls before the first input request was seen.
        group.record_call(&one);
        assert_eq!(group.affinity_of(&session), ConnectionAffinity::Shared);
        assert_eq!(group.affinity_of(&one), ConnectionAffinity::Shared);
        group.reset();
        group.record_call(&one);
        assert_eq!(group.affinity_of(&one), ConnectionAffinity::Shared);
        assert_eq!(
            group.affinity_of(&session),
            ConnectionAffinity::SessionShared
        );
    }
}
