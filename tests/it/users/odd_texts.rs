//! Odd hosts, texts and answers at the edge of the gateway: what a reader cannot see, and what only
//! looks like a name.

use serde_json::json;

use crate::harness::{Era, HttpClient, McpClient, Setup, until};

/// Text with marks of direction, a character without width, tags, and line ends that are none of
/// ASCII.
const HIDDEN: &str = "a\u{202e}b\u{2066}c\u{200b}d\u{e0049}\u{e0047}e\u{2028}f\u{85}g\u{feff}";

#[tokio::test]
async fn foreign_hosts_that_look_like_addresses_are_refused() {
    let gateway = Setup::new().start().await;
    let admin = format!("http://{}/api/v1/status", gateway.app.admin.unwrap());
    let wrong = [
        "[::1].evil.example",
        "[::1].evil.example:80",
        "[::1]evil.example",
        "127.0.0.1:80.evil.example",
        "[127.0.0.1]",
    ];
    for host in wrong {
        for (method, url) in [
            ("GET", gateway.url("/healthz")),
            ("POST", gateway.url("/mcp")),
            ("GET", admin.clone()),
        ] {
            let reply = HttpClient::new()
                .send(method, &url, &[("host", host)], "")
                .await;
            assert!(matches!(reply.status, 400 | 403), "{host} {url}: {reply:?}");
        }
    }
    for host in ["[::1]", "[::1]:8080", "127.0.0.1:80", "localhost"] {
        let reply = HttpClient::new()
            .send("GET", &gateway.url("/healthz"), &[("host", host)], "")
            .await;
        assert_eq!(reply.status, 200, "{host}");
    }
}

fn is_hidden(character: char) -> bool {
    HIDDEN.contains(character) && !character.is_ascii()
}

#[tokio::test]
async fn texts_of_servers_hide_nothing_from_readers_and_models() {
    let setup = Setup::new();
    let script = setup.path("a.sh");
    std::fs::write(
        &script,
        format!("printf '%s\\n' '{HIDDEN}' >&2\nprintf '%s\\n' '{HIDDEN}'\nexit 1\n"),
    )
    .unwrap();
    let setup = setup.with(
        "servers.a",
        &format!("command = \"sh\"\nargs = [{script:?}]"),
    );
    let gateway = setup.with("telemetry", "calls = \"all\"").spawn().await;
    // A client chooses these, and they are in the record of calls.
    let client = McpClient::open(&gateway.mcp(), Era::Modern).await;
    client
        .request("tools/call", json!({"name": HIDDEN, "arguments": {}}))
        .await;
    let log = until("the server has failed", || {
        let log = gateway.log();
        std::future::ready(log.contains("not connected: ").then_some(log))
    });
    let log = log.await;
    assert!(!log.contains(is_hidden), "{log:?}");
    let status = gateway.status("a").await;
    assert!(
        !status["reason"].as_str().unwrap().contains(is_hidden),
        "{status}"
    );
    assert!(
        !status["stderr"].to_string().contains(is_hidden),
        "{status}"
    );
}

#[tokio::test]
async fn colours_of_a_servers_last_words_are_left_out() {
    let line =
        r"printf '\033[31mError:\033[0m \033[1;31mno token\033[0m [33mset it[0m\n' >&2; exit 1";
    let setup = Setup::new().with(
        "servers.a",
        &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
    );
    let gateway = setup.start().await;
    let status = gateway.state("a", "backing_off").await;
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.ends_with("Error: no token set it"), "{reason}");
    assert!(!status["stderr"].to_string().contains("[31m"), "{status}");
}

#[tokio::test]
async fn health_answers_name_no_error() {
    let gateway = Setup::new().start().await;
    let admin = format!("http://{}", gateway.app.admin.unwrap());
    for (base, path, message) in [
        (gateway.base.clone(), "/healthz", "alive"),
        (gateway.base.clone(), "/livez", "alive"),
        (admin.clone(), "/healthz", "alive"),
        (admin.clone(), "/livez", "alive"),
        (admin, "/readyz", "ready"),
    ] {
        let reply = HttpClient::new().get(&format!("{base}{path}")).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.json(), json!({ "message": message }), "{path}");
    }
}

#[tokio::test]
async fn the_record_of_calls_names_the_path_of_its_endpoint() {
    let setup = Setup::new()
        .stdio("s", &crate::harness::legacy())
        .with("views.work", "servers = [\"s\"]");
    let gateway = setup.with("telemetry", "calls = \"all\"").spawn().await;
    for path in ["/mcp", "/mcp/work", "/mcp/s"] {
        let client = McpClient::open(&format!("{}{path}", gateway.base), Era::Modern).await;
        client
            .request("tools/call", json!({"name": "nothing", "arguments": {}}))
            .await;
        until("the call is recorded", || {
            let log = gateway.log();
            std::future::ready(log.contains(&format!("endpoint=\"{path}\" ")).then_some(()))
        })
        .await;
    }
}
