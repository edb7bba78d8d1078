//! Getting in, or not: complaints 4, 10, 22.

use moongate::app::ReloadOutcome;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{
    Era, Gateway, HttpClient, HttpReply, McpClient, Setup, body_of, legacy, only, serve,
};

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
                assert_eq!(
                    (&body["jsonrpc"], &body["id"], &body["error"]),
                    (&json!("2.0"), &Value::Null, &error)
                );
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

/// A page of the admin listener and its answer, with a key or without.
async fn page(gateway: &Gateway, method: &str, path: &str, key: Option<&str>) -> HttpReply {
    let bearer = key.map(|key| format!("Bearer {key}"));
    let headers: Vec<(&str, &str)> = bearer
        .iter()
        .map(|bearer| ("authorization", bearer.as_str()))
        .collect();
    let port = gateway.app.admin.unwrap().port();
    HttpClient::new()
        .send(
            method,
            &format!("http://127.0.0.1:{port}{path}"),
            &headers,
            "",
        )
        .await
}

/// All that the admin listener has beside probes and metrics, and a path that is not there.
const PAGES: [(&str, &str); 5] = [
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/plan"),
    ("POST", "/api/v1/reload"),
    ("POST", "/api/v1/servers/a/restart"),
    ("GET", "/"),
];

#[tokio::test]
async fn an_admin_listener_beyond_loopback_answers_only_probes_and_metrics_without_keys() {
    let gateway = Setup::new()
        .with("gateway", "admin = \"0.0.0.0:0\"")
        .start()
        .await;
    for path in ["/healthz", "/livez", "/readyz", "/metrics"] {
        assert_eq!(
            page(&gateway, "GET", path, None).await.status,
            200,
            "{path}"
        );
    }
    for (method, path) in PAGES {
        let reply = page(&gateway, method, path, Some("mg_whatever")).await;
        assert_eq!(reply.status, 401, "{method} {path}");
        assert!(
            reply.json()["message"]
                .as_str()
                .unwrap()
                .contains("admin.keys"),
            "{path}"
        );
        assert!(reply.header("www-authenticate").starts_with("Bearer"));
    }
    assert_eq!(
        gateway
            .metric("moongate_policy_denied_total{rule=\"admin_key\"}")
            .await,
        Some(PAGES.len() as f64)
    );
}

/// Two operators: `viewer-key-0123456789` and `operator-key-0123456789`.
fn with_operators(setup: Setup) -> Setup {
    setup
        .with(
            "admin.keys.1",
            "name = \"v\"\nkey = \"viewer-key-0123456789\"\nrole = \"view\"",
        )
        .with(
            "admin.keys.2",
            "name = \"o\"\nkey = \"operator-key-0123456789\"\nrole = \"operate\"",
        )
}

#[tokio::test]
async fn admin_keys_open_what_their_role_says_on_every_listener() {
    for address in ["127.0.0.1:0", "0.0.0.0:0"] {
        let setup = Setup::new().with("gateway", &format!("admin = {address:?}"));
        let setup = setup.with(
            "auth.keys.1",
            "name = \"client\"\nkey = \"client-key-0123456789\"",
        );
        let gateway = with_operators(setup).start().await;
        for path in ["/healthz", "/livez", "/readyz", "/metrics"] {
            assert_eq!(
                page(&gateway, "GET", path, None).await.status,
                200,
                "{path}"
            );
        }
        for (method, path) in PAGES {
            // Neither listener takes the other's keys.
            for key in [
                None,
                Some("wrong-key-0123456789"),
                Some("client-key-0123456789"),
            ] {
                assert_eq!(
                    page(&gateway, method, path, key).await.status,
                    401,
                    "{address} {path} {key:?}"
                );
            }
        }
        let viewer = Some("viewer-key-0123456789");
        let operator = Some("operator-key-0123456789");
        for key in [viewer, operator] {
            assert_eq!(
                page(&gateway, "GET", "/api/v1/status", key).await.status,
                200
            );
        }
        // There is no config to read again: what matters is who may ask for it.
        for path in ["/api/v1/reload", "/api/v1/servers/a/restart"] {
            let refused = page(&gateway, "POST", path, viewer).await;
            assert_eq!(
                (refused.status, &refused.json()["error"]),
                (403, &json!("role_not_allowed")),
                "{path}"
            );
            assert!(
                ![401, 403].contains(&page(&gateway, "POST", path, operator).await.status),
                "{path}"
            );
        }
        assert_ne!(
            page(&gateway, "GET", "/api/v1/plan", viewer).await.status,
            403
        );
        // A key counts through a proxy, too; a page of another site has none of its own.
        let url = format!(
            "http://127.0.0.1:{}/api/v1/reload",
            gateway.app.admin.unwrap().port()
        );
        let key = ("authorization", "Bearer operator-key-0123456789");
        let proxied = HttpClient::new()
            .send("POST", &url, &[key, ("x-forwarded-for", "10.0.0.7")], "")
            .await;
        assert!(![401, 403].contains(&proxied.status));
        assert_eq!(
            HttpClient::new()
                .send("POST", &url, &[key, ("sec-fetch-site", "cross-site")], "")
                .await
                .status,
            403
        );
        let mcp = HttpClient::new()
            .send("POST", &gateway.url("/mcp"), &[key], "{}")
            .await;
        assert_eq!(mcp.status, 401, "an operator's key is none of a client");
    }
}

#[tokio::test]
async fn metrics_can_ask_for_a_key_and_probes_never_do() {
    let gateway = with_operators(Setup::new().with("admin", "metrics = \"key\""))
        .start()
        .await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(
            page(&gateway, "GET", path, None).await.status,
            200,
            "{path}"
        );
    }
    assert_eq!(page(&gateway, "GET", "/metrics", None).await.status, 401);
    assert_eq!(
        page(&gateway, "GET", "/metrics", Some("viewer-key-0123456789"))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn admin_keys_follow_a_reload() {
    let mut gateway = with_operators(Setup::new()).start().await;
    let status =
        async |gateway: &Gateway, key| page(gateway, "GET", "/api/v1/status", key).await.status;
    assert_eq!(status(&gateway, Some("viewer-key-0123456789")).await, 200);
    let other = |setup: Setup| {
        setup
            .without("admin.keys.2")
            .with("admin.keys.1", "key = \"another-key-0123456789\"")
    };
    let changed = gateway.change(other).await;
    assert!(
        matches!(changed, ReloadOutcome::Applied(ref diff) if diff.settings == ["admin.keys"]),
        "{changed:?}"
    );
    assert_eq!(status(&gateway, Some("viewer-key-0123456789")).await, 401);
    assert_eq!(status(&gateway, Some("operator-key-0123456789")).await, 401);
    assert_eq!(status(&gateway, Some("another-key-0123456789")).await, 200);
    let _ = gateway.change(|setup| setup.without("admin.keys.1")).await;
    assert_eq!(
        status(&gateway, None).await,
        200,
        "on loopback, without keys, none is asked for"
    );
}

#[tokio::test]
async fn commands_show_the_admin_key() {
    let gateway = with_operators(Setup::new()).start().await;
    let admin = gateway.app.admin.unwrap().to_string();
    let run = |args: Vec<String>, key: Option<&'static str>| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .args(args)
            .args(["--admin", &admin])
            .env_remove("MOONGATE_ADMIN_KEY");
        command.envs(key.map(|key| ("MOONGATE_ADMIN_KEY", key)));
        async move {
            let output = command.output().await.unwrap();
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        }
    };
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (code, said) = run(words("status"), None).await;
    assert!(
        code == Some(1) && said.contains("--admin-key") && said.contains("MOONGATE_ADMIN_KEY"),
        "{said}"
    );
    assert_eq!(
        run(words("status --admin-key viewer-key-0123456789"), None).await,
        (Some(0), String::new())
    );
    assert_eq!(
        run(words("status"), Some("operator-key-0123456789")).await,
        (Some(0), String::new())
    );
    assert_eq!(run(words("health"), None).await.0, Some(0));
    for line in ["reload", "restart a"] {
        let (_, said) = run(words(line), None).await;
        assert!(said.contains("admin.keys"), "{line}: {said}");
        let (_, said) = run(words(line), Some("viewer-key-0123456789")).await;
        assert!(said.contains("operate"), "{line}: {said}");
        let (_, said) = run(words(line), Some("operator-key-0123456789")).await;
        assert!(!said.contains("admin.keys"), "{line}: {said}");
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
async fn the_admin_listener_checks_every_host_header() {
    let gateway = Setup::new().start().await;
    let admin = gateway.app.admin.unwrap();
    for (head, status) in [
        ("GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n", 200),
        (
            "GET http://localhost/api/v1/status HTTP/1.1\r\nhost: localhost\r\n",
            200,
        ),
        (
            "GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\nhost: evil.test\r\n",
            400,
        ),
        (
            "GET /metrics HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n",
            400,
        ),
        (
            "GET http://evil.test/api/v1/status HTTP/1.1\r\nhost: localhost\r\n",
            403,
        ),
        (
            "POST http://evil.test/api/v1/reload HTTP/1.1\r\nhost: localhost\r\n",
            403,
        ),
        (
            "GET http://evil.test/metrics HTTP/1.1\r\nhost: localhost\r\n",
            200,
        ),
        ("GET /nothing HTTP/1.1\r\nhost: localhost\r\n", 404),
    ] {
        let (got, answer) = by_hand(admin, head).await;
        assert_eq!(got, status, "{head}{answer}");
        assert!(
            answer
                .to_lowercase()
                .contains("\r\nx-content-type-options: nosniff\r\n"),
            "{head}{answer}"
        );
    }
}

#[tokio::test]
async fn admin_requests_through_a_proxy_are_refused() {
    let gateway = Setup::new().start().await;
    let reload = format!("http://{}/api/v1/reload", gateway.app.admin.unwrap());
    for name in [
        "forwarded",
        "via",
        "x-real-ip",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-client-ip",
        "x-cluster-client-ip",
        "cf-connecting-ip",
        "true-client-ip",
    ] {
        let reply = HttpClient::new()
            .send("POST", &reload, &[(name, "10.0.0.1")], "")
            .await;
        assert_eq!(
            (reply.status, reply.json()["error"].as_str().unwrap()),
            (403, "not_local"),
            "{name}"
        );
    }
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
