//! Tests of `connected.rs`.

mod subscriptions;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::supervisor::refresh::{ACKNOWLEDGE_WAIT, RELIST_INTERVAL};
use crate::testing::{
    ChangingServer, ScriptedAnswer, ScriptedRequest, dialing, dialing_http, numbered_tools,
    settings, settings_http,
};
use crate::{NoSink, Upstream};
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::UpstreamState;
use moongate_model::{Call, Error, McpErrorKind, McpMethod, Outcome};
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
        assert_eq!(site.opened.load(Ordering::Relaxed), 1);
        assert_eq!(upstream.status().state, UpstreamState::Ready);
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
        (settings.live.relist.0, settings.protocol) =
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
    let mut result = match method {
        "server/discover" => {
            json!({"supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": false}}})
        }
        "tools/list" => json!({"tools": numbered_tools(tools.load(Ordering::Relaxed))}),
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
        // Announced during the call, before its result.
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

/// Starts a call of a session. It runs until the answer is sent.
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
    assert_eq!(site.opened.load(Ordering::Relaxed), 2);
    assert_eq!(upstream.status().state, UpstreamState::Ready);
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
