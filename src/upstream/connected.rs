//! What happens while a server is connected: its lists, its news, its health.
//!
//! Owns when lists are taken again and what a server says by itself. Does not connect (`supervise`). Invariant: a list
//! that fails stays as it was, and a server that is listened to is listened to until another listener takes over.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::model::{Error, ItemKind, McpErrorKind, Notification, NotificationStream, SubscriptionFilter};
use crate::upstream::call::is_refused;
use crate::upstream::dial::UpstreamConnection;
use crate::upstream::fetch::{self, ItemList, list_all};
use crate::upstream::health_check::HealthCheck;
use crate::upstream::settings::BackoffSettings;
use crate::upstream::state_report::{ListFailure, report_breaker, report_lists};
use crate::upstream::{ServerStart, Upstream, UpstreamEvent, UpstreamState, backoff, gateway_caller, retry};

/// Lists are taken again at least so often, even from servers that tell of changes.
const RELIST_INTERVAL: Duration = Duration::from_secs(300);
/// They are not taken more often than this, whatever the setting says.
const RELIST_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// As long as nobody waits for.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// A server that refuses all lists so often in a row is opened anew.
const REFUSALS_MAX: u32 = 3;
/// It is not looked more often whether a server that refuses calls refuses everything.
const REFUSAL_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a server may take to say that it is listened to.
pub(super) const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long lists wait for that.
const ACKNOWLEDGE_WAIT: Duration = Duration::from_millis(250);
/// Changes that come within this time are taken together.
pub(super) const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Why a connection is over.
pub(super) enum ConnectionEnd {
    /// The server is gone, or should be connected anew.
    Disconnected(String),
    /// Nobody needs it.
    Idle,
    /// The gateway no longer wants it.
    Stopped,
    /// Another took its place.
    Promoted,
}

/// Lists the server and follows its changes; returns why that ended.
pub(super) async fn run_connected(upstream: &Arc<Upstream>, active: Arc<UpstreamConnection>) -> ConnectionEnd {
    // In use before it is listed: what is known from before can be called while the lists are taken again.
    upstream.breaker.reset();
    upstream.activity.mark_active();
    upstream.pool.set_shared(active.clone());
    // Calls that wait for a connection look at the state: tell them.
    upstream.status.send_modify(|status| status.disconnected_since = None);
    let (mut notices, mut due) = (open_subscription(upstream, &active), RefreshState::new(upstream.settings.backoff));
    let listed = tokio::select! {
        listed = refresh_lists(upstream, &active, &mut notices, &mut due, &ItemKind::ALL) => listed,
        reason = active.link.closed() => Err(ListFailure { reason: reason.to_string(), is_down: true, is_refused: false }),
        () = upstream.stop.cancelled() => Ok(()),
    };
    due.on_listed(&listed, upstream);
    if listed.is_ok() && !upstream.stop.is_cancelled() {
        upstream.persist_lists(&active);
    }
    report_lists(upstream, &active, &listed);
    (upstream.sink)(&upstream.settings.name, UpstreamEvent::ListsChanged);
    let end = tokio::select! {
        biased;
        end = wait_for_end(upstream, &active) => end,
        reason = event_loop(upstream, &active, &mut notices, due) => ConnectionEnd::Disconnected(reason),
    };
    drop(notices);
    upstream.pool.clear_shared(&active);
    if matches!(end, ConnectionEnd::Idle | ConnectionEnd::Promoted) {
        let _ = tokio::time::timeout(upstream.timeouts.call(), wait_calls_finished(&active)).await;
    }
    if upstream.pool.shared().is_none() {
        upstream.status.send_modify(|status| status.disconnected_since = Some(Instant::now()));
    }
    if upstream.stop.is_cancelled() {
        active.server.close();
    }
    active.link.close(Vec::new()).await;
    end
}

/// Waits for calls that were given the connection just before it was taken out of use.
async fn wait_calls_finished(active: &UpstreamConnection) {
    loop {
        tokio::time::sleep(SETTLE_TIME).await;
        if active.calls.is_idle() {
            return;
        }
    }
}

/// Waits for what ends a connection whatever else happens.
async fn wait_for_end(upstream: &Upstream, active: &UpstreamConnection) -> ConnectionEnd {
    let idle = async {
        match upstream.settings.start {
            ServerStart::Eager => std::future::pending().await,
            // Others may be on connections of their own: those end with their clients.
            ServerStart::Lazy => {
                let otherwise = || upstream.is_subscribed() || upstream.pool.dedicated_count() > 0;
                upstream.activity.idle_for(upstream.settings.idle_stop, otherwise).await;
            }
        }
    };
    let health = HealthCheck::of(upstream);
    let settled = async {
        tokio::time::sleep(backoff::HEALTHY).await;
        if let Some(repeated) = upstream.state_log.settle() {
            let state = upstream.status.borrow().state.name();
            tracing::info!(server = upstream.settings.name, state, repeated, "connected for a while");
        }
        std::future::pending::<ConnectionEnd>().await
    };
    tokio::select! {
        end = settled => end,
        reason = active.link.closed() => ConnectionEnd::Disconnected(reason.to_string()),
        () = upstream.stop.cancelled() => ConnectionEnd::Stopped,
        reason = health.failed(active) => ConnectionEnd::Disconnected(reason),
        () = upstream.pool.eras.promoted() => ConnectionEnd::Promoted,
        () = idle => ConnectionEnd::Idle,
    }
}

/// How long lists that were taken are good where nothing is told of them.
fn relist_interval(upstream: &Upstream) -> Duration {
    let relist = upstream.live_settings.load().relist;
    let features = upstream.description().map(|face| face.features);
    if features.is_some_and(|features| fetch::announces_changes(&features)) {
        return RELIST_INTERVAL.max(relist);
    }
    if relist.is_zero() { NEVER } else { relist.max(RELIST_INTERVAL_MIN) }
}

fn open_subscription(upstream: &Upstream, active: &UpstreamConnection) -> NotificationStream {
    let filter = SubscriptionFilter { uris: (**upstream.subscribed_uris.load()).clone(), ..SubscriptionFilter::all() };
    active.server.subscribe(&gateway_caller(), filter)
}

/// Nothing to hear.
pub(super) fn no_notifications() -> NotificationStream {
    NotificationStream {
        acknowledged: SubscriptionFilter::default(),
        stream: stream::pending().boxed(),
        established: None,
    }
}

/// Waits until a server is listened to; not for ever, since some never say so.
pub(super) async fn wait_acknowledged(opened: Option<CancellationToken>, until: Instant) {
    let Some(opened) = opened else { return };
    let _ = tokio::time::timeout_at(until, opened.cancelled()).await;
}

/// What is to be done when, while a server is connected.
struct RefreshState {
    /// The lists are taken again: soon after a failure, and at last in any case.
    relist: Instant,
    failures: u32,
    /// The stream of changes is opened again; `None` while it is open.
    reopen_at: Option<Instant>,
    /// Until when a stream of changes may say that it is open, before the next may take its place.
    open_deadline: Instant,
    /// Whether nothing else was listened to while it opened.
    is_only_stream: bool,
    /// Lists that were taken before it said so: what changed just then was told to nobody.
    listed_early: Vec<ItemKind>,
    /// Lists that changed, and when they are taken together.
    changed: Vec<ItemKind>,
    settles_at: Instant,
    /// How often that stream ended before it told anything.
    silent_ends: u32,
    /// When it was looked last whether the server refuses everything.
    refusal_checked: Option<Instant>,
    backoff: BackoffSettings,
}

impl RefreshState {
    /// With a stream that was just opened.
    fn new(backoff: BackoffSettings) -> Self {
        let now = Instant::now();
        let (listed_early, changed) = (Vec::new(), Vec::new());
        let open_deadline = now + ACKNOWLEDGE_TIMEOUT;
        RefreshState {
            relist: now,
            failures: 0,
            reopen_at: None,
            open_deadline,
            is_only_stream: true,
            listed_early,
            changed,
            settles_at: now,
            silent_ends: 0,
            refusal_checked: None,
            backoff,
        }
    }

    fn backoff_delay(&self, failures: u32) -> Duration {
        backoff::backoff_delay(self.backoff, failures)
    }

    fn on_listed(&mut self, listed: &Result<(), ListFailure>, upstream: &Upstream) {
        self.failures = if listed.is_ok() { 0 } else { self.failures + 1 };
        let pause = if listed.is_ok() { relist_interval(upstream) } else { self.backoff_delay(self.failures) };
        self.relist = Instant::now() + pause;
    }

    /// A stream of changes is being opened. `alone`: nothing else is heard until it is.
    fn begin_opening(&mut self, alone: bool) {
        (self.reopen_at, self.open_deadline, self.is_only_stream) = (None, Instant::now() + ACKNOWLEDGE_TIMEOUT, alone);
        self.listed_early.clear();
    }

    /// A list was taken.
    fn on_list_taken(&mut self, kind: ItemKind, notices: &NotificationStream) {
        if self.is_only_stream && notices.is_pending() && !self.listed_early.contains(&kind) {
            self.listed_early.push(kind);
        }
    }

    /// A list changed.
    fn mark_changed(&mut self, kind: ItemKind) {
        if self.changed.is_empty() {
            self.settles_at = Instant::now() + SETTLE_TIME;
        }
        if !self.changed.contains(&kind) {
            self.changed.push(kind);
        }
    }

    /// The lists that changed.
    fn take_changed(&mut self) -> Vec<ItemKind> {
        let mut kinds = std::mem::take(&mut self.changed);
        // Templates have no notification of their own.
        if kinds.contains(&ItemKind::Resources) && !kinds.contains(&ItemKind::Templates) {
            kinds.push(ItemKind::Templates);
        }
        kinds
    }

    /// A stream of changes is open, or took too long for that.
    fn on_opened(&mut self, opened: bool) {
        for kind in std::mem::take(&mut self.listed_early) {
            if opened {
                self.mark_changed(kind);
            }
        }
    }

    /// The stream of changes told something, or ended.
    fn on_notification(&mut self, upstream: &Upstream, notices: &mut NotificationStream, notice: Option<Notification>) {
        self.silent_ends = if notice.is_some() { 0 } else { self.silent_ends + 1 };
        match notice {
            Some(Notification::ListChanged(kind) | Notification::MaybeChanged(kind)) => self.mark_changed(kind),
            Some(other) => publish(upstream, other),
            None => {
                // All lists are taken again once there is another.
                self.reopen_at = Some(Instant::now() + self.backoff_delay(self.silent_ends));
                self.listed_early.clear();
                notices.established = None;
            }
        }
    }
}

async fn event_loop(
    upstream: &Arc<Upstream>,
    active: &Arc<UpstreamConnection>,
    notices: &mut NotificationStream,
    mut due: RefreshState,
) -> String {
    loop {
        let hear = due.reopen_at;
        let kinds = tokio::select! {
            () = upstream.breaker.changed() => {
                // A server that could not be listed stays degraded for that reason.
                if due.failures == 0 {
                    report_breaker(upstream);
                }
                continue;
            }
            () = upstream.pool.record.wait_seen() => {
                tracing::info!(server = upstream.settings.name, "server asks: its clients are kept apart from now on");
                // What could not be listed is written once it can.
                if due.failures == 0 {
                    upstream.persist_lists(active);
                }
                continue;
            }
            // Where the stream has ended, the next one is for what is wanted by then.
            () = upstream.resubscribe.notified(), if notices.established.is_none() && hear.is_none() => {
                replace_subscription(upstream, active, notices, &mut due);
                continue;
            }
            () = wait_acknowledged(notices.established.clone(), due.open_deadline), if notices.established.is_some() => {
                due.on_opened(!notices.is_pending());
                notices.assume_established();
                continue;
            }
            notice = notices.stream.next(), if hear.is_none() => {
                due.on_notification(upstream, notices, notice);
                continue;
            }
            () = tokio::time::sleep_until(due.settles_at), if !due.changed.is_empty() => due.take_changed(),
            () = tokio::time::sleep_until(hear.unwrap_or(due.relist)), if hear.is_some() => {
                // What changed while nobody listened is found by listing again.
                *notices = open_subscription(upstream, active);
                due.begin_opening(true);
                ItemKind::ALL.to_vec()
            }
            kinds = upstream.relist_scheduler.next_batch() => kinds,
            kinds = upstream.relist_requests.requested(), if due.failures == 0 => kinds,
            () = upstream.call_refused.notified(), if due.failures == 0 => match refuses_everything(upstream, active, &mut due).await {
                Some(reason) => return reason,
                None => continue,
            },
            () = upstream.connection_suspect.notified() => match check_alive(upstream, active).await {
                Ok(()) => continue,
                Err(reason) => return reason,
            },
            // After a failure the next attempt has its time already.
            () = upstream.list_expired.notified(), if due.failures == 0 => {
                if !upstream.is_stale() {
                    continue;
                }
                ItemKind::ALL.to_vec()
            }
            () = tokio::time::sleep_until(due.relist) => ItemKind::ALL.to_vec(),
        };
        // After a failure everything is due: which lists are missing is not kept.
        let kinds = if due.failures > 0 { ItemKind::ALL.to_vec() } else { kinds };
        let listed = refresh_and_report(upstream, active, notices, &mut due, &kinds).await;
        publish_dedicated(upstream);
        upstream.relist_requests.completed();
        due.on_listed(&listed, upstream);
        match listed {
            // Opened anew, in whatever it speaks now. On a pipe that would take a child away from its calls.
            Err(ListFailure { reason, is_down: down, is_refused: refused })
                if !active.link.is_multiplexed() && (down || refused && due.failures >= REFUSALS_MAX) =>
            {
                return reason;
            }
            _ => {}
        }
    }
}

/// Listens to other resources than before. The new stream is there before the old one goes; one change at a time.
fn replace_subscription(
    upstream: &Upstream,
    active: &UpstreamConnection,
    notices: &mut NotificationStream,
    due: &mut RefreshState,
) {
    due.begin_opening(false);
    let before = std::mem::replace(notices, no_notifications());
    *notices = open_subscription(upstream, active).take_over_from(before);
}

/// Passes on which lists changed on connections of single clients, of those that were just taken for them.
fn publish_dedicated(upstream: &Upstream) {
    for (owner, kind) in upstream.relist_scheduler.completed() {
        (upstream.sink)(
            &upstream.settings.name,
            UpstreamEvent::ToOwner(owner, Box::new(Notification::ListChanged(kind))),
        );
    }
}

/// Passes on what a server says by itself, other than that its lists changed.
fn publish(upstream: &Upstream, notice: Notification) {
    let news = match notice {
        Notification::ResourceUpdated(uri, params) => UpstreamEvent::ResourceUpdated(uri, params),
        Notification::ElicitationComplete(id, params) => UpstreamEvent::ElicitationCompleted(id, params),
        Notification::TaskStatus(task) => UpstreamEvent::Task(task),
        Notification::Log(level, params) => UpstreamEvent::Logged(level, params),
        _ => return,
    };
    (upstream.sink)(&upstream.settings.name, news);
}

async fn refresh_and_report(
    upstream: &Arc<Upstream>,
    active: &Arc<UpstreamConnection>,
    notices: &mut NotificationStream,
    due: &mut RefreshState,
    kinds: &[ItemKind],
) -> Result<(), ListFailure> {
    let before = upstream.lists();
    let listed = tokio::select! {
        listed = refresh_lists(upstream, active, notices, due, kinds) => listed,
        () = upstream.stop.cancelled() => Ok(()),
    };
    let degraded = upstream.status.borrow().state == UpstreamState::Degraded && upstream.breaker.open_state().is_none();
    match &listed {
        Ok(()) if degraded => report_lists(upstream, active, &listed),
        Ok(()) => {}
        Err(ListFailure { reason, .. }) => {
            if let Some(repeated) = upstream.state_log.record(UpstreamState::Degraded, reason) {
                tracing::warn!(server = upstream.settings.name, repeated, "not listed again: {reason}");
            }
        }
    }
    if listed.is_ok() && !upstream.stop.is_cancelled() {
        upstream.persist_lists(active);
    }
    if !Arc::ptr_eq(&before, &upstream.lists()) {
        (upstream.sink)(&upstream.settings.name, UpstreamEvent::ListsChanged);
    }
    listed
}

/// A call found the server away: is it? On a pipe the link knows; elsewhere a list shows.
async fn check_alive(upstream: &Arc<Upstream>, active: &Arc<UpstreamConnection>) -> Result<(), String> {
    if active.link.is_multiplexed() {
        return Ok(());
    }
    let live = upstream.live_settings.load_full();
    let first = tokio::time::timeout(live.connect_timeout, list_once(upstream, active, ItemKind::Tools)).await;
    if first.is_ok_and(|listed| !is_down(&listed)) {
        return Ok(());
    }
    // One that does not come at once may still come: then it is as late as lists may be.
    let limit = live.list_timeout;
    tokio::time::sleep(retry::DEFAULT_DELAY).await;
    match tokio::time::timeout(limit, list_once(upstream, active, ItemKind::Tools)).await {
        Ok(Err(error)) if error.kind == McpErrorKind::ServerDown => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {limit:?}")),
        _ => Ok(()),
    }
}

/// A list as the server has it now.
async fn list(upstream: &Upstream, active: &UpstreamConnection, kind: ItemKind) -> Result<ItemList, Error> {
    let listed = list_once(upstream, active, kind).await;
    if active.link.is_multiplexed() || !is_down(&listed) {
        return listed;
    }
    // That one connection broke does not mean that nobody is there.
    tokio::time::sleep(retry::DEFAULT_DELAY).await;
    list_once(upstream, active, kind).await
}

async fn list_once(upstream: &Upstream, active: &UpstreamConnection, kind: ItemKind) -> Result<ItemList, Error> {
    list_all(&*active.server, kind, &upstream.settings.lists).await
}

fn is_down(listed: &Result<ItemList, Error>) -> bool {
    listed.as_ref().is_err_and(|error| error.kind == McpErrorKind::ServerDown)
}

/// A call was refused: is everything? Then the next attempt to connect finds out what is wrong, and says so.
async fn refuses_everything(
    upstream: &Upstream,
    active: &UpstreamConnection,
    due: &mut RefreshState,
) -> Option<String> {
    // Not for each call: one that may not be made is made again and again.
    if active.link.is_multiplexed() || due.refusal_checked.is_some_and(|at| at.elapsed() < REFUSAL_CHECK_INTERVAL) {
        return None;
    }
    due.refusal_checked = Some(Instant::now());
    let listing = list_once(upstream, active, ItemKind::Tools);
    let listed = tokio::time::timeout(upstream.live_settings.load().list_timeout, listing).await;
    listed.ok()?.err().filter(is_refused).map(|error| error.to_string())
}

/// Waits for something while the server is listened to: a stream of changes is opened by reading it.
async fn while_subscribed<T>(
    upstream: &Upstream,
    notices: &mut NotificationStream,
    due: &mut RefreshState,
    done: impl Future<Output = T>,
) -> T {
    let mut done = std::pin::pin!(done);
    loop {
        tokio::select! {
            notice = notices.stream.next(), if due.reopen_at.is_none() => due.on_notification(upstream, notices, notice),
            done = &mut done => return done,
        }
    }
}

/// Takes lists again. A list that fails stays as it was; the others are published.
async fn refresh_lists(
    upstream: &Upstream,
    active: &UpstreamConnection,
    notices: &mut NotificationStream,
    due: &mut RefreshState,
    kinds: &[ItemKind],
) -> Result<(), ListFailure> {
    // The server shall hear that it is listened to before it is listed: what comes before it says so is listed twice.
    if due.is_only_stream && notices.is_pending() {
        let opened = wait_acknowledged(notices.established.clone(), Instant::now() + ACKNOWLEDGE_WAIT);
        while_subscribed(upstream, notices, due, opened).await;
    }
    let features = active.server.describe(&gateway_caller()).features;
    let mut trouble: Option<ListFailure> = None;
    let mut answered = false;
    for kind in kinds.iter().copied() {
        let mut list = if fetch::offers_list(&features, kind) {
            let limit = upstream.live_settings.load().list_timeout;
            let listing = tokio::time::timeout(limit, list(upstream, active, kind));
            match while_subscribed(upstream, notices, due, listing).await {
                Ok(Ok(list)) => {
                    due.on_list_taken(kind, notices);
                    answered = true;
                    list
                }
                Ok(Err(error)) => {
                    let down = error.kind == McpErrorKind::ServerDown;
                    let reason = format!("{}: {error}", kind.list_method());
                    trouble = Some(ListFailure { reason, is_down: down, is_refused: true });
                    if down {
                        break;
                    }
                    continue;
                }
                Err(_) => {
                    let (method, name) = (kind.list_method(), &upstream.settings.name);
                    let reason = format!("{method} took longer than {limit:?} (servers.{name}.list_timeout)");
                    trouble = Some(ListFailure { reason, is_down: false, is_refused: false });
                    continue;
                }
            }
        } else {
            ItemList::default()
        };
        upstream.list_ages.record_listed(kind, &features);
        upstream.extra_items.merge_into(kind, &mut list);
        let mut items = (*upstream.lists()).clone();
        if items.set(kind, list) {
            upstream.lists.store(Arc::new(items));
        }
    }
    match trouble {
        Some(trouble) => Err(ListFailure { is_refused: trouble.is_refused && !answered, ..trouble }),
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
    use crate::json::{ByteString, JsonObject, RawJson};
    use crate::model::{Call, McpMethod, testing};
    use crate::upstream::testing::{
        ChangingServer, ScriptedAnswer, ScriptedRequest, dialing, dialing_http, settings, settings_http,
    };

    /// A server with sessions behind HTTP.
    #[derive(Default)]
    struct SessionSite {
        opened: AtomicUsize,
        ended: Mutex<Vec<String>>,
        /// How many lists still break off.
        breaks: AtomicUsize,
        /// A call that is answered later.
        call: Mutex<Option<oneshot::Receiver<Value>>>,
    }

    impl SessionSite {
        fn serve(&self, asked: &ScriptedRequest) -> ScriptedAnswer {
            match (asked.verb.as_str(), asked.method()) {
                ("DELETE", _) => {
                    self.ended.lock().unwrap().extend(asked.session.clone());
                    ScriptedAnswer::Status(204)
                }
                ("GET", _) => ScriptedAnswer::Status(405),
                (_, "initialize") => {
                    let session = format!("session-{}", self.opened.fetch_add(1, Ordering::Relaxed));
                    let says =
                        json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}});
                    ScriptedAnswer::Result(says, Some(session))
                }
                (_, "tools/list") if self.is_broken() => ScriptedAnswer::Broken,
                (_, "ping") => ScriptedAnswer::Result(json!({}), None),
                (_, "tools/list") => ScriptedAnswer::Result(json!({"tools": []}), None),
                (_, "tools/call") => ScriptedAnswer::Later(self.call.lock().unwrap().take().unwrap()),
                _ => ScriptedAnswer::Status(202),
            }
        }

        fn is_broken(&self) -> bool {
            self.breaks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        }

        fn ended(&self) -> Vec<String> {
            self.ended.lock().unwrap().clone()
        }
    }

    async fn start(site: &Arc<SessionSite>) -> Arc<Upstream> {
        let serves = site.clone();
        let shared = dialing_http(move |asked| serves.serve(asked));
        let upstream = Upstream::new(settings_http(), shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        until(&upstream, UpstreamState::Ready).await;
        upstream
    }

    async fn until(upstream: &Upstream, state: UpstreamState) {
        upstream.watch().wait_for(|status| status.state == state).await.unwrap();
    }

    async fn listed(server: &Arc<ChangingServer>) -> Arc<Upstream> {
        let serves = server.clone();
        let shared = dialing(move |talk, message| serves.serve(talk, message));
        let upstream = Upstream::new(settings(), shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        while upstream.lists().get(ItemKind::Tools).items.is_empty() {
            tokio::time::sleep(SETTLE_TIME / 10).await;
        }
        upstream
    }

    /// Well before lists are taken again in any case.
    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn what_changes_while_a_server_is_listed_is_heard() {
        let server = ChangingServer::new(Some(Duration::ZERO));
        let upstream = listed(&server).await;
        assert_ne!(upstream.status().state, UpstreamState::Ready, "its prompts take longer");
        server.add_tool();
        tokio::time::sleep(SOON).await;
        assert_eq!(upstream.lists().get(ItemKind::Tools).items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_before_a_server_listens_is_found() {
        // Before all lists are there, and afterwards.
        for after in [1, 4] {
            let server = ChangingServer::new(Some(Duration::from_secs(after)));
            let upstream = listed(&server).await;
            server.add_tool();
            tokio::time::sleep(SOON).await;
            assert_eq!(upstream.lists().get(ItemKind::Tools).items.len(), 2, "after {after} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_before_a_server_listens_again_is_found() {
        let server = ChangingServer::new(Some(Duration::from_secs(1)));
        let upstream = listed(&server).await;
        tokio::time::sleep(SOON).await;
        server.listed.store(0, Ordering::Relaxed);
        server.end_listening();
        let before = Instant::now();
        while server.listed.swap(0, Ordering::Relaxed) == 0 {
            tokio::time::sleep(SETTLE_TIME / 10).await;
        }
        assert!(before.elapsed() < SOON);
        server.add_tool();
        tokio::time::sleep(SOON).await;
        assert_eq!(upstream.lists().get(ItemKind::Tools).items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long_for_a_server_to_listen() {
        let server = ChangingServer::new(None);
        let began = Instant::now();
        let upstream = listed(&server).await;
        assert!(began.elapsed() < Duration::from_secs(1));
        until(&upstream, UpstreamState::Ready).await;
        assert!(began.elapsed() <= ACKNOWLEDGE_WAIT + server.prompts + SETTLE_TIME);
        assert_eq!(server.listed.load(Ordering::Relaxed), 1);
        tokio::time::sleep(RELIST_INTERVAL + SETTLE_TIME).await;
        assert_eq!(server.listed.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_breaks_off_is_asked_for_again() {
        let site = Arc::new(SessionSite::default());
        let upstream = start(&site).await;
        // Whichever way it comes to be listed.
        for suspected in [true, false] {
            site.breaks.store(1, Ordering::Relaxed);
            if suspected {
                upstream.connection_suspect.notify_one();
            }
            tokio::time::sleep(if suspected { SETTLE_TIME * 10 } else { RELIST_INTERVAL * 2 }).await;
            assert_eq!(site.breaks.load(Ordering::Relaxed), 0, "it was listed");
            assert_eq!((site.opened.load(Ordering::Relaxed), upstream.status().state), (1, UpstreamState::Ready));
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
                talk.serve_legacy(message);
            });
            let mut settings = settings();
            (settings.relist, settings.protocol) = (Duration::from_secs(relist), Some("2025-11-25".to_owned()));
            let upstream = Upstream::new(settings, shared, Arc::new(|_, _| {}));
            tokio::spawn(upstream.clone().run());
            until(&upstream, UpstreamState::Ready).await;
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

    async fn finds_what_grew(settings: crate::upstream::ServerSettings, shared: Arc<crate::upstream::UpstreamContext>) {
        let upstream = Upstream::new(settings, shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        until(&upstream, UpstreamState::Ready).await;
        let caller = Arc::new(crate::model::Caller { revision: "2026-07-28", ..(*testing::caller(1, None)).clone() });
        let params = JsonObject::new().with("name", RawJson::string("t0"));
        upstream.call(&caller, Call::new(McpMethod::CallTool, params)).outcome().await.unwrap();
        tokio::time::sleep(SOON).await;
        assert_eq!(upstream.lists().get(ItemKind::Tools).items.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_taken_beside_a_call_on_a_pipe() {
        let tools = AtomicUsize::new(1);
        let shared = dialing(move |talk, message| {
            let method = message["method"].as_str().unwrap();
            let Some(result) = growing(&tools, method) else { return };
            if method == "tools/call" {
                talk.send(json!({"jsonrpc": "2.0", "method": GREW}));
            }
            talk.answer(message, &result);
        });
        finds_what_grew(settings(), shared).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_taken_on_the_stream_of_a_call() {
        let tools = AtomicUsize::new(1);
        let shared = dialing_http(move |asked| match growing(&tools, asked.method()) {
            Some(result) if asked.method() == "tools/call" => ScriptedAnswer::Events(vec![
                json!({"jsonrpc": "2.0", "method": GREW}),
                json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}),
            ]),
            Some(result) => ScriptedAnswer::Result(result, None),
            None => ScriptedAnswer::Status(202),
        });
        finds_what_grew(crate::upstream::ServerSettings { protocol: None, ..settings_http() }, shared).await;
    }

    /// A server whose resources can be subscribed to.
    #[derive(Default)]
    struct SubscribableServer {
        subscribed: Mutex<BTreeSet<String>>,
        /// Requests about them, as they came.
        asked: Mutex<Vec<String>>,
        /// How many subscriptions still fail: with an error if that is known, else without a word.
        fails: AtomicUsize,
    }

    impl SubscribableServer {
        fn serve(self: &Arc<Self>, asked: &ScriptedRequest) -> ScriptedAnswer {
            let can = json!({"resources": {"subscribe": true}});
            match (asked.verb.as_str(), asked.method()) {
                (_, "initialize") => ScriptedAnswer::Result(
                    json!({"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": {}}),
                    Some("session".to_owned()),
                ),
                (_, "resources/list") => ScriptedAnswer::Result(json!({"resources": []}), None),
                (_, "resources/templates/list") => ScriptedAnswer::Result(json!({"resourceTemplates": []}), None),
                (_, "ping") => ScriptedAnswer::Result(json!({}), None),
                (_, method @ ("resources/subscribe" | "resources/unsubscribe")) => {
                    let uri = asked.message["params"]["uri"].as_str().unwrap().to_owned();
                    self.asked.lock().unwrap().push(format!("{method} {uri}"));
                    self.change(method == "resources/subscribe", uri)
                }
                ("GET", _) => ScriptedAnswer::Status(405),
                _ => ScriptedAnswer::Status(202),
            }
        }

        /// What is no longer wanted takes longer than what is.
        fn change(self: &Arc<Self>, more: bool, uri: String) -> ScriptedAnswer {
            let fails = |left: usize| left.checked_sub(1);
            if more && self.fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails).is_ok() {
                return ScriptedAnswer::Broken;
            }
            let (done, later) = oneshot::channel();
            let watched = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(if more { SETTLE_TIME } else { SETTLE_TIME * 30 }).await;
                let mut subscribed = watched.subscribed.lock().unwrap();
                if more {
                    subscribed.insert(uri)
                } else {
                    subscribed.remove(&uri)
                };
                let _ = done.send(json!({}));
            });
            ScriptedAnswer::Later(later)
        }

        fn subscribed(&self) -> Vec<String> {
            self.subscribed.lock().unwrap().iter().cloned().collect()
        }
    }

    async fn watched(server: &Arc<SubscribableServer>) -> Arc<Upstream> {
        let serves = server.clone();
        let shared = dialing_http(move |asked| serves.serve(asked));
        let upstream = Upstream::new(settings_http(), shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        until(&upstream, UpstreamState::Ready).await;
        upstream
    }

    fn uris(names: &[&str]) -> Vec<ByteString> {
        names.iter().map(|name| ByteString::from(*name)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_word_on_a_resource_counts() {
        let server = Arc::new(SubscribableServer::default());
        let upstream = watched(&server).await;
        for wanted in [&["x:1", "x:2"][..], &["x:2"], &["x:1", "x:2"], &["x:1", "x:3"]] {
            upstream.subscribe(uris(wanted));
            tokio::time::sleep(SETTLE_TIME * 2).await;
        }
        tokio::time::sleep(SOON).await;
        assert_eq!(server.subscribed(), ["x:1", "x:3"]);
        let asked = server.asked.lock().unwrap().len();
        assert!(asked <= 7, "no more is asked than differs: {:?}", server.asked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_that_fails_is_tried_again_and_not_for_ever() {
        let server = Arc::new(SubscribableServer { fails: AtomicUsize::new(2), ..SubscribableServer::default() });
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
        let site = Arc::new(SessionSite::default());
        let upstream = start(&site).await;
        let (answer, later) = oneshot::channel();
        *site.call.lock().unwrap() = Some(later);
        let running = tokio::spawn({
            let (upstream, caller) = (upstream.clone(), testing::caller(1, Some("s")));
            let params = JsonObject::new().with("name", RawJson::string("t"));
            async move { upstream.call(&caller, Call::new(McpMethod::CallTool, params)).outcome().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(site.call.lock().unwrap().is_none(), "it runs");
        site.breaks.store(2, Ordering::Relaxed);
        upstream.connection_suspect.notify_one();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((site.opened.load(Ordering::Relaxed), upstream.status().state), (2, UpstreamState::Ready));
        assert_eq!(site.ended(), [""; 0], "the call still runs in it");
        answer.send(json!({"content": []})).unwrap();
        assert!(running.await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(site.ended(), ["session-0"]);
        upstream.stop().await;
        upstream.context.wait_closed().await;
        assert_eq!(site.ended(), ["session-0", "session-1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_sessions_whatever_runs_in_them() {
        let site = Arc::new(SessionSite::default());
        let upstream = start(&site).await;
        let (_answer, later) = oneshot::channel();
        *site.call.lock().unwrap() = Some(later);
        let caller = testing::caller(1, Some("s"));
        let mut exchange = upstream.call(&caller, Call::new(McpMethod::CallTool, JsonObject::new()));
        let running = tokio::spawn(async move { exchange.next().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        upstream.stop().await;
        upstream.context.wait_closed().await;
        assert_eq!(site.ended(), ["session-0"]);
        running.abort();
    }
}
