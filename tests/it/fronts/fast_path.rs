//! One connection of HTTP/1.1, by hand: whichever way a request takes, and however it is cut, it
//! means the same.

use moongate_telemetry::DroppedItem;
use std::time::Duration;

use moongate_access::auth::KeyHash;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Gateway, Setup, body_of, holds, legacy, modern_meta, only, within};

const ONE: &str = "key-number-1-0123456789";
const TWO: &str = "key-number-2-0123456789";

struct RawConnection {
    stream: TcpStream,
    authority: String,
    held: Vec<u8>,
}

/// An answer: its status, its head in lower case, and its body.
type RawAnswer = (u16, String, Vec<u8>);

impl RawConnection {
    async fn open(gateway: &Gateway) -> RawConnection {
        let authority = gateway.base.trim_start_matches("http://").to_owned();
        RawConnection {
            stream: TcpStream::connect(&authority).await.unwrap(),
            authority,
            held: Vec::new(),
        }
    }

    fn request(&self, id: u64, more: &str) -> String {
        let body = body_of(id, "tools/list", json!({"_meta": modern_meta()}));
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\ncontent-type: application/json\r\naccept: \
             application/json, text/event-stream\r\n\
             mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n{more}content-length: \
             {}\r\n\r\n{body}",
            self.authority,
            body.len()
        )
    }

    async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next answer, with its length or in chunks; `None`: the connection ended.
    async fn answer(&mut self) -> Option<RawAnswer> {
        within("an answer", async {
            let head = loop {
                if let Some(at) = self.held.windows(4).position(|four| four == b"\r\n\r\n") {
                    break String::from_utf8(self.held.drain(..at + 4).collect())
                        .unwrap()
                        .to_lowercase();
                }
                if self.stream.read_buf(&mut self.held).await.unwrap_or(0) == 0 {
                    assert!(
                        self.held.is_empty(),
                        "half an answer: {:?}",
                        String::from_utf8_lossy(&self.held)
                    );
                    return None;
                }
            };
            let length = head
                .split("content-length: ")
                .nth(1)
                .map(|rest| rest.lines().next().unwrap().parse().unwrap());
            let length: usize =
                length.unwrap_or_else(|| panic!("an answer without a length: {head}"));
            while self.held.len() < length {
                assert!(
                    self.stream.read_buf(&mut self.held).await.unwrap() > 0,
                    "half a body"
                );
            }
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            Some((status, head, self.held.drain(..length).collect()))
        })
        .await
    }

    async fn answered(&mut self, id: u64) {
        let (status, head, body) = self
            .answer()
            .await
            .expect("an answer, not the end of the connection");
        assert_eq!(status, 200, "{head}{}", String::from_utf8_lossy(&body));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["id"], id, "{body}");
        assert_eq!(body["result"]["tools"][0]["name"], "a__echo", "{body}");
        assert_eq!(head.matches("\r\ndate: ").count(), 1, "{head}");
    }
}

async fn gateway() -> Gateway {
    let gateway = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    gateway
}

#[tokio::test]
async fn a_request_means_the_same_wherever_it_is_cut() {
    let gateway = gateway().await;
    let mut plain = RawConnection::open(&gateway).await;
    let whole = plain.request(1, "");
    for cut in (0..whole.len()).step_by(7) {
        // The general server has the connection once a head came in parts.
        let mut fresh = RawConnection::open(&gateway).await;
        for raw in [&mut plain, &mut fresh] {
            raw.write(&whole[..cut]).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
            raw.write(&whole[cut..]).await;
            raw.answered(1).await;
        }
    }
    // Byte for byte.
    for byte in whole.chars() {
        plain.write(&byte.to_string()).await;
    }
    plain.answered(1).await;
    gateway.app.stop().await;
}

#[tokio::test]
async fn requests_in_a_row_are_answered_in_their_order() {
    let gateway = gateway().await;
    for more in ["", "connection: keep-alive\r\n"] {
        let mut raw = RawConnection::open(&gateway).await;
        let all: String = (0..40).map(|id| raw.request(id, more)).collect();
        raw.write(&all).await;
        for id in 0..40 {
            raw.answered(id).await;
        }
        // More at once than is read ahead of an answer.
        let all: String = (0..400)
            .map(|id| raw.request(id, "x-long: 0123456789012345678901234567890123456789\r\n"))
            .collect();
        let (mut reader, mut writer) = raw.stream.into_split();
        let writing =
            tokio::spawn(async move { writer.write_all(all.as_bytes()).await.map(|()| writer) });
        let mut text = Vec::new();
        let count = |text: &[u8]| {
            text.windows(12)
                .filter(|part| *part == b"HTTP/1.1 200")
                .count()
        };
        within("all answers", async {
            while count(&text) < 400 {
                assert!(
                    reader.read_buf(&mut text).await.unwrap() > 0,
                    "after {} answers",
                    count(&text)
                );
            }
        })
        .await;
        writing.await.unwrap().unwrap();
    }
    gateway.app.stop().await;
}

#[tokio::test]
async fn other_requests_fall_back_to_the_routes_on_the_same_connection() {
    let gateway = gateway().await;
    let chunked = |raw: &RawConnection| {
        let plain = raw.request(2, "");
        let (head, body) = plain.split_once("\r\n\r\n").unwrap();
        let head = head.replace(
            &format!("content-length: {}", body.len()),
            "transfer-encoding: chunked",
        );
        format!("{head}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
    };
    let mut raw = RawConnection::open(&gateway).await;
    raw.write(&raw.request(1, "")).await;
    raw.answered(1).await;
    raw.write(&chunked(&raw)).await;
    raw.answered(2).await;
    raw.write(&raw.request(3, "")).await;
    raw.answered(3).await;
    // Behind a plain one, in one write, and with the end that it asks for.
    let mut raw = RawConnection::open(&gateway).await;
    let both = raw.request(1, "") + &raw.request(2, "connection: close\r\n");
    raw.write(&both).await;
    raw.answered(1).await;
    raw.answered(2).await;
    assert!(raw.answer().await.is_none(), "it asked for the end");
    // Another path.
    let mut raw = RawConnection::open(&gateway).await;
    raw.write(&raw.request(1, "")).await;
    raw.answered(1).await;
    let authority = raw.authority.clone();
    raw.write(&format!(
        "GET /healthz HTTP/1.1\r\nhost: {authority}\r\n\r\n"
    ))
    .await;
    assert_eq!(raw.answer().await.unwrap().0, 200);
    gateway.app.stop().await;
}

#[tokio::test]
async fn ambiguous_requests_reach_no_server() {
    let gateway = gateway().await;
    let smuggled = |raw: &RawConnection| raw.request(7, "");
    for more in [
        "content-length: 1\r\n",
        "transfer-encoding: chunked\r\n",
        "transfer-encoding: identity\r\n",
    ] {
        let mut raw = RawConnection::open(&gateway).await;
        raw.write(&raw.request(1, "")).await;
        raw.answered(1).await;
        let text = raw.request(2, more) + &smuggled(&raw);
        raw.write(&text).await;
        let mut seen = 0;
        while let Some((status, head, body)) = raw.answer().await {
            seen += 1;
            let body = String::from_utf8_lossy(&body).into_owned();
            assert!(
                status == 400 || !body.contains("\"id\":7"),
                "{more:?}: {head}{body}"
            );
            if seen > 2 {
                break;
            }
        }
    }
    gateway.app.stop().await;
}

#[tokio::test]
async fn a_second_request_is_checked_like_the_first() {
    let key = |name: &str, key: &str| format!("name = \"{name}\"\nhash = \"{}\"", KeyHash::of(key));
    let setup = Setup::new().stdio("a", &only(legacy(), &["echo"]));
    let mut gateway = setup
        .with("auth.keys.1", &key("one", ONE))
        .with("auth.keys.2", &key("two", TWO))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let mut raw = RawConnection::open(&gateway).await;
    let auth = |key: &str| format!("authorization: Bearer {key}\r\n");
    for id in 0..3 {
        raw.write(&raw.request(id, &auth(ONE))).await;
        raw.answered(id).await;
    }
    for (more, status) in [
        (String::new(), 401),
        (auth("key-number-1-012345678X"), 401),
        (auth(&ONE[..ONE.len() - 1]), 401),
        (auth(TWO), 200),
        (format!("{}origin: http://evil.example\r\n", auth(ONE)), 403),
        (auth(ONE), 200),
    ] {
        raw.write(&raw.request(1, &more)).await;
        assert_eq!(raw.answer().await.unwrap().0, status, "{more}");
    }
    // A name of the host that is not ours, on a connection that had the right one.
    let mut raw = RawConnection::open(&gateway).await;
    for (authority, status) in [
        (raw.authority.clone(), 200),
        ("evil.example".to_owned(), 403),
    ] {
        raw.authority = authority;
        raw.write(&raw.request(1, &auth(ONE))).await;
        assert_eq!(raw.answer().await.unwrap().0, status);
    }
    // A key that is no longer one opens nothing, also where it did a moment ago.
    let mut raw = RawConnection::open(&gateway).await;
    raw.write(&raw.request(1, &auth(ONE))).await;
    raw.answered(1).await;
    let other = key("one", "key-number-3-0123456789");
    gateway
        .change(|setup| setup.without("auth.keys.1").with("auth.keys.1", &other))
        .await;
    raw.write(&raw.request(2, &auth(ONE))).await;
    assert_eq!(raw.answer().await.unwrap().0, 401);
    raw.write(&raw.request(3, &auth(TWO))).await;
    raw.answered(3).await;
    gateway.app.stop().await;
}

#[tokio::test]
async fn silent_and_half_sent_connections_are_closed() {
    let setup = Setup::new()
        .with("limits", "read_timeout = \"300ms\"")
        .stdio("a", &only(legacy(), &["echo"]));
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let plain = RawConnection::open(&gateway).await.request(1, "");
    for begun in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n",
        "POST /mcp",
        &plain[..plain.len() - 1],
    ] {
        let mut raw = RawConnection::open(&gateway).await;
        raw.write(begun).await;
        let mut rest = Vec::new();
        let ended = within(
            &format!("the end after {begun:?}"),
            raw.stream.read_to_end(&mut rest),
        )
        .await;
        let rest = String::from_utf8(rest).unwrap();
        if begun.contains("\r\n\r\n") {
            assert!(
                rest.starts_with("HTTP/1.1 400 ") && rest.contains("limits.read_timeout"),
                "{rest}"
            );
        } else {
            assert!(
                ended.is_err() || rest.is_empty() || rest.starts_with("HTTP/1.1 4"),
                "{begun:?}: {rest:?}"
            );
        }
    }
    // Nor after a request.
    let mut raw = RawConnection::open(&gateway).await;
    raw.write(&plain).await;
    raw.answered(1).await;
    assert!(raw.answer().await.is_none());
    gateway.app.stop().await;
}

/// However long a connection was quiet before, a body has the whole time for itself.
#[tokio::test]
async fn a_body_has_its_own_timeout() {
    const LIMIT: Duration = Duration::from_millis(900);
    let setup = Setup::new().stdio("a", &only(legacy(), &["echo"]));
    let gateway = setup
        .with(
            "limits",
            &format!("read_timeout = \"{}ms\"", LIMIT.as_millis()),
        )
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for _ in 0..20 {
        let mut raw = RawConnection::open(&gateway).await;
        let request = raw.request(1, "");
        let (head, body) = request.split_at(request.len() - 20);
        let opened = tokio::time::Instant::now();
        tokio::time::sleep(LIMIT * 7 / 10).await;
        let begun = tokio::time::Instant::now();
        raw.write(head).await;
        tokio::time::sleep(LIMIT * 6 / 10).await;
        raw.write(body).await;
        // A machine that is busy may have taken longer than it was told to.
        if begun - opened < LIMIT * 8 / 10 && begun.elapsed() < LIMIT * 8 / 10 {
            raw.answered(1).await;
            gateway.app.stop().await;
            return;
        }
    }
    panic!("the machine is too busy to tell");
}

/// Whichever way its request took, an answer that is not read does not keep its connection.
#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let setup = Setup::new()
        .stdio("a", &legacy())
        .with("limits", "write_timeout = \"200ms\"");
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let connections = || gateway.app.metrics.clients.connections.get();
    let before = connections();
    let mut unread = 0;
    let params =
        json!({"name": "a__big", "arguments": {"bytes": 12 << 20}, "_meta": modern_meta()});
    let body = body_of(1, "tools/call", params);
    for more in ["", "expect: 100-continue\r\n"] {
        let mut raw = RawConnection::open(&gateway).await;
        let head = raw
            .request(1, more)
            .replace("tools/list", "tools/call")
            .replace("mcp-method", "mcp-name: a__big\r\nmcp-method");
        let (head, _) = head.split_once("content-length").unwrap();
        raw.write(&format!(
            "{head}content-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
        // It begins to come.
        within("an answer", raw.stream.readable()).await.unwrap();
        holds("it is let go", || connections() == before).await;
        let mut rest = Vec::new();
        let _ = within("the end", raw.stream.read_to_end(&mut rest)).await;
        assert!(rest.len() < 12 << 20, "it is not whole");
        unread += 1;
        assert_eq!(
            gateway
                .app
                .metrics
                .calls
                .dropped
                .get(DroppedItem::UnreadResponse),
            unread
        );
    }
    gateway.app.stop().await;
}

/// Who is in the middle of a request when the gateway stops may end it.
#[tokio::test]
async fn a_request_that_has_begun_is_answered_in_a_stop() {
    let gateway = gateway().await;
    let mut raw = RawConnection::open(&gateway).await;
    let request = raw.request(1, "");
    let (head, body) = request.split_at(request.len() - 20);
    raw.write(head).await;
    let mut quiet = RawConnection::open(&gateway).await;
    let stopping = tokio::spawn(async move { gateway.app.stop().await });
    assert!(
        quiet.answer().await.is_none(),
        "who has not begun is let go"
    );
    raw.write(body).await;
    let (status, head, _) = raw.answer().await.expect("an answer");
    assert!(
        status == 200 && head.contains("\r\nconnection: close\r\n"),
        "{head}"
    );
    assert!(raw.answer().await.is_none(), "and then it ends");
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_request_with_two_hosts_is_refused() {
    let gateway = gateway().await;
    for more in [
        "host: localhost\r\n",
        "origin: http://localhost\r\nhost: localhost\r\n",
    ] {
        let mut raw = RawConnection::open(&gateway).await;
        raw.write(&raw.request(1, more)).await;
        let (status, _, body) = raw.answer().await.expect("an answer");
        assert_eq!(status, 400, "{}", String::from_utf8_lossy(&body));
    }
    gateway.app.stop().await;
}

/// Whichever way a request takes, and wherever its head is cut.
#[tokio::test]
async fn a_head_is_no_larger_than_its_limit() {
    let gateway = gateway().await;
    for (size, whole) in [
        (80_000, true),
        (80_000, false),
        (66_000, true),
        (126_000, false),
    ] {
        for first in [false, true] {
            let mut raw = RawConnection::open(&gateway).await;
            if first {
                raw.write(&raw.request(1, "")).await;
                raw.answered(1).await;
            }
            let request = raw.request(2, &format!("x-large: {}\r\n", "x".repeat(size)));
            let (one, two) = request.split_at(if whole { request.len() } else { 60_000 });
            raw.write(one).await;
            if !whole {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let _ = raw.stream.write_all(two.as_bytes()).await;
            let (status, head, body) = raw.answer().await.expect("a refusal");
            assert_eq!(status, 431, "{head}{}", String::from_utf8_lossy(&body));
        }
    }
    // Just below it, it passes.
    let mut raw = RawConnection::open(&gateway).await;
    raw.write(&raw.request(3, &format!("x-large: {}\r\n", "x".repeat(60_000))))
        .await;
    raw.answered(3).await;
    gateway.app.stop().await;
}

/// A call that hangs, with another request behind it, ends with the connection.
#[tokio::test]
async fn a_disconnect_with_pipelined_requests_is_noticed() {
    let setup = Setup::new()
        .stdio("s", &legacy())
        .with("gateway", "keep_alive = \"1h\"");
    let gateway = setup.start().await;
    gateway.ready(&["s"]).await;
    let params = json!({"name": "s__hang", "arguments": {}, "_meta": modern_meta()});
    let body = body_of(1, "tools/call", params);
    // The short way, and the general one.
    for more in ["", "expect: 100-continue\r\n"] {
        for behind in [1, 20] {
            let mut raw = RawConnection::open(&gateway).await;
            let head = raw.request(1, more).replace(
                "mcp-method: tools/list",
                "mcp-name: s__hang\r\nmcp-method: tools/call",
            );
            let (head, _) = head.split_once("content-length").unwrap();
            let hang = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            raw.write(&hang).await;
            holds("it hangs", || gateway.app.metrics.calls.inflight.get() == 1).await;
            for id in 0..behind {
                raw.write(&raw.request(id, "")).await;
            }
            drop(raw);
            holds("its call ends", || {
                gateway.app.metrics.calls.inflight.get() == 0
            })
            .await;
            holds("and its connection", || {
                gateway.app.metrics.clients.connections.get() <= 1
            })
            .await;
        }
    }
    gateway.app.stop().await;
}
