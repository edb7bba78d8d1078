//! Subscriptions to resources: what the server is asked, and which updates are reported.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{SOON, until};
use crate::lists::fetch::SETTLE_TIME;
use crate::testing::{
    ScriptedAnswer, ScriptedRequest, ServerSide, dialing, dialing_http, settings, settings_http,
};
use crate::{EventSink, NoSink, Upstream, UpstreamEvent};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Call, Caller, McpMethod, Notification, UpstreamState};
use moongate_testing as testing;

const SECOND: Duration = Duration::from_secs(1);

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
        if more
            && self
                .fails
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
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
    // The retries start again once the resource is needed again.
    server.fails.store(0, Ordering::Relaxed);
    upstream.subscribe(uris(&["x:1"]));
    tokio::time::sleep(SOON).await;
    upstream.subscribe(uris(&["x:1", "x:2"]));
    tokio::time::sleep(SOON).await;
    assert_eq!(server.subscribed(), ["x:1", "x:2"]);
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
