//! Pages of other origins in a browser on the operator's machine: whatever they load or send is
//! refused, and changes nothing.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{EditedGateway, HttpClient, Setup, within};

/// Sends a request as these bytes, and returns the head of the response.
async fn raw(edited: &EditedGateway, head: &str) -> String {
    let url = edited.gateway.admin_url().await;
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap())
        .await
        .unwrap();
    stream
        .write_all(head.replace('\n', "\r\n").as_bytes())
        .await
        .unwrap();
    let mut response = [0; 4096];
    let length = within("a response", stream.read(&mut response))
        .await
        .unwrap();
    String::from_utf8_lossy(&response[..length]).into_owned()
}

/// Loads that a page can begin without script or preflight, as Chromium and Firefox label them:
/// what loads, and its headers. Pages of another port of this machine are of the same site.
const LOADS: [(&str, &[(&str, &str)]); 8] = [
    (
        "an image",
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-fetch-dest", "image"),
        ],
    ),
    (
        "an image of another port",
        &[("sec-fetch-site", "same-site"), ("sec-fetch-dest", "image")],
    ),
    (
        "a script",
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-fetch-dest", "script"),
        ],
    ),
    (
        "a frame",
        &[
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ],
    ),
    (
        "an EventSource",
        &[
            ("accept", "text/event-stream"),
            ("origin", "https://evil.example"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "cors"),
        ],
    ),
    (
        "an EventSource of another port",
        &[
            ("origin", "http://localhost:3000"),
            ("sec-fetch-site", "same-site"),
        ],
    ),
    (
        "an opaque origin",
        &[("origin", "null"), ("sec-fetch-site", "cross-site")],
    ),
    (
        "a rebinding host",
        &[
            ("host", "evil.example:9090"),
            ("sec-fetch-site", "same-origin"),
        ],
    ),
];

#[tokio::test]
async fn what_another_page_loads_is_refused_and_shows_it_nothing() {
    let (_server, edited) = EditedGateway::with_echo().await;
    let before = edited.text();
    let description = edited.get("/openapi.json").await;
    let reads: Vec<String> = description["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, operations)| operations.get("get").is_some())
        .map(|(path, _)| path.replace("{name}", "a").replace("{id}", "none"))
        .collect();
    assert!(
        reads.len() > 12 && reads.iter().any(|path| path == "/api/v1/events"),
        "{reads:?}"
    );
    for (load, headers) in LOADS {
        for path in &reads {
            let url = format!("{}{path}", edited.gateway.admin_url().await);
            let reply = HttpClient::new().send("GET", &url, headers, "").await;
            assert_eq!(reply.status, 403, "{load}: {path}: {}", reply.text_body());
            assert!(
                reply.headers.get("access-control-allow-origin").is_none(),
                "{load}: {path}"
            );
            assert_eq!(
                reply.header("x-content-type-options"),
                "nosniff",
                "{load}: {path}"
            );
            assert_eq!(reply.header("referrer-policy"), "no-referrer");
            assert_eq!(reply.header("cache-control"), "no-store");
            assert_eq!(
                reply.header("cross-origin-resource-policy"),
                "same-origin",
                "{load}: {path}"
            );
        }
    }
    assert_eq!(edited.text(), before);
}

#[tokio::test]
async fn a_web_socket_of_another_page_is_not_opened() {
    let edited = EditedGateway::start(Setup::new()).await;
    for (origin, site) in [
        ("https://evil.example", "cross-site"),
        ("http://localhost:3000", "same-site"),
    ] {
        for path in ["/api/v1/events", "/api/v1/try", "/api/v1/status", "/"] {
            let head = format!(
                "GET {path} HTTP/1.1\nHost: 127.0.0.1\nOrigin: {origin}\nSec-Fetch-Site: \
                 {site}\nConnection: Upgrade\n\
                 Upgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: \
                 dGhlIHNhbXBsZSBub25jZQ==\n\n"
            );
            let response = raw(&edited, &head).await;
            assert!(
                response.starts_with("HTTP/1.1 403"),
                "{origin} {path}: {response}"
            );
        }
    }
    // Not for our own page either, because it has no WebSocket.
    let head = "GET /api/v1/status HTTP/1.1\nHost: 127.0.0.1\nConnection: Upgrade\nUpgrade: \
                websocket\n\
                Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n";
    assert!(!raw(&edited, head).await.contains(" 101 "));
}

/// All that a page may send without asking: forms, beacons, and fetch in the mode no-cors.
const WAYS: [(&str, &[(&str, &str)]); 6] = [
    (
        "a form",
        &[
            ("content-type", "application/x-www-form-urlencoded"),
            ("origin", "https://evil.example"),
        ],
    ),
    (
        "a form with files",
        &[
            ("content-type", "multipart/form-data; boundary=x"),
            ("sec-fetch-site", "cross-site"),
        ],
    ),
    (
        "a form of plain text",
        &[
            ("content-type", "text/plain"),
            ("sec-fetch-site", "same-site"),
        ],
    ),
    (
        "a beacon",
        &[
            ("content-type", "text/plain;charset=UTF-8"),
            ("origin", "null"),
        ],
    ),
    (
        "fetch in the mode no-cors",
        &[
            ("content-type", "text/plain"),
            ("sec-fetch-mode", "no-cors"),
        ],
    ),
    (
        "fetch of a rebinding host",
        &[
            ("content-type", "application/json"),
            ("host", "evil.example"),
        ],
    ),
];

#[tokio::test]
async fn what_another_page_sends_changes_nothing() {
    let (server, edited) = EditedGateway::with_echo().await;
    assert_eq!(
        edited
            .patch("a", json!({ "set": { "title": "x" } }))
            .await
            .status,
        200
    );
    let before = edited.text();
    let keys = edited.get("/keys").await;
    let bodies = [
        ("/keys", json!({ "name": "evil" })),
        (
            "/servers",
            json!({ "servers": { "evil": { "url": server.url } } }),
        ),
        (
            "/servers/preview",
            json!({ "url": server.url, "probe": true }),
        ),
        ("/config/undo", json!({})),
        ("/servers/a/login", json!({ "confirmed": true })),
        ("/servers/a/logout", json!({})),
        (
            "/try",
            json!({ "server": "a", "tool": "echo", "arguments": {} }),
        ),
    ];
    server.reset_record();
    for (way, headers) in WAYS {
        for (path, body) in &bodies {
            let url = format!("{}/api/v1{path}", edited.gateway.admin_url().await);
            let reply = HttpClient::new()
                .send("POST", &url, headers, body.to_string())
                .await;
            assert!(
                matches!(reply.status, 403 | 415),
                "{way}: {path}: {}",
                reply.status
            );
        }
        // A link or an image can only read. No action answers to that.
        for path in [
            "/config/undo",
            "/reload",
            "/servers/a/restart",
            "/servers/a/login",
            "/servers/a/logout",
            "/try",
            "/servers/preview",
        ] {
            let status = edited.gateway.admin(&format!("/api/v1{path}")).await.status;
            assert!(matches!(status, 404 | 405), "GET {path}: {status}");
        }
    }
    assert_eq!(edited.text(), before);
    assert_eq!(edited.get("/keys").await, keys);
    let calls = edited.get("/calls").await;
    assert_eq!(calls["calls"], Value::Array(Vec::new()));
    let is_call =
        |request: &moongate_mock::RecordedRequest| format!("{request:?}").contains("tools/call");
    assert!(!server.recorded_requests().iter().any(is_call));
}
