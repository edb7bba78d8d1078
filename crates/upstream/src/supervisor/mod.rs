//! Supervisor of one server: its connect loop. Owns the order of attempts, delays and stops, and
//! the published state. Does not choose delays (`reconnect_backoff.rs`) or run the connected server
//! (`connected.rs`). Invariant: one attempt runs at a time, within the backoff. Attempts go on
//! until the server is stopped. A misconfigured server is not tried.

pub(crate) mod connected;
mod refresh;
mod refresh_state;
pub(crate) mod state_log_policy;
pub(crate) mod state_report;
pub(crate) mod stderr_history;
pub(crate) mod supervised_server;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::dial::{ConnectIdentity, dial};
use crate::connection::reconnect_backoff::{HEALTHY, ReconnectBackoff, ReconnectDelay};
use crate::connection::{UpstreamConnection, installer};
use crate::lists::eras::KeptLists;
use crate::login_need::ConnectFailure;
use crate::settings::{ConnectTarget, ServerSettings};
use crate::status::NOT_TRIED;
use crate::supervisor::connected::{ConnectionEnd, run_connected};
use crate::supervisor::supervised_server::SupervisedServer;
use moongate_model::{ServerStart, UpstreamState};
use moongate_protocol::{ConnectError, Era};
use moongate_telemetry::logs;
use moongate_transport::child_environment::held_back_variables;
use moongate_transport::stderr::StderrTail;
use moongate_transport::{LinkError, connect_hints};

/// Connects again and again, until the server is stopped.
pub(crate) async fn run(supervised: Arc<SupervisedServer>) {
    if let ConnectTarget::Misconfigured { reason } = &supervised.server.settings.connect {
        return stay_failed(&supervised, reason).await;
    }
    let mut supervisor = Supervisor {
        backoff: ReconnectBackoff::new(supervised.server.settings.options.backoff),
        era: None,
        handshake_first: false,
        variables_told: false,
        is_first: true,
        hint_logged: false,
    };
    // A lazy server without known items is started once, to learn them.
    if supervised.server.settings.options.start == ServerStart::Lazy
        && supervised.lists.has_items()
        && !supervised.lists.is_copied()
    {
        wait_for_demand(&supervised, "not started yet".to_owned()).await;
    }
    while !supervised.server.stop.is_cancelled() {
        let (failure, delay) = match supervisor.connect_once(&supervised).await {
            AttemptEnd::Disconnected(failure, delay) => (failure, delay),
            AttemptEnd::Idle => {
                supervisor.backoff.reset();
                let idle = supervised.server.settings.options.idle_stop.0;
                let name = supervised.name();
                wait_for_demand(
                    &supervised,
                    format!("not used for {idle:?} (servers.{name}.idle_stop)"),
                )
                .await;
                continue;
            }
            AttemptEnd::Vacated => {
                let server = supervised.name();
                tracing::info!(
                    server,
                    "server connected again: it had or expected roots that its clients do not share"
                );
                continue;
            }
            AttemptEnd::Stopped => break,
        };
        supervisor.log_failure(&supervised, &failure.reason, &delay);
        supervised.set_disconnected(failure, &delay);
        wait_backoff(&supervised, &delay).await;
    }
    supervised.set_state(UpstreamState::Stopped, String::new(), None, None);
    supervised.stopped.cancel();
}

/// Holds a misconfigured server in the failed state. Only another config ends that.
async fn stay_failed(supervised: &SupervisedServer, reason: &str) {
    tracing::warn!(
        server = supervised.name(),
        "server failed: {}",
        logs::one_line(reason)
    );
    supervised.set_state(UpstreamState::Failed, reason.to_owned(), None, None);
    supervised.server.stop.cancelled().await;
    supervised.set_state(UpstreamState::Stopped, String::new(), None, None);
    supervised.stopped.cancel();
}

/// State that survives from attempt to attempt.
struct Supervisor {
    backoff: ReconnectBackoff,
    era: Option<Era>,
    /// True if the last attempt ended with its process, which may have been the probe's doing.
    handshake_first: bool,
    is_first: bool,
    /// True once the variables that the program may miss were logged.
    variables_told: bool,
    /// True once the hint about containers was logged.
    hint_logged: bool,
}

/// Result of an attempt.
enum AttemptEnd {
    /// The attempt failed, or its connection ended.
    Disconnected(ConnectFailure, ReconnectDelay),
    /// The idle timeout elapsed.
    Idle,
    /// The connection can serve no other client.
    Vacated,
    /// The gateway stops the server.
    Stopped,
}

impl Supervisor {
    /// Logs a failure, if it is new.
    fn log_failure(&mut self, supervised: &SupervisedServer, reason: &str, delay: &ReconnectDelay) {
        let Some(repeated) = supervised.log_policy.record(delay.state, reason) else {
            return;
        };
        let short = connect_hints::without_container_hint(reason);
        let is_new = short != reason && !std::mem::replace(&mut self.hint_logged, true);
        let reason = logs::one_line(if is_new { reason } else { &short });
        let pause_ms = delay
            .until
            .saturating_duration_since(Instant::now())
            .as_millis() as u64;
        let server = supervised.name();
        let state = delay.state.name();
        tracing::warn!(server, state, pause_ms, repeated, "not connected: {reason}");
    }

    async fn connect_once(&mut self, supervised: &SupervisedServer) -> AttemptEnd {
        supervised.set_state(
            UpstreamState::Starting,
            starting_reason(supervised),
            None,
            None,
        );
        // The first attempt isn't a reconnect.
        let restored = if std::mem::replace(&mut self.is_first, false) {
            supervised.pool.last_handshake()
        } else {
            count_attempt(supervised);
            None
        };
        self.backoff.record_attempt(Instant::now());
        // Counted for the dedicated connections: they dial the same host.
        let attempt = supervised
            .pool
            .connect_budget()
            .begin_shared(Instant::now());
        let mut first = supervised
            .pool
            .eras
            .begin_attempt(supervised.pool.last_handshake().as_deref());
        // 2026-07-28/basic/versioning.mdx: clients "MAY persist it across restarts of the same
        // server configuration, re-probing if the cached assumption later fails."
        match restored {
            Some(before) if before.is_multiplexed => first = first.or(Some(before.era)),
            Some(before) => self.era = Some(before.era),
            None => {}
        }
        // A remembered era saves the probe, unless a client needs the other era first.
        let era = self
            .era
            .filter(|era| first.is_none_or(|first| first == *era));
        let stderr = supervised.stderr_history.begin_process();
        let seen_input = supervised.pool.seen_input_flag.clone();
        let connect_identity = ConnectIdentity {
            first_era: first.or(self.handshake_first.then_some(Era::Legacy)),
            greeting: supervised.pool.greeting(),
            was_connected: supervised.pool.last_handshake().is_some(),
            stderr: stderr.clone(),
            seen_input,
            is_shared: true,
            ..ConnectIdentity::for_all(era)
        };
        let settings = supervised.server.live_settings();
        let opened = tokio::select! {
            () = report_slow_start(supervised, &stderr) => return AttemptEnd::Stopped,
            opened = dial(&settings, &supervised.server.common, connect_identity,
                supervised.server.timeouts.clone()) => opened,
            () = supervised.server.stop.cancelled() => return AttemptEnd::Stopped,
        };
        match opened {
            Ok(connection) => {
                attempt.succeed();
                supervised.lists.cache.forget_slow_start(&supervised.server);
                self.handshake_first = false;
                self.serve_connection(supervised, Arc::new(connection))
                    .await
            }
            Err(error) => {
                attempt.fail();
                self.tell_held_variables(supervised);
                self.on_failed_attempt(&settings, &error, era)
            }
        }
    }

    /// Decides how to go on after an attempt that was made in `era`.
    fn on_failed_attempt(
        &mut self,
        settings: &ServerSettings,
        error: &ConnectError,
        era: Option<Era>,
    ) -> AttemptEnd {
        // Every other time: a server that ends at its start may also speak only the newer era.
        let has_ended = matches!(error, ConnectError::Link(LinkError::Closed(_)));
        self.handshake_first = has_ended && !self.handshake_first;
        let now = Instant::now();
        // A remembered era that fails is forgotten: the server may have been replaced.
        let was_remembered = self.era.take().is_some() && era.is_some();
        let delay = if was_remembered {
            self.backoff.wrong_era(now)
        } else {
            self.backoff.on_failure(error, now)
        };
        AttemptEnd::Disconnected(settings.describe_failure(error), delay)
    }

    /// Logs once which variables a program that failed may miss.
    fn tell_held_variables(&mut self, supervised: &SupervisedServer) {
        let connect = &supervised.server.settings.connect;
        let ConnectTarget::Stdio { env, .. } = connect else {
            return;
        };
        if std::mem::replace(&mut self.variables_told, true) {
            return;
        }
        let names = held_back_variables(installer::program_kind(connect), env);
        if !names.is_empty() {
            let server = supervised.name();
            let names = names.join(", ");
            tracing::info!(
                server,
                "variables not passed to the program: {names}; pass those that it needs with `env`"
            );
        }
    }

    /// Serves on a connection, and on those that are promoted in its place.
    async fn serve_connection(
        &mut self,
        supervised: &SupervisedServer,
        mut connection: Arc<UpstreamConnection>,
    ) -> AttemptEnd {
        let mut kept = KeptLists::Remembered;
        loop {
            self.era = Some(connection.era);
            let connected_at = Instant::now();
            let end = run_connected(supervised, connection, kept).await;
            match supervised.pool.eras.take_promoted() {
                Some(promoted) if !matches!(end, ConnectionEnd::Stopped) => {
                    // The promoted connection has its own process, and its own stderr.
                    supervised
                        .stderr_history
                        .switch_process(promoted.stderr.clone());
                    (connection, kept) = (promoted, KeptLists::JustListed);
                }
                Some(promoted) => {
                    // Promoted just before the stop: no event loop will close it.
                    supervised.pool.clear_shared(&promoted);
                    promoted.server.close();
                    promoted.link.close(Vec::new()).await;
                    return AttemptEnd::Stopped;
                }
                None => return self.classify_end(supervised, end, connected_at),
            }
        }
    }

    fn classify_end(
        &mut self,
        supervised: &SupervisedServer,
        end: ConnectionEnd,
        connected_at: Instant,
    ) -> AttemptEnd {
        match end {
            ConnectionEnd::Disconnected(reason) => {
                let now = Instant::now();
                // A short uptime counts like a failed attempt.
                if now - connected_at < HEALTHY {
                    supervised.pool.connect_budget().record_loss(now);
                }
                let delay = self.backoff.on_loss(now - connected_at, now);
                AttemptEnd::Disconnected(ConnectFailure::other(reason), delay)
            }
            ConnectionEnd::Idle => AttemptEnd::Idle,
            ConnectionEnd::Vacated => AttemptEnd::Vacated,
            ConnectionEnd::Stopped | ConnectionEnd::Promoted => AttemptEnd::Stopped,
        }
    }
}

/// Time after which a slow start is reported.
const SLOW_START: Duration = Duration::from_secs(10);
/// Time in which a program may be downloaded before its start is logged as slow.
const DOWNLOAD_TIME: Duration = Duration::from_secs(60);

/// Reports a server that hangs at its start, again and again. Never returns.
async fn report_slow_start(supervised: &SupervisedServer, stderr: &StderrTail) {
    let limit = supervised.server.peek_live_settings().live.start_timeout.0;
    tokio::time::sleep(SLOW_START.min(limit / 2)).await;
    let name = supervised.name();
    let began = Instant::now() - SLOW_START.min(limit / 2);
    let mut interval = tokio::time::interval(SLOW_START);
    supervised.lists.cache.record_slow_start(&supervised.server);
    loop {
        interval.tick().await;
        let wrote = match stderr.likely_error() {
            Some(line) => format!("it wrote: {}", logs::redact(&line)),
            None => "it wrote nothing to stderr".to_owned(),
        };
        let wrote = if matches!(
            supervised.server.settings.connect,
            ConnectTarget::Stdio { .. }
        ) {
            wrote
        } else {
            String::new()
        };
        let sep = if wrote.is_empty() { "" } else { "; " };
        let silent = began.elapsed().as_secs();
        let installer = installer::of(&supervised.server.settings.connect);
        let may_be = installer
            .map(|program| format!("; {program} may still be downloading it"))
            .unwrap_or_default();
        let reason = format!(
            "it has not answered the handshake for {silent} s{may_be}; Moongate gives up after \
             {limit:?} (servers.{name}.start_timeout){sep}{wrote}"
        );
        if installer.is_some() && began.elapsed() < DOWNLOAD_TIME {
            // No alarm: the first start of a package takes that long.
            tracing::debug!(server = name, "not ready: {}", logs::one_line(&reason));
        } else if let Some(repeated) = supervised
            .log_policy
            .record(UpstreamState::Starting, "no answer to the handshake")
        {
            tracing::warn!(
                server = name,
                state = UpstreamState::Starting.name(),
                repeated,
                "not ready: {}",
                logs::one_line(&reason)
            );
        }
        supervised.set_state(UpstreamState::Starting, reason, None, None);
    }
}

/// Returns what a server that is starting waits for. The last failure stays visible until this
/// attempt has ended.
fn starting_reason(supervised: &SupervisedServer) -> String {
    let before = supervised.server.status.borrow();
    let was_ready = matches!(before.state, UpstreamState::Ready | UpstreamState::Degraded);
    if !before.reason.is_empty() && !was_ready && before.reason != NOT_TRIED {
        return before.reason.clone();
    }
    match &supervised.server.settings.connect {
        ConnectTarget::Stdio { .. } => {
            "its program has started but has not answered yet".to_owned()
        }
        _ => "it has not answered the connection attempt yet".to_owned(),
    }
}

fn count_attempt(supervised: &SupervisedServer) {
    let name = supervised.name();
    let metrics = supervised.server.metrics();
    metrics.servers.reconnects.inc(name);
    if matches!(
        supervised.server.settings.connect,
        ConnectTarget::Stdio { .. }
    ) {
        metrics.servers.restarts.inc(name);
    }
}

/// Waits until the delay is over, or a call triggers an earlier attempt.
async fn wait_backoff(supervised: &SupervisedServer, delay: &ReconnectDelay) {
    let woken = async {
        tokio::time::sleep_until(delay.demand_from).await;
        supervised.pool.demand().wait_for_demand(|| false).await;
    };
    tokio::select! {
        () = tokio::time::sleep_until(delay.until) => {}
        () = woken => {}
        () = supervised.server.stop.cancelled() => {}
    }
}

/// Waits for demand for a stopped server.
async fn wait_for_demand(supervised: &SupervisedServer, reason: String) {
    if supervised
        .log_policy
        .record(UpstreamState::Stopped, &reason)
        .is_some()
    {
        tracing::info!(
            server = supervised.name(),
            "server stopped until it is needed: {reason}"
        );
    }
    let reason = format!("{reason}; it starts again when it is needed");
    supervised.set_state(UpstreamState::Stopped, reason, None, Some(Instant::now()));
    tokio::select! {
        // A resource subscription needs a running server. List changes do not: a stopped server has
        // none.
        () = supervised.pool.demand().wait_for_demand(|| !supervised.lists.resources.is_empty()) => {}
        () = supervised.server.stop.cancelled() => {}
    }
    // The idle stop does not cause a later failure.
    supervised
        .server
        .status
        .send_modify(|status| status.reason = String::new());
}
