//! Getting in at the admin listener, or not: keys and roles, hosts, proxies.

use moongate::app::ReloadOutcome;

use super::by_hand;
use crate::harness::{Gateway, HttpClient, HttpReply, Setup};

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
        // No config can be read again here. What matters is who may ask for it.
        for path in ["/api/v1/reload", "/api/v1/servers/a/restart"] {
            let refused = page(&gateway, "POST", path, viewer).await;
            assert_eq!(refused.status, 403, "{path}");
            assert_eq!(refused.json()["error"], "role_not_allowed", "{path}");
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
        assert_eq!(reply.status, 403, "{name}");
        assert_eq!(reply.json()["error"], "not_local", "{name}");
    }
}
