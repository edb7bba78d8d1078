//! State reports of a connected server. Sets the state that lists and the circuit breaker stand
//! for, and logs its changes. Does not list and does not call. Invariant: a lasting state is logged
//! at most once an hour, and a flapping one a few times (`state_log_policy.rs`).

use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::supervisor::supervised_server::SupervisedServer;
use moongate_model::{ItemKind, SharingMode, UpstreamState};

/// Failure to list a server in full.
pub(crate) struct ListFailure {
    pub(crate) reason: String,
    /// The server is not reachable at all.
    pub(crate) is_down: bool,
    /// The server refused every list. It may be another server by now.
    pub(crate) is_refused: bool,
}

/// Publishes whether the lists of a connected server were fetched.
pub(crate) fn report_lists(
    supervised: &SupervisedServer,
    connection: &UpstreamConnection,
    listed: &Result<(), ListFailure>,
) {
    let name = supervised.name();
    let items = supervised.lists.load();
    match listed {
        Ok(()) => {
            let tools = items.get(ItemKind::Tools).items.len();
            if let Some(repeated) = supervised.log_policy.record(UpstreamState::Ready, "") {
                tracing::info!(
                    server = name,
                    revision = connection.revision,
                    tools,
                    repeated,
                    "connected"
                );
            }
            supervised.set_state(UpstreamState::Ready, explain_ready(supervised), None, None);
        }
        Err(ListFailure { reason, .. }) => {
            if let Some(repeated) = supervised
                .log_policy
                .record(UpstreamState::Degraded, reason)
            {
                tracing::warn!(
                    server = name,
                    revision = connection.revision,
                    repeated,
                    "connected, but not listed: {reason}"
                );
            }
            supervised.set_state(UpstreamState::Degraded, reason.clone(), None, None);
        }
    }
}

/// Publishes whether the circuit breaker is open.
pub(crate) fn report_breaker(supervised: &SupervisedServer) {
    let name = supervised.name();
    match supervised.breaker.open_state() {
        Some(open_state) => {
            if let Some(repeated) = supervised.log_policy.record(
                UpstreamState::Degraded,
                &format!("breaker: {}", open_state.reason),
            ) {
                tracing::warn!(
                    server = name,
                    repeated,
                    "circuit breaker opened for {:?}: {}",
                    open_state.remaining,
                    open_state.reason
                );
            }
            supervised.server.metrics().servers.breaker_opened.inc(name);
            supervised.set_state(
                UpstreamState::Degraded,
                format!("its calls keep failing: {}", open_state.reason),
                Some(Instant::now() + open_state.remaining),
                None,
            );
        }
        None => {
            if let Some(repeated) = supervised.log_policy.record(
                UpstreamState::Ready,
                "circuit breaker closed: calls succeed again",
            ) {
                tracing::info!(
                    server = name,
                    repeated,
                    "circuit breaker closed: calls succeed again"
                );
            }
            supervised.set_state(UpstreamState::Ready, explain_ready(supervised), None, None);
        }
    }
}

/// Shows again what people should know of a server that is ready.
pub(crate) fn report_ready(supervised: &SupervisedServer) {
    if supervised.server.state() == UpstreamState::Ready {
        supervised.set_state(UpstreamState::Ready, explain_ready(supervised), None, None);
    }
}

/// Returns who gets a connection that declares roots, at a server that asks for them.
fn explain_roots(share: SharingMode) -> &'static str {
    match share {
        SharingMode::Auto => {
            "it asks for its clients' roots: a session that declares them has its own connection, \
             and all other clients use the server without roots"
        }
        SharingMode::Session => {
            "it asks for its clients' roots, and each session that declares them is asked"
        }
        SharingMode::Principal => {
            "it asks for its clients' roots, but clients that share a principal cannot be asked \
             outside their calls (share = \"session\" gives each its own connection)"
        }
    }
}

/// Returns what people should know of a server that is ready: why it offers nothing, or what it
/// cannot do.
fn explain_ready(supervised: &SupervisedServer) -> String {
    let mut notes = supervised
        .pool
        .description()
        .map(|description| description.notes)
        .unwrap_or_default();
    if supervised.pool.seen_input_flag.asks_roots() {
        notes.push(explain_roots(supervised.server.settings.options.share).to_owned());
    }
    if notes.is_empty() && !supervised.lists.has_items() {
        notes.push("it offers nothing: every list that it announces is empty".to_owned());
    }
    notes.join("; ")
}
