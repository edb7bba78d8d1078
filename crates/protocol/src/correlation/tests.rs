//! Tests of `correlation.rs`.

use bytes::Bytes;
use futures_util::FutureExt;

use super::*;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::RpcMessage;
use moongate_model::{Call, McpMethod};

/// Returns a caller that can be asked for samples.
fn able(principal: u32, session: Option<&str>) -> Caller {
    Caller {
        capabilities: ClientCapabilities {
            sample: true,
            ..ClientCapabilities::default()
        },
        ..(*moongate_testing::caller(principal, session)).clone()
    }
}

/// Returns a request for a sample that names no call.
fn ask() -> RpcMessage {
    let json = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
    RpcMessage::parse(&Bytes::from_static(json.as_bytes())).unwrap()
}

/// Returns the caller of a session, which is another principal's if its name is `other`.
fn caller_of(session: &str) -> Caller {
    able(if session == "other" { 2 } else { 1 }, Some(session))
}

/// Opens a call that is about no logs.
fn open(calls: &PendingCalls, caller: &Caller) -> CallEntry {
    calls.open(caller, LogInterest::Never, CallTarget::default())
}

/// Opens a call of a tool.
fn open_tool(calls: &PendingCalls, caller: &Caller, name: &str) -> CallEntry {
    let params = JsonObject::parse(Bytes::from(format!(r#"{{"name":"{name}"}}"#))).unwrap();
    let target = CallTarget::from_call(&Call::new(McpMethod::CallTool, params));
    calls.open(caller, LogInterest::Never, target)
}

/// Finds the call that a message is about.
fn find(calls: &PendingCalls, message: &RpcMessage) -> Option<u64> {
    calls.find_call(message, &|_| true)
}

/// Ends a call whose client no longer waits for it.
fn abandon(call: CallEntry) {
    call.mark_cancelled();
    drop(call);
}

#[test]
fn an_input_request_reaches_no_other_session() {
    let calls = PendingCalls::default();
    let ask = ask();
    let unable = open(&calls, &moongate_testing::caller(1, Some("a")));
    assert_eq!(
        find(&calls, &ask),
        Some(unable.id),
        "its client lacks what the server asks for"
    );
    let second = open(&calls, &moongate_testing::caller(1, Some("b")));
    assert_eq!(find(&calls, &ask), None, "it could be about either");
    drop((unable, second));
    let answering = open(&calls, &able(1, Some("a")));
    assert_eq!(find(&calls, &ask), Some(answering.id));
    let same = open(&calls, &moongate_testing::caller(1, Some("a")));
    assert_eq!(find(&calls, &ask), Some(answering.id));
    let other = open(&calls, &moongate_testing::caller(1, Some("b")));
    assert_eq!(
        find(&calls, &ask),
        None,
        "the server may ask because of the other session's call"
    );
    drop((other, same));
    let second = open(&calls, &able(1, Some("a")));
    assert_eq!(find(&calls, &ask), Some(second.id), "the same client");
    let _third = open(&calls, &able(1, Some("b")));
    assert_eq!(find(&calls, &ask), None, "two could answer");
}

#[tokio::test(start_paused = true)]
async fn an_input_request_of_an_abandoned_call_reaches_no_other_caller() {
    let calls = PendingCalls::default();
    let ask = ask();
    let left = open(&calls, &caller_of("a"));
    let beside = open(&calls, &caller_of("a"));
    abandon(left);
    assert_eq!(
        find(&calls, &ask),
        Some(beside.id),
        "the same client's, which was there before"
    );
    drop(beside);
    let other = open(&calls, &caller_of("b"));
    assert_eq!(
        find(&calls, &ask),
        None,
        "the server may ask because of the call that was given up"
    );
    assert!(
        calls.has_other_clients(&caller_of("b"), false)
            && calls.has_other_clients(&caller_of("a"), false)
    );
    other.mark_answered();
    assert_eq!(
        find(&calls, &ask),
        Some(other.id),
        "the server has read what was cancelled before"
    );
    drop(other);
    let others =
        ["a", "b", "other"].map(|session| calls.has_other_clients(&caller_of(session), false));
    assert_eq!(others, [false, false, true]);
    let other = open(&calls, &caller_of("other"));
    assert_eq!(
        find(&calls, &ask),
        None,
        "a tool may go on all the same: it is another principal's"
    );
    drop(other);
    let same = open(&calls, &caller_of("a"));
    assert!(
        !calls.has_unread_cancellations(&caller_of("a")),
        "a later request was answered"
    );
    assert_eq!(find(&calls, &ask), Some(same.id), "the same client");
    abandon(same);
    let same = open(&calls, &caller_of("a"));
    assert!(
        calls.has_unread_cancellations(&caller_of("a"))
            && calls.has_unread_cancellations(&caller_of("b"))
            && !calls.has_unread_cancellations(&caller_of("other"))
    );
    assert_eq!(
        find(&calls, &ask),
        None,
        "what it cancelled may not be read yet, and asks for the last time"
    );
    calls.mark_read(same.id);
    assert_eq!(find(&calls, &ask), Some(same.id), "it is read");
    drop(same);
    tokio::time::advance(CANCELLED_TIME).await;
    let other = open(&calls, &caller_of("other"));
    assert_eq!(
        find(&calls, &ask),
        Some(other.id),
        "after so long it has heard of it"
    );
}

#[test]
fn a_tool_is_unproven_until_a_call_of_it_was_answered() {
    let calls = PendingCalls::default();
    let target = |name: &str| {
        let params = JsonObject::parse(Bytes::from(format!(r#"{{"name":"{name}"}}"#))).unwrap();
        CallTarget::from_call(&Call::new(McpMethod::CallTool, params))
    };
    let is_unproven = |name| calls.is_unproven_beside_others(&caller_of("b"), target(name));
    let own = open_tool(&calls, &caller_of("b"), "x");
    assert!(!is_unproven("t"), "it is alone");
    drop(own);
    let other = open_tool(&calls, &caller_of("a"), "t");
    assert!(is_unproven("t"));
    other.mark_answered();
    drop(other);
    // Neither a tool that ran before nor a client that cannot be asked makes a request clear.
    let quiet = open_tool(&calls, &caller_of("a"), "t");
    assert!(!is_unproven("t") && is_unproven("u"));
    drop(quiet);
    let _unable = open_tool(&calls, &moongate_testing::caller(1, Some("c")), "t");
    assert!(!is_unproven("t") && is_unproven("u"));
}

#[tokio::test]
async fn a_misdirected_input_request_stays_with_its_client() {
    let calls = PendingCalls::default();
    let ask = ask();
    let RpcMessage::Request(request) = ask.clone() else {
        unreachable!()
    };
    let first = open(&calls, &able(1, None));
    let second = open(&calls, &able(1, None));
    assert_eq!(find(&calls, &ask), Some(first.id));
    drop(first);
    assert!(
        calls
            .redeliver_request((0, &able(1, None)), request.clone())
            .is_ok(),
        "the first call is over: it was the second's"
    );
    let stray_messages = second.stray_messages.clone().unwrap();
    assert!(matches!(
        stray_messages.next().await,
        RpcMessage::Request(_)
    ));
    drop(second);
    let other = open(&calls, &able(2, None));
    assert!(
        calls
            .redeliver_request((0, &able(1, None)), request.clone())
            .is_err(),
        "another principal's call is not asked"
    );
    let _third = open(&calls, &able(1, None));
    assert!(
        calls
            .redeliver_request((0, &able(1, None)), request)
            .is_err(),
        "nor is anybody, beside it"
    );
    drop(other);
}

/// A server of files asks for roots as soon as it runs, whatever its first call is.
#[test]
fn a_request_for_roots_says_nothing_of_its_call() {
    let calls = PendingCalls::default();
    let capabilities = ClientCapabilities {
        sample: true,
        roots: true,
        ..ClientCapabilities::default()
    };
    let caller = Caller {
        capabilities,
        ..able(1, Some("a"))
    };
    let roots = RpcMessage::parse(&Bytes::from_static(
        br#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#,
    ))
    .unwrap();
    let first = open_tool(&calls, &caller, "slow");
    assert_eq!(find(&calls, &roots), Some(first.id));
    drop(first);
    // The client gives it up, which the gateway has not heard yet.
    let _given_up = open_tool(&calls, &caller, "slow");
    let asking = open_tool(&calls, &caller, "asking");
    assert_eq!(find(&calls, &ask()), Some(asking.id));
}

#[test]
fn a_request_that_its_call_gave_back_goes_to_another_call() {
    let calls = PendingCalls::default();
    let given_up = open(&calls, &able(1, None));
    let other = open(&calls, &able(1, None));
    assert_eq!(find(&calls, &ask()), Some(given_up.id));
    let RpcMessage::Request(request) = ask() else {
        unreachable!()
    };
    assert!(
        calls
            .redeliver_request((given_up.id, &able(1, None)), request.clone())
            .is_ok()
    );
    assert!(
        other
            .stray_messages
            .as_ref()
            .unwrap()
            .next()
            .now_or_never()
            .is_some()
    );
    drop(other);
    assert!(
        calls
            .redeliver_request((given_up.id, &able(1, None)), request)
            .is_err(),
        "not to the same again"
    );
}

#[tokio::test(start_paused = true)]
async fn many_abandoned_calls_of_one_principal_are_remembered() {
    let calls = PendingCalls::default();
    for n in 0..CANCELLED_MAX + 10 {
        open(&calls, &able(1, Some(&format!("{n}")))).mark_cancelled();
    }
    assert!(calls.0.cancelled.lock().len() <= CANCELLED_MAX + 1);
    for n in [0, CANCELLED_MAX + 5] {
        assert!(
            calls.has_other_clients(&able(1, Some(&format!("{n}"))), false),
            "others gave up calls, too"
        );
    }
    for _ in 0..CANCELLED_MAX * 2 {
        open(&calls, &able(1, Some("one"))).mark_cancelled();
    }
    assert!(
        calls.has_other_clients(&able(1, Some("1")), false)
            && calls.has_other_clients(&able(1, Some("new")), false)
    );
    tokio::time::advance(CANCELLED_TIME).await;
    assert!(!calls.has_other_clients(&able(1, Some("new")), false));
}

#[test]
fn an_input_request_reaches_one_call_of_its_principal_only() {
    let calls = PendingCalls::default();
    let ask = ask();
    let first = open(&calls, &able(1, None));
    let second = open(&calls, &able(1, None));
    assert_eq!(
        [find(&calls, &ask), find(&calls, &ask)],
        [Some(first.id), Some(second.id)],
        "each in its turn"
    );
    let unable = moongate_testing::caller(2, None);
    let other = open(&calls, &unable);
    assert_eq!(
        find(&calls, &ask),
        None,
        "it could be about the other principal's call"
    );
    assert!(
        calls.has_other_clients(&able(1, None), false) && calls.has_other_clients(&unable, false)
    );
    drop((first, second));
    assert!(
        !calls.has_other_clients(&moongate_testing::caller(3, None), false),
        "neither of the two can be asked"
    );
    drop(other);
    let seen_input = SeenInputFlag::default();
    let calls = PendingCalls::with_seen_input_flag(seen_input.clone());
    assert!(
        find(&calls, &ask).is_none() && !seen_input.is_set(),
        "that was in no call"
    );
    let _call = open(&calls, &able(1, None));
    assert!(find(&calls, &ask).is_some() && seen_input.is_set());
}

#[test]
fn a_log_message_is_about_the_only_call_that_wants_any() {
    let calls = PendingCalls::default();
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let log = RpcMessage::parse(&Bytes::from_static(log.as_bytes())).unwrap();
    // For example the stream on which the gateway listens for list changes.
    let _stream = open(&calls, &able(1, None));
    assert_eq!(find(&calls, &log), None);
    let first = calls.open(
        &able(1, None),
        LogInterest::Wanted(1),
        CallTarget::default(),
    );
    assert_eq!(find(&calls, &log), Some(first.id));
    let second = calls.open(
        &able(1, None),
        LogInterest::Wanted(1),
        CallTarget::default(),
    );
    assert_eq!(find(&calls, &log), None, "it could be about either");
    drop(first);
    let quiet = calls.open(
        &able(1, None),
        LogInterest::Unwanted(1),
        CallTarget::default(),
    );
    assert_eq!(find(&calls, &log), Some(second.id));
    drop(quiet);
    let _other = calls.open(
        &able(1, None),
        LogInterest::Unwanted(2),
        CallTarget::default(),
    );
    assert_eq!(
        find(&calls, &log),
        None,
        "it could tell of another principal"
    );
}
