//! Brings one server up, again and again.
//!
//! Owns the order of attempts, pauses and stops, and what the status says; how long a pause is, `pace` knows; what happens
//! while the server is connected is in `follow`. Invariant: there is one attempt at a time, it never gives up, and it
//! never hammers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::link::hints;
use crate::link::stderr::StderrTail;
use crate::revision::Era;
use crate::telemetry::logs;
use crate::upstream::connect::{For, open_with};
use crate::upstream::follow::{End, serve};
use crate::upstream::pace::{HEALTHY, Pace, Rest};
use crate::upstream::{Active, Connect, Start, State, Status, Upstream};

/// Connects, and connects again, until the upstream is stopped.
pub(super) async fn run(upstream: Arc<Upstream>) {
    if let Connect::Misconfigured { reason } = &upstream.settings.connect {
        return stay_failed(&upstream, reason).await;
    }
    let mut life = Life { pace: Pace::new(upstream.settings.backoff), era: None, first: true, placed: false };
    // What a server offers that is started on use has to be learned once.
    if upstream.settings.start == Start::Lazy && upstream.knows_items() && !upstream.is_heir() {
        sleep(&upstream, "not started yet".to_owned()).await;
    }
    while !upstream.stop.is_cancelled() {
        let (reason, rest) = match life.attempt(&upstream).await {
            Came::Lost(reason, rest) => (reason, rest),
            Came::Idle => {
                life.pace.forgive();
                let (idle, name) = (upstream.settings.idle_stop, &upstream.settings.name);
                sleep(&upstream, format!("not used for {idle:?} (servers.{name}.idle_stop)")).await;
                continue;
            }
            Came::Stopped => break,
        };
        life.tell(&upstream, &reason, &rest);
        set(&upstream, rest.state, reason, Some(rest.until), Some(rest.wake));
        pause(&upstream, &rest).await;
    }
    set(&upstream, State::Stopped, String::new(), None, None);
    upstream.over.cancel();
}

/// Stays away from a server whose entry in the config cannot be used: only another config ends that.
async fn stay_failed(upstream: &Upstream, reason: &str) {
    tracing::warn!(server = upstream.settings.name, "server: failed: {}", logs::one_line(reason));
    set(upstream, State::Failed, reason.to_owned(), None, None);
    upstream.stop.cancelled().await;
    set(upstream, State::Stopped, String::new(), None, None);
    upstream.over.cancel();
}

/// What is remembered from attempt to attempt.
struct Life {
    pace: Pace,
    era: Option<Era>,
    first: bool,
    /// Whether the hint about containers was logged.
    placed: bool,
}

/// What came of an attempt.
enum Came {
    /// The server was never there, or is no longer.
    Lost(String, Rest),
    /// Nobody needs it.
    Idle,
    /// It was stopped.
    Stopped,
}

impl Life {
    /// Logs that the server is not there, and why, where that is news.
    fn tell(&mut self, upstream: &Upstream, reason: &str, rest: &Rest) {
        let Some(repeated) = upstream.state_log.turn(rest.state, reason) else { return };
        let short = hints::without_place(reason);
        let is_new = short != reason && !std::mem::replace(&mut self.placed, true);
        let reason = logs::one_line(if is_new { reason } else { &short });
        let pause_ms = rest.until.saturating_duration_since(Instant::now()).as_millis() as u64;
        let (server, state) = (&upstream.settings.name, rest.state.name());
        tracing::warn!(server, state, pause_ms, repeated, "not connected: {reason}");
    }

    async fn attempt(&mut self, upstream: &Arc<Upstream>) -> Came {
        // Why the last attempt failed is worth knowing until this one has ended.
        let before = upstream.status.borrow().reason.clone();
        set(upstream, State::Starting, before, None, None);
        if !std::mem::replace(&mut self.first, false) {
            count_attempt(upstream);
        }
        self.pace.attempt(Instant::now());
        let attempt = upstream.connections.attempts().begin_main(Instant::now());
        let first = upstream.connections.eras.begin(upstream.connections.spoke().as_deref());
        let era = self.era.filter(|era| first.is_none_or(|first| first == *era));
        let (stderr, record) = (upstream.last_words.begin(), upstream.connections.record.clone());
        let whom = For { first, stderr: stderr.clone(), record, ..For::everybody(era) };
        let settings = upstream.live.load_full();
        let opened = tokio::select! {
            () = tell_of_silence(upstream, &stderr) => return Came::Stopped,
            opened = open_with(&settings, &upstream.shared, whom, upstream.times.clone()) => opened,
            () = upstream.stop.cancelled() => return Came::Stopped,
        };
        match opened {
            Ok(active) => {
                attempt.serve();
                self.serve(upstream, Arc::new(active)).await
            }
            // A remembered era that fails is no longer known: the server may have been replaced.
            Err(error) => {
                attempt.fail();
                let now = Instant::now();
                let mistaken = self.era.take().is_some() && era.is_some();
                let rest = if mistaken { self.pace.mistaken(now) } else { self.pace.failed(&error, now) };
                Came::Lost(error.to_string(), rest)
            }
        }
    }

    /// Serves on a connection, and on those that take its place.
    async fn serve(&mut self, upstream: &Arc<Upstream>, mut active: Arc<Active>) -> Came {
        loop {
            self.era = Some(active.era);
            let began = Instant::now();
            let end = serve(upstream, active).await;
            match upstream.connections.eras.take_promoted() {
                Some(promoted) if !matches!(end, End::Stopped) => {
                    upstream.last_words.turn_to(promoted.stderr.clone());
                    active = promoted;
                }
                Some(promoted) => {
                    upstream.connections.close(&promoted);
                    promoted.server.end();
                    promoted.link.close(Vec::new()).await;
                    return Came::Stopped;
                }
                None => return self.came(upstream, end, began),
            }
        }
    }

    fn came(&mut self, upstream: &Upstream, end: End, began: Instant) -> Came {
        match end {
            End::Lost(reason) => {
                let now = Instant::now();
                if now - began < HEALTHY {
                    upstream.connections.attempts().count_loss(now);
                }
                Came::Lost(reason, self.pace.lost(now - began, now))
            }
            End::Idle => Came::Idle,
            End::Stopped | End::Promoted => Came::Stopped,
        }
    }
}

/// How long a start may take before it is told that it does.
const SILENCE: Duration = Duration::from_secs(10);

/// Says of a server that hangs at its start that it does, while it does. It never ends.
async fn tell_of_silence(upstream: &Upstream, stderr: &StderrTail) {
    let limit = upstream.live.load().start_timeout;
    tokio::time::sleep(SILENCE.min(limit / 2)).await;
    let (name, began) = (&upstream.settings.name, Instant::now() - SILENCE.min(limit / 2));
    let mut pause = tokio::time::interval(SILENCE);
    loop {
        pause.tick().await;
        let wrote = match stderr.telling() {
            Some(line) => format!("it wrote: {}", logs::redact(&line)),
            None => "it wrote nothing to stderr".to_owned(),
        };
        let wrote = if matches!(upstream.settings.connect, Connect::Stdio { .. }) { wrote } else { String::new() };
        let sep = if wrote.is_empty() { "" } else { "; " };
        let silent = began.elapsed().as_secs();
        let reason = format!(
            "it has not answered the handshake for {silent} s, and is given up after {limit:?} (servers.{name}.start_timeout){sep}{wrote}"
        );
        if let Some(repeated) = upstream.state_log.turn(State::Starting, "no answer to the handshake") {
            tracing::warn!(
                server = name,
                state = State::Starting.name(),
                repeated,
                "not ready: {}",
                logs::one_line(&reason)
            );
        }
        set(upstream, State::Starting, reason, None, None);
    }
}

fn count_attempt(upstream: &Upstream) {
    let name = [upstream.settings.name.as_str()];
    let metrics = &upstream.shared.metrics;
    metrics.server_reconnects.with_label_values(&name).inc();
    if matches!(upstream.settings.connect, Connect::Stdio { .. }) {
        metrics.server_restarts.with_label_values(&name).inc();
    }
}

/// Waits until the pause is over, or a call needs the server and may have it sooner.
async fn pause(upstream: &Upstream, rest: &Rest) {
    let woken = async {
        tokio::time::sleep_until(rest.wake).await;
        upstream.wake.needed(|| false).await;
    };
    tokio::select! {
        () = tokio::time::sleep_until(rest.until) => {}
        () = woken => {}
        () = upstream.stop.cancelled() => {}
    }
}

/// Waits until somebody needs a server that was stopped because nobody did.
async fn sleep(upstream: &Upstream, reason: String) {
    if upstream.state_log.turn(State::Stopped, &reason).is_some() {
        tracing::info!(server = upstream.settings.name, "stopped until it is needed: {reason}");
    }
    let reason = format!("{reason}; it is started when it is needed");
    set(upstream, State::Stopped, reason, None, Some(Instant::now()));
    tokio::select! {
        () = upstream.wake.needed(|| upstream.is_subscribed()) => {}
        () = upstream.stop.cancelled() => {}
    }
    // That it slept is no reason for anything any more.
    upstream.status.send_modify(|status| status.reason = String::new());
}

/// Says how the server is, and when the next attempt comes: in any case, and on use.
pub(super) fn set(
    upstream: &Upstream,
    state: State,
    reason: String,
    next_attempt: Option<Instant>,
    wake: Option<Instant>,
) {
    let active = upstream.connections.main();
    let pid = active.as_ref().and_then(|active| active.link.pid());
    let before = upstream.status.borrow().clone();
    if state == State::Ready {
        upstream.last_words.ready();
    }
    let away = if active.is_some() { None } else { before.away.or_else(|| Some(Instant::now())) };
    let since = before.since.filter(|_| before.state == state).or_else(|| Some(Instant::now()));
    upstream.show(state);
    upstream.status.send_replace(Status { state, reason, next_attempt, wake, away, since, pid });
}
