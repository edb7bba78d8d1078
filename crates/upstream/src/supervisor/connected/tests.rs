//! Tests of `connected.rs`.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::supervisor::refresh::{ACKNOWLEDGE_WAIT, RELIST_INTERVAL};
use crate::testing::{
    ChangingServer, ScriptedAnswer, ScriptedRequest, ServerSide, dialing, dialing_http, settings,
    settings_http,
};
use crate::{EventSink, NoSink, Upstream, UpstreamEvent};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::UpstreamState;
use moongate_model::{Call, Caller, Error, McpErrorKind, McpMethod, Outcome};
use moongate_testing as testing;

/// HTTP server with sessions.
#[derive(Default)]
struct SessionSite {
    opened: AtomicUsize,
    ended: Mutex<Vec<String>>,
    /// Number of lists that still break off.
    breaks: AtomicUsize,
    /// Answer of a call that ends later.
    call: Mutex<Option<oneshot::Receiver<Value>>>,
}

impl SessionSite {
    fn serve(&self, asked: &ScriptedRequest) -> ScriptedAnswer {
        match (asked.verb.as_str(), asked.method()) {
            ("DELETE", _) => {
                self.ended.lock().extend(asked.session.clone());
                ScriptedAnswer::Status(204)
            }
            ("GET", _) => ScriptedAnswer::Status(405),
            (_, "initialize") => {
                let session = format!("session-{}", self.opened.fetch_add(1, Ordering::Relaxed));
                let says = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {}});
                ScriptedAnswer::Result(says, Some(session))
            }
            (_, "tools/list") if self.is_broken() => ScriptedAnswer::Broken,
            (_, "ping") => ScriptedAnswer::Result(json!({}), None),
            (_, "tools/list") => ScriptedAnswer::Result(json!({"tools": []}), None),
            (_, "tools/call") => ScriptedAnswer::Later(self.call.lock().take().unwrap()),
            _ => ScriptedAnswer::Status(202),
        }
    }

    fn is_broken(&self) -> bool {
        // Counts down to zero and stays there.
        self.breaks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok()
    }

    fn ended(&self) -> Vec<String> {
        self.ended.lock().clone()
    }
}

async fn start(site: &Arc<SessionSite>) -> Arc<Upstream> {
    let serves = site.clone();
    let shared = dialing_http(move |asked| serves.serve(asked));
    let upstream = Upstream::new(settings_http(), shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    until(&upstream, UpstreamState::Ready).await;
    upstream
}

async fn until(upstream: &Upstream, state: UpstreamState) {
    upstream
        .watch()
        .wait_for(|status| status.state == state)
        .await
        .unwrap();
}

async fn listed(server: &Arc<ChangingServer>) -> Arc<Upstream> {
    let serves = server.clone();
    let shared = dialing(move |talk, message| serves.serve(talk, message));
    let upstream = Upstream::new(settings(), shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    while upstream.lists().get(ItemKind::Tools).items.is_empty() {
        tokio::time::sleep(SETTLE_TIME / 10).await;
    }
    upstream
}

/// Time well below the regular interval between fetches.
const SOON: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn changes_during_a_list_are_found() {
    let server = ChangingServer::new(Some(Duration::ZERO));
    let upstream = listed(&server).await;
    assert_ne!(
        upstream.status().state,
        UpstreamState::Ready,
        "its prompts take longer"
    );
    server.add_tool();
    tokio::time::sleep(SOON).await;
    assert_eq!(upstream.lists().get(ItemKind::Tools).items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn changes_before_a_subscription_are_found() {
    // Acknowledged before all lists are there, and afterwards.
    for after in [1, 4] {
        let server = ChangingServer::new(Some(Duration::from_secs(after)));
        let upstream = listed(&server).await;
        server.add_tool();
        tokio::time::sleep(SOON).await;
        assert_eq!(
            upstream.lists().get(ItemKind::Tools).items.len(),
            2,
            "after {after} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn changes_before_a_resubscription_are_found() {
    let server = ChangingServer::new(Some(Duration::from_secs(1)));
    let upstream = listed(&server).await;
    tokio::time::sleep(SOON).await;
    server.listed.store(0, Ordering::Relaxed);
    // The next stream is acknowledged only a second after it was opened.
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
async fn a_slow_subscription_delays_readiness_only_briefly() {
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
    // Both triggers of a fetch: a suspicious call, and the regular interval.
    for suspected in [true, false] {
        site.breaks.store(1, Ordering::Relaxed);
        if suspected {
            upstream
                .pool
                .liveness_triggers
                .record_failure(&Error::new(McpErrorKind::ServerDown, "down"), false);
        }
        tokio::time::sleep(if suspected {
            SETTLE_TIME * 10
        } else {
            RELIST_INTERVAL * 2
        })
        .await;
        assert_eq!(site.breaks.load(Ordering::Relaxed), 0, "it was listed");
        assert_eq!(
            (site.opened.load(Ordering::Relaxed), upstream.status().state),
            (1, UpstreamState::Ready)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_announces_nothing_is_listed_again_as_the_setting_says() {
    // The setting in seconds, and the expected fetches within 605 s.
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
        (settings.relist, settings.protocol) =
            (Duration::from_secs(relist), Some("2025-11-25".to_owned()));
        let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
        tokio::spawn(upstream.clone().run());
        until(&upstream, UpstreamState::Ready).await;
        counted.store(0, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(605)).await;
        assert_eq!(
            counted.load(Ordering::Relaxed),
            listed,
            "relist = {relist} s"
        );
        upstream.stop().await;
    }
}

const GREW: &str = "notifications/tools/list_changed";

/// Answers of a server whose tools grow with each call, and which announces no changes.
fn growing(tools: &AtomicUsize, method: &str) -> Option<Value> {
    let tool = |n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}});
    let mut result = match method {
        "server/discover" => {
            json!({"supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": false}}})
        }
        "tools/list" => {
            json!({"tools": (0..tools.load(Ordering::Relaxed)).map(tool).collect::<Vec<_>>()})
        }
        "tools/call" => {
            tools.fetch_add(1, Ordering::Relaxed);
            json!({"content": []})
        }
        _ => return None,
    };
    result["resultType"] = json!("complete");
    Some(result)
}

async fn finds_what_grew(settings: crate::ServerSettings, shared: Arc<crate::UpstreamRuntime>) {
    let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    until(&upstream, UpstreamState::Ready).await;
    let caller = Arc::new(moongate_model::Caller {
        revision: "2026-07-28",
        ..(*testing::caller(1, None)).clone()
    });
    let params = JsonObject::new().with("name", RawJson::string("t0"));
    upstream
        .call(&caller, Call::new(McpMethod::CallTool, params))
        .outcome()
        .await
        .unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(upstream.lists().get(ItemKind::Tools).items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_taken_beside_a_call_on_a_pipe() {
    let tools = AtomicUsize::new(1);
    let shared = dialing(move |talk, message| {
        let method = message["method"].as_str().unwrap();
        let Some(result) = growing(&tools, method) else {
            return;
        };
        // Announced beside the call, before its result.
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
    finds_what_grew(
        crate::ServerSettings {
            protocol: None,
            ..settings_http()
        },
        shared,
    )
    .await;
}

/// HTTP server whose resources can be subscribed to.
#[derive(Default)]
struct SubscribableServer {
    subscribed: Mutex<BTreeSet<String>>,
    /// Subscription requests in the order of their arrival.
    asked: Mutex<Vec<String>>,
    /// Number of subscriptions that still break off.
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
            (_, "resources/templates/list") => {
                ScriptedAnswer::Result(json!({"resourceTemplates": []}), None)
            }
            (_, "ping") => ScriptedAnswer::Result(json!({}), None),
            (_, method @ ("resources/subscribe" | "resources/unsubscribe")) => {
                let uri = asked.message["params"]["uri"].as_str().unwrap().to_owned();
                self.asked.lock().push(format!("{method} {uri}"));
                self.change(method == "resources/subscribe", uri)
            }
            ("GET", _) => ScriptedAnswer::Status(405),
            _ => ScriptedAnswer::Status(202),
        }
    }

    /// Changes a subscription. An unsubscribe takes 30 times longer than a subscribe, so that the
    /// two can overtake each other.
    fn change(self: &Arc<Self>, more: bool, uri: String) -> ScriptedAnswer {
        let fails = |left: usize| left.checked_sub(1);
        if more
            && self
                .fails
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fails)
                .is_ok()
        {
            return ScriptedAnswer::Broken;
        }
        let (done, later) = oneshot::channel();
        let watched = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(if more { SETTLE_TIME } else { SETTLE_TIME * 30 }).await;
            let mut subscribed = watched.subscribed.lock();
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
        self.subscribed.lock().iter().cloned().collect()
    }
}

async fn watched(server: &Arc<SubscribableServer>) -> Arc<Upstream> {
    let serves = server.clone();
    let shared = dialing_http(move |asked| serves.serve(asked));
    let upstream = Upstream::new(settings_http(), shared, Arc::new(NoSink));
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
    for wanted in [
        &["x:1", "x:2"][..],
        &["x:2"],
        &["x:1", "x:2"],
        &["x:1", "x:3"],
    ] {
        upstream.subscribe(uris(wanted));
        tokio::time::sleep(SETTLE_TIME * 2).await;
    }
    tokio::time::sleep(SOON).await;
    assert_eq!(server.subscribed(), ["x:1", "x:3"]);
    let asked = server.asked.lock().len();
    assert!(
        asked <= 7,
        "no more is asked than differs: {:?}",
        server.asked
    );
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_fails_is_tried_again_and_not_for_ever() {
    let server = Arc::new(SubscribableServer {
        fails: AtomicUsize::new(2),
        ..SubscribableServer::default()
    });
    let upstream = watched(&server).await;
    upstream.subscribe(uris(&["x:1"]));
    tokio::time::sleep(SOON).await;
    assert_eq!(server.subscribed(), ["x:1"]);
    // More failures than there are retries.
    server.fails.store(100, Ordering::Relaxed);
    upstream.subscribe(uris(&["x:1", "x:2"]));
    tokio::time::sleep(SOON * 20).await;
    assert!(server.fails.load(Ordering::Relaxed) > 90);
    // The retries begin again once the resource is wanted again.
    server.fails.store(0, Ordering::Relaxed);
    upstream.subscribe(uris(&["x:1"]));
    tokio::time::sleep(SOON).await;
    upstream.subscribe(uris(&["x:1", "x:2"]));
    tokio::time::sleep(SOON).await;
    assert_eq!(server.subscribed(), ["x:1", "x:2"]);
}

/// Begins a call of a session. It runs until the answer is sent.
async fn begin_call(
    site: &SessionSite,
    upstream: &Arc<Upstream>,
) -> (oneshot::Sender<Value>, JoinHandle<Result<Outcome, Error>>) {
    let (answer, later) = oneshot::channel();
    *site.call.lock() = Some(later);
    let upstream = upstream.clone();
    let caller = testing::caller(1, Some("s"));
    let params = JsonObject::new().with("name", RawJson::string("t"));
    let running = tokio::spawn(async move {
        upstream
            .call(&caller, Call::new(McpMethod::CallTool, params))
            .outcome()
            .await
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(site.call.lock().is_none(), "it runs");
    (answer, running)
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_last_call() {
    let site = Arc::new(SessionSite::default());
    let upstream = start(&site).await;
    let (answer, running) = begin_call(&site, &upstream).await;
    // Both attempts of the check break: the connection counts as lost.
    site.breaks.store(2, Ordering::Relaxed);
    upstream
        .pool
        .liveness_triggers
        .record_failure(&Error::new(McpErrorKind::ServerDown, "down"), false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        (site.opened.load(Ordering::Relaxed), upstream.status().state),
        (2, UpstreamState::Ready)
    );
    assert_eq!(site.ended(), [""; 0], "the call still runs in it");
    answer.send(json!({"content": []})).unwrap();
    assert!(running.await.unwrap().is_ok());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(site.ended(), ["session-0"]);
    upstream.stop().await;
    upstream.server.common.wait_closed().await;
    assert_eq!(site.ended(), ["session-0", "session-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_sessions_whatever_runs_in_them() {
    let site = Arc::new(SessionSite::default());
    let upstream = start(&site).await;
    let (_answer, running) = begin_call(&site, &upstream).await;
    upstream.stop().await;
    upstream.server.common.wait_closed().await;
    assert_eq!(site.ended(), ["session-0"]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_the_answer_to_a_subscription_that_has_ended() {
    let shared = dialing(|talk, message| match message["method"].as_str() {
        Some("initialize") => {
            let capabilities = json!({"resources": {"subscribe": true}});
            let info = json!({"name": "a", "version": "1"});
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": info});
            talk.answer(message, &result);
        }
        Some("resources/list") => talk.answer(message, &json!({"resources": []})),
        Some("resources/templates/list") => talk.answer(message, &json!({"resourceTemplates": []})),
        // Subscriptions are never answered.
        _ => {}
    });
    let mut legacy = settings();
    legacy.protocol = Some("2025-11-25".to_owned());
    let upstream = Upstream::new(legacy, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    until(&upstream, UpstreamState::Ready).await;
    let uri = ByteString::literal("a://1");
    upstream.subscribe(vec![uri.clone()]);
    let waiting = tokio::spawn({
        let upstream = upstream.clone();
        async move {
            upstream
                .confirm_subscription(&testing::caller(1, Some("s")), &uri)
                .await
        }
    });
    tokio::time::sleep(SECOND).await;
    assert!(!waiting.is_finished(), "the server has not answered");
    upstream.subscribe(Vec::new());
    tokio::time::sleep(SECOND).await;
    assert!(waiting.is_finished());
    waiting.await.unwrap().unwrap();
    upstream.stop().await;
}

/// Sink that counts the updates of resources.
#[derive(Default)]
struct UpdateCounter(AtomicUsize);

impl EventSink for UpdateCounter {
    fn publish(&self, event: UpstreamEvent) {
        if let Notification::ResourceUpdated(..) = event.notification {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lists_changed(&self) {}
}

/// Handles a message as a program of both eras, which takes a second for each subscription. Its
/// legacy processes serve calls.
fn serve_slow_subscriptions(talk: &ServerSide, message: &Value) {
    let capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => {
            json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
        }
        "initialize" => {
            json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {}})
        }
        "tools/list" => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        "resources/list" => json!({"resources": []}),
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "tools/call" => json!({"content": []}),
        "resources/subscribe" => {
            let talk = talk.clone();
            let message = message.clone();
            tokio::spawn(async move {
                tokio::time::sleep(SECOND).await;
                talk.answer(&message, &json!({}));
            });
            return;
        }
        _ => return,
    };
    let mut result = result;
    result["resultType"] = json!("complete");
    talk.answer(message, &result);
}

#[tokio::test(start_paused = true)]
async fn a_first_call_that_opens_a_connection_loses_no_update() {
    let updates = Arc::new(UpdateCounter::default());
    let upstream = Upstream::new(
        settings(),
        dialing(serve_slow_subscriptions),
        updates.clone(),
    );
    tokio::spawn(upstream.clone().run());
    until(&upstream, UpstreamState::Ready).await;
    upstream.subscribe(vec![ByteString::literal("a://1")]);
    tokio::time::sleep(SECOND).await;
    let before = updates.0.load(Ordering::Relaxed);
    let caller = Arc::new(Caller {
        revision: "2025-11-25",
        ..(*testing::caller(1, Some("s"))).clone()
    });
    let params = JsonObject::new().with("name", RawJson::string("t"));
    upstream
        .call(&caller, Call::new(McpMethod::CallTool, params))
        .outcome()
        .await
        .unwrap();
    tokio::time::sleep(SETTLE_TIME * 2).await;
    assert_eq!(
        upstream.revision(),
        Some("2025-11-25"),
        "the call was promoted"
    );
    assert_eq!(
        updates.0.load(Ordering::Relaxed),
        before,
        "the server has not taken the subscription"
    );
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(updates.0.load(Ordering::Relaxed), before + 1);
    upstream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn updates_between_two_streams_of_the_shared_connection_are_reported() {
    let listener: Arc<Mutex<Option<(ServerSide, Value)>>> = Arc::default();
    let listens = listener.clone();
    let shared =
        dialing(
            move |talk, message| match message["method"].as_str().unwrap_or_default() {
                "server/discover" => {
                    let capabilities = json!({"resources": {"subscribe": true}, "tools": {}});
                    let versions = json!(["2026-07-28"]);
                    let result = json!({"resultType": "complete", "supportedVersions": versions,
                    "capabilities": capabilities});
                    talk.answer(message, &result);
                }
                "subscriptions/listen" => {
                    talk.send_on_subscription(
                        "notifications/subscriptions/acknowledged",
                        &message["id"],
                    );
                    *listens.lock() = Some((talk.clone(), message["id"].clone()));
                }
                "tools/list" => {
                    let tools = json!([{"name": "t", "inputSchema": {"type": "object"}}]);
                    talk.answer(message, &json!({"resultType": "complete", "tools": tools}));
                }
                "resources/list" => {
                    talk.answer(message, &json!({"resultType": "complete", "resources": []}))
                }
                "resources/templates/list" => talk.answer(
                    message,
                    &json!({"resultType": "complete", "resourceTemplates": []}),
                ),
                _ => {}
            },
        );
    let updates = Arc::new(UpdateCounter::default());
    let upstream = Upstream::new(settings(), shared, updates.clone());
    tokio::spawn(upstream.clone().run());
    until(&upstream, UpstreamState::Ready).await;
    upstream.subscribe(vec![ByteString::literal("a://1")]);
    tokio::time::sleep(SOON).await;
    assert_eq!(updates.0.load(Ordering::Relaxed), 0, "nothing was missed");
    let (talk, id) = listener.lock().take().unwrap();
    talk.answer(&json!({"id": id}), &json!({"resultType": "complete"}));
    tokio::time::sleep(SOON).await;
    assert_eq!(updates.0.load(Ordering::Relaxed), 1);
    upstream.stop().await;
}
