//! Faults of servers behind HTTP: answers that break, lie, stall or lead elsewhere. F28–F38, and
//! lists: F21–F23.

mod event_streams;
mod lists;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moongate_mock::{AnswerMode, FaultAction, FaultRule, HttpRules, MockScript};
use serde_json::json;

use super::pipe::result;
use super::raw::{self, OddAnswer, answer};
use super::rig::{FaultRig, RowSetup};
use crate::harness::{ERAS, Era, Setup, loopback};

type FaultSeries = (&'static str, &'static [&'static str]);

const TIMED_OUT: FaultSeries = (
    "mcp_client_operation_duration_seconds_count",
    &["error_type=\"server_timeout\""],
);
const BROKE: FaultSeries = (
    "mcp_client_operation_duration_seconds_count",
    &["error_type=\"server_protocol\""],
);
const DOWN: FaultSeries = (
    "mcp_client_operation_duration_seconds_count",
    &["error_type=\"server_down\""],
);
const REFUSED: FaultSeries = (
    "mcp_client_operation_duration_seconds_count",
    &["error_type=\"server_refused\""],
);
const GARBAGE: FaultSeries = ("moongate_garbage_total", &[]);

fn plain(script: MockScript) -> MockScript {
    script
}

fn events(script: MockScript) -> MockScript {
    MockScript {
        http: HttpRules {
            answer: AnswerMode::Sse,
            ..HttpRules::default()
        },
        ..script
    }
}

/// Strikes `odd` with each act in turn, at servers of both eras, for clients of both.
async fn each_act(rig: &FaultRig, acts: &[(FaultAction, &str)]) {
    rig.each(async |bad, user| {
        let mock = rig.web(bad).unwrap();
        for (act, word) in acts {
            mock.set_fault(FaultRule::on("tools/call:odd", act.clone()).times(1));
            let failure = user.call(bad, "odd", json!({})).await.failure();
            assert!(
                failure.contains(&bad.name) && failure.contains(word),
                "{act:?}: {failure}"
            );
            mock.clear_faults();
            assert_eq!(
                user.call(bad, "odd", json!({"n": 1})).await.text(),
                r#"{"n":1}"#,
                "{act:?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn f28_a_connection_that_is_reset_fails_its_call_only() {
    let setting = RowSetup::new("F28", "f28_a_connection_that_is_reset_fails_its_call_only");
    let setting = setting.counts(DOWN.0, DOWN.1).counts(BROKE.0, BROKE.1);
    let rig = setting
        .http_servers(&["odd"], events, "")
        .await
        .start()
        .await;
    each_act(
        &rig,
        &[
            (FaultAction::Reset, ""),
            (FaultAction::Close, ""),
            (FaultAction::Cut, "without an answer"),
        ],
    )
    .await;
    // Each reached its server once: a call that may have run is not sent again.
    for mock in &rig.http_servers {
        assert_eq!(
            mock.counters().of("tools/call"),
            2 * 6 + 2,
            "nothing is sent twice"
        );
    }
    rig.end().await;
}

/// Servers of both eras whose answers to `odd` are these.
async fn behind(mut setting: RowSetup, settings: &str, odd: impl Fn(Era) -> OddAnswer) -> RowSetup {
    for (name, era) in [("old_web", Era::Legacy), ("new_web", Era::Modern)] {
        let mock = setting.behind(era, &["odd"]).await;
        let url = raw::serve(mock, odd(era)).await;
        setting = setting.url(name, era, &url, settings);
    }
    setting
}

/// Each of these answers fails its call, for clients of both eras, with this word.
async fn fails(setting: RowSetup, settings: &str, odd: impl Fn(Era) -> OddAnswer, word: &str) {
    let rig = behind(setting, settings, odd).await.start().await;
    rig.all(async |bad, user| {
        for _ in 0..2 {
            let failure = user.call(bad, "odd", json!({})).await.failure();
            assert!(
                failure.contains(&bad.name) && failure.contains(word),
                "{failure}"
            );
        }
    })
    .await;
    rig.end().await;
}

const EVENTS: &str = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n";

#[tokio::test]
async fn f29_headers_and_then_nothing_end_at_the_deadline() {
    let setting = RowSetup::new("F29", "f29_headers_and_then_nothing_end_at_the_deadline")
        .counts(TIMED_OUT.0, TIMED_OUT.1);
    let odd = |_| OddAnswer::Stall(format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\n"));
    fails(setting, "timeout = \"1s\"", odd, ".timeout").await;
}

#[tokio::test]
async fn f29_a_body_that_drips_ends_at_the_deadline() {
    let setting = RowSetup::new("F29", "f29_a_body_that_drips_ends_at_the_deadline")
        .counts(TIMED_OUT.0, TIMED_OUT.1);
    let odd = |era| {
        let body = result(era, "slow");
        let head = format!(
            "content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        OddAnswer::Slowly(
            format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}"),
            Duration::from_millis(100),
        )
    };
    fails(setting, "timeout = \"1s\"", odd, ".timeout").await;
}

#[tokio::test]
async fn f31_a_body_that_ends_too_early_fails_its_call() {
    let setting = RowSetup::new("F31", "f31_a_body_that_ends_too_early_fails_its_call")
        .counts(DOWN.0, DOWN.1);
    let odd = |era| {
        answer(
            "content-type: application/json\r\ncontent-length: 5000\r\n",
            &result(era, "short"),
        )
    };
    fails(setting, "", odd, "broke off").await;
}

#[tokio::test]
async fn f31_malformed_chunks_fail_their_call() {
    let setting =
        RowSetup::new("F31", "f31_malformed_chunks_fail_their_call").counts(BROKE.0, BROKE.1);
    let odd = |era| {
        let body = format!("zz\r\n{}\r\n0\r\n\r\n", result(era, "never"));
        answer(
            "content-type: application/json\r\ntransfer-encoding: chunked\r\n",
            &body,
        )
    };
    fails(setting, "", odd, "").await;
}

#[tokio::test]
async fn f31_a_compressed_body_is_decoded_to_the_limit() {
    let setting = RowSetup::new("F31", "f31_a_compressed_body_is_decoded_to_the_limit")
        .counts(BROKE.0, BROKE.1);
    // A kilobyte on the wire for each megabyte of text.
    let odd = |era| {
        OddAnswer::Gzip(
            "content-type: application/json\r\n".to_owned(),
            result(era, &"x".repeat(64 << 20)),
        )
    };
    fails(setting, "max_message = \"1MiB\"", odd, "max_message").await;
}

#[tokio::test]
async fn f31_a_body_over_the_limit_is_not_read_on() {
    let setting = RowSetup::new("F31", "f31_a_body_over_the_limit_is_not_read_on");
    let odd = |era| {
        let body = result(era, &"x".repeat(3 << 20));
        answer(
            &format!(
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            ),
            &body,
        )
    };
    fails(
        setting.counts(BROKE.0, BROKE.1),
        "max_message = \"1MiB\"",
        odd,
        "max_message",
    )
    .await;
}

#[tokio::test]
async fn f32_no_redirect_leaves_the_origin() {
    let elsewhere = Arc::new(AtomicU64::new(0));
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = elsewhere.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    let setting =
        RowSetup::new("F32", "f32_no_redirect_leaves_the_origin").counts(REFUSED.0, REFUSED.1);
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    let to = |status: u16, location: String| FaultAction::Status {
        status,
        headers: [("location".to_owned(), location)].into(),
        body: "{}".to_owned(),
        content_type: Some("application/json".to_owned()),
    };
    let mut acts = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        acts.push((to(status, format!("http://{address}/mcp")), ""));
    }
    acts.push((
        to(302, "http://169.254.169.254/latest/meta-data/".to_owned()),
        "302",
    ));
    // One that leads to itself is followed a few times.
    acts.push((to(302, "/mcp".to_owned()), "302"));
    each_act(&rig, &acts).await;
    assert_eq!(elsewhere.load(Ordering::Relaxed), 0, "nobody went there");
    rig.end().await;
}

#[tokio::test]
async fn f33_a_name_that_does_not_resolve_is_explained() {
    let gateway = Setup::new()
        .http("a", "http://no-such-host.invalid:8080/mcp")
        .start()
        .await;
    let status = gateway.state("a", "backing_off").await;
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.contains("no-such-host.invalid"), "{reason}");
    for era in ERAS {
        assert!(gateway.client(era).await.tools().await.is_empty());
    }
}

#[tokio::test]
async fn f34_a_response_of_another_kind_is_named_in_the_error() {
    let setting = RowSetup::new(
        "F34",
        "f34_a_response_of_another_kind_is_named_in_the_error",
    )
    .counts(BROKE.0, BROKE.1);
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    let status = |status: u16, content_type: Option<&str>, body: &str| FaultAction::Status {
        status,
        headers: Default::default(),
        body: body.to_owned(),
        content_type: content_type.map(str::to_owned),
    };
    let page = "<html>canary of a page</html>";
    let acts = [
        (
            FaultAction::ContentType {
                value: "text/html".to_owned(),
            },
            "text/html",
        ),
        (
            FaultAction::ContentType {
                value: "application/octet-stream".to_owned(),
            },
            "octet-stream",
        ),
        (status(200, Some("text/html"), page), "text/html"),
        (status(200, Some("application/json"), ""), "the answer is"),
        (status(200, Some("application/json"), page), "the answer is"),
        (status(200, None, "{}"), "content type"),
        (status(202, None, ""), "202"),
        (status(204, None, ""), "204"),
    ];
    each_act(&rig, &acts).await;
    // A parameter of the type changes nothing.
    rig.each(async |bad, user| {
        let value = "application/json; charset=iso-8859-1".to_owned();
        rig.web(bad).unwrap().set_fault(FaultRule::on(
            "tools/call:odd",
            FaultAction::ContentType { value },
        ));
        assert_eq!(
            user.call(bad, "odd", json!({"n": 2})).await.text(),
            r#"{"n":2}"#
        );
        rig.web(bad).unwrap().clear_faults();
    })
    .await;
    assert!(
        !rig.gateway.log().contains("canary of a page"),
        "no body of a server is in the log"
    );
    rig.end().await;
}

#[tokio::test]
async fn f38_an_answer_that_is_not_the_calls_own_fails_it() {
    let setting = RowSetup::new("F38", "f38_an_answer_that_is_not_the_calls_own_fails_it")
        .counts(BROKE.0, BROKE.1);
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    let body = |text: &str| FaultAction::Body {
        text: text.to_owned(),
    };
    let both = r#"{"jsonrpc":"2.0","id":{id},"result":{},"error":{"code":-1,"message":"both"}}"#;
    let acts = [
        (FaultAction::WrongId, "another request"),
        (
            body(r#"[{"jsonrpc":"2.0","id":{id}1,"result":{}}]"#),
            "batch",
        ),
        (body("[]"), "the answer is"),
        (body(both), "the answer is"),
        (
            body(r#"{"jsonrpc":"2.0","id":"{id}x","result":{}}"#),
            "another request",
        ),
        (body(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#), ""),
        (
            body(r#"{"jsonrpc":"2.0","id":{id},"result":{},"result":{}}"#),
            "the answer is",
        ),
    ];
    each_act(&rig, &acts).await;
    rig.end().await;
}

#[tokio::test]
async fn f38_a_malformed_answer_on_a_pipe_fails_its_call_at_once() {
    let body = r#"{"jsonrpc":"2.0","id":{id},"result":{},"error":{"code":-1,"message":"both"}}"#;
    let setting = RowSetup::new(
        "F38",
        "f38_a_malformed_answer_on_a_pipe_fails_its_call_at_once",
    );
    let fault = |script: MockScript| {
        script.with_fault(FaultRule::on(
            "tools/call:odd",
            FaultAction::Body {
                text: body.to_owned(),
            },
        ))
    };
    let setting = setting
        .counts(GARBAGE.0, GARBAGE.1)
        .counts(BROKE.0, BROKE.1);
    let rig = setting
        .children(&["odd"], fault, "timeout = \"10m\"")
        .start()
        .await;
    rig.all(async |bad, user| {
        let failure = user.call(bad, "odd", json!({})).await.failure();
        assert!(failure.contains("the answer is"), "{failure}");
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn a_server_of_no_revision_of_ours_is_left_out_and_says_why() {
    let odd = r#"{"protocolVersion":"1999-12-31","capabilities":{},"serverInfo":{"name":"x","version":"1"}}"#;
    let act = FaultAction::Result {
        json: odd.to_owned(),
    };
    let script = crate::harness::legacy().with_fault(FaultRule::on("initialize", act));
    let mock = crate::harness::serve(script.clone()).await;
    let gateway = Setup::new()
        .http("web", &mock.url)
        .stdio("child", &script)
        .start()
        .await;
    for server in ["web", "child"] {
        let status = gateway.state(server, "failed").await;
        assert!(
            status["reason"].as_str().unwrap().contains("1999-12-31"),
            "{status}"
        );
        for era in ERAS {
            assert!(gateway.client(era).await.tools().await.is_empty());
        }
    }
}
