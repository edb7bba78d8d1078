//! Faults of event streams: odd spellings, ends that do not come, and other streams. F35–F37.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moongate_mock::{
    AnswerMode, FaultAction, FaultRule, HttpRules, MockHandle, MockScript, NewlineStyle, SseRules,
};
use serde_json::{Value, json};

use super::{BROKE, GARBAGE, fails, plain};
use crate::faults::pipe::result;
use crate::faults::raw::answer;
use crate::faults::rig::RowSetup;
use crate::harness::{Era, Setup, loopback, until};

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
