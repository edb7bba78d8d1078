//! Tests of `mod.rs`.

use std::collections::BTreeMap;

use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::memory::{MemoryServer, ServerBehaviour, call, tool};
use crate::testing::{dialing, settings};
use crate::{NoSink, Upstream};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::UpstreamState;
use moongate_model::{ClientCapabilities, Exchange, ExchangeEvent, TaskState, TaskStatus};
use moongate_testing as testing;

const SECOND: Duration = Duration::from_secs(1);

/// Caller without a concurrency permit.
struct NoPermit;

impl ReleasePermit for NoPermit {
    fn release(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn of_two_sessions_that_find_a_pipe_empty_one_stays() {
    let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
    let upstream = memory.upstream(|settings| settings.options.share = SharingMode::Auto);
    let running = tokio::spawn(upstream.clone().run());
    let connections = &upstream.pool;
    let shared = connections.wait_connected().await.ok().unwrap();
    connections.seen_input_flag.set();
    let can = ClientCapabilities {
        elicit_form: true,
        ..ClientCapabilities::default()
    };
    let [one, other] = ["one", "other"].map(|session| {
        Arc::new(Caller {
            capabilities: can,
            ..(*testing::caller(1, Some(session))).clone()
        })
    });
    let call = tool("hang");
    let mut first = CheckoutRequest::new(&one, Era::Legacy, &call);
    let mut second = CheckoutRequest::new(&other, Era::Legacy, &call);
    let chosen = connections
        .checkout(&mut first, &mut NoPermit)
        .await
        .ok()
        .unwrap();
    let too = connections
        .checkout(&mut second, &mut NoPermit)
        .await
        .ok()
        .unwrap();
    assert!(
        Arc::ptr_eq(&chosen.0, &shared) && Arc::ptr_eq(&too.0, &shared),
        "each is alone there"
    );
    // Both calls have chosen by now. Only the first one starts.
    let entered = connections
        .begin_start(&chosen.0, &chosen.1, &mut first)
        .unwrap();
    let _call = chosen.0.open_call(&one, tool("hang"));
    drop(entered);
    assert!(
        connections
            .begin_start(&too.0, &too.1, &mut second)
            .is_none(),
        "the first call began there"
    );
    let (spec, checked_out) = connections
        .checkout(&mut second, &mut NoPermit)
        .await
        .ok()
        .unwrap();
    assert!(
        !Arc::ptr_eq(&spec, &shared)
            && connections
                .begin_start(&spec, &checked_out, &mut second)
                .is_some()
    );
    running.abort();
}

/// Starts a server whose first legacy process asks for roots in each call. Its tools name their
/// process, by number. `modern`: number of its modern processes, which come first.
async fn asks_for_roots(modern: usize) -> Arc<Upstream> {
    let called = Mutex::new(None);
    let shared = dialing(move |talk, message| match message["method"].as_str() {
        Some(method) if talk.nth < modern => {
            let mut result = match method {
                "server/discover" => {
                    json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
                }
                "tools/list" => {
                    json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
                }
                _ => named(talk.nth),
            };
            result["resultType"] = json!("complete");
            talk.answer(message, &result);
        }
        Some("initialize") => {
            let declares = !message["params"]["capabilities"]["roots"].is_null();
            assert_eq!(
                declares,
                talk.nth == modern,
                "roots of no single client are offered again"
            );
            talk.serve_legacy(message);
        }
        Some("tools/call") if talk.nth == modern => {
            *called.lock() = Some(message.clone());
            talk.send(json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}));
        }
        Some("tools/call") => talk.answer(message, &named(talk.nth)),
        Some("ping") => talk.answer(message, &json!({})),
        None if message["id"] == "roots" => {
            talk.answer(&called.lock().take().unwrap(), &named(talk.nth))
        }
        _ => _ = talk.serve_legacy(message),
    });
    let mut settings = settings();
    settings.protocol = (modern == 0).then(|| "2025-11-25".to_owned());
    let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    upstream
}

/// Starts a server of the newest revision whose tools each send a request of their own name, and
/// return the response. The tool `hang` does nothing.
async fn modern_server_that_asks() -> Arc<Upstream> {
    let called = Mutex::new(None);
    let shared = dialing(move |talk, message| {
        let mut result = match message["method"].as_str() {
            Some("server/discover") => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            Some("tools/list") => json!({"tools": []}),
            Some("tools/call") if message["params"]["name"] != "hang" => {
                *called.lock() = Some(message.clone());
                let method = &message["params"]["name"];
                talk.send(json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": {}}));
                return;
            }
            None if message["id"] == "q" => {
                let text = message["error"]["code"].to_string();
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => return,
        };
        result["resultType"] = json!("complete");
        let request = called.lock().take().unwrap_or_else(|| message.clone());
        talk.answer(&request, &result);
    });
    let upstream = Upstream::new(settings(), shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    upstream
}

fn modern_caller(principal: u32) -> Arc<Caller> {
    Arc::new(Caller {
        revision: "2026-07-28",
        ..(*testing::caller(principal, None)).clone()
    })
}

#[tokio::test(start_paused = true)]
async fn rounds_that_ask_nobody_prolong_no_call() {
    let shared = dialing(|talk, message| {
        let mut result = match message["method"].as_str() {
            Some("server/discover") => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            Some("tools/list") => json!({"tools": []}),
            Some("tools/call") => {
                let talk = talk.clone();
                let message = message.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(20 * SECOND).await;
                    let result = json!({"resultType": "input_required", "requestState": "s"});
                    talk.answer(&message, &result);
                });
                return;
            }
            _ => return,
        };
        result["resultType"] = json!("complete");
        talk.answer(message, &result);
    });
    let mut settings = settings();
    settings.live.timeout.0 = 30 * SECOND;
    let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    let began = Instant::now();
    let mut call = upstream.call(&modern_caller(1), tool("t"));
    let end = loop {
        match call.next().await.unwrap() {
            ExchangeEvent::InputRequired(input) => input.responder.send(Vec::new()).unwrap(),
            ExchangeEvent::Done(end) => break end,
            ExchangeEvent::Notification(_) => {}
        }
    };
    assert!(end.is_err());
    assert!(began.elapsed() >= 30 * SECOND && began.elapsed() < 35 * SECOND);
    upstream.stop().await;
}

/// The revision has no requests of servers. One that sends some must not wait for ever.
#[tokio::test(start_paused = true)]
async fn a_request_of_a_modern_server_is_refused_and_its_call_goes_on() {
    let upstream = modern_server_that_asks().await;
    // The request is the only call's, or nobody's.
    for beside in [None, Some(tool("hang"))] {
        let mut other = beside.map(|call| upstream.call(&modern_caller(2), call));
        if let Some(call) = &mut other {
            assert!(call.next().now_or_never().is_none());
        }
        for method in ["vendor/ask", "elicitation/create", "roots/list"] {
            let call = upstream.call(&modern_caller(1), tool(method));
            let outcome = call.outcome().await;
            let content = outcome.unwrap().result.get("content").unwrap().clone();
            let content = String::from_utf8_lossy(content.bytes()).into_owned();
            assert!(content.contains("-32601"), "{method}: {content}");
        }
    }
    upstream.stop().await;
}

fn named(process: usize) -> serde_json::Value {
    json!({"content": [{"type": "text", "text": process.to_string()}]})
}

/// Calls a tool, with roots for a server that asks. Returns the number of the process.
async fn process_of(upstream: &Arc<Upstream>, caller: &Arc<Caller>) -> usize {
    let roots = JsonObject::new().with("roots", RawJson::literal("[]"));
    let text = text_of(upstream.call(caller, tool("t")), &roots).await;
    text.parse().unwrap()
}

/// Gives a call's server the same answer to each of its requests. Returns the text of the result.
async fn text_of(mut call: Exchange, answer: &JsonObject) -> String {
    loop {
        match call.next().await.unwrap() {
            ExchangeEvent::InputRequired(input) => {
                let answers = input
                    .requests
                    .into_iter()
                    .map(|(key, _)| (key, Ok(answer.clone())))
                    .collect();
                input.responder.send(answers).unwrap();
            }
            ExchangeEvent::Done(outcome) => {
                let result = outcome.unwrap().result;
                let content = result.get("content").and_then(RawJson::as_array).unwrap();
                return content[0]
                    .as_object()
                    .unwrap()
                    .get_string("text")
                    .unwrap()
                    .to_string();
            }
            ExchangeEvent::Notification(_) => {}
        }
    }
}

fn with_roots(session: Option<&str>) -> (Arc<Caller>, CancellationToken) {
    let can = ClientCapabilities {
        roots: true,
        ..ClientCapabilities::default()
    };
    let caller = Caller {
        capabilities: can,
        ..(*testing::caller(1, session)).clone()
    };
    let ended = caller.ended.clone();
    (Arc::new(caller), ended)
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_replaced_once_the_client_has_left_whose_roots_it_has() {
    let upstream = asks_for_roots(0).await;
    let (one, ended) = with_roots(Some("one"));
    let other = testing::caller(1, Some("other"));
    assert_eq!(
        [
            process_of(&upstream, &one).await,
            process_of(&upstream, &other).await
        ],
        [0, 1]
    );
    tokio::time::sleep(SECOND * 3600).await;
    assert_eq!(
        process_of(&upstream, &one).await,
        0,
        "its client is still there"
    );
    ended.cancel();
    tokio::time::sleep(SECOND).await;
    for session in ["next", "later"] {
        assert_eq!(
            process_of(&upstream, &testing::caller(2, Some(session))).await,
            2
        );
    }
    assert_eq!(process_of(&upstream, &other).await, 1, "its state is there");
    assert_eq!(upstream.dedicated_count(), 1);
    upstream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_clients_of_one_era_share_is_replaced_as_well() {
    let upstream = asks_for_roots(1).await;
    let modern = Arc::new(Caller {
        revision: "2026-07-28",
        ..(*testing::caller(1, None)).clone()
    });
    let (one, ended) = with_roots(Some("one"));
    assert_eq!(
        [
            process_of(&upstream, &modern).await,
            process_of(&upstream, &one).await
        ],
        [0, 1]
    );
    assert_eq!(
        process_of(&upstream, &testing::caller(1, Some("other"))).await,
        2
    );
    ended.cancel();
    tokio::time::sleep(SECOND * 60).await;
    for session in ["next", "later"] {
        assert_eq!(
            process_of(&upstream, &testing::caller(2, Some(session))).await,
            3
        );
    }
    assert_eq!(process_of(&upstream, &modern).await, 0);
    upstream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_session_has_left_its_roots_after_a_time_without_calls() {
    let upstream = asks_for_roots(0).await;
    let (one, _) = with_roots(None);
    let other = testing::caller(2, None);
    assert_eq!(process_of(&upstream, &one).await, 0);
    tokio::time::sleep(SECOND * 3600).await;
    assert_eq!(process_of(&upstream, &one).await, 0, "nobody else came");
    assert_eq!(process_of(&upstream, &other).await, 1);
    for _ in 0..20 {
        tokio::time::sleep(SECOND * 200).await;
        assert_eq!(process_of(&upstream, &one).await, 0);
    }
    tokio::time::sleep(SECOND * 700).await;
    assert_eq!(process_of(&upstream, &other).await, 2);
    upstream.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_a_task_runs_is_not_replaced() {
    let upstream = asks_for_roots(0).await;
    let (one, ended) = with_roots(Some("one"));
    assert_eq!(process_of(&upstream, &one).await, 0);
    let task = TaskState {
        id: ByteString::literal("t"),
        status: TaskStatus::Working,
        ttl: Some(RawJson::number(600_000)),
        poll_interval: None,
        other_members: JsonObject::new(),
        input_requests: Vec::new(),
        outcome: None,
    };
    upstream.pool.track_task(&CheckedOut::default(), &task);
    ended.cancel();
    assert_eq!(
        process_of(&upstream, &testing::caller(2, Some("other"))).await,
        1
    );
    let shared = upstream.pool.shared().unwrap();
    tokio::time::sleep(SECOND * 500).await;
    assert!(Arc::ptr_eq(&shared, &upstream.pool.shared().unwrap()));
    tokio::time::sleep(SECOND * 200).await;
    assert!(!Arc::ptr_eq(&shared, &upstream.pool.shared().unwrap()));
    upstream.stop().await;
}

fn can_be_asked(session: &str) -> Arc<Caller> {
    let can = ClientCapabilities {
        elicit_form: true,
        ..ClientCapabilities::default()
    };
    Arc::new(Caller {
        capabilities: can,
        ..(*testing::caller(1, Some(session))).clone()
    })
}

#[tokio::test(start_paused = true)]
async fn of_two_calls_that_wait_for_a_first_question_one_starts() {
    let memory = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
    let upstream = memory.upstream(|settings| settings.options.share = SharingMode::Auto);
    let running = tokio::spawn(upstream.clone().run());
    let pool = &upstream.pool;
    let shared = pool.wait_connected().await.ok().unwrap();
    let [open, one, other] = ["open", "one", "other"].map(can_be_asked);
    for caller in [&open, &one, &other] {
        // Their state is on the shared connection, so that they stay there.
        call(&upstream, caller, "add").await.unwrap().unwrap();
    }
    let hanging = shared.open_call(&open, tool("hang"));
    let asks = tool("ask");
    let began = Instant::now();
    let mut first = CheckoutRequest::new(&one, Era::Legacy, &asks);
    let mut second = CheckoutRequest::new(&other, Era::Legacy, &asks);
    let [mut permit, mut other_permit] = [NoPermit, NoPermit];
    let both = async {
        tokio::join!(
            pool.checkout(&mut first, &mut permit),
            pool.checkout(&mut second, &mut other_permit)
        )
    };
    let ending = async {
        tokio::time::sleep(SECOND).await;
        drop(hanging);
    };
    let ((chosen, too), ()) = tokio::join!(both, ending);
    let chosen = chosen.ok().unwrap();
    let too = too.ok().unwrap();
    assert!(Arc::ptr_eq(&chosen.0, &shared) && Arc::ptr_eq(&too.0, &shared));
    assert!(began.elapsed() >= SECOND && began.elapsed() < 2 * SECOND);
    // Both have waited. Only the first one starts.
    let entered = pool.begin_start(&chosen.0, &chosen.1, &mut first).unwrap();
    let _call = chosen.0.open_call(&one, tool("ask"));
    drop(entered);
    assert!(pool.begin_start(&too.0, &too.1, &mut second).is_none());
    // The other one has ten seconds in all, not for each call that it waits for.
    let again = pool.checkout(&mut second, &mut other_permit).await;
    let again = again.ok().unwrap();
    assert!(began.elapsed() >= 10 * SECOND && began.elapsed() < 11 * SECOND);
    assert!(Arc::ptr_eq(&again.0, &shared), "its state is there");
    assert!(pool.begin_start(&again.0, &again.1, &mut second).is_some());
    running.abort();
}

/// Starts a server whose tool `ask` asks its client. Its tool `end` ends the process, `hang` never
/// ends, and all others name the process.
async fn asks_in_calls() -> Arc<Upstream> {
    let called = Mutex::new(BTreeMap::new());
    let shared = dialing(move |talk, message| match message["method"].as_str() {
        Some("tools/call") => match message["params"]["name"].as_str().unwrap() {
            "ask" => {
                let before = called.lock().insert(talk.nth, message.clone());
                assert!(before.is_none(), "a question could be about two calls");
                talk.send(
                    json!({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create",
                    "params": {"message": "?", "requestedSchema": {"type": "object"}}}),
                );
            }
            "end" => talk.end(),
            "hang" => {}
            _ => talk.answer(message, &named(talk.nth)),
        },
        Some("ping") => talk.answer(message, &json!({})),
        None if message["id"] == "ask" => {
            let text = match message["error"].is_null() {
                true => "asked",
                false => "refused",
            };
            let call = called.lock().remove(&talk.nth).unwrap();
            talk.answer(&call, &json!({"content": [{"type": "text", "text": text}]}));
        }
        _ => _ = talk.serve_legacy(message),
    });
    let mut settings = settings();
    settings.protocol = Some("2025-11-25".to_owned());
    let upstream = Upstream::new(settings, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    upstream
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_first_question_are_asked_on_a_new_connection() {
    let upstream = asks_in_calls().await;
    let accepts = JsonObject::new().with("action", RawJson::string("accept"));
    let text = |caller, name| text_of(upstream.call(caller, tool(name)), &accepts);
    let [open, one, other] = ["open", "one", "other"].map(can_be_asked);
    for caller in [&open, &one, &other] {
        assert_eq!(text(caller, "add").await, "0");
    }
    let hanging = call(&upstream, &open, "hang");
    let asking = async { tokio::join!(text(&one, "ask"), text(&other, "ask")) };
    let ending = async {
        tokio::time::sleep(SECOND).await;
        // Both wait for the call that hangs, and then for another connection.
        call(&upstream, &open, "end").await.unwrap().is_err()
    };
    let ((first, second), is_ended) = tokio::join!(asking, ending);
    assert_eq!([first, second], ["asked", "asked"]);
    assert!(is_ended && hanging.await.unwrap().is_err());
    assert_eq!(text(&open, "add").await, "1", "the process is another one");
    upstream.stop().await;
}
