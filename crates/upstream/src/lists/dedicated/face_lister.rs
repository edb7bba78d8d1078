//! Lists of the face in the other era, fetched on the connection that its clients share. Owns when
//! they are due. Does not open that connection (`pool`). Invariant: a face is listed only while a
//! client's call keeps its connection open.

use parking_lot::Mutex;
use std::collections::HashSet;
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
use moongate_jsonrpc::json::ByteString;
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
        let server = server.clone();
        let lists = lists.clone();
        FaceLister {
            server,
            lists,
            era,
            changed: Mutex::new(ItemKind::ALL.to_vec()),
            has_changes: Notify::new(),
        }
    }

    /// Records that a list changed, or may have.
    pub(crate) fn mark_changed(&self, kind: ItemKind) {
        // Templates have no separate notification.
        let also = (kind == ItemKind::Resources).then_some(ItemKind::Templates);
        self.add_changed([Some(kind), also].into_iter().flatten());
        self.has_changes.notify_one();
    }

    /// Adds lists to fetch, each once.
    fn add_changed(&self, kinds: impl IntoIterator<Item = ItemKind>) {
        let mut changed = self.changed.lock();
        for kind in kinds {
            if !changed.contains(&kind) {
                changed.push(kind);
            }
        }
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
                kinds = self.lists.other_relist_requests.wait_requested() => {
                    kinds.into_iter().for_each(|kind| self.mark_changed(kind));
                    false
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)),
                    if due.is_some() => last_listed.is_some(),
                () = sleep_until(polls.next_poll_at()) => {
                    let capabilities = connection.server.describe(&gateway_caller()).capabilities;
                    let kinds = polls.take_due(&self.server, self.lists.uses.take_other(),
                        &capabilities);
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
                // Some of them may have been announced again during the fetch.
                self.add_changed(fetched.failed);
            }
        }
    }

    /// Fetches the lists once, on a connection that no client will call on: what the shared
    /// connection cannot serve is left out.
    pub(crate) async fn list_once(&self, connection: &UpstreamConnection) {
        let capabilities = connection.server.describe(&gateway_caller()).capabilities;
        let mut differs = false;
        for kind in ItemKind::ALL {
            // A list that fails stays that of the shared connection.
            let Ok(mut list) = self.fetch_list(connection, &capabilities, kind).await else {
                continue;
            };
            let eras = self.lists.load_eras();
            let served: HashSet<ByteString> = eras
                .shared()
                .get(kind)
                .items
                .iter()
                .filter_map(|item| item.get_string(kind.item_key()))
                .collect();
            list.items.retain(|item| {
                item.get_string(kind.item_key())
                    .is_some_and(|key| served.contains(&key))
            });
            differs |= self.lists.record_other(self.era, kind, list);
        }
        differs |= self.lists.close_other(self.era);
        if differs {
            self.server.publish_lists_and_wait().await;
        }
    }

    /// Fetches lists, and notifies clients for which one differs.
    async fn fetch(&self, connection: &UpstreamConnection, kinds: &[ItemKind]) -> FetchedLists {
        let capabilities = connection.server.describe(&gateway_caller()).capabilities;
        let mut fetched = FetchedLists::default();
        for kind in kinds.iter().copied() {
            match self.fetch_list(connection, &capabilities, kind).await {
                Ok(list) => fetched.differs |= self.lists.record_other(self.era, kind, list),
                Err(reason) => {
                    tracing::debug!(
                        server = &*self.server.name,
                        "other era not listed: {reason}"
                    );
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
        capabilities: &ServerCapabilities,
        kind: ItemKind,
    ) -> Result<ItemList, String> {
        if !offers_list(capabilities, kind) {
            return Ok(ItemList::default());
        }
        let limit = self.server.peek_live_settings().live.list_timeout.0;
        let listed = timeout(
            limit,
            list_all(
                &*connection.server,
                kind,
                &self.server.settings.options.lists,
            ),
        )
        .await;
        listed
            .map_err(|_| format!("{} took longer than {limit:?}", kind.list_method()))?
            .map_err(|e| e.to_string())
    }

    /// Records the end of the connection. The lists stay, and follow those of the shared
    /// connection.
    pub(crate) fn end(&self) {
        self.lists.other_relist_requests.abandon();
        if self.lists.close_other(self.era) {
            self.server.publish_lists();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::testing::{dialing, settings};
    use crate::{NoSink, Upstream};
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::UpstreamState;
    use moongate_model::{Call, Caller, McpMethod};
    use moongate_testing as testing;

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_and_is_announced_meanwhile_is_fetched_once_a_time() {
        // The first process is modern. The second one, of the legacy era, announces its tools and
        // does not list them.
        let listed = Arc::new(AtomicUsize::new(0));
        let counts = listed.clone();
        let shared =
            dialing(
                move |talk, message| match message["method"].as_str().unwrap_or_default() {
                    "server/discover" => talk.answer(
                        message,
                        &json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}}}),
                    ),
                    "initialize" => {
                        let capabilities = json!({"tools": {"listChanged": true}});
                        let info = json!({"name": "a", "version": "1"});
                        talk.answer(
                            message,
                            &json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                        "serverInfo": info}),
                        );
                    }
                    "tools/list" if talk.nth == 1 => {
                        counts.fetch_add(1, Ordering::Relaxed);
                        talk.send(
                            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
                        );
                        talk.send(json!({"jsonrpc": "2.0", "id": message["id"],
                        "error": {"code": -32000, "message": "not now"}}));
                    }
                    "tools/list" => {
                        talk.answer(message, &json!({"resultType": "complete", "tools": []}))
                    }
                    "tools/call" => {
                        talk.answer(message, &json!({"resultType": "complete", "content": []}))
                    }
                    _ => {}
                },
            );
        let upstream = Upstream::new(settings(), shared, Arc::new(NoSink));
        tokio::spawn(upstream.clone().run());
        upstream
            .watch()
            .wait_for(|status| status.state == UpstreamState::Ready)
            .await
            .unwrap();
        for revision in ["2026-07-28", "2025-11-25"] {
            let caller = Arc::new(Caller {
                revision,
                ..(*testing::caller(1, None)).clone()
            });
            let params = JsonObject::new().with("name", RawJson::string("t"));
            upstream
                .call(&caller, Call::new(McpMethod::CallTool, params))
                .outcome()
                .await
                .unwrap();
        }
        tokio::time::sleep(RETRY_DELAY / 2).await;
        assert_eq!(listed.load(Ordering::Relaxed), 1, "its first list");
        tokio::time::sleep(RETRY_DELAY * 100).await;
        let more = listed.load(Ordering::Relaxed);
        assert!((10..=101).contains(&more), "{more} in a hundred times");
        upstream.stop().await;
    }

    /// Program of both eras, which lists these tools in each. Without legacy tools, it speaks the
    /// modern era only.
    struct FacedProgram {
        modern: &'static [&'static str],
        legacy: Option<&'static [&'static str]>,
        processes: AtomicUsize,
    }

    impl FacedProgram {
        fn serve(&self, talk: &crate::testing::ServerSide, message: &serde_json::Value) {
            self.processes.fetch_max(talk.nth + 1, Ordering::Relaxed);
            // The first process is the probed one.
            let legacy = self.legacy.filter(|_| talk.nth > 0);
            match message["method"].as_str().unwrap_or_default() {
                "server/discover" if legacy.is_none() => {
                    let capabilities = json!({"tools": {}});
                    let versions = json!(["2026-07-28"]);
                    let result = json!({"resultType": "complete", "supportedVersions": versions,
                        "capabilities": capabilities});
                    talk.answer(message, &result);
                }
                "initialize" if legacy.is_none() => {
                    let error = json!({"code": -32022, "message": "no",
                        "data": {"supported": ["2026-07-28"]}});
                    talk.send(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
                }
                "tools/list" => {
                    let tools: Vec<serde_json::Value> = legacy
                        .unwrap_or(self.modern)
                        .iter()
                        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                        .collect();
                    let result = json!({"resultType": "complete", "tools": tools});
                    talk.answer(message, &result);
                }
                _ if legacy.is_some() => _ = talk.serve_legacy(message),
                _ => {}
            }
        }
    }

    async fn faced(
        modern: &'static [&'static str],
        legacy: Option<&'static [&'static str]>,
    ) -> (Arc<Upstream>, Arc<FacedProgram>) {
        let program = Arc::new(FacedProgram {
            modern,
            legacy,
            processes: AtomicUsize::new(0),
        });
        let serves = program.clone();
        let shared = dialing(move |talk, message| serves.serve(talk, message));
        let upstream = Upstream::new(settings(), shared, Arc::new(NoSink));
        tokio::spawn(upstream.clone().run());
        upstream
            .watch()
            .wait_for(|status| status.state == UpstreamState::Ready)
            .await
            .unwrap();
        (upstream, program)
    }

    fn names(upstream: &Upstream, era: Era) -> Vec<String> {
        let lists = upstream.era_lists();
        let tools = &lists.of_era(era).get(ItemKind::Tools).items;
        tools
            .iter()
            .map(|tool| tool.get_string("name").unwrap().to_string())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_offers_nothing_is_listed_in_its_other_era_once() {
        let (upstream, program) = faced(&[], Some(&["t"])).await;
        assert!(upstream.status().reason.contains("offers nothing"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(names(&upstream, Era::Legacy), ["t"]);
        assert_eq!(names(&upstream, Era::Modern), [""; 0]);
        assert_eq!(upstream.status().reason, "");
        // The process ends unused. Its list stays, so nothing starts it again.
        tokio::time::sleep(upstream.settings.options.idle_stop.0 * 2).await;
        assert_eq!(upstream.dedicated_count(), 0);
        assert_eq!(names(&upstream, Era::Legacy), ["t"]);
        assert_eq!(program.processes.load(Ordering::Relaxed), 2);
        upstream.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_of_one_era_that_offers_nothing_is_tried_once_in_the_other() {
        let (upstream, program) = faced(&[], None).await;
        for _ in 0..3 {
            tokio::time::sleep(RETRY_DELAY * 10).await;
            upstream.relist_for(Era::Legacy, ItemKind::Tools).await;
        }
        assert_eq!(program.processes.load(Ordering::Relaxed), 2);
        assert!(upstream.status().reason.contains("offers nothing"));
        upstream.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_unlisted_name_opens_the_face_of_its_client() {
        let (upstream, program) = faced(&["a"], Some(&["a", "t"])).await;
        tokio::time::sleep(RETRY_DELAY * 10).await;
        upstream.relist_for(Era::Modern, ItemKind::Tools).await;
        assert_eq!(
            program.processes.load(Ordering::Relaxed),
            1,
            "the shared connection has that era"
        );
        assert_eq!(names(&upstream, Era::Legacy), ["a"]);
        let calls = (0..100).map(|_| upstream.relist_for(Era::Legacy, ItemKind::Tools));
        futures_util::future::join_all(calls).await;
        assert_eq!(names(&upstream, Era::Legacy), ["a", "t"]);
        assert_eq!(program.processes.load(Ordering::Relaxed), 2);
        upstream.stop().await;
    }
}
