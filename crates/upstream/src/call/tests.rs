//! Tests of calls: bounded notifications, which calls were sent, and which faults count.

use serde_json::json;

use super::*;
use crate::testing::memory::{MemoryServer, ServerBehaviour, call, tool};
use crate::testing::{dialing, settings};
use crate::{NoSink, Upstream};
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_jsonrpc::message::RpcError;
use moongate_model::{Call, LogFilter, McpMethod};
use moongate_model::{SharingMode, UpstreamState};
use moongate_testing as testing;

#[tokio::test(start_paused = true)]
async fn the_notifications_of_a_call_are_bounded_and_its_answer_comes() {
    let mut few = settings();
    few.live.max_notifications.0 = 10_000;
    let shared = dialing(|talk, message| {
        if message["method"] != "tools/call" {
            talk.serve_legacy(message);
            return;
        }
        // No more at once than one call has room for.
        for _ in 0..40 {
            let params = json!({"level": "error", "data": "x".repeat(400)});
            talk.send(
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}),
            );
        }
        talk.answer(message, &json!({"content": []}));
    });
    let upstream = Upstream::new(few, shared, Arc::new(NoSink));
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    let params = JsonObject::new().with("name", RawJson::string("t"));
    let caller = Arc::new(Caller {
        log_filter: LogFilter::ServerDecides,
        ..(*testing::caller(1, Some("s"))).clone()
    });
    let mut exchange = upstream.call(&caller, Call::new(McpMethod::CallTool, params));
    let mut told = 0;
    let end = loop {
        match exchange.next_event().await {
            ExchangeEvent::Notification(_) => told += 1,
            ExchangeEvent::InputRequired(_) => panic!("it asks nothing"),
            ExchangeEvent::Done(end) => break end,
        }
    };
    assert!(end.is_ok() && (20..=30).contains(&told), "{told}");
    let dropped = upstream
        .server
        .metrics()
        .calls
        .dropped
        .get(DroppedItem::CallNotification);
    assert_eq!(dropped + told, 40);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_at_the_gateway_were_not_sent() {
    let caller = testing::caller(1, Some("s"));
    let unconnected = MemoryServer::new(&[ServerBehaviour::Unstartable]).upstream(|_| ());
    let refused = unconnected
        .call(&caller, tool("t"))
        .outcome()
        .await
        .unwrap_err();
    assert_eq!(refused.kind, McpErrorKind::ServerDown);
    assert_eq!(refused.retryable, Retryable::NotSent);

    let answering = MemoryServer::new(&[ServerBehaviour::Answers(Duration::ZERO)]);
    let busy = answering
        .upstream(|settings| (settings.live.max_concurrency, settings.live.queue) = (1, 0));
    tokio::spawn(busy.clone().run());
    let running = call(&busy, &caller, "hang");
    tokio::task::yield_now().await;
    let refused = busy.call(&caller, tool("t")).outcome().await.unwrap_err();
    assert_eq!(refused.kind, McpErrorKind::Overloaded);
    assert_eq!(refused.retryable, Retryable::NotSent);
    running.abort();

    let failing = MemoryServer::new(&[ServerBehaviour::Mute])
        .upstream(|settings| settings.options.breaker.failures = 1);
    failing.calls.breaker.record(
        CallClass::Failure("why".to_owned(), None),
        &BreakerPermit::default(),
    );
    let refused = failing
        .call(&caller, tool("t"))
        .outcome()
        .await
        .unwrap_err();
    assert!(refused.message.contains(".breaker"), "{refused}");
    assert_eq!(refused.retryable, Retryable::NotSent);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_an_attempt_that_may_have_run_was_sent() {
    // A read is safe to repeat. Its first attempt loses the connection, and the second one gets
    // none.
    let memory = MemoryServer::new(&[ServerBehaviour::DiesLater, ServerBehaviour::Unstartable]);
    let upstream = memory.upstream(|settings| settings.options.share = SharingMode::Auto);
    tokio::spawn(upstream.clone().run());
    upstream
        .watch()
        .wait_for(|status| status.state == UpstreamState::Ready)
        .await
        .unwrap();
    let hints = JsonObject::new().with("readOnlyHint", RawJson::literal("true"));
    let definition = Arc::new(JsonObject::new().with("annotations", hints.to_raw()));
    let read = Call {
        definition: Some(definition),
        ..tool("t")
    };
    let lost = upstream
        .call(&testing::caller(1, Some("s")), read)
        .outcome()
        .await
        .unwrap_err();
    assert!(memory.dialed() > 1, "{lost}");
    assert_eq!(lost.kind, McpErrorKind::ServerDown);
    assert_eq!(lost.retryable, Retryable::No);
}

fn failed(kind: McpErrorKind, retryable: Retryable) -> Result<Outcome, Error> {
    Err(Error {
        retryable,
        ..Error::new(kind, "why")
    })
}

/// Classifies the error of a call over HTTP with the gateway's credentials.
fn class_over_http(kind: McpErrorKind, retryable: Retryable) -> CallClass {
    classify(&failed(kind, retryable), false, false)
}

/// Classifies the error of a call on a connection that others share.
fn class_on_pipe(kind: McpErrorKind, retryable: Retryable) -> CallClass {
    classify(&failed(kind, retryable), true, false)
}

fn fault(wait: Option<Duration>) -> CallClass {
    CallClass::Failure("why".to_owned(), wait)
}

#[test]
fn only_transport_faults_count_against_a_server() {
    let answered = RpcError {
        code: -32602,
        message: "no".into(),
        data: None,
    };
    let good = [
        Ok(Outcome::from_result(JsonObject::new())),
        failed(McpErrorKind::ServerError(answered), Retryable::No),
    ];
    for end in good {
        assert_eq!(classify(&end, false, false), CallClass::Success);
    }
    let wait = Some(Duration::from_secs(2));
    assert_eq!(
        class_over_http(McpErrorKind::ServerRefused, Retryable::After(wait)),
        fault(wait)
    );
    let refused = failed(McpErrorKind::ServerRefused, Retryable::After(wait));
    assert_eq!(
        classify(&refused, false, true),
        CallClass::Ignored,
        "the client's own credentials were refused"
    );
    assert_eq!(
        class_over_http(McpErrorKind::ServerRefused, Retryable::No),
        CallClass::Ignored
    );
    assert_eq!(
        class_on_pipe(McpErrorKind::ServerTimeout, Retryable::No),
        fault(None)
    );
    assert_eq!(
        class_over_http(McpErrorKind::ServerDown, Retryable::NotSent),
        fault(None)
    );
    assert_eq!(
        class_on_pipe(McpErrorKind::ServerDown, Retryable::After(None)),
        CallClass::Ignored
    );
    for reason in [
        McpErrorKind::Cancelled,
        McpErrorKind::InvalidParams,
        McpErrorKind::Overloaded,
        McpErrorKind::ServerProtocol,
    ] {
        assert_eq!(class_over_http(reason, Retryable::No), CallClass::Ignored);
    }
}
