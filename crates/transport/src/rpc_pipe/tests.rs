//! Tests of `rpc_pipe.rs`.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::*;
use crate::MessageRoute;
use moongate_telemetry::Metrics;
use moongate_telemetry::{DroppedItem, Limit, ReplyOutcome};

/// Returns what the calls 1 and 2 receive from this text, written in pieces of this size.
async fn received_by_calls(text: &str, size: usize) -> Vec<String> {
    let (ours, mut theirs) = tokio::io::duplex(size);
    let settings = RpcPipeSettings {
        max_message: 60,
        correlate: Arc::new(|_, _| MessageRoute::Events),
        on_garbage: Arc::new(|_| ()),
        backlog: ByteBudget::new(64 * 1024, "a", &Metrics::new()),
        closed: "the server closed its output",
        explain: None,
    };
    let pipe = RpcPipe::start(ours, tokio::io::sink(), settings);
    let mut calls = Vec::new();
    for id in [1, 2] {
        let outgoing = OutgoingMessage {
            body: Bytes::from_static(b"{}"),
            id: Some(id),
            headers: Vec::new(),
        };
        calls.push(pipe.send(outgoing).await.unwrap().messages);
    }
    theirs.write_all(text.as_bytes()).await.unwrap();
    drop(theirs);
    let mut told = Vec::new();
    for mut call in calls {
        told.push(match call.next().await {
            Some(Ok(message)) => format!("{message:?}"),
            Some(Err(error)) => error.to_string(),
            None => String::new(),
        });
    }
    told
}

#[tokio::test]
async fn a_line_over_the_limit_is_none_however_it_comes() {
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":"{}"}}}}"#,
        "x".repeat(40)
    );
    let text = format!("{long}\n{}\n", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    for size in [1, 7, 1000] {
        let told = received_by_calls(&text, size).await;
        assert!(
            told[0].contains("max_message"),
            "pieces of {size}: {told:?}"
        );
        assert!(told[1].contains("Response"), "pieces of {size}: {told:?}");
    }
}

#[tokio::test]
async fn a_malformed_answer_fails_the_call_that_it_names() {
    let both = r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#;
    let told_of = received_by_calls(&format!("{both}\n"), 1000).await;
    assert!(
        told_of[0].contains("the answer is not a JSON-RPC 2.0 message"),
        "{told_of:?}"
    );
    // The input has a JSON log line and an invalid request.
    for other in [
        r#"{"level":30,"id":1,"error":"no"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7,"error":1}"#,
    ] {
        let told = received_by_calls(&format!("{other}\n"), 1000).await;
        assert_eq!(told[0], "the server closed its output", "{other}");
    }
}

#[tokio::test]
async fn requests_after_the_close_were_never_sent() {
    let (pipe, server) = rpc_pipe(64 * 1024, &Metrics::new());
    let mut open = pipe.send(empty_call()).await.unwrap().messages;
    drop(server);
    assert!(
        matches!(open.next().await, Some(Err(LinkError::Closed(_)))),
        "this one may have run"
    );
    assert!(matches!(
        pipe.send(empty_call()).await,
        Err(LinkError::NotSent(_))
    ));
    let (pipe, _server) = rpc_pipe(64 * 1024, &Metrics::new());
    pipe.close_writer();
    assert!(matches!(
        pipe.send(empty_call()).await,
        Err(LinkError::NotSent(_))
    ));
}

fn empty_call() -> OutgoingMessage {
    OutgoingMessage {
        body: Bytes::from_static(b"{}"),
        id: Some(1),
        headers: Vec::new(),
    }
}

fn rpc_pipe(
    max_backlog: usize,
    metrics: &Metrics,
) -> (RpcPipe, BufReader<tokio::io::DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(ours);
    let settings = RpcPipeSettings {
        max_message: 64 * 1024,
        backlog: ByteBudget::new(max_backlog, "a", metrics),
        correlate: Arc::new(|_, _| MessageRoute::Events),
        on_garbage: Arc::new(|line| panic!("{}", String::from_utf8_lossy(line))),
        closed: "the other end closed the pipe",
        explain: None,
    };
    (
        RpcPipe::start(reader, writer, settings),
        BufReader::new(theirs),
    )
}

#[tokio::test]
async fn a_request_without_room_is_answered_with_an_error() {
    let metrics = Metrics::new();
    let (pipe, mut server) = rpc_pipe(160, &metrics);
    let ask =
        |n: u32| format!("{{\"jsonrpc\":\"2.0\",\"id\":\"q{n}\",\"method\":\"roots/list\"}}\n");
    let all: String = (0..10).map(ask).collect();
    server.write_all(all.as_bytes()).await.unwrap();
    let mut line = String::new();
    let read = server.read_line(&mut line);
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .expect("no answer")
        .unwrap();
    // Three messages of about fifty bytes fit. The fourth is the first to be refused.
    assert!(
        line.contains(r#""id":"q3""#) && line.contains("-32603"),
        "{line}"
    );
    for n in 4..10 {
        line.clear();
        let read = server.read_line(&mut line);
        tokio::time::timeout(Duration::from_secs(20), read)
            .await
            .expect("no answer")
            .unwrap();
        assert!(line.contains(&format!(r#""id":"q{n}""#)), "{line}");
    }
    assert_eq!(metrics.calls.refused.get(Limit::MaxBacklog), 7);
    assert_eq!(metrics.calls.dropped.get(DroppedItem::ServerMessage), 7);
    assert!(metrics.servers.backlog_bytes.get("a") > 0);
    // Reading makes room again.
    let mut events = pipe.open_server_stream().await.unwrap();
    for _ in 0..3 {
        assert!(events.next().await.is_some());
    }
    assert_eq!(metrics.servers.backlog_bytes.get("a"), 0);
    server.write_all(ask(11).as_bytes()).await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
    assert!(matches!(next, Ok(Some(Ok(RpcMessage::Request(_))))));
}

#[tokio::test]
async fn messages_without_a_listener_take_no_backlog() {
    let metrics = Metrics::new();
    let (pipe, mut server) = rpc_pipe(160, &metrics);
    drop(pipe.open_server_stream().await.unwrap());
    let told = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n".repeat(10);
    let ask = "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n";
    server
        .write_all(format!("{told}{ask}").as_bytes())
        .await
        .unwrap();
    let mut line = String::new();
    let read = server.read_line(&mut line);
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .expect("no answer")
        .unwrap();
    assert!(
        line.contains(r#""id":"q""#) && line.contains("-32601"),
        "{line}"
    );
    assert_eq!(metrics.servers.backlog_bytes.get("a"), 0);
    assert_eq!(metrics.calls.dropped.get(DroppedItem::ServerMessage), 11);
    assert_eq!(metrics.calls.refused.get(Limit::MaxBacklog), 0);
}

/// Routes of a server whose pings are answered.
fn pongs(message: &RpcMessage, _: &dyn Fn(u64) -> bool) -> MessageRoute {
    match message {
        RpcMessage::Request(request) => MessageRoute::Answer(Bytes::from(format!(
            "{{\"pong\":{}}}",
            String::from_utf8_lossy(request.id.raw().bytes())
        ))),
        _ => MessageRoute::Events,
    }
}

fn pinged(metrics: &Metrics) -> (RpcPipe, BufReader<tokio::io::DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(8 * 1024);
    let (reader, writer) = tokio::io::split(ours);
    let settings = RpcPipeSettings {
        max_message: 1 << 20,
        backlog: ByteBudget::new(1 << 24, "a", metrics),
        correlate: Arc::new(pongs),
        // A line may be incomplete where the write was abandoned.
        on_garbage: Arc::new(|_| ()),
        closed: "the other end closed the pipe",
        explain: None,
    };
    (
        RpcPipe::start(reader, writer, settings),
        BufReader::new(theirs),
    )
}

fn requests(metrics: &Metrics, outcome: ReplyOutcome) -> u64 {
    metrics.servers.requests.get(("a", outcome))
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_before_whatever_else_waits() {
    let metrics = Metrics::new();
    let (pipe, mut server) = pinged(&metrics);
    // The messages exceed the buffer of the pipe, so they wait for the server to read.
    for _ in 0..200 {
        pipe.write(Bytes::from(vec![b'1'; 20_000])).await.unwrap();
    }
    server
        .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n")
        .await
        .unwrap();
    while requests(&metrics, ReplyOutcome::Answered) == 0 {
        tokio::task::yield_now().await;
    }
    let mut line = String::new();
    let mut before = 0;
    loop {
        line.clear();
        server.read_line(&mut line).await.unwrap();
        if line.contains("pong") {
            break;
        }
        before += 1;
    }
    // These were already being written.
    assert!(before <= 65, "it came after {before} others");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_no_answers_is_not_read_for_a_while_and_nothing_is_kept_for_it() {
    let metrics = Metrics::new();
    let (_duplex, mut server) = pinged(&metrics);
    let ping = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n";
    let began = tokio::time::Instant::now();
    let mut written = 0;
    // The server reads nothing: some replies fill the pipe, some wait, then no more pings are
    // accepted.
    while tokio::time::timeout(Duration::from_secs(1), server.write_all(ping))
        .await
        .is_ok()
    {
        written += 1;
        assert!(written < 10_000, "there is no end to it");
    }
    assert!(written < 2000, "{written}");
    assert!(
        requests(&metrics, ReplyOutcome::Dropped) == 0,
        "{:?}",
        began.elapsed()
    );
    // After a while the server is read again, and its pings are dropped.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(requests(&metrics, ReplyOutcome::Dropped) > 0);
    // Once the server reads, it gets replies again.
    let (mut line, count) = (String::new(), |metrics: &Metrics| {
        requests(metrics, ReplyOutcome::Answered) + requests(metrics, ReplyOutcome::Delayed)
    });
    for _ in 0..count(&metrics) {
        line.clear();
        server.read_line(&mut line).await.unwrap();
    }
    let before = count(&metrics);
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.write_all(b"\n").await.unwrap();
    server.write_all(ping).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(count(&metrics) > before);
}

#[tokio::test(start_paused = true)]
async fn two_that_are_blocked_in_writing_to_each_other_go_on() {
    let metrics = Metrics::new();
    let (pipe, mut server) = pinged(&metrics);
    let body = Bytes::from(vec![b' '; 100_000]);
    let mut call = pipe
        .send(OutgoingMessage {
            body,
            id: Some(1),
            headers: Vec::new(),
        })
        .await
        .unwrap()
        .messages;
    // The server reads nothing until all of this is written, and the call does not fit into the
    // pipe.
    let serving = tokio::spawn(async move {
        let pings = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n".repeat(3000);
        server.write_all(pings.as_bytes()).await.unwrap();
        server
            .write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n")
            .await
            .unwrap();
        let mut line = String::new();
        server.read_line(&mut line).await.unwrap();
        (line.len(), server)
    });
    let answer = tokio::time::timeout(Duration::from_secs(20), call.next()).await;
    assert!(
        matches!(answer, Ok(Some(Ok(RpcMessage::Response(_))))),
        "{answer:?}"
    );
    assert_eq!(serving.await.unwrap().0, 100_001, "the call came whole");
    assert!(requests(&metrics, ReplyOutcome::Dropped) > 0);
}

#[tokio::test(start_paused = true)]
async fn queued_writes_are_bounded_in_bytes() {
    let metrics = Metrics::new();
    let (pipe, server) = rpc_pipe(300_000, &metrics);
    // No one reads: the pipe fills, then the write queue, and then no more is accepted.
    let mut taken = 0;
    let refused = loop {
        match pipe.write(Bytes::from(vec![b' '; 50_000])).await {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100, "there is no end to it");
    };
    assert!(matches!(refused, LinkError::QueueFull(_)), "{refused}");
    // The messages gathered by the writer leave with it. A message larger than the budget would
    // wait alone.
    drop(server);
}
