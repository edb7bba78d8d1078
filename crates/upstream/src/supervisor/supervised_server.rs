//! Server as its supervisor sees it: the parts that it drives, and the state that it publishes.
//! Owns the order of a change of state. Does not connect or list. Invariant: the status, its
//! metrics and the stderr lines change together.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::circuit_breaker::CircuitBreaker;
use crate::connection::UpstreamConnection;
use crate::connection::idle_tracker::IdleTracker;
use crate::connection::reconnect_backoff::ReconnectDelay;
use crate::lists::ListStore;
use crate::lists::cache::ListedServer;
use crate::login_need::ConnectFailure;
use crate::pool::ConnectionPool;
use crate::server_context::ServerContext;
use crate::status::UpstreamStatus;
use crate::supervisor::state_log_policy::StateLogPolicy;
use crate::supervisor::stderr_history::StderrHistory;
use moongate_model::UpstreamState;

/// Parts of a server that its supervisor drives.
pub(crate) struct SupervisedServer {
    pub(crate) server: Arc<ServerContext>,
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) lists: Arc<ListStore>,
    pub(crate) breaker: Arc<CircuitBreaker>,
    /// Activity of the server's calls.
    pub(crate) activity: IdleTracker,
    pub(crate) stderr_history: StderrHistory,
    pub(crate) log_policy: StateLogPolicy,
    /// Cancelled once the server is stopped.
    pub(crate) stopped: CancellationToken,
}

impl SupervisedServer {
    /// Returns the name for logs and metrics.
    pub(crate) fn name(&self) -> &str {
        &self.server.settings.name
    }

    /// Returns true if a client needs the server even without calls: for a subscription, or for a
    /// dedicated connection.
    pub(crate) fn is_needed(&self) -> bool {
        !self.lists.resources.is_empty() || self.pool.dedicated_count() > 0
    }

    /// Publishes the state and the times of the next attempt: without demand, and with demand
    /// (`demand_from`).
    pub(crate) fn set_state(
        &self,
        state: UpstreamState,
        reason: String,
        next_attempt: Option<Instant>,
        demand_from: Option<Instant>,
    ) {
        self.publish(UpstreamStatus {
            state,
            reason,
            next_attempt,
            demand_from,
            ..UpstreamStatus::default()
        });
    }

    /// Publishes why the connection is missing, and the delay before the next attempt.
    pub(crate) fn set_disconnected(&self, failure: ConnectFailure, delay: &ReconnectDelay) {
        self.publish(UpstreamStatus {
            state: delay.state,
            reason: failure.reason,
            needs_login: failure.needs_login,
            next_attempt: Some(delay.until),
            demand_from: Some(delay.demand_from),
            ..UpstreamStatus::default()
        });
    }

    /// Publishes a state, with the times and the process that belong to it.
    fn publish(&self, status: UpstreamStatus) {
        let state = status.state;
        let connection = self.pool.shared();
        let pid = connection
            .as_ref()
            .and_then(|connection| connection.link.pid());
        let before = self.server.status.borrow().clone();
        if state == UpstreamState::Ready {
            self.stderr_history.forget_previous();
        }
        // The start of an outage stays the same through all failed attempts.
        let disconnected_since = if connection.is_some() {
            None
        } else {
            before.disconnected_since.or_else(|| Some(Instant::now()))
        };
        let state_since = before
            .state_since
            .filter(|_| before.state == state)
            .or_else(|| Some(Instant::now()));
        // Metrics first: a task that the status wakes may read them.
        self.server.publish_state(state);
        self.server.status.send_replace(UpstreamStatus {
            disconnected_since,
            state_since,
            pid,
            was_slow: before.was_slow && state == UpstreamState::Starting,
            ..status
        });
    }

    /// Confirms the lists that a connection showed, and persists them for the next process.
    pub(crate) fn persist_lists(&self, connection: &UpstreamConnection) {
        self.lists.confirm_and_persist(&ListedServer {
            server: &*connection.server,
            era: connection.era,
            is_multiplexed: connection.link.is_multiplexed(),
            speaks_other_era: self
                .pool
                .last_handshake()
                .and_then(|handshake| handshake.speaks_other_era),
            greeting: self.pool.greeting(),
            seen_requests: self.pool.seen_input_flag.seen_requests(),
            legacy_tools: self.pool.legacy_tools.names(),
            asking_tools: self.pool.asking_tools.names(),
        });
    }
}
