//! Owner of a dedicated connection. Decides which clients belong to it. Does not pick connections
//! (`pool/isolation.rs`). Invariant: no two sessions have the same `Session` owner.

use moongate_jsonrpc::json::ByteString;
use moongate_model::Caller;
use moongate_protocol::{Era, era_of};

/// Owner of a dedicated connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionOwner {
    /// Session of one client.
    Session(ByteString),
    /// Clients of a principal that have no session.
    Stateless(u32),
    /// Clients of a principal, with and without sessions.
    Principal(u32),
    /// Clients in this era.
    Era(Era),
}

impl ConnectionOwner {
    /// Returns true if the connection belongs to this caller.
    pub fn matches(&self, caller: &Caller) -> bool {
        match self {
            ConnectionOwner::Session(session) => caller.session.as_ref() == Some(session),
            ConnectionOwner::Stateless(id) => {
                caller.session.is_none() && caller.principal.id == *id
            }
            ConnectionOwner::Principal(id) => caller.principal.id == *id,
            ConnectionOwner::Era(of) => era_of(caller.revision) == *of,
        }
    }

    /// Returns true if clients of several principals may share the connection.
    pub fn spans_principals(&self) -> bool {
        match self {
            ConnectionOwner::Era(_) => true,
            ConnectionOwner::Session(_)
            | ConnectionOwner::Stateless(_)
            | ConnectionOwner::Principal(_) => false,
        }
    }

    /// Returns all owners that match this caller.
    pub(crate) fn candidates_of(caller: &Caller) -> Vec<ConnectionOwner> {
        let id = caller.principal.id;
        let owner = caller
            .session
            .clone()
            .map_or(ConnectionOwner::Stateless(id), ConnectionOwner::Session);
        vec![
            owner,
            ConnectionOwner::Principal(id),
            ConnectionOwner::Era(era_of(caller.revision)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_testing as testing;

    #[test]
    fn owners_match_their_own_clients_only() {
        let session = testing::caller(1, Some("s"));
        let stateless = testing::caller(1, None);
        let other = testing::caller(2, Some("t"));
        assert!(
            ConnectionOwner::Session(ByteString::from("s")).matches(&session)
                && !ConnectionOwner::Session(ByteString::from("s")).matches(&other)
        );
        assert!(
            ConnectionOwner::Stateless(1).matches(&stateless)
                && !ConnectionOwner::Stateless(1).matches(&session)
        );
        assert!(
            ConnectionOwner::Principal(1).matches(&session)
                && ConnectionOwner::Principal(1).matches(&stateless)
        );
        assert!(!ConnectionOwner::Principal(1).matches(&other));
    }
}
