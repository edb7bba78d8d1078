//! Life of one dedicated connection, from its dial to its close. Owns the order of its end: out of
//! the table first, then closed. Does not choose who gets the connection (`table.rs`). Invariant:
//! every dial settles, so that its waiters always wake.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::all_servers::UpstreamRuntime;
use crate::all_servers::owner_subscriptions::OwnerDemandWatch;
use crate::connection::UpstreamConnection;
use crate::connection::dial::{ConnectIdentity, dial};
use crate::connection::health_check::HealthCheck;
use crate::connection::idle_tracker::UNUSED_TIME;
use crate::connection::reconnect_backoff::ReconnectBackoff;
use crate::login_need::ConnectFailure;
use crate::pool::connect_budget::PROVEN;
use crate::pool::dedicated::backoff_table::ConnectCooldown;
use crate::pool::dedicated::notification_router::NotificationRouter;
use crate::pool::dedicated::notification_stream::forward_notifications;
use crate::pool::dedicated::session_row::UpstreamSessionRow;
use crate::pool::dedicated::table::{DedicatedEntry, DedicatedPool};
use crate::pool::isolation::{self, ConnectionLifetime};
use crate::server_context::seconds;
use crate::settings::ServerSettings;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Error, McpErrorKind, login_sentence};
use moongate_protocol::{CallTimeouts, ConnectError};
use moongate_telemetry::Metrics;
use moongate_transport::LinkError;

/// Returns the error of a connection that cools down, with the time of the next attempt.
pub(super) fn cooldown_error(server: &str, cooldown: &ConnectCooldown) -> Error {
    // The next attempt would not help, because the server needs a login.
    if cooldown.needs_login {
        return Error::new(McpErrorKind::ServerDown, login_sentence(server));
    }
    let left = cooldown.until.saturating_duration_since(Instant::now());
    let when = match left.is_zero() {
        true => String::new(),
        false => format!("; the next attempt is possible in {}", seconds(left)),
    };
    Error::new(
        McpErrorKind::ServerDown,
        format!(
            "Server \"{server}\" failed to connect: {}{when}",
            cooldown.reason
        ),
    )
}

/// Dedicated connection from its dial to its close, with all that its task needs.
pub(super) struct DedicatedLifecycle {
    pub(super) pool: DedicatedPool,
    pub(super) key: ByteString,
    pub(super) entry: Arc<DedicatedEntry>,
    pub(super) lifetime: ConnectionLifetime,
    /// Cancelled when the gateway stops the server.
    pub(super) stop: CancellationToken,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: HealthCheck,
    /// Row in the store, by which the next process resumes the session.
    pub(super) row: Option<UpstreamSessionRow>,
    pub(super) subscriptions: OwnerDemandWatch,
    pub(super) router: NotificationRouter,
    pub(super) settings: Arc<ServerSettings>,
}

/// Parameters of one dial.
pub(super) struct DialParameters {
    pub(super) settings: Arc<ServerSettings>,
    pub(super) context: Arc<UpstreamRuntime>,
    pub(super) times: Arc<CallTimeouts>,
    pub(super) connect_identity: ConnectIdentity,
    pub(super) backoff: ReconnectBackoff,
}

/// Ends a dial on every path: wakes its waiters, and removes a connection that was not opened.
struct AttemptGuard {
    pool: DedicatedPool,
    key: ByteString,
    entry: Arc<DedicatedEntry>,
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        if self.entry.connection().is_none() {
            self.pool.lock().remove(&self.key, &self.entry);
        }
        self.entry.settled.cancel();
    }
}

/// Reason why the connection is missing.
enum DialFailure {
    /// The dial failed, for the reason that people read.
    Dial(ConnectError, ConnectFailure),
    /// The client is gone, or the place was given away.
    Unwanted(&'static str),
}

impl DialFailure {
    /// Describes a dial that failed. `is_personal`: its credential is one person's.
    fn of_dial(error: ConnectError, settings: &ServerSettings, is_personal: bool) -> Self {
        // `moongate login` gives nobody a login that is theirs alone.
        let failure = if is_personal {
            ConnectFailure::other(error.to_string())
        } else {
            settings.describe_failure(&error)
        };
        DialFailure::Dial(error, failure)
    }

    /// Returns true if the server refused the credential.
    fn refuses_credential(&self) -> bool {
        matches!(
            self,
            DialFailure::Dial(
                ConnectError::Link(LinkError::Status {
                    status: 401 | 403,
                    ..
                }),
                _
            )
        )
    }
}

impl DedicatedLifecycle {
    /// Waits until no client can need the connection. Returns the reason.
    async fn wait_unwanted(&self, caller: &Caller) -> &'static str {
        let ended = async {
            match self.lifetime {
                ConnectionLifetime::WithSession => caller.ended.cancelled().await,
                ConnectionLifetime::Unused
                | ConnectionLifetime::Idle(_)
                | ConnectionLifetime::Never => std::future::pending().await,
            }
        };
        tokio::select! {
            () = ended => "the client's session ended",
            () = self.entry.evicted.cancelled() => "its place was given to another client's \
                connection",
            () = self.stop.cancelled() => "it is being stopped",
        }
    }

    /// Records a failed dial and returns its error. The next call may dial again once the backoff
    /// allows it.
    fn give_up(&self, backoff: ReconnectBackoff, failure: DialFailure) -> Error {
        let mut table = self.pool.lock();
        table.remove(&self.key, &self.entry);
        match failure {
            DialFailure::Dial(error, failure) => {
                if let Some(attempt) = self.entry.take_attempt() {
                    attempt.fail();
                }
                // Both are answers of the server: it does not speak this era.
                let refused = matches!(
                    error,
                    ConnectError::Answered(_) | ConnectError::NoCommonRevision(_)
                );
                table.refused = refused.then(|| self.key.clone());
                let cooldown = table.backoffs.on_failure(
                    &self.key,
                    backoff,
                    (&error, &failure),
                    Instant::now(),
                );
                // A server that speaks one era refuses the other, which is not worth a warning.
                if !(refused && isolation::is_era_key(&self.key)) {
                    let reason = &*cooldown.reason;
                    tracing::warn!(
                        server = self.settings.name,
                        "dedicated connection not opened: {reason}"
                    );
                }
                cooldown_error(&self.settings.name, &cooldown)
            }
            DialFailure::Unwanted(reason) => {
                // The server did nothing wrong: the attempt is returned to the budget.
                drop(self.entry.take_attempt());
                // Evicted during the dial: the key cools down as after a loss.
                if self.entry.evicted.is_cancelled() {
                    table.backoffs.on_loss(
                        &self.key,
                        backoff,
                        Duration::ZERO,
                        reason,
                        self.settings.live.connect_timeout.0,
                    );
                }
                let message = format!(
                    "Server \"{}\" was not connected: {reason}",
                    self.settings.name
                );
                Error::new(McpErrorKind::ServerDown, message)
            }
        }
    }
}

/// Opens a connection and runs it until its lifetime is over.
pub(super) async fn run_dedicated(
    lifecycle: DedicatedLifecycle,
    parameters: DialParameters,
    caller: Arc<Caller>,
) {
    let attempt_guard = AttemptGuard {
        pool: lifecycle.pool.clone(),
        key: lifecycle.key.clone(),
        entry: lifecycle.entry.clone(),
    };
    let DialParameters {
        settings,
        context: common,
        times,
        connect_identity,
        backoff,
    } = parameters;
    let is_personal = common
        .find_credentials(&settings, connect_identity.person.as_ref())
        .is_some_and(|source| source.is_personal());
    let opened = tokio::select! {
        // Polled first: a connection that no client needs is not dialed.
        biased;
        reason = lifecycle.wait_unwanted(&caller) => Err(DialFailure::Unwanted(reason)),
        opened = dial(&settings, &common, connect_identity, times) =>
            opened.map_err(|error| DialFailure::of_dial(error, &settings, is_personal)),
    };
    // The connection may live for long, and needs neither of them any more.
    drop((settings, common));
    match opened {
        Ok(connection) => {
            let connection = Arc::new(connection);
            lifecycle.pool.lock().backoffs.on_success();
            if let Some(row) = &lifecycle.row {
                row.persist(&connection);
            }
            // Set before the guard drops, since its drop wakes the callers that read the result.
            let _ = lifecycle.entry.opened.set(Ok(connection.clone()));
            drop(attempt_guard);
            run_until_end(lifecycle, connection, caller, backoff).await;
        }
        Err(failure) => {
            if is_personal && failure.refuses_credential() {
                // One person's refusal says nothing of the server: the attempt is returned to the
                // budget.
                drop(lifecycle.entry.take_attempt());
            }
            let error = lifecycle.give_up(backoff, failure);
            // Only this task sets the result, so that it is never set already.
            let _ = lifecycle.entry.opened.set(Err(error));
            lifecycle
                .pool
                .publish_count(&lifecycle.settings.name, &lifecycle.metrics);
        }
    }
}

/// Waits until the connection has the roots of a client that has left, and takes it out of the
/// table.
async fn wait_vacated(
    (pool, key, entry): (&DedicatedPool, &ByteString, &Arc<DedicatedEntry>),
    connection: &UpstreamConnection,
) {
    // Other connections have one client, which may come back.
    if !isolation::is_era_key(key) {
        return std::future::pending().await;
    }
    connection
        .wait_roots_client_left(|| entry.has_tasks())
        .await;
    pool.remove_and_wait(key, entry).await;
}

/// Waits until the lifetime of a connection is over.
async fn wait_lifetime_over(
    lifetime: ConnectionLifetime,
    (pool, key, entry): (&DedicatedPool, &ByteString, &Arc<DedicatedEntry>),
    caller: &Caller,
    is_subscribed: impl Fn() -> bool,
) {
    match lifetime {
        ConnectionLifetime::WithSession => caller.ended.cancelled().await,
        ConnectionLifetime::Unused => {
            pool.evict_when_unused(key, entry, UNUSED_TIME, || false)
                .await
        }
        ConnectionLifetime::Idle(time) => {
            pool.evict_when_unused(key, entry, time, is_subscribed)
                .await
        }
        ConnectionLifetime::Never => std::future::pending().await,
    }
}

/// Runs an open connection. Takes it out of the table when its lifetime is over, or on a break.
async fn run_until_end(
    lifecycle: DedicatedLifecycle,
    connection: Arc<UpstreamConnection>,
    caller: Arc<Caller>,
    backoff: ReconnectBackoff,
) {
    let DedicatedLifecycle {
        pool,
        key,
        entry,
        lifetime,
        stop,
        metrics,
        health,
        row,
        subscriptions,
        router,
        settings,
    } = lifecycle;
    let server = settings.name.as_str();
    let grace = settings.live.connect_timeout.0;
    let opened_at = Instant::now();
    let mut lost = None;
    let subscribed = subscriptions.subscription_probe();
    let ended = wait_lifetime_over(lifetime, (&pool, &key, &entry), &caller, subscribed);
    let proven = async {
        tokio::time::sleep(PROVEN).await;
        // The uptime proves the connection, even if no call has ended on it.
        drop(entry.take_attempt());
        std::future::pending::<()>().await;
    };
    let renewed = async {
        match &row {
            Some(row) => row.persist_changes(&connection).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = ended => {}
        () = wait_vacated((&pool, &key, &entry), &connection) => {}
        () = forward_notifications(&*connection.server, &caller, subscriptions, settings.options.backoff,
            |notification| router.route(notification)) => {}
        () = renewed => {}
        () = router.follow_lists(&connection) => {}
        () = proven => {}
        () = entry.evicted.cancelled() => {}
        () = entry.released.cancelled() => {}
        reason = health.wait_failed(&connection) => {
            tracing::warn!(server, "dedicated connection closed: {reason}");
            lost = Some(reason);
        }
        reason = connection.link.closed() => lost = Some(reason.to_string()),
        () = stop.cancelled() => {}
    }
    // The connection lives on as the shared one, so that its link stays open.
    if entry.released.is_cancelled() {
        router.end();
        pool.publish_count(server, &metrics);
        return;
    }
    // A stop closes the link, too. The branch that woke this task does not show which came first.
    if stop.is_cancelled() && connection.is_persisted.load(Ordering::Relaxed) {
        connection.server.detach();
    } else if let Some(row) = &row {
        row.discard();
    }
    // Without a stop, the session ends with the last call that still runs on it.
    stop.is_cancelled().then(|| connection.server.close());
    // Removed before the close, so that no call finds a closing connection.
    pool.remove_ended(
        &key,
        &entry,
        lost.as_deref(),
        (backoff, opened_at.elapsed(), grace),
    );
    router.end();
    pool.publish_count(server, &metrics);
    connection.link.close(Vec::new()).await;
}
