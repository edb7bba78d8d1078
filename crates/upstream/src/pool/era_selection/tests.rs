//! Tests of era selection, against servers that speak one era or both.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::testing::{ServerSide, dialing, settings};
use crate::{NoSink, ServerSettings, Upstream};
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Call, Caller, Error, ItemKind, McpMethod, Outcome};
use moongate_model::{ServerStart, SharingMode, UpstreamState};
use moongate_testing as testing;

const CANNOT_ASK: &str =
    "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.";
const SOON: Duration = Duration::from_secs(2);

/// Program of both eras. Each process stays in the era that it is opened in.
struct EraProgram {
    /// Era of each process, by its first request.
    opened: Mutex<Vec<Era>>,
    /// Processes that were called, once for each call.
    called: Mutex<Vec<usize>>,
    is_modern_only: bool,
    /// True if processes after the first one never answer.
    is_mute: AtomicBool,
    refused: AtomicUsize,
    /// True if its tools ask, which a modern process cannot.
    asks: AtomicBool,
}

impl EraProgram {
    fn new(is_modern_only: bool) -> Arc<Self> {
        let opened = Mutex::default();
        let called = Mutex::default();
        let is_mute = AtomicBool::new(false);
        let refused = AtomicUsize::new(0);
        let asks = AtomicBool::new(false);
        Arc::new(EraProgram {
            opened,
            called,
            is_modern_only,
            is_mute,
            refused,
            asks,
        })
    }

    fn serve(&self, talk: &ServerSide, message: &Value) {
        let method = message["method"].as_str().unwrap_or_default();
        let mut opened = self.opened.lock();
        // The first request decides the era of a process.
        if opened.len() == talk.nth {
            let legacy = method == "initialize" && !self.is_modern_only;
            opened.push(if legacy { Era::Legacy } else { Era::Modern });
        }
        if talk.nth > 0 && self.is_mute.load(Ordering::Relaxed) {
            return;
        }
        let modern = opened[talk.nth] == Era::Modern;
        // JSON-RPC error -32022: the revision is not supported.
        let wrong = json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}});
        let mut result = match method {
            "initialize" if modern => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                talk.send(json!({"jsonrpc": "2.0", "id": message["id"], "error": wrong}));
                return;
            }
            "server/discover" if modern => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            "tools/list" => {
                json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
            }
            "tools/call" => {
                self.called.lock().push(talk.nth);
                match modern && self.asks.load(Ordering::Relaxed) {
                    true => {
                        json!({"content": [{"type": "text", "text": CANNOT_ASK}],
                            "isError": true})
                    }
                    false => json!({"content": []}),
                }
            }
            _ if modern => return,
            _ => {
                talk.serve_legacy(message);
                return;
            }
        };
        if modern {
            result["resultType"] = json!("complete");
        }
        talk.answer(message, &result);
    }

    fn opened(&self) -> Vec<Era> {
        self.opened.lock().clone()
    }

    fn called(&self) -> Vec<usize> {
        self.called.lock().clone()
    }
}

fn upstream(program: &Arc<EraProgram>, change: impl Fn(&mut ServerSettings)) -> Arc<Upstream> {
    let serves = program.clone();
    let mut settings = settings();
    change(&mut settings);
    let shared = dialing(move |talk, message| serves.serve(talk, message));
    Upstream::new(settings, shared, Arc::new(NoSink))
}

async fn start(program: &Arc<EraProgram>, change: impl Fn(&mut ServerSettings)) -> Arc<Upstream> {
    let upstream = upstream(program, change);
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    upstream
}

async fn call(upstream: &Arc<Upstream>, era: Era) -> Result<Outcome, Error> {
    let revision = if era == Era::Legacy {
        "2025-11-25"
    } else {
        "2026-07-28"
    };
    let session = (era == Era::Legacy).then_some("s");
    let caller = Arc::new(Caller {
        revision,
        ..(*testing::caller(1, session)).clone()
    });
    let params = JsonObject::new().with("name", RawJson::string("t"));
    let outcome = upstream
        .call(&caller, Call::new(McpMethod::CallTool, params))
        .outcome()
        .await;
    // Independent of the consequences.
    tokio::time::sleep(SOON).await;
    outcome
}

/// Returns the handshake that a previous process persisted.
fn was_legacy(other: Option<bool>) -> LastHandshake {
    let face = serde_json::from_value(json!({"info": {"name": "s"}, "features": {"tools": true}}))
        .unwrap();
    LastHandshake {
        era: Era::Legacy,
        is_multiplexed: true,
        description: face,
        speaks_other_era: other,
        greeting: None,
    }
}

/// Returns the revisions of the processes that clients share.
fn running(upstream: &Upstream) -> Vec<&'static str> {
    upstream
        .shared_connections()
        .into_iter()
        .map(|(revision, _)| revision)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_program_whose_clients_are_all_of_one_era_runs_once() {
    for (era, revision) in [(Era::Modern, "2026-07-28"), (Era::Legacy, "2025-11-25")] {
        let program = EraProgram::new(false);
        let upstream = start(&program, |_| {}).await;
        assert_eq!(program.opened(), [Era::Modern], "nobody called yet");
        for _ in 0..3 {
            call(&upstream, era).await.unwrap();
        }
        // At most two processes: the probed one, and the one that took its place.
        let last = program.opened().len() - 1;
        assert_eq!(running(&upstream), [revision]);
        assert_eq!(upstream.revision(), Some(revision));
        assert_eq!(program.called(), [last; 3]);
        assert_eq!(program.opened()[last], era);
        assert_eq!(upstream.dedicated_count(), 0);
        assert_eq!(upstream.status().state, UpstreamState::Ready);
        // A server that is lost comes back in the same era.
        assert!(upstream.lists().get(ItemKind::Tools).items.len() == 1 && last < 2);
        upstream.stop().await;
        assert_eq!(running(&upstream), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_process_of_the_other_era_starts_with_a_call_and_ends_without_need() {
    let program = EraProgram::new(false);
    let upstream = start(&program, |settings| {
        settings.options.idle_stop.0 = SOON * 10
    })
    .await;
    call(&upstream, Era::Modern).await.unwrap();
    for _ in 0..2 {
        call(&upstream, Era::Legacy).await.unwrap();
    }
    assert_eq!(program.called(), [0, 1, 1], "each in its own era");
    assert_eq!(running(&upstream), ["2026-07-28", "2025-11-25"]);
    // The idle timeout of the legacy process has elapsed.
    tokio::time::sleep(SOON * 20).await;
    assert_eq!(running(&upstream), ["2026-07-28"]);
    call(&upstream, Era::Legacy).await.unwrap();
    call(&upstream, Era::Modern).await.unwrap();
    assert_eq!(program.called(), [0, 1, 1, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_same_is_true_the_other_way_round() {
    let program = EraProgram::new(false);
    let upstream = start(&program, |settings| {
        settings.options.idle_stop.0 = SOON * 10
    })
    .await;
    for era in [Era::Legacy, Era::Modern, Era::Legacy] {
        call(&upstream, era).await.unwrap();
    }
    assert_eq!(program.called(), [1, 2, 1]);
    assert_eq!(running(&upstream), ["2025-11-25", "2026-07-28"]);
    tokio::time::sleep(SOON * 20).await;
    assert_eq!(running(&upstream), ["2025-11-25"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_one_era_is_tried_once_in_the_other() {
    let program = EraProgram::new(true);
    let upstream = start(&program, |_| {}).await;
    for _ in 0..3 {
        call(&upstream, Era::Legacy).await.unwrap();
    }
    // The refusal is remembered: the later calls do not try again.
    assert_eq!(program.called(), [0; 3]);
    assert_eq!(program.refused.load(Ordering::Relaxed), 1);
    assert_eq!(
        upstream.pool.last_handshake().unwrap().speaks_other_era,
        Some(false),
        "which is remembered"
    );
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_comes_to_nothing_leaves_the_server_as_it_is() {
    let program = EraProgram::new(false);
    program.is_mute.store(true, Ordering::Relaxed);
    let upstream = start(&program, |settings| settings.live.start_timeout.0 = SOON).await;
    for _ in 0..3 {
        call(&upstream, Era::Legacy).await.unwrap();
    }
    // One attempt in the other era came to nothing. All calls ran in the first process.
    assert_eq!(program.called(), [0; 3]);
    assert_eq!(program.opened().len(), 2);
    assert_eq!(
        upstream.pool.last_handshake().unwrap().speaks_other_era,
        None,
        "nothing is known of that"
    );
}

#[tokio::test(start_paused = true)]
async fn the_era_of_its_clients_is_what_the_next_run_begins_with() {
    // Whatever is known of the other era: what the server took last is tried first.
    for (other, begins) in [(Some(true), Era::Legacy), (None, Era::Legacy)] {
        let program = EraProgram::new(false);
        let upstream = upstream(&program, |_| {});
        upstream.pool.restore_handshake(was_legacy(other));
        tokio::spawn(upstream.clone().run());
        upstream
            .watch()
            .wait_for(|status| status.state == UpstreamState::Ready)
            .await
            .unwrap();
        assert_eq!(program.opened(), [begins]);
        call(&upstream, begins).await.unwrap();
        assert_eq!(program.opened().len(), 1);
        assert_eq!(running(&upstream).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_no_longer_speaks_it_is_asked_on_the_same_pipe() {
    let program = EraProgram::new(true);
    let upstream = upstream(&program, |_| {});
    upstream.pool.restore_handshake(was_legacy(Some(true)));
    tokio::spawn(upstream.clone().run());
    call(&upstream, Era::Legacy).await.unwrap();
    call(&upstream, Era::Legacy).await.unwrap();
    assert_eq!(upstream.revision(), Some("2026-07-28"));
    assert_eq!(program.called()[0], 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_started_on_use_is_started_for_whoever_uses_it() {
    let program = EraProgram::new(false);
    let upstream = start(&program, |settings| {
        settings.options.start = ServerStart::Lazy;
        settings.options.idle_stop.0 = SOON * 10;
    })
    .await;
    // It was started once to learn its lists, and stopped when idle.
    tokio::time::sleep(SOON * 20).await;
    assert_eq!(upstream.status().state, UpstreamState::Stopped);
    assert_eq!(program.opened().len(), 1);
    call(&upstream, Era::Legacy).await.unwrap();
    assert_eq!(program.called(), [1]);
    assert_eq!(program.opened(), [Era::Modern, Era::Legacy]);
    assert_eq!(running(&upstream), ["2025-11-25"]);
}

#[tokio::test(start_paused = true)]
async fn a_principal_has_a_process_for_each_era() {
    let program = EraProgram::new(false);
    let upstream = start(&program, |settings| {
        settings.options.share = SharingMode::Principal
    })
    .await;
    for era in [Era::Legacy, Era::Modern, Era::Legacy, Era::Modern] {
        call(&upstream, era).await.unwrap();
    }
    assert_eq!(program.called(), [1, 2, 1, 2]);
    assert_eq!(upstream.dedicated_count(), 2);
}

/// Calls a tool as a modern client. Returns the text of its failure, which is empty if it
/// succeeds.
async fn call_tool(upstream: &Arc<Upstream>, name: &str, annotations: &'static str) -> String {
    let caller = Arc::new(Caller {
        revision: "2026-07-28",
        ..(*testing::caller(1, None)).clone()
    });
    let params = JsonObject::new().with("name", RawJson::string(name));
    let definition = params
        .clone()
        .with("annotations", RawJson::literal(annotations));
    let call = Call {
        definition: Some(Arc::new(definition)),
        ..Call::new(McpMethod::CallTool, params)
    };
    let outcome = upstream.call(&caller, call).outcome().await.unwrap();
    tokio::time::sleep(SOON).await;
    let is_error = outcome.result.get("isError").is_some();
    if is_error {
        outcome
            .result
            .get("content")
            .unwrap()
            .parse_as::<Value>()
            .unwrap()
            .to_string()
    } else {
        String::new()
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_cannot_ask_goes_to_the_legacy_era_from_its_next_call_on() {
    let program = EraProgram::new(false);
    program.asks.store(true, Ordering::Relaxed);
    let upstream = start(&program, |_| {}).await;
    let failed = call_tool(&upstream, "t", "{}").await;
    assert!(
        failed.contains(CANNOT_ASK) && failed.contains("Call it again"),
        "{failed}"
    );
    assert_eq!(call_tool(&upstream, "t", "{}").await, "");
    // Each tool has to fail for itself. The one that did stays where it is.
    assert!(
        call_tool(&upstream, "u", "{}")
            .await
            .contains("Call it again")
    );
    assert_eq!(call_tool(&upstream, "t", "{}").await, "");
    assert_eq!(program.called(), [0, 1, 0, 1]);
    assert_eq!(program.opened(), [Era::Modern, Era::Legacy]);
    assert_eq!(
        upstream.revision(),
        Some("2026-07-28"),
        "the shared connection stays"
    );
    assert_eq!(upstream.pool.legacy_tools.names(), ["t", "u"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_only_reads_is_called_again_at_once() {
    for annotations in [r#"{"readOnlyHint":true}"#, r#"{"idempotentHint":true}"#] {
        let program = EraProgram::new(false);
        program.asks.store(true, Ordering::Relaxed);
        let upstream = start(&program, |_| {}).await;
        assert_eq!(call_tool(&upstream, "t", annotations).await, "");
        assert_eq!(program.called(), [0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_of_one_era_keeps_its_tools_whatever_they_say() {
    let program = EraProgram::new(true);
    program.asks.store(true, Ordering::Relaxed);
    let upstream = start(&program, |_| {}).await;
    for _ in 0..4 {
        assert!(call_tool(&upstream, "t", "{}").await.contains(CANNOT_ASK));
    }
    // Once known to speak one era, nothing is learned of further tools.
    let last = call_tool(&upstream, "u", "{}").await;
    assert!(!last.contains("Call it again"), "{last}");
    assert_eq!(program.called(), [0; 5]);
    assert_eq!(program.refused.load(Ordering::Relaxed), 1);
    // Nor where the config has all clients in the newest era.
    let program = EraProgram::new(false);
    program.asks.store(true, Ordering::Relaxed);
    let upstream = start(&program, |settings| settings.as_client = false).await;
    for _ in 0..2 {
        assert!(
            !call_tool(&upstream, "t", "{}")
                .await
                .contains("Call it again")
        );
    }
    assert_eq!(program.called(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn tools_of_the_legacy_era_are_remembered_for_the_same_server() {
    let program = EraProgram::new(false);
    program.asks.store(true, Ordering::Relaxed);
    let upstream = upstream(&program, |_| {});
    upstream.pool.legacy_tools.restore(&["t".to_owned()]);
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    for share in [
        SharingMode::Auto,
        SharingMode::Session,
        SharingMode::Principal,
    ] {
        let program = EraProgram::new(false);
        program.asks.store(true, Ordering::Relaxed);
        let upstream = start(&program, |settings| settings.options.share = share).await;
        call_tool(&upstream, "t", "{}").await;
        assert_eq!(call_tool(&upstream, "t", "{}").await, "", "{share:?}");
    }
    assert_eq!(call_tool(&upstream, "t", "{}").await, "");
    assert_eq!(program.called(), [1]);
}

#[tokio::test(start_paused = true)]
async fn with_newest_all_clients_meet_it_in_one_era() {
    let program = EraProgram::new(false);
    let upstream = start(&program, |settings| settings.as_client = false).await;
    call(&upstream, Era::Legacy).await.unwrap();
    assert_eq!(program.called(), [0]);
}
