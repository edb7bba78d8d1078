//! Shared connection of one server. Owns the slot, and how long a call waits until it is filled.
//! Does not dial (`supervisor`). Invariant: a caller waits for an attempt that is under way or
//! allowed, and for nothing else.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::time::Instant;

use crate::connection::UpstreamConnection;
use crate::connection::idle_tracker::IdleTracker;
use crate::pool::connect_demand::ConnectDemand;
use crate::server_context::{ServerContext, seconds};
use crate::status::UpstreamStatus;
use moongate_model::{Error, McpErrorKind, Retryable, ServerStart, UpstreamState, login_sentence};
use moongate_transport::connect_hints;

/// Slot of the shared connection.
pub(crate) struct SharedConnection {
    server: Arc<ServerContext>,
    active: ArcSwapOption<UpstreamConnection>,
    /// Tasks that run on the connection.
    pub(crate) tasks: IdleTracker,
    /// Callers that wait for the connection.
    pub(crate) demand: ConnectDemand,
}

impl SharedConnection {
    pub(crate) fn new(server: Arc<ServerContext>) -> Self {
        let tasks = IdleTracker::default();
        let demand = ConnectDemand::default();
        SharedConnection {
            server,
            active: ArcSwapOption::empty(),
            tasks,
            demand,
        }
    }

    /// Returns the connection, while there is one.
    pub(crate) fn get(&self) -> Option<Arc<UpstreamConnection>> {
        self.active.load_full()
    }

    /// Borrows the connection, for a moment.
    pub(crate) fn peek(&self) -> Guard<Option<Arc<UpstreamConnection>>> {
        self.active.load()
    }

    /// Fills the slot.
    pub(crate) fn set(&self, connection: Arc<UpstreamConnection>) {
        self.tasks.forget_tasks();
        self.active.store(Some(connection));
    }

    /// Empties the slot. Returns false if another connection fills it.
    pub(crate) fn clear(&self, connection: &Arc<UpstreamConnection>) -> bool {
        // Compared, since the supervisor may have filled the slot again before an old connection
        // ends.
        let before = self.active.compare_and_swap(connection, None);
        before
            .as_ref()
            .is_some_and(|before| Arc::ptr_eq(before, connection))
    }

    /// Returns true if this connection fills the slot.
    pub(crate) fn holds(&self, connection: &UpstreamConnection) -> bool {
        self.active
            .load()
            .as_deref()
            .is_some_and(|main| std::ptr::eq(main, connection))
    }

    /// Waits for the shared connection.
    ///
    /// The caller triggers an attempt as soon as the backoff allows one. A server that was lost a
    /// moment ago is waited for, over any number of attempts. After a longer outage the caller
    /// fails at once, with the time of the next attempt.
    pub(crate) async fn wait(&self) -> Result<Arc<UpstreamConnection>, Error> {
        if let Some(connection) = self.get() {
            return Ok(connection);
        }
        // Registered before the status is read: an attempt that this causes shows there.
        let _waiter = self.demand.register();
        let settings = self.server.live_settings();
        let (limit, setting) = match settings.options.start {
            ServerStart::Eager => (settings.live.connect_timeout.0, "connect_timeout"),
            // The server may have to be started first, which takes its own time.
            ServerStart::Lazy => (
                settings.live.start_timeout.0.min(settings.live.timeout.0),
                "start_timeout",
            ),
        };
        let deadline = Instant::now() + limit;
        let mut status = self.server.status.subscribe();
        loop {
            let (patient, grace) = {
                let status = status.borrow_and_update();
                let now = Instant::now();
                let lost = status
                    .disconnected_since
                    .map_or(deadline, |since| (since + limit).min(deadline));
                match status.state {
                    UpstreamState::Starting | UpstreamState::Ready | UpstreamState::Degraded => {
                        (true, deadline)
                    }
                    UpstreamState::BackingOff
                    | UpstreamState::Stopped
                    | UpstreamState::Failed
                    | UpstreamState::NeedsLogin
                        if status.demand_from.is_some_and(|wake| wake <= now) =>
                    {
                        (true, deadline)
                    }
                    UpstreamState::BackingOff => (now < lost, lost),
                    // Nothing will change by itself in such a state, so waiting would only delay
                    // the error.
                    _ => (false, deadline),
                }
            };
            // Looked up after the status, since the supervisor fills the slot before it changes the
            // status.
            if let Some(connection) = self.get() {
                return Ok(connection);
            }
            if self.server.stop.is_cancelled() || !patient {
                return Err(self.unavailable_error(None));
            }
            match tokio::time::timeout_at(grace, status.changed()).await {
                Ok(Ok(())) => {}
                _ if Instant::now() >= deadline => {
                    return Err(self.unavailable_error(Some((limit, setting))));
                }
                // The grace period has elapsed, but an attempt may still be under way.
                _ => {}
            }
        }
    }

    /// Returns the error of a call that cannot be sent. `waited`: the time it tried, and the
    /// setting that limits it.
    pub(crate) fn unavailable_error(&self, waited: Option<(Duration, &str)>) -> Error {
        let name = &self.server.settings.name;
        let UpstreamStatus {
            state,
            reason,
            needs_login,
            next_attempt,
            ..
        } = self.server.status.borrow().clone();
        // The next attempt would not help, because the server needs a login.
        if needs_login {
            return Error::new(McpErrorKind::ServerDown, login_sentence(name));
        }
        let mut message = format!("Server \"{name}\" is not connected ({})", state.name());
        if let Some((limit, setting)) = waited {
            message.push_str(&format!(" after {limit:?} (servers.{name}.{setting})"));
        }
        if !reason.is_empty() {
            message.push_str(&format!(
                ": {}",
                connect_hints::without_container_hint(&reason)
            ));
        }
        if let Some(next) = next_attempt {
            let left = next.saturating_duration_since(Instant::now());
            message.push_str(&format!("; the next attempt is in {}", seconds(left)));
        }
        Error::new(McpErrorKind::ServerDown, message).with_retryable(Retryable::No)
    }

    /// Returns the error of a call that got no connection in its time.
    pub(crate) fn checkout_timeout(&self) -> Error {
        let name = &self.server.settings.name;
        let limit = self.server.timeouts.call();
        if self.get().is_none() {
            return self.unavailable_error(Some((limit, "timeout")));
        }
        let message = format!(
            "Server \"{name}\" had no connection for this client within {limit:?} \
             (servers.{name}.timeout)"
        );
        Error::new(McpErrorKind::ServerTimeout, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoSink;
    use crate::all_servers::UpstreamRuntime;
    use crate::settings::{ConnectTarget, ServerSettings};
    use moongate_telemetry::Metrics;
    use moongate_transport::reaper::Reaper;

    const LONG_AGO: Duration = Duration::from_secs(3600);

    fn shared_connection(start: ServerStart) -> Arc<SharedConnection> {
        let connect = ConnectTarget::Stdio {
            command: "none".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
        };
        let mut settings = ServerSettings::new("a", connect);
        settings.options.start = start;
        let context = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
        Arc::new(SharedConnection::new(ServerContext::new(
            settings,
            Arc::new(context),
            Arc::new(NoSink),
        )))
    }

    /// Returns how long a call waits for a server in this state, and its error.
    async fn waits(
        shared: &SharedConnection,
        state: UpstreamState,
        wake: Option<Instant>,
        since: Instant,
    ) -> (Duration, String) {
        let next_attempt =
            (state == UpstreamState::BackingOff).then(|| Instant::now() + Duration::from_secs(20));
        let reason = "refused".to_owned();
        let status = UpstreamStatus {
            state,
            reason,
            next_attempt,
            demand_from: wake,
            disconnected_since: Some(since),
            ..UpstreamStatus::default()
        };
        shared.server.status.send_replace(status);
        let began = Instant::now();
        let error = shared.wait().await.err().unwrap();
        (began.elapsed(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_what_is_on_its_way_and_for_nothing_else() {
        tokio::time::advance(LONG_AGO).await;
        let shared = shared_connection(ServerStart::Eager);
        let now = Instant::now();
        let limit = shared.server.settings.live.connect_timeout.0;
        let long_ago = now - LONG_AGO;
        let later = Some(now + LONG_AGO);
        let (waited, message) = waits(&shared, UpstreamState::Starting, None, long_ago).await;
        assert!(
            waited == limit && message.contains("servers.a.connect_timeout"),
            "{waited:?}: {message}"
        );
        let (waited, message) = waits(&shared, UpstreamState::BackingOff, later, long_ago).await;
        assert_eq!(waited, Duration::ZERO);
        assert_eq!(
            message,
            "Server \"a\" is not connected (backing_off): refused; the next attempt is in 20.0 s"
        );
        // Lost half a limit ago: the call waits for the other half.
        let (waited, _) = waits(
            &shared,
            UpstreamState::BackingOff,
            later,
            Instant::now() - limit / 2,
        )
        .await;
        assert_eq!(waited, limit / 2, "it was lost a moment ago");
        let (waited, message) =
            waits(&shared, UpstreamState::NeedsLogin, later, Instant::now()).await;
        assert!(
            waited.is_zero() && message.contains("needs_login"),
            "{message}"
        );
        let (waited, _) = waits(&shared, UpstreamState::Failed, Some(now), long_ago).await;
        assert_eq!(waited, limit, "an attempt may be made at once");
    }

    #[tokio::test]
    async fn a_call_to_a_server_that_needs_a_login_gets_the_sentence_for_it() {
        let shared = shared_connection(ServerStart::Eager);
        shared.server.status.send_replace(UpstreamStatus {
            state: UpstreamState::NeedsLogin,
            reason: login_sentence("a"),
            needs_login: true,
            next_attempt: Some(Instant::now() + LONG_AGO),
            ..UpstreamStatus::default()
        });
        let error = shared.wait().await.err().unwrap();
        assert_eq!(error.to_string(), "a needs a login: moongate login a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_a_server_that_it_starts_and_no_longer_than_for_its_attempt() {
        let shared = shared_connection(ServerStart::Lazy);
        let now = Instant::now();
        let (waited, message) = waits(&shared, UpstreamState::Stopped, Some(now), now).await;
        assert!(
            waited == shared.server.settings.live.start_timeout.0
                && message.contains("servers.a.start_timeout"),
            "{message}"
        );
        let failing = {
            let shared = shared.clone();
            tokio::spawn(async move {
                // The attempt starts on demand, and fails at once.
                shared.demand.wait_for_demand(|| false).await;
                let wake = Some(Instant::now() + LONG_AGO);
                shared.server.status.send_modify(|status| {
                    (status.state, status.demand_from) = (UpstreamState::Failed, wake)
                });
            })
        };
        let (waited, message) = waits(&shared, UpstreamState::Stopped, Some(now), now).await;
        failing.await.unwrap();
        assert!(
            waited.is_zero() && message.contains("(failed)"),
            "{waited:?}: {message}"
        );
    }
}
