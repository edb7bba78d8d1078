//! Keeps one server connected: attempts, pauses, lists, news.
//!
//! Invariant: there is one attempt at a time, it never gives up, and it never hammers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::link::LinkError;
use crate::model::{Filter, Kind, Notice, Notices, Reason};
use crate::random;
use crate::revision::ConnectError;
use crate::telemetry::logs;
use crate::upstream::connect::{Active, For, open};
use crate::upstream::items::{self, list_all};
use crate::upstream::{Connect, News, State, Status, Upstream, own_caller};

/// The first pause, doubled with each failure.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The pause after a failure that repeating will not mend.
const PARKED: Duration = Duration::from_secs(300);
/// A call may end a pause early, but not sooner after the last attempt than this.
const WAKE_MIN: Duration = Duration::from_secs(1);
/// After so long without a failure, the pauses begin small again.
const HEALTHY: Duration = Duration::from_secs(30);
/// Lists are taken again at least so often, for servers that do not tell of changes.
const RELIST: Duration = Duration::from_secs(300);
/// A server that refuses all lists so often in a row is opened anew.
const REFUSALS_MAX: u32 = 3;
/// How long a server may take to say that it is listened to.
const OPENING: Duration = Duration::from_secs(5);
/// Changes that come within this time are taken together.
const SETTLE: Duration = Duration::from_millis(100);

/// Connects, and connects again, until the upstream is stopped.
pub(super) async fn run(upstream: Arc<Upstream>) {
    let mut failures = 0;
    let mut era = None;
    let mut first = true;
    while !upstream.stop.is_cancelled() {
        // Why the last attempt failed is worth knowing until this one has ended.
        let before = upstream.status.borrow().reason.clone();
        set(&upstream, State::Starting, before, None);
        if !std::mem::replace(&mut first, false) {
            count_attempt(&upstream);
        }
        let began = Instant::now();
        let whom = For::everybody(era);
        let opened = tokio::select! {
            opened = open(&upstream.settings, &upstream.shared, whom) => opened,
            () = upstream.stop.cancelled() => break,
        };
        let (state, reason, pause) = match opened {
            Ok(active) => {
                era = Some(active.era);
                let reason = serve(&upstream, Arc::new(active)).await;
                if upstream.stop.is_cancelled() {
                    break;
                }
                failures = if began.elapsed() >= HEALTHY { 0 } else { failures + 1 };
                (State::BackingOff, reason, pause(failures))
            }
            Err(error) => {
                // A remembered era that fails is no longer known: the server may have been replaced.
                let remembered = era.take().is_some();
                failures += 1;
                let (state, wait) = classify(&error, failures);
                (state, error.to_string(), if remembered { Duration::ZERO } else { wait })
            }
        };
        tracing::warn!(
            server = upstream.settings.name,
            state = state.name(),
            pause_ms = pause.as_millis() as u64,
            "not connected: {}",
            logs::one_line(&reason)
        );
        set(&upstream, state, reason, Some(Instant::now() + pause));
        rest(&upstream, state, pause, failures).await;
    }
    upstream.active.store(None);
    set(&upstream, State::Stopped, String::new(), None);
}

fn count_attempt(upstream: &Upstream) {
    let name = [upstream.settings.name.as_str()];
    let metrics = &upstream.shared.metrics;
    metrics.server_reconnects.with_label_values(&name).inc();
    if matches!(upstream.settings.connect, Connect::Stdio { .. }) {
        metrics.server_restarts.with_label_values(&name).inc();
    }
}

/// What a failure means, and how long to wait.
fn classify(error: &ConnectError, failures: u32) -> (State, Duration) {
    match error {
        ConnectError::Link(LinkError::Unstartable(_)) => (State::Failed, PARKED),
        ConnectError::Link(LinkError::Status { status: 401 | 403, .. }) => (State::NeedsLogin, PARKED),
        ConnectError::Link(LinkError::Status { retry_after: Some(seconds), .. }) => {
            (State::BackingOff, Duration::from_secs(*seconds).clamp(pause(failures), PARKED))
        }
        ConnectError::NoCommonRevision(_) => (State::Failed, PARKED),
        _ => (State::BackingOff, pause(failures)),
    }
}

/// Doubled with each failure, capped, and spread over the upper half so that many gateways do not come together.
fn pause(failures: u32) -> Duration {
    let full = PAUSE_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let byte: [u8; 1] = random::bytes();
    full.mul_f64(0.5 + f64::from(byte[0]) / 510.0)
}

/// Waits for the pause to pass, or for a call to need the server.
async fn rest(upstream: &Upstream, state: State, pause: Duration, failures: u32) {
    // Each failure makes it harder to wake: a client that keeps calling must not keep the server from coming up.
    let least = WAKE_MIN.saturating_mul(failures.clamp(1, 10)).min(pause);
    let woken = async {
        tokio::time::sleep(least).await;
        if state == State::BackingOff {
            upstream.wake.notified().await;
        } else {
            // Parked: somebody has to change something first; calls fail with the reason.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = woken => {}
        () = upstream.stop.cancelled() => {}
    }
}

fn set(upstream: &Upstream, state: State, reason: String, next_attempt: Option<Instant>) {
    let active = upstream.active.load();
    let pid = active.as_ref().and_then(|active| active.link.pid());
    let stderr = match active.as_ref().and_then(|active| active.stderr.as_ref()) {
        Some(tail) => tail.lines(),
        None => upstream.status.borrow().stderr.clone(),
    };
    for other in State::ALL {
        let gauge = upstream.shared.metrics.server_up.with_label_values(&[&upstream.settings.name, other.name()]);
        gauge.set(i64::from(other == state));
    }
    upstream.status.send_replace(Status { state, reason, next_attempt, pid, stderr });
}

// === while it is connected ===

/// Lists the server and follows its changes; returns why that ended.
async fn serve(upstream: &Arc<Upstream>, active: Arc<Active>) -> String {
    // In use before it is listed: what is known from before can be called while the lists are taken again.
    upstream.active.store(Some(active.clone()));
    upstream.spoke.store(Some(Arc::new((active.era, active.link.is_pipe()))));
    upstream.modern_only.store(false, Ordering::Relaxed);
    // Calls that wait for a connection look at the state: tell them.
    upstream.status.send_modify(|_| {});
    let mut notices = listen(upstream, &active);
    let listed = tokio::select! {
        listed = relist(upstream, &active, &Kind::ALL) => listed,
        reason = active.link.broken() => Err(Trouble { reason: reason.to_string(), down: true, refused: false }),
        () = upstream.stop.cancelled() => Ok(()),
    };
    if listed.is_ok() && !upstream.stop.is_cancelled() {
        upstream.confirmed(&active);
    }
    report(upstream, &active, &listed);
    (upstream.sink)(&upstream.settings.name, News::Items);
    let reason = follow(upstream, &active, &mut notices, Due::after(&listed)).await;
    drop(notices);
    let stderr = active.stderr.as_ref().map(|tail| tail.lines());
    upstream.active.store(None);
    upstream.status.send_modify(|status| status.stderr = stderr.unwrap_or_default());
    active.link.close(Vec::new()).await;
    reason
}

/// Why a server could not be listed in full.
struct Trouble {
    reason: String,
    /// Whether it is not there at all.
    down: bool,
    /// Whether it refused every list: perhaps it is another server by now.
    refused: bool,
}

fn report(upstream: &Upstream, active: &Active, listed: &Result<(), Trouble>) {
    let name = &upstream.settings.name;
    let items = upstream.items();
    match listed {
        Ok(()) => {
            let tools = items.get(Kind::Tools).items.len();
            tracing::info!(server = name, revision = active.revision, tools, "connected");
            set(upstream, State::Ready, String::new(), None);
        }
        Err(Trouble { reason, .. }) => {
            tracing::warn!(server = name, revision = active.revision, "connected, but not listed: {reason}");
            set(upstream, State::Degraded, reason.clone(), None);
        }
    }
}

fn listen(upstream: &Upstream, active: &Active) -> Notices {
    let filter = Filter { uris: (**upstream.wanted.load()).clone(), ..Filter::everything() };
    active.server.listen(&own_caller(), filter)
}

/// Nothing to hear.
fn silence() -> Notices {
    Notices { honoured: Filter::default(), stream: stream::pending().boxed(), opened: None }
}

/// Waits until a server is listened to; not for ever, since some never say so.
async fn opening(opened: Option<CancellationToken>, until: Instant) {
    let Some(opened) = opened else { return };
    let _ = tokio::time::timeout_at(until, opened.cancelled()).await;
}

/// What is to be done when, while a server is connected.
struct Due {
    /// The lists are taken again: soon after a failure, and at last in any case.
    relist: Instant,
    failed: u32,
    /// The stream of changes is opened again; `None` while it is open.
    hear: Option<Instant>,
    /// Until when a stream of changes may say that it is open, before the next may take its place.
    open: Instant,
    /// How often that stream ended before it told anything.
    deaf: u32,
}

impl Due {
    fn after(listed: &Result<(), Trouble>) -> Self {
        let mut due = Due { relist: Instant::now(), failed: 0, hear: None, open: Instant::now() + OPENING, deaf: 0 };
        due.listed(listed);
        due
    }

    fn listed(&mut self, listed: &Result<(), Trouble>) {
        self.failed = if listed.is_ok() { 0 } else { self.failed + 1 };
        self.relist = Instant::now() + if listed.is_ok() { RELIST } else { pause(self.failed) };
    }

    /// The stream of changes ended.
    fn stopped_hearing(&mut self) {
        self.deaf += 1;
        self.hear = Some(Instant::now() + pause(self.deaf));
    }
}

async fn follow(upstream: &Arc<Upstream>, active: &Arc<Active>, notices: &mut Notices, mut due: Due) -> String {
    loop {
        let hear = due.hear;
        let kinds = tokio::select! {
            reason = active.link.broken() => return reason.to_string(),
            () = upstream.stop.cancelled() => return "stopped".to_owned(),
            () = upstream.resubscribe.notified(), if !notices.is_opening() => {
                // The new stream is there before the old one goes; one change at a time.
                due.open = Instant::now() + OPENING;
                let fresh = listen(upstream, active);
                let before = std::mem::replace(notices, silence());
                *notices = fresh.in_place_of(before);
                due.hear = None;
                continue;
            }
            () = opening(notices.opened.clone(), due.open), if notices.is_opening() => {
                notices.opened = None;
                continue;
            }
            notice = notices.stream.next(), if hear.is_none() => {
                match notice {
                    Some(_) => due.deaf = 0,
                    None => due.stopped_hearing(),
                }
                match notice {
                    Some(Notice::Changed(kind)) => settle(upstream, notices, kind).await,
                    Some(other) => {
                        tell(upstream, other);
                        continue;
                    }
                    None => continue,
                }
            }
            () = tokio::time::sleep_until(hear.unwrap_or(due.relist)), if hear.is_some() => {
                // What changed while nobody listened is found by listing again.
                *notices = listen(upstream, active);
                due.hear = None;
                Kind::ALL.to_vec()
            }
            () = upstream.suspect.notified() => match check(upstream, active).await {
                Ok(()) => continue,
                Err(reason) => return reason,
            },
            // After a failure the next attempt has its time already.
            () = upstream.stale.notified(), if due.failed == 0 => {
                if !upstream.is_stale() {
                    continue;
                }
                Kind::ALL.to_vec()
            }
            () = tokio::time::sleep_until(due.relist) => Kind::ALL.to_vec(),
        };
        // After a failure everything is due: which lists are missing is not kept.
        let kinds = if due.failed > 0 { Kind::ALL.to_vec() } else { kinds };
        let listed = refresh(upstream, active, &kinds).await;
        due.listed(&listed);
        match listed {
            // Opened anew, in whatever it speaks now. On a pipe that would take a child away from its calls.
            Err(Trouble { reason, down, refused })
                if !active.link.is_pipe() && (down || refused && due.failed >= REFUSALS_MAX) =>
            {
                return reason;
            }
            _ => {}
        }
    }
}

/// Passes on what a server says by itself, other than that its lists changed.
fn tell(upstream: &Upstream, notice: Notice) {
    let news = match notice {
        Notice::Updated(uri, params) => News::Updated(uri, params),
        Notice::Elicited(id, params) => News::Elicited(id, params),
        Notice::Task(task) => News::Task(task),
        Notice::Log(level, params) => News::Logged(level, params),
        _ => return,
    };
    (upstream.sink)(&upstream.settings.name, news);
}

/// Gathers the changes that come together.
async fn settle(upstream: &Upstream, notices: &mut Notices, first: Kind) -> Vec<Kind> {
    let mut kinds = vec![first];
    let end = Instant::now() + SETTLE;
    while let Ok(Some(notice)) = tokio::time::timeout_at(end, notices.stream.next()).await {
        match notice {
            Notice::Changed(kind) if !kinds.contains(&kind) => kinds.push(kind),
            other => tell(upstream, other),
        }
    }
    // Templates have no notification of their own.
    if kinds.contains(&Kind::Resources) && !kinds.contains(&Kind::Templates) {
        kinds.push(Kind::Templates);
    }
    kinds
}

async fn refresh(upstream: &Arc<Upstream>, active: &Arc<Active>, kinds: &[Kind]) -> Result<(), Trouble> {
    let before = upstream.items();
    let listed = tokio::select! {
        listed = relist(upstream, active, kinds) => listed,
        () = upstream.stop.cancelled() => Ok(()),
    };
    let degraded = upstream.status.borrow().state == State::Degraded;
    match &listed {
        Ok(()) if degraded => report(upstream, active, &listed),
        Ok(()) => {}
        Err(Trouble { reason, .. }) => {
            tracing::warn!(server = upstream.settings.name, "not listed again: {reason}");
        }
    }
    if listed.is_ok() && !upstream.stop.is_cancelled() {
        upstream.confirmed(active);
    }
    if !Arc::ptr_eq(&before, &upstream.items()) {
        (upstream.sink)(&upstream.settings.name, News::Items);
    }
    listed
}

/// A call found the server away: is it? On a pipe the link knows; elsewhere a list shows.
async fn check(upstream: &Arc<Upstream>, active: &Arc<Active>) -> Result<(), String> {
    if active.link.is_pipe() {
        return Ok(());
    }
    let listing = list_all(&*active.server, Kind::Tools, &upstream.settings.lists);
    match tokio::time::timeout(upstream.settings.connect_timeout, listing).await {
        Ok(Err(error)) if error.reason == Reason::ServerDown => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {:?}", upstream.settings.connect_timeout)),
        _ => Ok(()),
    }
}

/// Takes lists again. A list that fails stays as it was; the others are published.
async fn relist(upstream: &Upstream, active: &Active, kinds: &[Kind]) -> Result<(), Trouble> {
    let features = active.server.describe(&own_caller()).features;
    let mut trouble: Option<Trouble> = None;
    let mut answered = false;
    for kind in kinds.iter().copied() {
        let list = if items::offers(&features, kind) {
            let limit = upstream.settings.list_timeout;
            match tokio::time::timeout(limit, list_all(&*active.server, kind, &upstream.settings.lists)).await {
                Ok(Ok(list)) => {
                    answered = true;
                    list
                }
                Ok(Err(error)) => {
                    let down = error.reason == Reason::ServerDown;
                    let reason = format!("{}: {error}", kind.list_method());
                    trouble = Some(Trouble { reason, down, refused: true });
                    if down {
                        break;
                    }
                    continue;
                }
                Err(_) => {
                    let (method, name) = (kind.list_method(), &upstream.settings.name);
                    let reason = format!("{method} took longer than {limit:?} (servers.{name}.list_timeout)");
                    trouble = Some(Trouble { reason, down: false, refused: false });
                    continue;
                }
            }
        } else {
            items::List::default()
        };
        upstream.fresh.taken(kind, &features);
        let mut items = (*upstream.items()).clone();
        if items.set(kind, list) {
            upstream.items.store(Arc::new(items));
        }
    }
    match trouble {
        Some(trouble) => Err(Trouble { refused: trouble.refused && !answered, ..trouble }),
        None => Ok(()),
    }
}
