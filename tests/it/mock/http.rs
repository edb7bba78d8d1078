//! Over Streamable HTTP: sessions, headers, batches.

use moongate_mock::{MockHandle, MockScript, Revision};
use moongate_testing::HttpEndpoint;
use serde_json::json;

use crate::mock::fixtures::{
    ODD, answer, call, content, http, initialize, modern, read_events, request, session,
    start_legacy, text,
};

#[tokio::test]
async fn a_foreign_host_is_refused_on_loopback() {
    let server = http(MockScript::standard()).await;
    let web = HttpEndpoint::new(&server.url);
    let refused = web
        .send(
            "POST",
            &initialize("2025-11-25"),
            &[("host", "evil.example.com")],
        )
        .await
        .unwrap();
    assert_eq!(refused.status(), 403);
    let served = web
        .send(
            "POST",
            &initialize("2025-11-25"),
            &[("host", "localhost:1")],
        )
        .await
        .unwrap();
    assert_eq!(served.status(), 200);
}

#[tokio::test]
async fn every_legacy_revision_over_http() {
    for revision in Revision::LEGACY {
        let server = http(MockScript::standard().speaking(&[revision])).await;
        let web = session(&server.url, revision.date()).await;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1.50,"method":"tools/call","params":{{"name":"echo","arguments":{ODD}}}}}"#
        );
        let answer_text = text(web.post(&body).await).await;
        assert!(
            answer_text.starts_with(r#"{"jsonrpc":"2.0","id":1.50,"#),
            "{answer_text}"
        );
        assert_eq!(content(&serde_json::from_str(&answer_text).unwrap()), ODD);
        // A modern request: refused without anything modern in the body.
        let response = HttpEndpoint::new(&server.url)
            .post_modern(&modern(2, "tools/list", json!({}), json!({})))
            .await;
        assert_eq!(response.status(), 400);
        assert_eq!(answer(response).await["error"]["code"], -32000);
        let events = web.send("GET", "", &[]).await.unwrap();
        let mut events = read_events(events);
        answer(
            web.post(&request(
                3,
                "resources/subscribe",
                json!({"uri": "mock://watched"}),
            ))
            .await,
        )
        .await;
        assert_eq!(
            content(&answer(web.post(&call(4, "touch", json!({}))).await).await),
            "told 1"
        );
        assert_eq!(
            events.message().await.unwrap()["method"],
            "notifications/resources/updated"
        );
        assert_eq!(web.send("DELETE", "", &[]).await.unwrap().status(), 200);
        assert!(events.next_message().await.is_none());
        assert_eq!(web.post(&request(5, "ping", json!({}))).await.status(), 404);
        let counters = server.counters();
        assert_eq!(counters.sessions, 1);
        assert_eq!(counters.deleted, 1);
        assert_eq!(counters.of("tools/call"), 2);
        server.stop().await;
    }
}

#[tokio::test]
async fn batches_are_of_one_revision() {
    let batch = format!(
        "[{},{},{}]",
        call(1, "add", json!({"a": 1, "b": 2})),
        request(2, "ping", json!({})),
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#
    );
    let server = http(MockScript::standard()).await;
    let web = session(&server.url, "2025-03-26").await;
    let both = answer(web.post(&batch).await).await;
    assert_eq!(content(&both[0]), "3");
    assert_eq!(both[1]["id"], 2);
    assert_eq!(server.counters().of("notifications/roots/list_changed"), 1);
    let streamed = format!(
        "[{},{}]",
        call(1, "log", json!({"text": "x"})),
        request(2, "ping", json!({}))
    );
    let mut events = read_events(web.post(&streamed).await);
    let mut ids = Vec::new();
    while let Some(message) = events.message().await {
        ids.extend(message.get("id").cloned());
    }
    assert_eq!(ids.len(), 2);
    let web = session(&server.url, "2025-06-18").await;
    assert_eq!(web.post(&batch).await.status(), 400);

    let mut pipe = start_legacy("2025-03-26", &MockScript::standard()).await;
    assert_eq!(pipe.ask(&batch).await.as_array().unwrap().len(), 2);
}

const MODERN_VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

async fn modern_server() -> (MockHandle, HttpEndpoint) {
    let server = http(MockScript::standard().speaking(&[Revision::V2026_07_28])).await;
    let web = HttpEndpoint::new(&server.url);
    (server, web)
}

#[tokio::test]
async fn a_modern_server_gives_errors_of_requests_their_status() {
    let (_server, web) = modern_server().await;
    let bare = request(2, "tools/list", json!({}));
    let response = web
        .send(
            "POST",
            &bare,
            &[MODERN_VERSION, ("mcp-method", "tools/list")],
        )
        .await
        .unwrap();
    assert_eq!(response.status().as_u16(), 400);
    assert_eq!(answer(response).await["error"]["code"], -32602);
    let response = web
        .post_modern(&modern(3, "no/such", json!({}), json!({})))
        .await;
    assert_eq!(response.status().as_u16(), 404);
    assert_eq!(answer(response).await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_modern_server_needs_the_headers_of_parameters() {
    let (server, web) = modern_server().await;
    let region = modern(
        4,
        "tools/call",
        json!({"name": "region", "arguments": {"region": "eu"}}),
        json!({}),
    );
    assert_eq!(web.post_modern(&region).await.status(), 400);
    let headers = [
        MODERN_VERSION,
        ("mcp-method", "tools/call"),
        ("mcp-name", "region"),
        ("mcp-param-region", "eu"),
    ];
    assert_eq!(
        web.send("POST", &region, &headers).await.unwrap().status(),
        200
    );
    assert_eq!(
        server
            .last_request("tools/call")
            .unwrap()
            .header("Mcp-Param-Region"),
        Some("eu")
    );
}

#[tokio::test]
async fn a_modern_server_judges_headers() {
    let (_server, web) = modern_server().await;
    let body = modern(
        1,
        "tools/call",
        json!({"name": "echo", "arguments": {}}),
        json!({}),
    );
    type HeaderCase<'a> = (&'a str, &'a [(&'a str, &'a str)], i64);
    let refused: [HeaderCase<'_>; 5] = [
        (&body, &[], -32020),
        (
            &body,
            &[
                MODERN_VERSION,
                ("mcp-method", "tools/list"),
                ("mcp-name", "echo"),
            ],
            -32020,
        ),
        (
            &body,
            &[MODERN_VERSION, ("mcp-method", "tools/call")],
            -32020,
        ),
        (
            &body,
            &[
                MODERN_VERSION,
                ("mcp-method", "tools/call"),
                ("mcp-name", "other"),
            ],
            -32020,
        ),
        (
            &initialize("2025-11-25"),
            &[("mcp-protocol-version", "2025-11-25")],
            -32022,
        ),
    ];
    for (body, headers, code) in refused {
        let response = web.send("POST", body, headers).await.unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(answer(response).await["error"]["code"], code, "{headers:?}");
    }
    let encoded = [
        MODERN_VERSION,
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?ZWNobw==?="),
    ];
    assert_eq!(
        web.send("POST", &body, &encoded).await.unwrap().status(),
        200
    );
    for method in ["GET", "DELETE"] {
        assert_eq!(web.send(method, "", &[]).await.unwrap().status(), 405);
    }
    assert_eq!(
        web.send("POST", &body, &[("origin", "https://evil.example")])
            .await
            .unwrap()
            .status(),
        403
    );
}
