//! Lists of the face in the other era, fetched on the connection that its clients share. Owns when they are due. Does not
//! open that connection (`pool`). Invariant: a face is listed only while a client's call keeps its connection open.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::connection::UpstreamConnection;
use crate::gateway_caller::gateway_caller;
use crate::lists::ListStore;
use crate::lists::fetch::{ItemList, SETTLE_TIME, list_all, offers_list};
use crate::lists::polls::PollTimer;
use crate::server_context::ServerContext;
use moongate_model::{ItemKind, ServerCapabilities};
use moongate_protocol::Era;

/// Delay before lists are fetched again that failed.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Shortest interval between fetches for announced changes.
const CHANGED_INTERVAL: Duration = Duration::from_secs(2);
/// Longest interval, after announcements that changed nothing.
const CHANGED_INTERVAL_MAX: Duration = Duration::from_secs(32);

/// Outcome of a fetch.
#[derive(Default)]
struct FetchedLists {
    /// True if clients see a difference.
    differs: bool,
    /// Lists that failed.
    failed: Vec<ItemKind>,
}

/// Lister of the face in one era.
pub(crate) struct FaceLister {
    server: Arc<ServerContext>,
    lists: Arc<ListStore>,
    era: Era,
    changed: Mutex<Vec<ItemKind>>,
    has_changes: Notify,
}

impl FaceLister {
    pub(crate) fn new(server: &Arc<ServerContext>, lists: &Arc<ListStore>, era: Era) -> Self {
        let (server, lists) = (server.clone(), lists.clone());
        FaceLister { server, lists, era, changed: Mutex::new(ItemKind::ALL.to_vec()), has_changes: Notify::new() }
    }

    /// Records that a list changed, or may have.
    pub(crate) fn mark_changed(&self, kind: ItemKind) {
        let mut changed = self.changed.lock();
        // Templates have no notification of their own.
        let also = (kind == ItemKind::Resources).then_some(ItemKind::Templates);
        for kind in [Some(kind), also].into_iter().flatten() {
            if !changed.contains(&kind) {
                changed.push(kind);
            }
        }
        drop(changed);
        self.has_changes.notify_one();
    }

    /// Fetches the lists, at first and after each change. Never returns.
    pub(crate) async fn run_lister(&self, connection: &UpstreamConnection) {
        // A connection that becomes the shared one a moment later is listed there.
        let mut due = Some(Instant::now() + SETTLE_TIME);
        let mut pause = CHANGED_INTERVAL;
        let mut last_listed: Option<Instant> = None;
        let mut polls = PollTimer::new();
        loop {
            let is_announced = tokio::select! {
                () = self.has_changes.notified(), if due.is_none() => {
                    let settled = Instant::now() + SETTLE_TIME;
                    due = Some(last_listed.map_or(settled, |last| settled.max(last + pause)));
                    continue;
                }
                kinds = self.lists.other_relist_requests.requested() => {
                    kinds.into_iter().for_each(|kind| self.mark_changed(kind));
                    false
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => last_listed.is_some(),
                () = sleep_until(polls.at()) => {
                    let features = connection.server.describe(&gateway_caller()).features;
                    let kinds = polls.take_due(&self.server, &self.lists.uses.other, &features);
                    kinds.into_iter().for_each(|kind| self.mark_changed(kind));
                    false
                }
            };
            let kinds = std::mem::take(&mut *self.changed.lock());
            if kinds.is_empty() {
                due = due.filter(|due| *due > Instant::now());
                continue;
            }
            due = None;
            let fetched = self.fetch(connection, &kinds).await;
            self.lists.other_relist_requests.completed();
            last_listed = Some(Instant::now());
            // Some servers announce changes all the time that are none.
            if fetched.differs {
                pause = CHANGED_INTERVAL;
            } else if is_announced {
                pause = (pause * 2).min(CHANGED_INTERVAL_MAX);
            }
            if !fetched.failed.is_empty() {
                due = Some(Instant::now() + RETRY_DELAY.max(pause));
                self.changed.lock().extend(fetched.failed);
            }
        }
    }

    /// Fetches lists, and has clients told if one differs for them.
    async fn fetch(&self, connection: &UpstreamConnection, kinds: &[ItemKind]) -> FetchedLists {
        let features = connection.server.describe(&gateway_caller()).features;
        let mut fetched = FetchedLists::default();
        for kind in kinds.iter().copied() {
            match self.fetch_list(connection, &features, kind).await {
                Ok(list) => fetched.differs |= self.lists.record_other(self.era, kind, list),
                Err(reason) => {
                    tracing::debug!(server = &*self.server.name, "other era not listed: {reason}");
                    fetched.failed.push(kind);
                }
            }
        }
        if fetched.differs {
            self.server.publish_lists_and_wait().await;
            self.lists.other_listed.notify_one();
        }
        fetched
    }

    async fn fetch_list(
        &self,
        connection: &UpstreamConnection,
        features: &ServerCapabilities,
        kind: ItemKind,
    ) -> Result<ItemList, String> {
        if !offers_list(features, kind) {
            return Ok(ItemList::default());
        }
        let limit = self.server.peek_live_settings().list_timeout;
        let listed = timeout(limit, list_all(&*connection.server, kind, &self.server.settings.lists)).await;
        listed.map_err(|_| format!("{} took longer than {limit:?}", kind.list_method()))?.map_err(|e| e.to_string())
    }

    /// Records the end of the connection. The lists stay, and follow those of the shared connection.
    pub(crate) fn end(&self) {
        if self.lists.close_other(self.era) {
            self.server.publish_lists();
        }
    }
}
