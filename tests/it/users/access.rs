//! Getting in, or not: complaints 4, 10, 22.

mod admin;

use moongate::app::ReloadOutcome;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Era, HttpClient, HttpReply, McpClient, Setup, body_of, legacy, only, serve};

const KEY: &str = "key-number-1-0123456789";

/// Where clients look for OAuth before they try the key that they were given.
const PROBED: [&str; 12] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-protected-resource/mcp/a",
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-authorization-server/mcp",
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/mcp",
    "/mcp/.well-known/oauth-authorization-server",
    "/mcp/.well-known/openid-configuration",
    "/register",
    "/authorize",
    "/token",
];

#[tokio::test]
async fn oauth_discovery_is_a_404_without_oauth() {
    for keys in [false, true] {
        let setup = Setup::new();
        let setup = if keys {
            setup.with("auth.keys.1", &format!("name = \"one\"\nkey = {KEY:?}"))
        } else {
            setup
        };
        let gateway = setup.start().await;
        let http = HttpClient::new();
        for path in PROBED {
            for verb in ["GET", "POST", "OPTIONS"] {
                let reply = http.send(verb, &gateway.url(path), &[], "").await;
                assert_eq!(reply.status, 404, "{verb} {path}");
                assert!(
                    reply.header("content-type").starts_with("application/json"),
                    "{verb} {path}"
                );
                assert!(reply.json()["error"].is_string(), "{verb} {path}");
                assert!(
                    !reply.headers.contains_key("www-authenticate"),
                    "{verb} {path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_missing_or_wrong_key_is_a_401_that_points_nowhere() {
    let gateway = Setup::new()
        .with("auth.keys.1", &format!("name = \"one\"\nkey = {KEY:?}"))
        .start()
        .await;
    let http = HttpClient::new();
    let mut bodies = Vec::new();
    for path in ["/mcp", "/mcp/", "/mcp/nothing"] {
        for verb in ["POST", "GET", "DELETE"] {
            for (sent, challenge) in [
                (None, "Bearer realm=\"moongate\""),
                (
                    Some("Bearer wrong"),
                    "Bearer realm=\"moongate\", error=\"invalid_token\"",
                ),
                (
                    Some("Bearer "),
                    "Bearer realm=\"moongate\", error=\"invalid_token\"",
                ),
            ] {
                let headers: Vec<(&str, &str)> =
                    sent.iter().map(|value| ("authorization", *value)).collect();
                let reply = http.send(verb, &gateway.url(path), &headers, "").await;
                assert_eq!(reply.status, 401, "{verb} {path} {sent:?}");
                if sent != Some("Bearer ") {
                    assert_eq!(
                        reply.header("www-authenticate"),
                        challenge,
                        "{verb} {path} {sent:?}"
                    );
                }
                assert!(
                    !reply
                        .header("www-authenticate")
                        .contains("resource_metadata")
                );
                let body = reply.json();
                let message = body["message"].as_str().unwrap();
                assert!(
                    message.starts_with("A valid API key is needed: "),
                    "{message}"
                );
                // Readable by clients that know JSON-RPC alone.
                let error =
                    json!({"code": -32001, "message": message, "data": {"error": "unauthorized"}});
                assert_eq!(body["jsonrpc"], "2.0");
                assert_eq!(body["id"], Value::Null);
                assert_eq!(body["error"], error);
                bodies.push(reply.body);
            }
        }
    }
    assert!(
        bodies.iter().all(|body| *body == bodies[0]),
        "the refusals differ"
    );
    let client = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(KEY)).await;
    assert!(client.tools().await.is_empty());
}

#[tokio::test]
async fn a_view_that_a_key_may_not_use_looks_as_if_there_were_none() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("views.mine", "")
        .with("views.theirs", "")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = {KEY:?}\nviews = [\"mine\"]"),
        )
        .start()
        .await;
    let ask = async |path: &str| {
        let client = McpClient {
            url: gateway.url(path),
            ..McpClient::with_key(&gateway.url("/x"), Era::Modern, Some(KEY)).await
        };
        let reply: HttpReply = client.request_as(1, "tools/list", json!({})).await;
        (reply.status, reply.body)
    };
    let unknown = ask("/mcp/no-such-thing").await;
    assert_eq!(unknown.0, 404);
    assert_eq!(ask("/mcp/mine").await.0, 200);
    for path in ["/mcp/theirs", "/mcp/a"] {
        assert_eq!(ask(path).await, unknown, "{path}");
    }
}

#[tokio::test]
async fn the_mcp_endpoint_shows_everything_that_a_key_may_see() {
    let mock = serve(only(legacy(), &["echo", "add"])).await;
    let key = |name: &str, views: &str| {
        format!("name = {name:?}\nkey = \"{name}-0123456789abcdef\"\n{views}")
    };
    let mut gateway = Setup::new()
        .http("a", &mock.url)
        .http("b", &mock.url)
        .http("c", &mock.url)
        .with("views.v", "servers = [\"b\"]\ntools = [\"b__echo\"]")
        .with("auth.keys.1", &key("some", "views = [\"a\", \"v\"]"))
        .with("auth.keys.2", &key("none", "views = []"))
        .with("auth.keys.3", &key("all", "tools = [\"*\"]"))
        .start()
        .await;
    gateway.ready(&["a", "b", "c"]).await;
    let url = gateway.url("/mcp");
    let some = McpClient::with_key(&url, Era::Modern, Some("some-0123456789abcdef")).await;
    let old = McpClient::with_key(&url, Era::Legacy, Some("some-0123456789abcdef")).await;
    for client in [&some, &old] {
        assert_eq!(client.tools().await, ["a__add", "a__echo", "b__echo"]);
        assert!(client.call("a__add", json!({"a": 1, "b": 2})).await.json()["error"].is_null());
        assert!(client.call("b__echo", json!({"text": "x"})).await.json()["error"].is_null());
        // What it may not use looks like what does not exist.
        for name in ["b__add", "c__echo"] {
            let refused = client.call(name, json!({})).await.json()["error"].to_string();
            let unknown = client.call("b__nothing", json!({})).await.json()["error"].to_string();
            assert_eq!(refused.replace(name, "b__nothing"), unknown);
        }
    }
    let all = McpClient::with_key(&url, Era::Modern, Some("all-0123456789abcdef")).await;
    assert_eq!(all.tools().await.len(), 6);
    let none = McpClient::with_key(&url, Era::Modern, Some("none-0123456789abcdef")).await;
    assert!(none.tools().await.is_empty());
    // The session goes on with what its key may see now.
    let change = |setup: Setup| setup.with("auth.keys.1", "views = [\"v\"]\ntools = [\"*\"]");
    assert!(matches!(
        gateway.change(change).await,
        ReloadOutcome::Applied(_)
    ));
    for client in [&some, &old] {
        assert_eq!(client.tools().await, ["b__echo"]);
    }
}

/// POSTs `initialize` under a Host and an Origin.
async fn under(url: &str, host: Option<&str>, origin: Option<&str>) -> HttpReply {
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    headers.extend(host.map(|host| ("host", host)));
    headers.extend(origin.map(|origin| ("origin", origin)));
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    HttpClient::new()
        .send("POST", url, &headers, body_of(1, "initialize", params))
        .await
}

#[tokio::test]
async fn hosts_are_allowed_by_the_config_and_the_refusal_says_how() {
    let gateway = Setup::new()
        .with(
            "gateway",
            "allowed_hosts = [\"gateway\", \"*.internal.test\"]\npublic_url \
                          = \"https://mcp.example.com\"",
        )
        .start()
        .await;
    let url = gateway.url("/mcp");
    for host in [
        "gateway:8080",
        "GATEWAY",
        "a.b.internal.test",
        "mcp.example.com",
        "mcp.example.com:443",
    ] {
        assert_eq!(under(&url, Some(host), None).await.status, 200, "{host}");
    }
    let refused = under(&url, Some("other:8080"), None).await;
    assert_eq!(refused.status, 403);
    let body: Value = refused.json();
    let message = body["message"].as_str().unwrap();
    assert!(
        message.contains("other:8080") && message.contains("gateway.allowed_hosts"),
        "{message}"
    );
    // Probes and scrapes come under any name.
    let admin = format!("http://{}", gateway.app.admin.unwrap());
    for path in ["/metrics", "/healthz", "/readyz"] {
        let reply = HttpClient::new()
            .send(
                "GET",
                &format!("{admin}{path}"),
                &[("host", "10-0-0-7.pod.test")],
                "",
            )
            .await;
        assert_eq!(reply.status, 200, "{path}");
    }
}

#[tokio::test]
async fn pages_of_others_and_rebound_names_are_refused() {
    let gateway = Setup::new()
        .with("gateway", "allowed_origins = [\"https://app.example.com\"]")
        .start()
        .await;
    let url = gateway.url("/mcp");
    let port = gateway.app.addresses[0].port();
    for host in [
        "evil.test",
        "localhost.evil.test",
        "127.0.0.1.evil.test",
        "evil.test:80",
    ] {
        assert_eq!(
            under(&url, Some(host), None).await.status,
            403,
            "Host: {host}"
        );
    }
    for origin in [
        "https://evil.test",
        "null",
        "https://app.example.com.evil.test",
        "http://app.example.com",
        "file://",
    ] {
        let reply = under(&url, None, Some(origin)).await;
        assert_eq!(reply.status, 403, "Origin: {origin}");
        assert!(
            reply.json()["message"]
                .as_str()
                .unwrap()
                .contains("gateway.allowed_origins")
        );
        assert!(!reply.headers.contains_key("access-control-allow-origin"));
    }
    for host in [
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        format!("127.0.0.1:{port}"),
        "localhost".into(),
    ] {
        assert_eq!(
            under(&url, Some(&host), None).await.status,
            200,
            "Host: {host}"
        );
    }
    let allowed = under(&url, None, Some("https://app.example.com")).await;
    assert_eq!(allowed.status, 200);
    assert_eq!(
        allowed.header("access-control-allow-origin"),
        "https://app.example.com"
    );
    assert!(
        allowed
            .header("access-control-expose-headers")
            .contains("mcp-session-id")
    );
    // The status of the servers is behind the same door.
    let status = format!("http://{}/api/v1/status", gateway.app.admin.unwrap());
    for headers in [[("host", "evil.test")], [("origin", "https://evil.test")]] {
        assert_eq!(
            HttpClient::new()
                .send("GET", &status, &headers, "")
                .await
                .status,
            403
        );
    }
}

/// One request to an address, as it is written; gives the status.
async fn by_hand(address: std::net::SocketAddr, head: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{head}connection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    crate::harness::within("an answer", stream.read_to_string(&mut answer))
        .await
        .unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn an_endpoint_has_one_path() {
    let gateway = Setup::new().with("views.mine", "").start().await;
    let address = gateway.app.addresses[0];
    let post =
        |path: &str| format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n");
    for path in [
        "/mcp//",
        "/mcp///",
        "//mcp",
        "/mcp//mine",
        "/mcp/mine//",
        "/sse//",
        "/mcp/.",
        "/mcp/%2f",
    ] {
        let (status, answer) = by_hand(address, &post(path)).await;
        assert_eq!(status, 404, "{path}: {answer}");
    }
    for path in ["/mcp", "/mcp/", "/mcp/mine", "/mcp/mine/"] {
        assert_eq!(
            by_hand(address, &post(path)).await.0,
            400,
            "{path}: there, and no message"
        );
    }
}
