//! Tests of `websocket.rs`.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;
use crate::{Link as _, OutgoingMessage};

type Server = WebSocketStream<DuplexStream>;

fn settings() -> WsSettings {
    let mut secret = HeaderValue::from_static("Bearer k");
    secret.set_sensitive(true);
    WsSettings {
        url: url::Url::parse("ws://example.com:8080/mcp?x=1").unwrap(),
        proxy: None,
        metadata: MetadataAccess::Refused,
        ping: WebSocketPing::default(),
        headers: vec![(http::header::AUTHORIZATION, secret)],
        connect_timeout: Duration::from_secs(20),
        max_message: 1024,
        backlog: ByteBudget::new(64 * 1024, "a", &moongate_telemetry::Metrics::new()),
        correlate: Arc::new(|_, _| crate::MessageRoute::Events),
        on_garbage: Arc::new(|_| {}),
    }
}

async fn pair(settings: WsSettings) -> (WsLink, Server) {
    pair_with_room(settings, 1 << 20).await
}

/// A pair whose connection holds so many bytes in each direction.
#[allow(clippy::result_large_err, reason = "the library's signature")]
async fn pair_with_room(settings: WsSettings, room: usize) -> (WsLink, Server) {
    let (ours, theirs) = tokio::io::duplex(room);
    let judge = |asked: &Request<()>, mut answer: http::Response<()>| {
        let headers = asked.headers();
        assert_eq!(asked.uri().path_and_query().unwrap(), "/mcp?x=1");
        assert_eq!(headers["host"], "example.com:8080");
        assert_eq!(headers["authorization"], "Bearer k");
        assert_eq!(headers["sec-websocket-protocol"], "mcp");
        assert!(headers["user-agent"].as_bytes().starts_with(b"moongate/"));
        answer
            .headers_mut()
            .insert("sec-websocket-protocol", HeaderValue::from_static("mcp"));
        Ok(answer)
    };
    let (link, server) = tokio::join!(
        WsLink::handshake(ours, settings),
        accept_hdr_async(theirs, judge)
    );
    (link.unwrap(), server.unwrap())
}

fn ask(id: u64) -> OutgoingMessage {
    let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#));
    OutgoingMessage {
        body,
        id: Some(id),
        headers: Vec::new(),
    }
}

#[tokio::test]
async fn a_message_is_a_text_frame() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let garbage = seen.clone();
    let on_garbage: OnGarbage = Arc::new(move |line| garbage.lock().push(line.to_vec()));
    let (link, mut server) = pair(WsSettings {
        on_garbage,
        ..settings()
    })
    .await;
    let mut answer = link.send(ask(7)).await.unwrap().messages;
    let Frame::Text(text) = server.next().await.unwrap().unwrap() else {
        panic!("no text")
    };
    assert_eq!(text.as_str(), r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#);
    server.send(Frame::binary(&b"{}"[..])).await.unwrap();
    server.send(Frame::text("{\"half")).await.unwrap();
    server
        .send(Frame::Ping(Bytes::from_static(b"there?")))
        .await
        .unwrap();
    // Line breaks are plain white space in a frame.
    server
        .send(Frame::text(
            "{\"jsonrpc\":\"2.0\",\n\"id\":7,\"result\":{}}",
        ))
        .await
        .unwrap();
    assert!(answer.next().await.unwrap().is_ok());
    assert_eq!(
        *seen.lock(),
        [b"a binary frame of 2 bytes".to_vec(), b"{\"half".to_vec()]
    );
    let Frame::Pong(pong) = server.next().await.unwrap().unwrap() else {
        panic!("no answer to a ping")
    };
    assert_eq!(pong, "there?");
}

/// Pings of the largest size, until the other side takes no more. Returns their number.
async fn ping_until_blocked(server: &mut Server, most: usize) -> usize {
    for sent in 0..most {
        let payload = Bytes::from(format!("{sent:0>125}"));
        let ping = tokio::time::timeout(Duration::from_secs(20), server.send(Frame::Ping(payload)));
        if ping.await.is_err() {
            return sent;
        }
    }
    most
}

#[tokio::test(start_paused = true)]
async fn a_server_that_pings_and_reads_nothing_is_not_read_any_more() {
    const PINGS: usize = 5_000;
    let ping = WebSocketPing {
        interval: Duration::ZERO,
        ..WebSocketPing::default()
    };
    let (link, mut server) = pair_with_room(WsSettings { ping, ..settings() }, 4096).await;
    let mut answer = link.send(ask(7)).await.unwrap().messages;
    let sent = ping_until_blocked(&mut server, PINGS).await;
    assert!(sent < 500, "{sent} pings were taken, and each pong is kept");
    // It reads again: the pongs come in order, the call is answered, and all goes on.
    let answering = async {
        let mut pongs = Vec::new();
        while pongs.len() < sent {
            if let Frame::Pong(pong) = server.next().await.unwrap().unwrap() {
                pongs.push(pong);
            }
        }
        assert!(pongs.is_sorted());
        server
            .send(Frame::text(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#))
            .await
            .unwrap();
    };
    let (answered, ()) = tokio::join!(answer.next(), answering);
    assert!(answered.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_pings_in_a_loop_is_read_no_faster_than_it_is_answered() {
    const PINGS: usize = 5_000;
    let metrics = moongate_telemetry::Metrics::new();
    let backlog = ByteBudget::new(64 * 1024, "a", &metrics);
    let (_link, server) = pair(WsSettings {
        backlog,
        ..settings()
    })
    .await;
    let began = Instant::now();
    let (mut sink, mut stream) = server.split();
    let pinging = tokio::spawn(async move {
        for _ in 0..PINGS {
            sink.send(Frame::Ping(Bytes::new())).await.unwrap();
        }
        sink
    });
    let mut pongs = 0;
    while pongs < PINGS {
        pongs += usize::from(matches!(
            stream.next().await.unwrap().unwrap(),
            Frame::Pong(_)
        ));
    }
    drop(pinging.await.unwrap());
    assert!(
        began.elapsed() >= Duration::from_millis(4_500),
        "{:?}",
        began.elapsed()
    );
    let counted = String::from_utf8(metrics.render()).unwrap();
    assert!(
        counted.contains("moongate_server_requests_total{mcp_server=\"a\",outcome=\"delayed\"}"),
        "{counted}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed() {
    let (link, server) = pair(settings()).await;
    let mut open = link.send(ask(1)).await.unwrap().messages;
    let reason = link.closed().await.to_string();
    assert!(reason.contains("not even an answer to a ping"), "{reason}");
    assert_eq!(open.next().await.unwrap().unwrap_err().to_string(), reason);
    drop(server);
}

#[tokio::test(start_paused = true)]
async fn pings_come_as_often_as_is_set_and_an_answer_is_due_in_time() {
    let ping = WebSocketPing {
        interval: Duration::from_secs(300),
        timeout: Duration::from_secs(5),
    };
    let (link, server) = pair(WsSettings { ping, ..settings() }).await;
    let began = Instant::now();
    let reason = link.closed().await.to_string();
    assert!(
        reason.contains("305s") && began.elapsed() < Duration::from_secs(306),
        "{reason}"
    );
    drop(server);
    let never = WebSocketPing {
        interval: Duration::ZERO,
        ..ping
    };
    let (link, mut server) = pair(WsSettings {
        ping: never,
        ..settings()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    assert!(link.closed().now_or_never().is_none());
    link.close(Vec::new()).await;
    assert!(
        !matches!(server.next().await, Some(Ok(Frame::Ping(_)))),
        "nobody was pinged"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_pings_is_there() {
    let (link, mut server) = pair(settings()).await;
    let pinged = tokio::spawn(async move {
        let mut pinged = 0;
        while let Some(Ok(frame)) = server.next().await {
            pinged += u32::from(matches!(frame, Frame::Ping(_)));
        }
        pinged
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(link.closed().now_or_never().is_none());
    link.close(Vec::new()).await;
    assert!(pinged.await.unwrap() >= 170);
}

#[tokio::test]
async fn closing_codes_are_explained() {
    for (code, reason, received) in [
        (
            1001,
            "bye",
            "closed the connection with code 1001 (it is going away): bye",
        ),
        (1008, "", "code 1008 (its policy forbids what was sent)"),
        (1012, "a\u{1b}b", "code 1012 (it is restarting): a b"),
        (4003, "go", "code 4003 (a private code): go"),
    ] {
        let (link, mut server) = pair(settings()).await;
        let mut open = link.send(ask(1)).await.unwrap().messages;
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: reason.into(),
        };
        server.send(Frame::Close(Some(frame))).await.unwrap();
        let error = open.next().await.unwrap().unwrap_err().to_string();
        assert!(error.ends_with(received), "{error}");
        assert_eq!(link.closed().await.to_string(), error);
        // The close frame is answered.
        while let Some(frame) = server.next().await {
            assert!(
                matches!(frame, Ok(Frame::Text(_) | Frame::Close(_))),
                "{frame:?}"
            );
        }
    }
    let (link, mut server) = pair(settings()).await;
    server.send(Frame::Close(None)).await.unwrap();
    assert!(link.closed().await.to_string().ends_with("gave no reason"));
    let (link, server) = pair(settings()).await;
    drop(server);
    let reason = link.closed().await.to_string();
    assert!(
        reason.contains("without closing handshake") || reason.contains("without a closing frame"),
        "{reason}"
    );
}

#[tokio::test]
async fn an_oversized_message_fails_open_calls_and_names_the_limit() {
    let (link, mut server) = pair(settings()).await;
    let mut open = link.send(ask(1)).await.unwrap().messages;
    server.send(Frame::text("x".repeat(1025))).await.unwrap();
    let error = open.next().await.unwrap().unwrap_err();
    assert!(
        matches!(error, LinkError::TooLarge { limit: 1024 }),
        "{error}"
    );
    assert!(link.send(ask(2)).await.is_err());
}

#[tokio::test]
async fn a_link_that_is_closed_says_goodbye() {
    let (link, mut server) = pair(settings()).await;
    let closing = tokio::spawn(async move { link.close(Vec::new()).await });
    let mut last = None;
    while let Some(Ok(frame)) = server.next().await {
        last = Some(frame);
    }
    assert!(matches!(last, Some(Frame::Close(_))), "{last:?}");
    closing.await.unwrap();
    let (link, mut server) = pair(settings()).await;
    drop(link);
    while let Some(Ok(_)) = server.next().await {}
}

async fn refused(answer: &str) -> LinkError {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let answering = async {
        let mut asked = [0; 4096];
        assert!(theirs.read(&mut asked).await.unwrap() > 0);
        theirs.write_all(answer.as_bytes()).await.unwrap();
        drop(theirs);
    };
    match tokio::join!(WsLink::handshake(ours, settings()), answering).0 {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_failed_handshake_is_explained() {
    for (answer, status, words) in [
        (
            "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
            401,
            "credentials",
        ),
        (
            "HTTP/1.1 302 Found\r\nlocation: wss://x.test/\r\n\r\n",
            302,
            "wss://x.test/",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            200,
            "does not speak WebSocket",
        ),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            404,
            "",
        ),
    ] {
        let error = refused(answer).await;
        let received = error.to_string();
        assert!(
            matches!(error, LinkError::Status { status: s, .. } if s == status),
            "{error:?}"
        );
        assert!(received.contains(words), "{received}");
    }
    let error = refused("SSH-2.0-OpenSSH_9.9\r\n").await;
    assert!(matches!(error, LinkError::Protocol(_)), "{error:?}");
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (link, _server) = tokio::join!(
        WsLink::handshake(ours, settings()),
        tokio_tungstenite::accept_async(theirs)
    );
    let Err(error) = link else {
        panic!("it was opened without the subprotocol")
    };
    assert!(
        matches!(&error, LinkError::Protocol(received) if received.contains("subprotocol \"mcp\"")),
        "{error:?}"
    );
}
