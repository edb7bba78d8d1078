//! Supervisor of one server: its connect loop. Owns the order of attempts, delays and stops, and the published state.
//! Does not choose delays (`backoff.rs`) or run the connected server (`connected.rs`). Invariant: one attempt at a
//! time, within the backoff, and never a last one before the stop. A misconfigured server is not tried.

pub(in crate::upstream) mod absence;
pub(in crate::upstream) mod backoff;
pub(in crate::upstream) mod connected;
pub(in crate::upstream) mod health_check;
pub(in crate::upstream) mod idle;
pub(in crate::upstream) mod replace;
pub(in crate::upstream) mod state_log;
pub(in crate::upstream) mod state_report;
pub(in crate::upstream) mod stderr_history;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::link::connect_hints;
use crate::link::stderr::StderrTail;
use crate::revision::Era;
use crate::telemetry::logs;
use crate::upstream::pool::dial::{ConnectAs, dial};
use crate::upstream::supervisor::backoff::{HEALTHY, ReconnectBackoff, ReconnectDelay};
use crate::upstream::supervisor::connected::{ConnectionEnd, run_connected};
use crate::upstream::{ConnectTarget, ServerStart, Upstream, UpstreamConnection, UpstreamState, UpstreamStatus};

/// Connects again and again, until the upstream is stopped.
pub(in crate::upstream) async fn run(upstream: Arc<Upstream>) {
    if let ConnectTarget::Misconfigured { reason } = &upstream.settings.connect {
        return stay_failed(&upstream, reason).await;
    }
    let mut life = Supervisor {
        backoff: ReconnectBackoff::new(upstream.settings.backoff),
        era: None,
        is_first: true,
        hint_logged: false,
    };
    // A lazy server without known items is started once, to learn them.
    if upstream.settings.start == ServerStart::Lazy && upstream.has_items() && !upstream.has_copied_lists() {
        wait_for_demand(&upstream, "not started yet".to_owned()).await;
    }
    while !upstream.stop.is_cancelled() {
        let (reason, rest) = match life.connect_once(&upstream).await {
            AttemptEnd::Disconnected(reason, rest) => (reason, rest),
            AttemptEnd::Idle => {
                life.backoff.reset();
                let (idle, name) = (upstream.settings.idle_stop, &upstream.settings.name);
                wait_for_demand(&upstream, format!("not used for {idle:?} (servers.{name}.idle_stop)")).await;
                continue;
            }
            AttemptEnd::Stopped => break,
        };
        life.log_failure(&upstream, &reason, &rest);
        set_state(&upstream, rest.state, reason, Some(rest.until), Some(rest.demand_from));
        wait_backoff(&upstream, &rest).await;
    }
    set_state(&upstream, UpstreamState::Stopped, String::new(), None, None);
    upstream.stopped.cancel();
}

/// Holds a misconfigured server in the failed state. Only another config ends that.
async fn stay_failed(upstream: &Upstream, reason: &str) {
    tracing::warn!(server = upstream.settings.name, "server: failed: {}", logs::one_line(reason));
    set_state(upstream, UpstreamState::Failed, reason.to_owned(), None, None);
    upstream.stop.cancelled().await;
    set_state(upstream, UpstreamState::Stopped, String::new(), None, None);
    upstream.stopped.cancel();
}

/// State that survives from attempt to attempt.
struct Supervisor {
    backoff: ReconnectBackoff,
    era: Option<Era>,
    is_first: bool,
    /// True once the hint about containers was logged.
    hint_logged: bool,
}

/// Result of an attempt.
enum AttemptEnd {
    /// The server was never there, or is no longer.
    Disconnected(String, ReconnectDelay),
    /// The idle timeout elapsed.
    Idle,
    /// The gateway stops the server.
    Stopped,
}

impl Supervisor {
    /// Logs a failure, if it is new.
    fn log_failure(&mut self, upstream: &Upstream, reason: &str, rest: &ReconnectDelay) {
        let Some(repeated) = upstream.state_log.record(rest.state, reason) else { return };
        let short = connect_hints::without_container_hint(reason);
        let is_new = short != reason && !std::mem::replace(&mut self.hint_logged, true);
        let reason = logs::one_line(if is_new { reason } else { &short });
        let pause_ms = rest.until.saturating_duration_since(Instant::now()).as_millis() as u64;
        let (server, state) = (&upstream.settings.name, rest.state.name());
        tracing::warn!(server, state, pause_ms, repeated, "not connected: {reason}");
    }

    async fn connect_once(&mut self, upstream: &Arc<Upstream>) -> AttemptEnd {
        // The last failure stays visible until this attempt has ended.
        let before = upstream.status.borrow().reason.clone();
        set_state(upstream, UpstreamState::Starting, before, None, None);
        // The first attempt is no reconnect.
        if !std::mem::replace(&mut self.is_first, false) {
            count_attempt(upstream);
        }
        self.backoff.record_attempt(Instant::now());
        let attempt = upstream.pool.attempts().begin_shared(Instant::now());
        let first = upstream.pool.eras.begin_attempt(upstream.pool.last_handshake().as_deref());
        // A remembered era saves the probe, unless a client needs the other era first.
        let era = self.era.filter(|era| first.is_none_or(|first| first == *era));
        let (stderr, record) = (upstream.stderr_history.begin_process(), upstream.pool.record.clone());
        let whom = ConnectAs { first_era: first, stderr: stderr.clone(), record, ..ConnectAs::for_all(era) };
        let settings = upstream.live_settings.load_full();
        let opened = tokio::select! {
            () = report_slow_start(upstream, &stderr) => return AttemptEnd::Stopped,
            opened = dial(&settings, &upstream.context, whom, upstream.timeouts.clone()) => opened,
            () = upstream.stop.cancelled() => return AttemptEnd::Stopped,
        };
        match opened {
            Ok(active) => {
                attempt.succeed();
                self.serve_connection(upstream, Arc::new(active)).await
            }
            // A remembered era that fails is forgotten: the server may have been replaced.
            Err(error) => {
                attempt.fail();
                let now = Instant::now();
                let mistaken = self.era.take().is_some() && era.is_some();
                let rest = if mistaken { self.backoff.wrong_era(now) } else { self.backoff.on_failure(&error, now) };
                AttemptEnd::Disconnected(error.to_string(), rest)
            }
        }
    }

    /// Serves on a connection, and on those that are promoted in its place.
    async fn serve_connection(&mut self, upstream: &Arc<Upstream>, mut active: Arc<UpstreamConnection>) -> AttemptEnd {
        loop {
            self.era = Some(active.era);
            let began = Instant::now();
            let end = run_connected(upstream, active).await;
            match upstream.pool.eras.take_promoted() {
                Some(promoted) if !matches!(end, ConnectionEnd::Stopped) => {
                    // The promoted connection has its own process, and its own stderr.
                    upstream.stderr_history.switch_process(promoted.stderr.clone());
                    active = promoted;
                }
                Some(promoted) => {
                    // Promoted just before the stop: no event loop will close it.
                    upstream.pool.clear_shared(&promoted);
                    promoted.server.close();
                    promoted.link.close(Vec::new()).await;
                    return AttemptEnd::Stopped;
                }
                None => return self.classify_end(upstream, end, began),
            }
        }
    }

    fn classify_end(&mut self, upstream: &Upstream, end: ConnectionEnd, began: Instant) -> AttemptEnd {
        match end {
            ConnectionEnd::Disconnected(reason) => {
                let now = Instant::now();
                // A short uptime counts like a failed attempt.
                if now - began < HEALTHY {
                    upstream.pool.attempts().record_loss(now);
                }
                AttemptEnd::Disconnected(reason, self.backoff.on_loss(now - began, now))
            }
            ConnectionEnd::Idle => AttemptEnd::Idle,
            ConnectionEnd::Stopped | ConnectionEnd::Promoted => AttemptEnd::Stopped,
        }
    }
}

/// Time after which a slow start is reported.
const SLOW_START: Duration = Duration::from_secs(10);

/// Reports a server that hangs at its start, again and again. Never returns.
async fn report_slow_start(upstream: &Upstream, stderr: &StderrTail) {
    let limit = upstream.live_settings.load().start_timeout;
    tokio::time::sleep(SLOW_START.min(limit / 2)).await;
    let (name, began) = (&upstream.settings.name, Instant::now() - SLOW_START.min(limit / 2));
    let mut pause = tokio::time::interval(SLOW_START);
    loop {
        pause.tick().await;
        let wrote = match stderr.likely_error() {
            Some(line) => format!("it wrote: {}", logs::redact(&line)),
            None => "it wrote nothing to stderr".to_owned(),
        };
        let wrote =
            if matches!(upstream.settings.connect, ConnectTarget::Stdio { .. }) { wrote } else { String::new() };
        let sep = if wrote.is_empty() { "" } else { "; " };
        let silent = began.elapsed().as_secs();
        let reason = format!(
            "it has not answered the handshake for {silent} s, and is given up after {limit:?} (servers.{name}.start_timeout){sep}{wrote}"
        );
        if let Some(repeated) = upstream.state_log.record(UpstreamState::Starting, "no answer to the handshake") {
            tracing::warn!(
                server = name,
                state = UpstreamState::Starting.name(),
                repeated,
                "not ready: {}",
                logs::one_line(&reason)
            );
        }
        set_state(upstream, UpstreamState::Starting, reason, None, None);
    }
}

fn count_attempt(upstream: &Upstream) {
    let name = [upstream.settings.name.as_str()];
    let metrics = &upstream.context.metrics;
    metrics.server_reconnects.with_label_values(&name).inc();
    if matches!(upstream.settings.connect, ConnectTarget::Stdio { .. }) {
        metrics.server_restarts.with_label_values(&name).inc();
    }
}

/// Waits until the delay is over, or a call triggers an earlier attempt.
async fn wait_backoff(upstream: &Upstream, rest: &ReconnectDelay) {
    let woken = async {
        tokio::time::sleep_until(rest.demand_from).await;
        upstream.demand.wait_for_demand(|| false).await;
    };
    tokio::select! {
        () = tokio::time::sleep_until(rest.until) => {}
        () = woken => {}
        () = upstream.stop.cancelled() => {}
    }
}

/// Waits for demand for a stopped server.
async fn wait_for_demand(upstream: &Upstream, reason: String) {
    if upstream.state_log.record(UpstreamState::Stopped, &reason).is_some() {
        tracing::info!(server = upstream.settings.name, "stopped until it is needed: {reason}");
    }
    let reason = format!("{reason}; it is started when it is needed");
    set_state(upstream, UpstreamState::Stopped, reason, None, Some(Instant::now()));
    tokio::select! {
        // A resource subscription needs a running server. List changes do not: a stopped server has none.
        () = upstream.demand.wait_for_demand(|| upstream.is_subscribed()) => {}
        () = upstream.stop.cancelled() => {}
    }
    // The idle stop is no cause of a later failure.
    upstream.status.send_modify(|status| status.reason = String::new());
}

/// Publishes the state and the times of the next attempt: without demand, and with demand (`wake`).
pub(in crate::upstream) fn set_state(
    upstream: &Upstream,
    state: UpstreamState,
    reason: String,
    next_attempt: Option<Instant>,
    wake: Option<Instant>,
) {
    let active = upstream.pool.shared();
    let pid = active.as_ref().and_then(|active| active.link.pid());
    let before = upstream.status.borrow().clone();
    if state == UpstreamState::Ready {
        upstream.stderr_history.forget_previous();
    }
    // The start of an outage stays the same through all failed attempts.
    let away = if active.is_some() { None } else { before.disconnected_since.or_else(|| Some(Instant::now())) };
    let since = before.state_since.filter(|_| before.state == state).or_else(|| Some(Instant::now()));
    upstream.publish_state(state);
    upstream.status.send_replace(UpstreamStatus {
        state,
        reason,
        next_attempt,
        demand_from: wake,
        disconnected_since: away,
        state_since: since,
        pid,
    });
}
