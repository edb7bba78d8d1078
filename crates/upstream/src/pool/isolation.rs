//! Isolation rules: which callers share a connection. A pure function of the settings, the caller
//! and the server's behaviour. Does not know any connection (`pool`). Invariant: callers that must
//! be isolated get different keys.

use std::time::Duration;

use crate::connection_owner::ConnectionOwner;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, ClientCapabilities, McpMethod, SharingMode, TaskMode};
use moongate_protocol::Era;

/// Lifetime of a dedicated connection that does not break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLifetime {
    /// Ends with the session that it was opened for.
    WithSession,
    /// Ends when no call has used it for a while.
    Unused,
    /// Ends after this idle time, because its server is lazy.
    Idle(Duration),
    /// Ends with the server, or to make room for another client.
    Never,
}

/// Specification of a dedicated connection.
#[derive(Debug, PartialEq)]
pub(crate) struct DedicatedSpec {
    /// Key in the pool.
    pub(crate) key: ByteString,
    /// Lifetime.
    pub(crate) lifetime: ConnectionLifetime,
    /// True if the connection declares the caller's own capabilities. False: the capabilities of
    /// all clients.
    pub(crate) as_caller: bool,
    /// Owner.
    pub(crate) owner: ConnectionOwner,
}

/// Returns the dedicated connection that the settings require for a caller. `None`: the shared
/// connection. `other_era`: the era to use, if it differs from the shared connection's. `idle`: the
/// idle time of a connection that several clients share.
pub(crate) fn dedicated_for(
    share: SharingMode,
    caller: &Caller,
    other_era: Option<Era>,
    idle: Option<Duration>,
) -> Option<DedicatedSpec> {
    let lifetime = match (share, &caller.session) {
        (SharingMode::Session, Some(_)) => ConnectionLifetime::WithSession,
        // Nothing announces the end of a stateless client, so only disuse shows it.
        (SharingMode::Session, None) => ConnectionLifetime::Unused,
        _ => idle.map_or(ConnectionLifetime::Never, ConnectionLifetime::Idle),
    };
    match dedicated_key(share, caller, other_era) {
        Some(key) => Some(DedicatedSpec {
            key,
            lifetime,
            as_caller: true,
            owner: dedicated_owner(share, caller),
        }),
        // Clients without their own key share one connection in the other era.
        None => other_era.map(|era| shared_in_era(era, idle)),
    }
}

/// Returns the key of the dedicated connection of an era. No session or principal has such a key.
pub(crate) fn era_key(era: Era) -> ByteString {
    ByteString::literal(match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    })
}

/// Returns true for the key of the dedicated connection of an era.
pub(crate) fn is_era_key(key: &ByteString) -> bool {
    [Era::Legacy, Era::Modern].map(era_key).contains(key)
}

/// Returns the key of a caller's connection. `None`: the shared connection.
///
/// A stateless client has no session, so its principal and its capabilities replace one: calls that
/// agree in both share a connection, which was opened with these capabilities.
pub(crate) fn dedicated_key(
    share: SharingMode,
    caller: &Caller,
    other_era: Option<Era>,
) -> Option<ByteString> {
    let principal = caller.principal.id;
    let in_era = other_era
        .map(|era| format!(", {}", era_key(era)))
        .unwrap_or_default();
    match (share, &caller.session) {
        // By default all share: whether a call needs isolation shows only when the server asks for
        // input.
        (SharingMode::Auto, _) => None,
        (SharingMode::Session, Some(session)) => Some(session.clone()),
        // Stateless clients are distinguished by their capabilities.
        (SharingMode::Session, None) => Some(ByteString::from(format!(
            "principal {principal}, {:?}{in_era}",
            caller.capabilities
        ))),
        (SharingMode::Principal, _) => {
            Some(ByteString::from(format!("principal {principal}{in_era}")))
        }
    }
}

/// Returns the owner of a dedicated connection that is opened for this caller.
pub(crate) fn dedicated_owner(share: SharingMode, caller: &Caller) -> ConnectionOwner {
    match (share, &caller.session) {
        (SharingMode::Principal, _) => ConnectionOwner::Principal(caller.principal.id),
        (_, Some(session)) => ConnectionOwner::Session(session.clone()),
        (_, None) => ConnectionOwner::Stateless(caller.principal.id),
    }
}

/// Returns the key of a session's connection to a server that sends input requests.
pub(crate) fn session_key(session: &ByteString) -> ByteString {
    // The prefix keeps this key apart from the one of `share = "session"`, which is the bare id.
    ByteString::from(format!("asked {session}"))
}

fn principal_key(principal: u32) -> ByteString {
    ByteString::from(format!("principal {principal}"))
}

/// Returns the principal of a connection that no session has, from its key.
pub(crate) fn principal_of_key(key: &ByteString) -> Option<u32> {
    // The form is that of `dedicated_key` and `principal_key`.
    let rest = key.strip_prefix("principal ")?;
    rest.split(',').next()?.parse().ok()
}

/// Returns the spec of a call's isolated connection: its session's or its principal's. `stays`:
/// true if the client's other calls go there, too. `idle`: the idle time of a lazy server.
///
/// A principal's connection declares the capabilities of all clients, since its clients may differ
/// in theirs.
pub(crate) fn isolated_for(caller: &Caller, stays: bool, idle: Option<Duration>) -> DedicatedSpec {
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
            lifetime: if stays {
                idle.map_or(ConnectionLifetime::Never, ConnectionLifetime::Idle)
            } else {
                ConnectionLifetime::Unused
            },
            as_caller: false,
            owner: ConnectionOwner::Stateless(principal),
        },
    }
}

/// Returns the dedicated connection that all clients of an era share.
pub(crate) fn shared_in_era(era: Era, idle: Option<Duration>) -> DedicatedSpec {
    let lifetime = idle.map_or(ConnectionLifetime::Never, ConnectionLifetime::Idle);
    DedicatedSpec {
        key: era_key(era),
        lifetime,
        as_caller: false,
        owner: ConnectionOwner::Era(era),
    }
}

/// Returns what a client can answer, if it can have a connection that declares just that. One
/// without a session can't: nothing distinguishes its later calls from another's.
pub(crate) fn own_capabilities(caller: &Caller, traits: CallTraits) -> Option<ClientCapabilities> {
    (caller.session.is_some() && !traits.about_task).then_some(caller.capabilities)
}

/// What the choice of a connection must know of a call.
#[derive(Clone, Copy)]
pub(crate) struct CallTraits {
    /// True if the call is about a task, or may become one. Tasks outlive their calls, and their
    /// input requests name them. They stay on the shared connection, where all find them.
    pub(crate) about_task: bool,
    /// True if the client may use the server's extensions.
    pub(crate) extensions: bool,
    /// True if losing the call may lose effects.
    pub(crate) is_tool_call: bool,
}

impl CallTraits {
    pub(crate) fn of(call: &Call) -> Self {
        let about_task = matches!(call.method, McpMethod::Task(_))
            || (call.task_mode != TaskMode::Never
                && moongate_protocol::may_be_task(call.definition.as_deref()));
        CallTraits {
            about_task,
            extensions: call.extensions,
            is_tool_call: call.method == McpMethod::CallTool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_testing as testing;

    fn key(share: SharingMode, caller: &Caller) -> Option<(ByteString, ConnectionLifetime)> {
        dedicated_for(share, caller, None, None).map(|spec| (spec.key, spec.lifetime))
    }

    #[test]
    fn callers_that_must_be_isolated_get_distinct_connections() {
        let first = testing::caller(1, Some("a"));
        let second = testing::caller(1, Some("b"));
        let stateless = testing::caller(1, None);
        let other_era = testing::caller(2, None);
        assert_eq!(key(SharingMode::Auto, &first), None);
        assert_ne!(
            key(SharingMode::Session, &first),
            key(SharingMode::Session, &second)
        );
        assert_eq!(
            key(SharingMode::Session, &first).unwrap().1,
            ConnectionLifetime::WithSession
        );
        assert_ne!(
            key(SharingMode::Session, &stateless),
            key(SharingMode::Session, &other_era)
        );
        assert_eq!(
            key(SharingMode::Session, &stateless).unwrap().1,
            ConnectionLifetime::Unused
        );
        assert_eq!(
            key(SharingMode::Principal, &first),
            key(SharingMode::Principal, &second),
            "the same principal"
        );
        assert_ne!(
            key(SharingMode::Principal, &first),
            key(SharingMode::Principal, &other_era)
        );
    }

    #[test]
    fn legacy_clients_share_the_connection_in_their_era() {
        let first = testing::caller(1, Some("a"));
        let second = testing::caller(2, Some("b"));
        let other_era = Some(Era::Legacy);
        let legacy = dedicated_for(SharingMode::Auto, &first, other_era, None).unwrap();
        // Nothing of the first caller is in it, since others share it.
        assert!(!legacy.as_caller);
        assert_eq!(legacy.lifetime, ConnectionLifetime::Never);
        assert_eq!(
            dedicated_for(SharingMode::Auto, &second, other_era, None).unwrap(),
            legacy
        );
        assert_ne!(
            dedicated_for(SharingMode::Auto, &second, Some(Era::Modern), None)
                .unwrap()
                .key,
            legacy.key
        );
        let own = dedicated_for(SharingMode::Principal, &first, other_era, None).unwrap();
        assert!(
            own.as_caller && Some(own.key) != dedicated_key(SharingMode::Principal, &first, None)
        );
    }

    #[test]
    fn dedicated_connections_of_a_lazy_server_close_when_idle() {
        let session = testing::caller(1, Some("a"));
        let idle = Duration::from_secs(10);
        for (share, other_era, lifetime) in [
            (SharingMode::Principal, None, ConnectionLifetime::Idle(idle)),
            (
                SharingMode::Auto,
                Some(Era::Legacy),
                ConnectionLifetime::Idle(idle),
            ),
            (SharingMode::Session, None, ConnectionLifetime::WithSession),
        ] {
            let spec = dedicated_for(share, &session, other_era, Some(idle)).unwrap();
            assert_eq!(spec.lifetime, lifetime);
        }
    }

    #[test]
    fn calls_apart_have_a_connection_of_their_session_or_their_principal() {
        let session = testing::caller(1, Some("a"));
        let stateless = testing::caller(1, None);
        let can = moongate_model::ClientCapabilities {
            sample: true,
            ..moongate_model::ClientCapabilities::default()
        };
        let able = Caller {
            capabilities: can,
            ..(*stateless).clone()
        };
        assert_eq!(
            isolated_for(&session, true, None).lifetime,
            ConnectionLifetime::WithSession
        );
        assert_eq!(
            isolated_for(&able, true, None).lifetime,
            ConnectionLifetime::Never
        );
        assert_eq!(
            isolated_for(&able, false, None).lifetime,
            ConnectionLifetime::Unused
        );
        assert_eq!(
            isolated_for(&stateless, true, None),
            isolated_for(&able, true, None),
            "whatever the client can be asked for"
        );
        assert_ne!(
            isolated_for(&stateless, true, None).key,
            isolated_for(&testing::caller(2, None), true, None).key
        );
        assert_eq!(
            isolated_for(&able, true, Some(Duration::from_secs(1))).lifetime,
            ConnectionLifetime::Idle(Duration::from_secs(1))
        );
    }
}
