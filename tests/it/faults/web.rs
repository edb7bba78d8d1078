//! Faults of servers behind HTTP: answers that break, lie, stall or lead elsewhere. F28–F38, and
//! lists: F21–F23.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moongate_mock::{
    AnswerMode, CursorMode, FaultAction, FaultRule, GeneratedTools, HttpRules, ListRules,
    MockHandle, MockScript, NewlineStyle, SseRules,
};
use serde_json::{Value, json};

use super::pipe::result;
use super::raw::{self, OddAnswer, answer};
use super::rig::{FaultRig, RowSetup};
use crate::harness::{ERAS, Era, Setup, loopback, until};

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
async fn f35_events_in_every_spelling_and_of_any_size() {
    let spelled = |script: MockScript| {
        let sse = SseRules {
            newline: NewlineStyle::Crlf,
            chunk: 3,
            split: true,
            prime: true,
            ids: true,
            ..SseRules::default()
        };
        MockScript {
            http: HttpRules {
                answer: AnswerMode::Sse,
                sse,
                ..HttpRules::default()
            },
            ..script
        }
    };
    let setting = RowSetup::new("F35", "f35_events_in_every_spelling_and_of_any_size");
    let setting = setting.counts(GARBAGE.0, GARBAGE.1).http_servers(
        &["odd"],
        spelled,
        "max_message = \"1MiB\"",
    );
    let rig = setting.await.start().await;
    rig.each(async |bad, user| {
        let mock = rig.web(bad).unwrap();
        mock.set_fault(FaultRule::on(
            "tools/call:odd",
            FaultAction::Garbage {
                text: "no message".to_owned(),
            },
        ));
        let text = "\u{1f600} \u{2028} ü ".repeat(20);
        assert_eq!(
            user.call(bad, "odd", json!({"t": text})).await.result()["isError"],
            Value::Null
        );
        mock.clear_faults();
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn f35_an_event_that_never_ends_is_cut_at_the_limit() {
    let setting = RowSetup::new("F35", "f35_an_event_that_never_ends_is_cut_at_the_limit")
        .counts(BROKE.0, BROKE.1);
    let odd = |_| {
        let data = format!("data: {}\n", "x".repeat(4000)).repeat(1000);
        answer("content-type: text/event-stream\r\n", &data)
    };
    fails(setting, "max_message = \"1MiB\"", odd, "max_message").await;
}

#[tokio::test]
async fn f35_the_last_event_needs_its_empty_line() {
    let setting =
        RowSetup::new("F35", "f35_the_last_event_needs_its_empty_line").counts(BROKE.0, BROKE.1);
    // HTML, Server-sent events: "Once the end of the file is reached, any pending data must be
    // discarded."
    let odd = |era| {
        answer(
            "content-type: text/event-stream\r\n",
            &format!("data: {}\n", result(era, "pending")),
        )
    };
    fails(setting, "", odd, "without an answer").await;
}

/// A server with HTTP+SSE only, whose stream begins with this.
async fn pair_server(begin: &'static str) -> (String, Arc<AtomicU64>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let url = format!("http://{}/sse", listener.local_addr().unwrap());
    let posts = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let counted = posts.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let posts = counted.clone();
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut read = vec![0; 4096];
                let length = stream.read(&mut read).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&read[..length]).into_owned();
                seen.fetch_add(1, Ordering::Relaxed);
                if head.starts_with("POST /second") {
                    posts.fetch_add(1, Ordering::Relaxed);
                }
                let stream_head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                let text = if head.starts_with("GET") {
                    format!("{stream_head}{begin}")
                } else {
                    String::new()
                };
                let _ = stream.write_all(text.as_bytes()).await;
                // Until the gateway gives up.
                while matches!(stream.read(&mut read).await, Ok(n) if n > 0) {}
            });
        }
    });
    (url, posts)
}

#[tokio::test]
async fn f36_an_endpoint_that_never_comes_or_comes_twice() {
    let twice = "event: endpoint\ndata: /first\n\nevent: endpoint\ndata: /second\n\n";
    for begin in ["", ": nothing yet\n\n", twice] {
        let (url, second) = pair_server(begin).await;
        let lines = "transport = \"sse\"\nstart_timeout = \"500ms\"";
        let gateway = Setup::new()
            .http("a", &url)
            .with("servers.a", lines)
            .start()
            .await;
        let status = gateway.state("a", "backing_off").await;
        assert!(
            status["reason"]
                .as_str()
                .unwrap()
                .contains("servers.a.start_timeout"),
            "{begin:?}: {status}"
        );
        assert_eq!(
            second.load(Ordering::Relaxed),
            0,
            "the first endpoint counts"
        );
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn f37_a_response_on_another_stream_is_dropped() {
    let setting = RowSetup::new("F37", "f37_a_response_on_another_stream_is_dropped");
    let rig = setting.counts("moongate_dropped_total", &["what=\"server_answer\""]);
    let rig = rig.http_servers(&["odd"], plain, "").await.start().await;
    let own = |mock: &MockHandle| mock.counters().of("tools/call");
    rig.each(async |bad, user| {
        let mock = rig.web(bad).unwrap();
        let before = own(mock);
        mock.set_fault(FaultRule::on(
            "tools/call:odd",
            FaultAction::Delay { ms: 400 },
        ));
        let (reply, ()) = tokio::join!(user.call(bad, "odd", json!({"n": "own"})), async {
            until(
                "the server has \
                   the call",
                || std::future::ready((own(mock) > before).then_some(())),
            )
            .await;
            let id = serde_json::from_str::<Value>(&mock.last_request("tools/call").unwrap().body)
                .unwrap()["id"]
                .clone();
            let evil = json!({"jsonrpc": "2.0", "id": id,
                "result": {"content": [{"type": "text", "text": "evil"}]}});
            // Servers without sessions have no such stream.
            let told = mock.send_to_sessions(&evil.to_string());
            assert_eq!(told > 0, bad.era == Era::Legacy);
        });
        assert_eq!(reply.text(), r#"{"n":"own"}"#);
        mock.clear_faults();
    })
    .await;
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

// === lists ===

#[tokio::test]
async fn f21_a_list_that_is_too_long_or_odd_costs_its_own_items() {
    let deep = format!("{}1{}", r#"{"x":"#.repeat(5000), "}".repeat(5000));
    let fault = |mut script: MockScript| {
        script
            .tools
            .push(json!(r#"{"name": "none", "inputSchema": null}"#));
        script.tools.push(json!(format!(
            r#"{{"name": "deep", "inputSchema": {deep}}}"#
        )));
        let cyclic = r##"{"type":"object","properties":{"a":{"$ref":"#"},"b":{"$ref":"http://127.0.0.1:1/schema"}}}"##;
        script.tools.push(json!(format!(
            r#"{{"name": "cyclic", "inputSchema": {cyclic}}}"#
        )));
        script.tools.push(json!(
            r#"{"name": "cyclic", "inputSchema": {"type": "object"}}"#
        ));
        // What is behind the limit is left out.
        let many = (0..10_500)
            .map(|n| json!({"name": format!("t{n}"), "inputSchema": {"type": "object"}}));
        script.tools.extend(many);
        script
    };
    let setting = RowSetup::new(
        "F21",
        "f21_a_list_that_is_too_long_or_odd_costs_its_own_items",
    );
    let rig = setting
        .http_servers(&["odd"], fault, "")
        .await
        .start()
        .await;
    rig.each(async |bad, user| {
        let status = rig.status(&bad.name).await;
        assert!(
            status["left_out"].to_string().contains("tools deep: "),
            "{}",
            status["left_out"]
        );
        assert_eq!(
            user.call(bad, "cyclic", json!({"n": 1})).await.text(),
            r#"{"n":1}"#
        );
    })
    .await;
    for era in ERAS {
        let user = rig.user(era).await;
        let names = user.request("tools/list", json!({})).await.names();
        user.leave().await;
        let of = |bad: &str| {
            names
                .iter()
                .filter(|name| name.starts_with(&format!("{bad}__")))
                .count()
        };
        assert!(
            (9000..=10_000).contains(&of("old_web")),
            "{}",
            of("old_web")
        );
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        assert!(names.contains(&"ok__echo".to_owned()));
    }
    rig.end().await;
}

#[tokio::test]
async fn f22_cursors_that_lead_nowhere_end() {
    for cursor in [CursorMode::Loop, CursorMode::Endless] {
        let fault = |mut script: MockScript| {
            script.generate.push(GeneratedTools {
                count: 30,
                name: "t{n}".to_owned(),
                depth: 0,
                describe: 0,
            });
            MockScript {
                list: ListRules {
                    page_size: 7,
                    cursor,
                    ..ListRules::default()
                },
                ..script
            }
        };
        let setting = RowSetup::new("F22", "f22_cursors_that_lead_nowhere_end");
        let rig = setting
            .http_servers(&["odd"], fault, "")
            .await
            .start()
            .await;
        rig.each(async |bad, user| {
            let names = user.request("tools/list", json!({})).await.names();
            let own = names
                .iter()
                .filter(|name| name.starts_with(&format!("{}__", bad.name)))
                .count();
            assert_eq!(own, 32, "each once: {names:?}");
            let lists = rig.got(bad, "tools/list");
            assert!(lists <= 2100, "{cursor:?}: {lists}");
        })
        .await;
        rig.end().await;
    }
}

#[tokio::test]
async fn f23_a_storm_of_list_changes_causes_a_few_list_requests() {
    let setting = RowSetup::new(
        "F23",
        "f23_a_storm_of_list_changes_causes_a_few_list_requests",
    );
    let rig = setting
        .http_servers(&["odd"], plain, "")
        .await
        .start()
        .await;
    rig.each(async |bad, user| {
        let mock = rig.web(bad).unwrap();
        until("the gateway listens", || {
            std::future::ready((mock.listeners() > 0).then_some(()))
        })
        .await;
        let before = rig.got(bad, "tools/list");
        for round in 0..40 {
            let fresh = format!("fresh_{round}");
            mock.change_tools_and_notify(&["odd", "echo", &fresh].map(crate::harness::tool));
            for _ in 0..5 {
                mock.notify_list("tools");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let last = format!("{}__fresh_39", bad.name);
        let listed = async || {
            let names = user.request("tools/list", json!({})).await.names();
            names.contains(&last).then_some(())
        };
        until("the last list is there", listed).await;
        let lists = rig.got(bad, "tools/list") - before;
        assert!(lists <= 60, "240 notices cost {lists} lists");
    })
    .await;
    rig.end().await;
}
