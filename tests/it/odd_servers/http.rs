//! HTTP as every HTTP client has it: codings, cookies, redirects, media types, errors with a
//! status.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::response::Response;
use serde_json::{Value, json};

use super::{Asked, ScriptedServer, error, json_response, legacy, legacy_answer, response};
use crate::harness::{Era, Setup, loopback};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Deflate as the standard has it, in the format of zlib.
fn deflate(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    // The text can be read before the end of the body, as servers of event streams have it.
    encoder.flush().unwrap();
    encoder.get_ref().clone()
}

/// Brotli of one block that is stored (RFC 7932, sections 9.1 and 9.2).
fn brotli(text: &str) -> Vec<u8> {
    let head = (u32::try_from(text.len() - 1).unwrap() << 4) | (1 << 20);
    [&head.to_le_bytes()[..3], text.as_bytes(), &[3]].concat()
}

fn compressed(kind: &str, coding: &str, body: Vec<u8>) -> Response {
    let response = Response::builder()
        .header("content-type", kind)
        .header("content-encoding", coding);
    response.body(body.into()).unwrap()
}

/// Connects a server, and returns what a call of its tool gives.
async fn echoed(server: &ScriptedServer) -> String {
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    gateway
        .client(Era::Legacy)
        .await
        .call("a__echo", json!({"a": 1}))
        .await
        .text()
}

#[tokio::test]
async fn compressed_answers_and_event_streams_are_read() {
    for is_stream in [false, true] {
        let server = ScriptedServer::start(move |asked| match legacy_answer(asked) {
            Value::Null => legacy(asked),
            _ if asked.message.is_null() => legacy(asked),
            answer if is_stream => compressed(
                "text/event-stream",
                "gzip",
                gzip(&format!("event: message\ndata: {answer}\n\n")),
            ),
            answer => compressed(
                "Application/JSON; Charset=UTF-8",
                "GZIP",
                gzip(&answer.to_string()),
            ),
        })
        .await;
        assert_eq!(echoed(&server).await, r#"{"a":1}"#);
        assert!(
            server
                .asked()
                .iter()
                .all(|asked| asked.header("accept-encoding") == "identity")
        );
    }
}

/// Encodes a text.
type Encoder = fn(&str) -> Vec<u8>;

#[tokio::test]
async fn an_event_is_read_before_its_compressed_stream_ends() {
    let codings: [(&str, Encoder); 2] = [("deflate", deflate), ("br", brotli)];
    for (coding, encode) in codings {
        let server = ScriptedServer::start(move |asked| match asked.method() {
            "tools/call" => {
                let event = encode(&format!("data: {}\n\n", legacy_answer(asked)));
                // Without the last block, and without an end.
                let open = event[..event.len() - usize::from(coding == "br")].to_vec();
                let first = futures_util::stream::once(async { Ok::<_, std::io::Error>(open) });
                let body = futures_util::StreamExt::chain(first, futures_util::stream::pending());
                let response = Response::builder().header("content-type", "text/event-stream");
                response
                    .header("content-encoding", coding)
                    .body(axum::body::Body::from_stream(body))
                    .unwrap()
            }
            _ => legacy(asked),
        })
        .await;
        assert_eq!(echoed(&server).await, r#"{"a":1}"#, "{coding}");
    }
}

#[tokio::test]
async fn an_unknown_coding_is_named() {
    let server = ScriptedServer::start(|asked| match asked.method() {
        "tools/call" => compressed("application/json", "zstd", b"x".to_vec()),
        _ => legacy(asked),
    })
    .await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let failure = gateway
        .client(Era::Legacy)
        .await
        .call("a__echo", json!({}))
        .await
        .failure();
    assert!(failure.contains("zstd"), "{failure}");
}

#[tokio::test]
async fn a_balancers_cookie_goes_back_to_its_server_and_to_nobody_else() {
    let needs_cookie = |asked: &Asked| match asked.method() {
        "initialize" => {
            let mut response = legacy(asked);
            let cookie = "route=1.node-7; Path=/; HttpOnly".parse().unwrap();
            response.headers_mut().insert("set-cookie", cookie);
            response
        }
        "tools/list" | "tools/call" if asked.header("cookie") != "route=1.node-7" => json_response(
            200,
            &error(
                asked,
                -32000,
                &format!("not here: {:?}", asked.header("cookie")),
            ),
        ),
        _ => legacy(asked),
    };
    let sticky = ScriptedServer::start(needs_cookie).await;
    let other = ScriptedServer::start(legacy).await;
    let gateway = Setup::new()
        .http("a", &sticky.url)
        .http("b", &other.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let client = gateway.client(Era::Legacy).await;
    assert_eq!(
        client.call("a__echo", json!({"a": 1})).await.text(),
        r#"{"a":1}"#
    );
    assert_eq!(
        client.call("b__echo", json!({"a": 1})).await.text(),
        r#"{"a":1}"#
    );
    assert!(
        other
            .asked()
            .iter()
            .all(|asked| asked.header("cookie").is_empty())
    );
}

#[tokio::test]
async fn redirects_are_followed_within_the_origin_and_nowhere_else() {
    for status in [307, 308] {
        let server = ScriptedServer::start(move |asked| match asked.path.as_str() {
            "/mcp" => {
                let response = Response::builder()
                    .status(status)
                    .header("location", "/mcp/");
                response.body(axum::body::Body::empty()).unwrap()
            }
            _ => legacy(asked),
        })
        .await;
        assert_eq!(echoed(&server).await, r#"{"a":1}"#);
    }
    let elsewhere = Arc::new(AtomicU64::new(0));
    let seen = elsewhere.clone();
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    let targets = [
        format!("http://{address}/mcp"),
        format!("//{address}/mcp"),
        "/mcp".to_owned(),
    ];
    for target in targets {
        let location = target.clone();
        let server = ScriptedServer::start(move |_| {
            let response = Response::builder()
                .status(307)
                .header("location", &location);
            response.body(axum::body::Body::empty()).unwrap()
        })
        .await;
        let gateway = Setup::new().http("a", &server.url).start().await;
        let status = gateway.state("a", "backing_off").await;
        assert!(
            status["reason"].as_str().unwrap().contains(&target),
            "{status}"
        );
    }
    assert_eq!(elsewhere.load(Ordering::Relaxed), 0, "nobody went there");
}

#[tokio::test]
async fn an_error_of_the_call_in_a_status_goes_to_the_caller_and_opens_no_breaker() {
    for status in [400, 418, 422, 500, 501] {
        let server = ScriptedServer::start(move |asked| match asked.method() {
            "tools/call" => json_response(status, &error(asked, -32602, "the city is unknown")),
            _ => legacy(asked),
        })
        .await;
        let gateway = Setup::new().http("a", &server.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        for _ in 0..12 {
            let reply = client
                .request("tools/call", json!({"name": "a__echo", "arguments": {}}))
                .await;
            assert_eq!(reply.error()["message"], "the city is unknown");
        }
        assert_eq!(gateway.status("a").await["state"], "ready", "{status}");
    }
    for status in [429, 503] {
        let server = ScriptedServer::start(move |asked| match asked.method() {
            "tools/call" => json_response(status, &error(asked, -32000, "come back tomorrow")),
            _ => legacy(asked),
        })
        .await;
        let gateway = Setup::new().http("a", &server.url).start().await;
        gateway.ready(&["a"]).await;
        let failure = gateway
            .client(Era::Legacy)
            .await
            .call("a__echo", json!({}))
            .await
            .failure();
        assert!(
            failure.contains("HTTP status") && failure.contains("come back tomorrow"),
            "{failure}"
        );
    }
}

#[tokio::test]
async fn a_404_advises_about_the_url_only_before_the_first_answer() {
    let nowhere = ScriptedServer::start(|_| response(404, "text/html", "<html>no</html>")).await;
    let lost = ScriptedServer::start(|asked| match asked.method() {
        "tools/call" => response(404, "text/html", "<html>no</html>"),
        _ => legacy(asked),
    })
    .await;
    let gateway = Setup::new()
        .http("nowhere", &nowhere.url)
        .http("lost", &lost.url)
        .start()
        .await;
    gateway.ready(&["lost"]).await;
    let status = gateway.state("nowhere", "backing_off").await;
    assert!(
        status["reason"]
            .as_str()
            .unwrap()
            .contains("is `url` complete"),
        "{status}"
    );
    let failure = gateway
        .client(Era::Legacy)
        .await
        .call("lost__echo", json!({}))
        .await
        .failure();
    assert!(
        failure.contains("404") && !failure.contains("is `url` complete"),
        "{failure}"
    );
}

#[tokio::test]
async fn an_error_of_a_status_is_read_as_leniently_as_others() {
    let refused = |asked: &Asked| {
        let start = format!(
            "\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":",
            asked.message["id"]
        );
        let body = [
            start.as_bytes(),
            b"{\"code\":-32050.0,\"message\":\"\xe9chec\"}}",
        ]
        .concat();
        response(400, "application/json", body)
    };
    let server = ScriptedServer::start(move |asked| match asked.method() {
        "tools/call" => refused(asked),
        _ => legacy(asked),
    })
    .await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    let error = client.call("a__echo", json!({})).await.error();
    assert_eq!(error["code"], -32050);
    assert_eq!(error["message"], "\u{fffd}chec");
}
