//! Who shares a connection with whom.
//!
//! A pure decision: from the settings, the caller and what a connection has shown, to a name of a connection. Knows no
//! connection. Invariant: callers that must not meet get different names.

use std::time::Duration;

use crate::json::Text;
use crate::model::{Call, Caller, Method, TaskWish};
use crate::revision::Era;
use crate::upstream::Share;
use crate::upstream::ears::Owner;

/// When a connection beside the main one ends that does not break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
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
pub(super) struct Beside {
    /// What it is found by.
    pub(super) key: Text,
    /// When it ends.
    pub(super) ends: Ends,
    /// Whether it is opened as the caller says of itself, or for everybody.
    pub(super) as_caller: bool,
    /// Whose it is.
    pub(super) owner: Owner,
}

/// Where a caller's calls go by the settings alone; `None`: to the main connection. `other`: the era in which it is to
/// meet the server, although the main connection is in another; `idle`: how long a connection that several share is kept
/// without being needed.
pub(super) fn beside(share: Share, caller: &Caller, other: Option<Era>, idle: Option<Duration>) -> Option<Beside> {
    let ends = match (share, &caller.session) {
        (Share::Session, Some(_)) => Ends::WithSession,
        (Share::Session, None) => Ends::Unused,
        _ => idle.map_or(Ends::Never, Ends::Idle),
    };
    match key(share, caller, other) {
        Some(key) => Some(Beside { key, ends, as_caller: true, owner: owner(share, caller) }),
        None => other.map(|era| of_era(era, idle)),
    }
}

/// The name of the connection that all clients of an era share beside the main one. No session and no principal is
/// called so.
pub(super) fn era_key(era: Era) -> Text {
    Text::literal(match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    })
}

/// What a caller's connection is found by; `None`: it uses the main one.
///
/// A stateless client has no session. What comes nearest is who it is and what it can be asked for: its calls share a
/// connection that was opened with its own capabilities.
pub(super) fn key(share: Share, caller: &Caller, other: Option<Era>) -> Option<Text> {
    let principal = caller.principal.id;
    let in_era = other.map(|era| format!(", {}", era_key(era))).unwrap_or_default();
    match (share, &caller.session) {
        (Share::Auto, _) => None,
        (Share::Session, Some(session)) => Some(session.clone()),
        // They are told apart by what they can be asked for.
        (Share::Session, None) => Some(Text::from(format!("principal {principal}, {:?}", caller.can))),
        (Share::Principal, _) => Some(Text::from(format!("principal {principal}{in_era}"))),
    }
}

/// Whose a connection beside the main one is that is opened for this caller.
pub(super) fn owner(share: Share, caller: &Caller) -> Owner {
    match (share, &caller.session) {
        (Share::Principal, _) => Owner::Principal(caller.principal.id),
        (_, Some(session)) => Owner::Session(session.clone()),
        (_, None) => Owner::Stateless(caller.principal.id),
    }
}

/// The name of a connection that a session has because its server asks.
pub(super) fn session_key(session: &Text) -> Text {
    Text::from(format!("asked {session}"))
}

fn principal_key(principal: u32) -> Text {
    Text::from(format!("principal {principal}"))
}

/// The connection that a call has because its server asks: its session's or its principal's. `home`: whether the client's
/// other calls go there, too. `idle`: how long a server that is started on use is kept without being needed.
///
/// A principal's is opened as the main one is: its clients may differ in what they can be asked for.
pub(super) fn apart(caller: &Caller, home: bool, idle: Option<Duration>) -> Beside {
    let principal = caller.principal.id;
    match &caller.session {
        Some(session) => Beside {
            key: session_key(session),
            ends: Ends::WithSession,
            as_caller: true,
            owner: Owner::Session(session.clone()),
        },
        None => Beside {
            key: principal_key(principal),
            ends: if home { idle.map_or(Ends::Never, Ends::Idle) } else { Ends::Unused },
            as_caller: false,
            owner: Owner::Stateless(principal),
        },
    }
}

/// The connection that all clients of an era share beside the main one.
pub(super) fn of_era(era: Era, idle: Option<Duration>) -> Beside {
    let ends = idle.map_or(Ends::Never, Ends::Idle);
    Beside { key: era_key(era), ends, as_caller: false, owner: Owner::Era(era) }
}

/// Whether a call is about a task, or may become one: tasks outlive their calls, and are found on the connection that
/// everybody shares. What they ask names them.
pub(super) fn is_about_task(call: &Call) -> bool {
    matches!(call.method, Method::Task(_))
        || (call.task != TaskWish::Never && crate::revision::may_be_task(call.definition.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn who_must_not_meet_gets_another_connection() {
        let (first, second) = (testing::caller(1, Some("a")), testing::caller(1, Some("b")));
        let (stateless, other) = (testing::caller(1, None), testing::caller(2, None));
        let key = |share, caller: &Caller| beside(share, caller, None, None).map(|beside| (beside.key, beside.ends));
        assert_eq!(key(Share::Auto, &first), None);
        assert_ne!(key(Share::Session, &first), key(Share::Session, &second));
        assert_eq!(key(Share::Session, &first).unwrap().1, Ends::WithSession);
        assert_ne!(key(Share::Session, &stateless), key(Share::Session, &other));
        assert_eq!(key(Share::Session, &stateless).unwrap().1, Ends::Unused);
        assert_eq!(key(Share::Principal, &first), key(Share::Principal, &second), "the same principal");
        assert_ne!(key(Share::Principal, &first), key(Share::Principal, &other));
    }

    #[test]
    fn legacy_clients_share_the_connection_in_their_era() {
        let (first, second) = (testing::caller(1, Some("a")), testing::caller(2, Some("b")));
        let other = Some(Era::Legacy);
        let legacy = beside(Share::Auto, &first, other, None).unwrap();
        assert_eq!((legacy.as_caller, legacy.ends), (false, Ends::Never));
        assert_eq!(beside(Share::Auto, &second, other, None).unwrap(), legacy);
        assert_ne!(beside(Share::Auto, &second, Some(Era::Modern), None).unwrap().key, legacy.key);
        let own = beside(Share::Principal, &first, other, None).unwrap();
        assert!(own.as_caller && Some(own.key) != key(Share::Principal, &first, None));
    }

    #[test]
    fn what_a_server_started_on_use_has_for_several_ends_without_need() {
        let (session, idle) = (testing::caller(1, Some("a")), Duration::from_secs(10));
        let ends = |share, other| beside(share, &session, other, Some(idle)).unwrap().ends;
        assert_eq!(ends(Share::Principal, None), Ends::Idle(idle));
        assert_eq!(ends(Share::Auto, Some(Era::Legacy)), Ends::Idle(idle));
        assert_eq!(ends(Share::Session, None), Ends::WithSession);
    }

    #[test]
    fn calls_apart_have_a_connection_of_their_session_or_their_principal() {
        let (session, stateless) = (testing::caller(1, Some("a")), testing::caller(1, None));
        let can = crate::model::Can { sample: true, ..crate::model::Can::default() };
        let able = Caller { can, ..(*stateless).clone() };
        let apart = |caller: &Caller, home| super::apart(caller, home, None);
        assert_eq!(apart(&session, true).ends, Ends::WithSession);
        assert_eq!((apart(&able, true).ends, apart(&able, false).ends), (Ends::Never, Ends::Unused));
        assert_eq!(apart(&stateless, true), apart(&able, true), "whatever the client can be asked for");
        assert_ne!(apart(&stateless, true).key, apart(&testing::caller(2, None), true).key);
        assert_eq!(super::apart(&able, true, Some(Duration::from_secs(1))).ends, Ends::Idle(Duration::from_secs(1)));
    }
}
