//! What happens while a server is connected: its lists, its news, its health.
//!
//! Owns when lists are taken again and what a server says by itself. Does not connect (`supervise`). Invariant: a list
//! that fails stays as it was, and a server that is listened to is listened to until another listener takes over.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::model::{Error, Filter, Kind, Notice, Notices, Reason};
use crate::upstream::connect::Active;
use crate::upstream::health::Health;
use crate::upstream::items::{self, List, list_all};
use crate::upstream::run::is_refused;
use crate::upstream::settings::Backoff;
use crate::upstream::supervise::set;
use crate::upstream::{News, Start, State, Upstream, own_caller, pace, retry};

/// Lists are taken again at least so often, even from servers that tell of changes.
const RELIST: Duration = Duration::from_secs(300);
/// They are not taken more often than this, whatever the setting says.
const RELIST_MIN: Duration = Duration::from_secs(1);
/// As long as nobody waits for.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// A server that refuses all lists so often in a row is opened anew.
const REFUSALS_MAX: u32 = 3;
/// It is not looked more often whether a server that refuses calls refuses everything.
const REFUSED: Duration = Duration::from_secs(10);
/// How long a server may take to say that it is listened to.
pub(super) const OPENING: Duration = Duration::from_secs(5);
/// How long lists wait for that.
const PROMPT: Duration = Duration::from_millis(250);
/// Changes that come within this time are taken together.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// Why a connection is over.
pub(super) enum End {
    /// The server is gone, or should be connected anew.
    Lost(String),
    /// Nobody needs it.
    Idle,
    /// The gateway no longer wants it.
    Stopped,
    /// Another took its place.
    Promoted,
}

/// Lists the server and follows its changes; returns why that ended.
pub(super) async fn serve(upstream: &Arc<Upstream>, active: Arc<Active>) -> End {
    // In use before it is listed: what is known from before can be called while the lists are taken again.
    upstream.breaker.reset();
    upstream.need.touch();
    upstream.connections.open(active.clone());
    // Calls that wait for a connection look at the state: tell them.
    upstream.status.send_modify(|status| status.away = None);
    let (mut notices, mut due) = (listen(upstream, &active), Due::new(upstream.settings.backoff));
    let listed = tokio::select! {
        listed = relist(upstream, &active, &mut notices, &mut due, &Kind::ALL) => listed,
        reason = active.link.broken() => Err(Trouble { reason: reason.to_string(), down: true, refused: false }),
        () = upstream.stop.cancelled() => Ok(()),
    };
    due.listed(&listed, upstream);
    if listed.is_ok() && !upstream.stop.is_cancelled() {
        upstream.confirmed(&active);
    }
    report(upstream, &active, &listed);
    (upstream.sink)(&upstream.settings.name, News::Items);
    let end = tokio::select! {
        biased;
        end = over(upstream, &active) => end,
        reason = follow(upstream, &active, &mut notices, due) => End::Lost(reason),
    };
    drop(notices);
    upstream.connections.close(&active);
    if matches!(end, End::Idle | End::Promoted) {
        let _ = tokio::time::timeout(upstream.times.call(), finished(&active)).await;
    }
    if upstream.connections.main().is_none() {
        upstream.status.send_modify(|status| status.away = Some(Instant::now()));
    }
    if upstream.stop.is_cancelled() {
        active.server.end();
    }
    active.link.close(Vec::new()).await;
    end
}

/// Waits for calls that were given the connection just before it was taken out of use.
async fn finished(active: &Active) {
    loop {
        tokio::time::sleep(SETTLE).await;
        if active.calls.are_over() {
            return;
        }
    }
}

/// Waits for what ends a connection whatever else happens.
async fn over(upstream: &Upstream, active: &Active) -> End {
    let idle = async {
        match upstream.settings.start {
            Start::Eager => std::future::pending().await,
            // Others may be on connections of their own: those end with their clients.
            Start::Lazy => {
                let otherwise = || upstream.is_subscribed() || upstream.connections.beside() > 0;
                upstream.need.over(upstream.settings.idle_stop, otherwise).await;
            }
        }
    };
    let health = Health::of(upstream);
    let settled = async {
        tokio::time::sleep(pace::HEALTHY).await;
        if let Some(repeated) = upstream.state_log.settle() {
            let state = upstream.status.borrow().state.name();
            tracing::info!(server = upstream.settings.name, state, repeated, "connected for a while");
        }
        std::future::pending::<End>().await
    };
    tokio::select! {
        end = settled => end,
        reason = active.link.broken() => End::Lost(reason.to_string()),
        () = upstream.stop.cancelled() => End::Stopped,
        reason = health.lost(active) => End::Lost(reason),
        () = upstream.connections.eras.promoted() => End::Promoted,
        () = idle => End::Idle,
    }
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
            if let Some(repeated) = upstream.state_log.turn(State::Ready, "") {
                tracing::info!(server = name, revision = active.revision, tools, repeated, "connected");
            }
            set(upstream, State::Ready, String::new(), None, None);
        }
        Err(Trouble { reason, .. }) => {
            if let Some(repeated) = upstream.state_log.turn(State::Degraded, reason) {
                tracing::warn!(
                    server = name,
                    revision = active.revision,
                    repeated,
                    "connected, but not listed: {reason}"
                );
            }
            set(upstream, State::Degraded, reason.clone(), None, None);
        }
    }
}

/// Calls are shut out, or let in again.
fn report_breaker(upstream: &Upstream) {
    let name = &upstream.settings.name;
    match upstream.breaker.shut() {
        Some(shut) => {
            if let Some(repeated) = upstream.state_log.turn(State::Degraded, &format!("breaker: {}", shut.reason)) {
                tracing::warn!(server = name, repeated, "its calls end at once for {:?}: {}", shut.left, shut.reason);
            }
            upstream.shared.metrics.breaker_opened.with_label_values(&[name]).inc();
            set(
                upstream,
                State::Degraded,
                format!("its calls keep failing: {}", shut.reason),
                Some(Instant::now() + shut.left),
                None,
            );
        }
        None => {
            if let Some(repeated) = upstream.state_log.turn(State::Ready, "its calls succeed again") {
                tracing::info!(server = name, repeated, "its calls succeed again");
            }
            set(upstream, State::Ready, String::new(), None, None);
        }
    }
}

/// How long lists that were taken are good where nothing is told of them.
fn relist_pause(upstream: &Upstream) -> Duration {
    let relist = upstream.live.load().relist;
    let features = upstream.face().map(|face| face.features);
    if features.is_some_and(|features| items::announces(&features)) {
        return RELIST.max(relist);
    }
    if relist.is_zero() { NEVER } else { relist.max(RELIST_MIN) }
}

fn listen(upstream: &Upstream, active: &Active) -> Notices {
    let filter = Filter { uris: (**upstream.wanted.load()).clone(), ..Filter::everything() };
    active.server.listen(&own_caller(), filter)
}

/// Nothing to hear.
pub(super) fn silence() -> Notices {
    Notices { honoured: Filter::default(), stream: stream::pending().boxed(), opened: None }
}

/// Waits until a server is listened to; not for ever, since some never say so.
pub(super) async fn opening(opened: Option<CancellationToken>, until: Instant) {
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
    /// Whether nothing else was listened to while it opened.
    alone: bool,
    /// Lists that were taken before it said so: what changed just then was told to nobody.
    early: Vec<Kind>,
    /// Lists that changed, and when they are taken together.
    changed: Vec<Kind>,
    settled: Instant,
    /// How often that stream ended before it told anything.
    deaf: u32,
    /// When it was looked last whether the server refuses everything.
    refused: Option<Instant>,
    backoff: Backoff,
}

impl Due {
    /// With a stream that was just opened.
    fn new(backoff: Backoff) -> Self {
        let now = Instant::now();
        let (early, changed) = (Vec::new(), Vec::new());
        let open = now + OPENING;
        Due {
            relist: now,
            failed: 0,
            hear: None,
            open,
            alone: true,
            early,
            changed,
            settled: now,
            deaf: 0,
            refused: None,
            backoff,
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        pace::pause(self.backoff, failures)
    }

    fn listed(&mut self, listed: &Result<(), Trouble>, upstream: &Upstream) {
        self.failed = if listed.is_ok() { 0 } else { self.failed + 1 };
        let pause = if listed.is_ok() { relist_pause(upstream) } else { self.pause(self.failed) };
        self.relist = Instant::now() + pause;
    }

    /// A stream of changes is being opened. `alone`: nothing else is heard until it is.
    fn opening(&mut self, alone: bool) {
        (self.hear, self.open, self.alone) = (None, Instant::now() + OPENING, alone);
        self.early.clear();
    }

    /// A list was taken.
    fn taken(&mut self, kind: Kind, notices: &Notices) {
        if self.alone && notices.is_opening() && !self.early.contains(&kind) {
            self.early.push(kind);
        }
    }

    /// A list changed.
    fn change(&mut self, kind: Kind) {
        if self.changed.is_empty() {
            self.settled = Instant::now() + SETTLE;
        }
        if !self.changed.contains(&kind) {
            self.changed.push(kind);
        }
    }

    /// The lists that changed.
    fn take_changed(&mut self) -> Vec<Kind> {
        let mut kinds = std::mem::take(&mut self.changed);
        // Templates have no notification of their own.
        if kinds.contains(&Kind::Resources) && !kinds.contains(&Kind::Templates) {
            kinds.push(Kind::Templates);
        }
        kinds
    }

    /// A stream of changes is open, or took too long for that.
    fn opened(&mut self, opened: bool) {
        for kind in std::mem::take(&mut self.early) {
            if opened {
                self.change(kind);
            }
        }
    }

    /// The stream of changes told something, or ended.
    fn heard(&mut self, upstream: &Upstream, notices: &mut Notices, notice: Option<Notice>) {
        self.deaf = if notice.is_some() { 0 } else { self.deaf + 1 };
        match notice {
            Some(Notice::Changed(kind) | Notice::Missed(kind)) => self.change(kind),
            Some(other) => tell(upstream, other),
            None => {
                // All lists are taken again once there is another.
                self.hear = Some(Instant::now() + self.pause(self.deaf));
                self.early.clear();
                notices.opened = None;
            }
        }
    }
}

async fn follow(upstream: &Arc<Upstream>, active: &Arc<Active>, notices: &mut Notices, mut due: Due) -> String {
    loop {
        let hear = due.hear;
        let kinds = tokio::select! {
            () = upstream.breaker.changed() => {
                // A server that could not be listed stays degraded for that reason.
                if due.failed == 0 {
                    report_breaker(upstream);
                }
                continue;
            }
            () = upstream.connections.record.learned() => {
                tracing::info!(server = upstream.settings.name, "server asks: its clients are kept apart from now on");
                // What could not be listed is written once it can.
                if due.failed == 0 {
                    upstream.confirmed(active);
                }
                continue;
            }
            // Where the stream has ended, the next one is for what is wanted by then.
            () = upstream.resubscribe.notified(), if notices.opened.is_none() && hear.is_none() => {
                listen_to_others(upstream, active, notices, &mut due);
                continue;
            }
            () = opening(notices.opened.clone(), due.open), if notices.opened.is_some() => {
                due.opened(!notices.is_opening());
                notices.assume_opened();
                continue;
            }
            notice = notices.stream.next(), if hear.is_none() => {
                due.heard(upstream, notices, notice);
                continue;
            }
            () = tokio::time::sleep_until(due.settled), if !due.changed.is_empty() => due.take_changed(),
            () = tokio::time::sleep_until(hear.unwrap_or(due.relist)), if hear.is_some() => {
                // What changed while nobody listened is found by listing again.
                *notices = listen(upstream, active);
                due.opening(true);
                Kind::ALL.to_vec()
            }
            kinds = upstream.elsewhere.gather() => kinds,
            kinds = upstream.looks.wanted(), if due.failed == 0 => kinds,
            () = upstream.refused.notified(), if due.failed == 0 => match refuses(upstream, active, &mut due).await {
                Some(reason) => return reason,
                None => continue,
            },
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
        let listed = refresh(upstream, active, notices, &mut due, &kinds).await;
        tell_own(upstream);
        upstream.looks.taken();
        due.listed(&listed, upstream);
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

/// Listens to other resources than before. The new stream is there before the old one goes; one change at a time.
fn listen_to_others(upstream: &Upstream, active: &Active, notices: &mut Notices, due: &mut Due) {
    due.opening(false);
    let before = std::mem::replace(notices, silence());
    *notices = listen(upstream, active).in_place_of(before);
}

/// Passes on which lists changed on connections of single clients, of those that were just taken for them.
fn tell_own(upstream: &Upstream) {
    for (owner, kind) in upstream.elsewhere.taken() {
        (upstream.sink)(&upstream.settings.name, News::Own(owner, Box::new(Notice::Changed(kind))));
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

async fn refresh(
    upstream: &Arc<Upstream>,
    active: &Arc<Active>,
    notices: &mut Notices,
    due: &mut Due,
    kinds: &[Kind],
) -> Result<(), Trouble> {
    let before = upstream.items();
    let listed = tokio::select! {
        listed = relist(upstream, active, notices, due, kinds) => listed,
        () = upstream.stop.cancelled() => Ok(()),
    };
    let degraded = upstream.status.borrow().state == State::Degraded && upstream.breaker.shut().is_none();
    match &listed {
        Ok(()) if degraded => report(upstream, active, &listed),
        Ok(()) => {}
        Err(Trouble { reason, .. }) => {
            if let Some(repeated) = upstream.state_log.turn(State::Degraded, reason) {
                tracing::warn!(server = upstream.settings.name, repeated, "not listed again: {reason}");
            }
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
    let live = upstream.live.load_full();
    let first = tokio::time::timeout(live.connect_timeout, list_once(upstream, active, Kind::Tools)).await;
    if first.is_ok_and(|listed| !is_down(&listed)) {
        return Ok(());
    }
    // One that does not come at once may still come: then it is as late as lists may be.
    let limit = live.list_timeout;
    tokio::time::sleep(retry::PAUSE).await;
    match tokio::time::timeout(limit, list_once(upstream, active, Kind::Tools)).await {
        Ok(Err(error)) if error.reason == Reason::ServerDown => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
        _ => Ok(()),
    }
}

/// A list as the server has it now.
async fn list(upstream: &Upstream, active: &Active, kind: Kind) -> Result<List, Error> {
    let listed = list_once(upstream, active, kind).await;
    if active.link.is_pipe() || !is_down(&listed) {
        return listed;
    }
    // That one connection broke does not mean that nobody is there.
    tokio::time::sleep(retry::PAUSE).await;
    list_once(upstream, active, kind).await
}

async fn list_once(upstream: &Upstream, active: &Active, kind: Kind) -> Result<List, Error> {
    list_all(&*active.server, kind, &upstream.settings.lists).await
}

fn is_down(listed: &Result<List, Error>) -> bool {
    listed.as_ref().is_err_and(|error| error.reason == Reason::ServerDown)
}

/// A call was refused: is everything? Then the next attempt to connect finds out what is wrong, and says so.
async fn refuses(upstream: &Upstream, active: &Active, due: &mut Due) -> Option<String> {
    // Not for each call: one that may not be made is made again and again.
    if active.link.is_pipe() || due.refused.is_some_and(|at| at.elapsed() < REFUSED) {
        return None;
    }
    due.refused = Some(Instant::now());
    let listing = list_once(upstream, active, Kind::Tools);
    let listed = tokio::time::timeout(upstream.live.load().list_timeout, listing).await;
    listed.ok()?.err().filter(is_refused).map(|error| error.to_string())
}

/// Waits for something while the server is listened to: a stream of changes is opened by reading it.
async fn hearing<T>(upstream: &Upstream, notices: &mut Notices, due: &mut Due, done: impl Future<Output = T>) -> T {
    let mut done = std::pin::pin!(done);
    loop {
        tokio::select! {
            notice = notices.stream.next(), if due.hear.is_none() => due.heard(upstream, notices, notice),
            done = &mut done => return done,
        }
    }
}

/// Takes lists again. A list that fails stays as it was; the others are published.
async fn relist(
    upstream: &Upstream,
    active: &Active,
    notices: &mut Notices,
    due: &mut Due,
    kinds: &[Kind],
) -> Result<(), Trouble> {
    // The server shall hear that it is listened to before it is listed: what comes before it says so is listed twice.
    if due.alone && notices.is_opening() {
        let opened = opening(notices.opened.clone(), Instant::now() + PROMPT);
        hearing(upstream, notices, due, opened).await;
    }
    let features = active.server.describe(&own_caller()).features;
    let mut trouble: Option<Trouble> = None;
    let mut answered = false;
    for kind in kinds.iter().copied() {
        let mut list = if items::offers(&features, kind) {
            let limit = upstream.live.load().list_timeout;
            let listing = tokio::time::timeout(limit, list(upstream, active, kind));
            match hearing(upstream, notices, due, listing).await {
                Ok(Ok(list)) => {
                    due.taken(kind, notices);
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
            List::default()
        };
        upstream.fresh.taken(kind, &features);
        upstream.added.merge(kind, &mut list);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};
    use tokio::sync::oneshot;

    use super::*;
    use crate::json::{Object, Raw, Text};
    use crate::model::{Call, Method, testing};
    use crate::upstream::testing::{Asked, Becomes, Changing, dialing, dialing_http, settings, settings_http};

    /// A server with sessions behind HTTP.
    #[derive(Default)]
    struct Site {
        opened: AtomicUsize,
        ended: Mutex<Vec<String>>,
        /// How many lists still break off.
        breaks: AtomicUsize,
        /// A call that is answered later.
        call: Mutex<Option<oneshot::Receiver<Value>>>,
    }

    impl Site {
        fn serve(&self, asked: &Asked) -> Becomes {
            match (asked.verb.as_str(), asked.method()) {
                ("DELETE", _) => {
                    self.ended.lock().unwrap().extend(asked.session.clone());
                    Becomes::Status(204)
                }
                ("GET", _) => Becomes::Status(405),
                (_, "initialize") => {
                    let session = format!("session-{}", self.opened.fetch_add(1, Ordering::Relaxed));
                    let says =
                        json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}});
                    Becomes::Result(says, Some(session))
                }
                (_, "tools/list") if self.is_broken() => Becomes::Broken,
                (_, "ping") => Becomes::Result(json!({}), None),
                (_, "tools/list") => Becomes::Result(json!({"tools": []}), None),
                (_, "tools/call") => Becomes::Later(self.call.lock().unwrap().take().unwrap()),
                _ => Becomes::Status(202),
            }
        }

        fn is_broken(&self) -> bool {
            self.breaks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        }

        fn ended(&self) -> Vec<String> {
            self.ended.lock().unwrap().clone()
        }
    }

    async fn start(site: &Arc<Site>) -> Arc<Upstream> {
        let serves = site.clone();
        let shared = dialing_http(move |asked| serves.serve(asked));
        let upstream = Upstream::new(settings_http(), shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        until(&upstream, State::Ready).await;
        upstream
    }

    async fn until(upstream: &Upstream, state: State) {
        upstream.watch().wait_for(|status| status.state == state).await.unwrap();
    }

    async fn listed(server: &Arc<Changing>) -> Arc<Upstream> {
        let serves = server.clone();
        let shared = dialing(move |talk, message| serves.serve(talk, message));
        let upstream = Upstream::new(settings(), shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        while upstream.items().get(Kind::Tools).items.is_empty() {
            tokio::time::sleep(SETTLE / 10).await;
        }
        upstream
    }

    /// Well before lists are taken again in any case.
    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn what_changes_while_a_server_is_listed_is_heard() {
        let server = Changing::new(Some(Duration::ZERO));
        let upstream = listed(&server).await;
        assert_ne!(upstream.status().state, State::Ready, "its prompts take longer");
        server.grow();
        tokio::time::sleep(SOON).await;
        assert_eq!(upstream.items().get(Kind::Tools).items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_before_a_server_listens_is_found() {
        // Before all lists are there, and afterwards.
        for after in [1, 4] {
            let server = Changing::new(Some(Duration::from_secs(after)));
            let upstream = listed(&server).await;
            server.grow();
            tokio::time::sleep(SOON).await;
            assert_eq!(upstream.items().get(Kind::Tools).items.len(), 2, "after {after} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_before_a_server_listens_again_is_found() {
        let server = Changing::new(Some(Duration::from_secs(1)));
        let upstream = listed(&server).await;
        tokio::time::sleep(SOON).await;
        server.listed.store(0, Ordering::Relaxed);
        server.end_listening();
        let before = Instant::now();
        while server.listed.swap(0, Ordering::Relaxed) == 0 {
            tokio::time::sleep(SETTLE / 10).await;
        }
        assert!(before.elapsed() < SOON);
        server.grow();
        tokio::time::sleep(SOON).await;
        assert_eq!(upstream.items().get(Kind::Tools).items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long_for_a_server_to_listen() {
        let server = Changing::new(None);
        let began = Instant::now();
        let upstream = listed(&server).await;
        assert!(began.elapsed() < Duration::from_secs(1));
        until(&upstream, State::Ready).await;
        assert!(began.elapsed() <= PROMPT + server.prompts + SETTLE);
        assert_eq!(server.listed.load(Ordering::Relaxed), 1);
        tokio::time::sleep(RELIST + SETTLE).await;
        assert_eq!(server.listed.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_breaks_off_is_asked_for_again() {
        let site = Arc::new(Site::default());
        let upstream = start(&site).await;
        // Whichever way it comes to be listed.
        for suspected in [true, false] {
            site.breaks.store(1, Ordering::Relaxed);
            if suspected {
                upstream.suspect.notify_one();
            }
            tokio::time::sleep(if suspected { SETTLE * 10 } else { RELIST * 2 }).await;
            assert_eq!(site.breaks.load(Ordering::Relaxed), 0, "it was listed");
            assert_eq!((site.opened.load(Ordering::Relaxed), upstream.status().state), (1, State::Ready));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_announces_nothing_is_listed_again_as_the_setting_says() {
        for (relist, listed) in [(60, 10), (0, 0), (300, 2)] {
            let counted = Arc::new(AtomicUsize::new(0));
            let counts = counted.clone();
            let shared = dialing(move |talk, message| {
                match message["method"].as_str() {
                    Some("ping") => return talk.answer(message, &json!({})),
                    Some("tools/list") => drop(counts.fetch_add(1, Ordering::Relaxed)),
                    _ => {}
                }
                talk.legacy(message);
            });
            let mut settings = settings();
            (settings.relist, settings.protocol) = (Duration::from_secs(relist), Some("2025-11-25".to_owned()));
            let upstream = Upstream::new(settings, shared, Arc::new(|_, _| {}));
            tokio::spawn(upstream.clone().run());
            until(&upstream, State::Ready).await;
            counted.store(0, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(605)).await;
            assert_eq!(counted.load(Ordering::Relaxed), listed, "relist = {relist} s");
            upstream.stop().await;
        }
    }

    const GREW: &str = "notifications/tools/list_changed";

    /// What a server answers whose tools grow with each call, and which announces no changes.
    fn growing(tools: &AtomicUsize, method: &str) -> Option<Value> {
        let tool = |n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}});
        let mut result = match method {
            "server/discover" => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": false}}})
            }
            "tools/list" => json!({"tools": (0..tools.load(Ordering::Relaxed)).map(tool).collect::<Vec<_>>()}),
            "tools/call" => {
                tools.fetch_add(1, Ordering::Relaxed);
                json!({"content": []})
            }
            _ => return None,
        };
        result["resultType"] = json!("complete");
        Some(result)
    }

    async fn finds_what_grew(settings: crate::upstream::ServerSettings, shared: Arc<crate::upstream::Shared>) {
        let upstream = Upstream::new(settings, shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        until(&upstream, State::Ready).await;
        let caller = Arc::new(crate::model::Caller { revision: "2026-07-28", ..(*testing::caller(1, None)).clone() });
        let params = Object::new().with("name", Raw::string("t0"));
        upstream.call(&caller, Call::new(Method::CallTool, params)).outcome().await.unwrap();
        tokio::time::sleep(SOON).await;
        assert_eq!(upstream.items().get(Kind::Tools).items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_taken_beside_a_call_on_a_pipe() {
        let tools = AtomicUsize::new(1);
        let shared = dialing(move |talk, message| {
            let method = message["method"].as_str().unwrap();
            let Some(result) = growing(&tools, method) else { return };
            if method == "tools/call" {
                talk.say(json!({"jsonrpc": "2.0", "method": GREW}));
            }
            talk.answer(message, &result);
        });
        finds_what_grew(settings(), shared).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_taken_on_the_stream_of_a_call() {
        let tools = AtomicUsize::new(1);
        let shared = dialing_http(move |asked| match growing(&tools, asked.method()) {
            Some(result) if asked.method() == "tools/call" => Becomes::Events(vec![
                json!({"jsonrpc": "2.0", "method": GREW}),
                json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}),
            ]),
            Some(result) => Becomes::Result(result, None),
            None => Becomes::Status(202),
        });
        finds_what_grew(crate::upstream::ServerSettings { protocol: None, ..settings_http() }, shared).await;
    }

    /// A server whose resources can be subscribed to.
    #[derive(Default)]
    struct Watched {
        subscribed: Mutex<BTreeSet<String>>,
        /// Requests about them, as they came.
        asked: Mutex<Vec<String>>,
        /// How many subscriptions still fail: with an error if that is known, else without a word.
        fails: AtomicUsize,
    }

    impl Watched {
        fn serve(self: &Arc<Self>, asked: &Asked) -> Becomes {
            let can = json!({"resources": {"subscribe": true}});
            match (asked.verb.as_str(), asked.method()) {
                (_, "initialize") => Becomes::Result(
                    json!({"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": {}}),
                    Some("session".to_owned()),
                ),
                (_, "resources/list") => Becomes::Result(json!({"resources": []}), None),
                (_, "resources/templates/list") => Becomes::Result(json!({"resourceTemplates": []}), None),
                (_, "ping") => Becomes::Result(json!({}), None),
                (_, method @ ("resources/subscribe" | "resources/unsubscribe")) => {
                    let uri = asked.message["params"]["uri"].as_str().unwrap().to_owned();
                    self.asked.lock().unwrap().push(format!("{method} {uri}"));
                    self.change(method == "resources/subscribe", uri)
                }
                ("GET", _) => Becomes::Status(405),
                _ => Becomes::Status(202),
            }
        }

        /// What is no longer wanted takes longer than what is.
        fn change(self: &Arc<Self>, more: bool, uri: String) -> Becomes {
            let fails = |left: usize| left.checked_sub(1);
            if more && self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
                return Becomes::Broken;
            }
            let (done, later) = oneshot::channel();
            let watched = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(if more { SETTLE } else { SETTLE * 30 }).await;
                let mut subscribed = watched.subscribed.lock().unwrap();
                if more {
                    subscribed.insert(uri)
                } else {
                    subscribed.remove(&uri)
                };
                let _ = done.send(json!({}));
            });
            Becomes::Later(later)
        }

        fn subscribed(&self) -> Vec<String> {
            self.subscribed.lock().unwrap().iter().cloned().collect()
        }
    }

    async fn watched(server: &Arc<Watched>) -> Arc<Upstream> {
        let serves = server.clone();
        let shared = dialing_http(move |asked| serves.serve(asked));
        let upstream = Upstream::new(settings_http(), shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        until(&upstream, State::Ready).await;
        upstream
    }

    fn uris(names: &[&str]) -> Vec<Text> {
        names.iter().map(|name| Text::from(*name)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_word_on_a_resource_counts() {
        let server = Arc::new(Watched::default());
        let upstream = watched(&server).await;
        for wanted in [&["x:1", "x:2"][..], &["x:2"], &["x:1", "x:2"], &["x:1", "x:3"]] {
            upstream.subscribe(uris(wanted));
            tokio::time::sleep(SETTLE * 2).await;
        }
        tokio::time::sleep(SOON).await;
        assert_eq!(server.subscribed(), ["x:1", "x:3"]);
        let asked = server.asked.lock().unwrap().len();
        assert!(asked <= 7, "no more is asked than differs: {:?}", server.asked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_that_fails_is_tried_again_and_not_for_ever() {
        let server = Arc::new(Watched { fails: AtomicUsize::new(2), ..Watched::default() });
        let upstream = watched(&server).await;
        upstream.subscribe(uris(&["x:1"]));
        tokio::time::sleep(SOON).await;
        assert_eq!(server.subscribed(), ["x:1"]);
        server.fails.store(100, Ordering::Relaxed);
        upstream.subscribe(uris(&["x:1", "x:2"]));
        tokio::time::sleep(SOON * 20).await;
        assert!(server.fails.load(Ordering::Relaxed) > 90);
        // It begins anew once it is wanted anew.
        server.fails.store(0, Ordering::Relaxed);
        upstream.subscribe(uris(&["x:1"]));
        tokio::time::sleep(SOON).await;
        upstream.subscribe(uris(&["x:1", "x:2"]));
        tokio::time::sleep(SOON).await;
        assert_eq!(server.subscribed(), ["x:1", "x:2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_with_its_last_call() {
        let site = Arc::new(Site::default());
        let upstream = start(&site).await;
        let (answer, later) = oneshot::channel();
        *site.call.lock().unwrap() = Some(later);
        let running = tokio::spawn({
            let (upstream, caller) = (upstream.clone(), testing::caller(1, Some("s")));
            let params = Object::new().with("name", Raw::string("t"));
            async move { upstream.call(&caller, Call::new(Method::CallTool, params)).outcome().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(site.call.lock().unwrap().is_none(), "it runs");
        site.breaks.store(2, Ordering::Relaxed);
        upstream.suspect.notify_one();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((site.opened.load(Ordering::Relaxed), upstream.status().state), (2, State::Ready));
        assert_eq!(site.ended(), [""; 0], "the call still runs in it");
        answer.send(json!({"content": []})).unwrap();
        assert!(running.await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(site.ended(), ["session-0"]);
        upstream.stop().await;
        upstream.shared.closed().await;
        assert_eq!(site.ended(), ["session-0", "session-1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_sessions_whatever_runs_in_them() {
        let site = Arc::new(Site::default());
        let upstream = start(&site).await;
        let (_answer, later) = oneshot::channel();
        *site.call.lock().unwrap() = Some(later);
        let caller = testing::caller(1, Some("s"));
        let mut exchange = upstream.call(&caller, Call::new(Method::CallTool, Object::new()));
        let running = tokio::spawn(async move { exchange.next().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        upstream.stop().await;
        upstream.shared.closed().await;
        assert_eq!(site.ended(), ["session-0"]);
        running.abort();
    }
}
