//! Who shares a connection with whom.
//!
//! A pure decision: from the settings, the caller and what a connection has shown, to a name of a connection. Knows no
//! connection. Invariant: callers that must not meet get different names.

use std::time::Duration;

use crate::json::ByteString;
use crate::model::{Call, Caller, McpMethod, TaskMode};
use crate::revision::Era;
use crate::upstream::SharingMode;
use crate::upstream::subscriptions::ConnectionOwner;

/// When a connection beside the main one ends that does not break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionLifetime {
    /// With the session that it was opened for.
    WithSession,
    /// When no call has used it for a while.
    Unused,
    /// When nobody has needed it for so long: its server is started on use.
    Idle(Duration),
    /// With the server, or where another client needs its place.
    Never,
}

/// A connection beside the main one.
#[derive(Debug, PartialEq)]
pub(super) struct DedicatedSpec {
    /// What it is found by.
    pub(super) key: ByteString,
    /// When it ends.
    pub(super) lifetime: ConnectionLifetime,
    /// Whether it is opened as the caller says of itself, or for everybody.
    pub(super) as_caller: bool,
    /// Whose it is.
    pub(super) owner: ConnectionOwner,
}

/// Where a caller's calls go by the settings alone; `None`: to the main connection. `other`: the era in which it is to
/// meet the server, although the main connection is in another; `idle`: how long a connection that several share is kept
/// without being needed.
pub(super) fn dedicated_for(
    share: SharingMode,
    caller: &Caller,
    other: Option<Era>,
    idle: Option<Duration>,
) -> Option<DedicatedSpec> {
    let ends = match (share, &caller.session) {
        (SharingMode::Session, Some(_)) => ConnectionLifetime::WithSession,
        (SharingMode::Session, None) => ConnectionLifetime::Unused,
        _ => idle.map_or(ConnectionLifetime::Never, ConnectionLifetime::Idle),
    };
    match key(share, caller, other) {
        Some(key) => Some(DedicatedSpec { key, lifetime: ends, as_caller: true, owner: owner(share, caller) }),
        None => other.map(|era| shared_in_era(era, idle)),
    }
}

/// The name of the connection that all clients of an era share beside the main one. No session and no principal is
/// called so.
pub(super) fn era_key(era: Era) -> ByteString {
    ByteString::literal(match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    })
}

/// What a caller's connection is found by; `None`: it uses the main one.
///
/// A stateless client has no session. What comes nearest is who it is and what it can be asked for: its calls share a
/// connection that was opened with its own capabilities.
pub(super) fn key(share: SharingMode, caller: &Caller, other: Option<Era>) -> Option<ByteString> {
    let principal = caller.principal.id;
    let in_era = other.map(|era| format!(", {}", era_key(era))).unwrap_or_default();
    match (share, &caller.session) {
        (SharingMode::Auto, _) => None,
        (SharingMode::Session, Some(session)) => Some(session.clone()),
        // They are told apart by what they can be asked for.
        (SharingMode::Session, None) => {
            Some(ByteString::from(format!("principal {principal}, {:?}", caller.capabilities)))
        }
        (SharingMode::Principal, _) => Some(ByteString::from(format!("principal {principal}{in_era}"))),
    }
}

/// Whose a connection beside the main one is that is opened for this caller.
pub(super) fn owner(share: SharingMode, caller: &Caller) -> ConnectionOwner {
    match (share, &caller.session) {
        (SharingMode::Principal, _) => ConnectionOwner::Principal(caller.principal.id),
        (_, Some(session)) => ConnectionOwner::Session(session.clone()),
        (_, None) => ConnectionOwner::Stateless(caller.principal.id),
    }
}

/// The name of a connection that a session has because its server asks.
pub(super) fn session_key(session: &ByteString) -> ByteString {
    ByteString::from(format!("asked {session}"))
}

fn principal_key(principal: u32) -> ByteString {
    ByteString::from(format!("principal {principal}"))
}

/// The connection that a call has because its server asks: its session's or its principal's. `home`: whether the client's
/// other calls go there, too. `idle`: how long a server that is started on use is kept without being needed.
///
/// A principal's is opened as the main one is: its clients may differ in what they can be asked for.
pub(super) fn isolated_for(caller: &Caller, home: bool, idle: Option<Duration>) -> DedicatedSpec {
    let principal = caller.principal.id;
    match &caller.session {
        Some(session) => DedicatedSpec {
            key: session_key(session),
            lifetime: ConnectionLifetime::WithSession,
            as_caller: true,
            owner: ConnectionOwner::Session(session.clone()),
        },
        None => DedicatedSpec {
            key: principal_key(principal),
            lifetime: if home {
                idle.map_or(ConnectionLifetime::Never, ConnectionLifetime::Idle)
            } else {
                ConnectionLifetime::Unused
            },
            as_caller: false,
            owner: ConnectionOwner::Stateless(principal),
        },
    }
}

/// The connection that all clients of an era share beside the main one.
pub(super) fn shared_in_era(era: Era, idle: Option<Duration>) -> DedicatedSpec {
    let ends = idle.map_or(ConnectionLifetime::Never, ConnectionLifetime::Idle);
    DedicatedSpec { key: era_key(era), lifetime: ends, as_caller: false, owner: ConnectionOwner::Era(era) }
}

/// Whether a call is about a task, or may become one: tasks outlive their calls, and are found on the connection that
/// everybody shares. What they ask names them.
pub(super) fn is_about_task(call: &Call) -> bool {
    matches!(call.method, McpMethod::Task(_))
        || (call.task_mode != TaskMode::Never && crate::revision::may_be_task(call.definition.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn who_must_not_meet_gets_another_connection() {
        let (first, second) = (testing::caller(1, Some("a")), testing::caller(1, Some("b")));
        let (stateless, other) = (testing::caller(1, None), testing::caller(2, None));
        let key = |share, caller: &Caller| {
            dedicated_for(share, caller, None, None).map(|beside| (beside.key, beside.lifetime))
        };
        assert_eq!(key(SharingMode::Auto, &first), None);
        assert_ne!(key(SharingMode::Session, &first), key(SharingMode::Session, &second));
        assert_eq!(key(SharingMode::Session, &first).unwrap().1, ConnectionLifetime::WithSession);
        assert_ne!(key(SharingMode::Session, &stateless), key(SharingMode::Session, &other));
        assert_eq!(key(SharingMode::Session, &stateless).unwrap().1, ConnectionLifetime::Unused);
        assert_eq!(key(SharingMode::Principal, &first), key(SharingMode::Principal, &second), "the same principal");
        assert_ne!(key(SharingMode::Principal, &first), key(SharingMode::Principal, &other));
    }

    #[test]
    fn legacy_clients_share_the_connection_in_their_era() {
        let (first, second) = (testing::caller(1, Some("a")), testing::caller(2, Some("b")));
        let other = Some(Era::Legacy);
        let legacy = dedicated_for(SharingMode::Auto, &first, other, None).unwrap();
        assert_eq!((legacy.as_caller, legacy.lifetime), (false, ConnectionLifetime::Never));
        assert_eq!(dedicated_for(SharingMode::Auto, &second, other, None).unwrap(), legacy);
        assert_ne!(dedicated_for(SharingMode::Auto, &second, Some(Era::Modern), None).unwrap().key, legacy.key);
        let own = dedicated_for(SharingMode::Principal, &first, other, None).unwrap();
        assert!(own.as_caller && Some(own.key) != key(SharingMode::Principal, &first, None));
    }

    #[test]
    fn what_a_server_started_on_use_has_for_several_ends_without_need() {
        let (session, idle) = (testing::caller(1, Some("a")), Duration::from_secs(10));
        let ends = |share, other| dedicated_for(share, &session, other, Some(idle)).unwrap().lifetime;
        assert_eq!(ends(SharingMode::Principal, None), ConnectionLifetime::Idle(idle));
        assert_eq!(ends(SharingMode::Auto, Some(Era::Legacy)), ConnectionLifetime::Idle(idle));
        assert_eq!(ends(SharingMode::Session, None), ConnectionLifetime::WithSession);
    }

    #[test]
    fn calls_apart_have_a_connection_of_their_session_or_their_principal() {
        let (session, stateless) = (testing::caller(1, Some("a")), testing::caller(1, None));
        let can = crate::model::ClientCapabilities { sample: true, ..crate::model::ClientCapabilities::default() };
        let able = Caller { capabilities: can, ..(*stateless).clone() };
        let apart = |caller: &Caller, home| super::isolated_for(caller, home, None);
        assert_eq!(apart(&session, true).lifetime, ConnectionLifetime::WithSession);
        assert_eq!(
            (apart(&able, true).lifetime, apart(&able, false).lifetime),
            (ConnectionLifetime::Never, ConnectionLifetime::Unused)
        );
        assert_eq!(apart(&stateless, true), apart(&able, true), "whatever the client can be asked for");
        assert_ne!(apart(&stateless, true).key, apart(&testing::caller(2, None), true).key);
        assert_eq!(
            isolated_for(&able, true, Some(Duration::from_secs(1))).lifetime,
            ConnectionLifetime::Idle(Duration::from_secs(1))
        );
    }
}
