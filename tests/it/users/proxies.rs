//! Servers that are reached through a forward proxy, and servers of a private authority.

use std::net::SocketAddr;

use moongate_mock::{MockHandle, MockScript, serve_ws};
use moongate_testing::ReservedAddress;
use serde_json::json;

use crate::harness::proxy::{ForwardProxy, Verdict};
use crate::harness::relay::Relay;
use crate::harness::tls::Authority;
use crate::harness::{
    Era, Gateway, McpClient, Process, Setup, holds, legacy, loopback, modern, serve, until,
};

/// `user:p@ss`, as it is sent.
const BASIC: &str = "dXNlcjpwQHNz";
/// Variables of proxies that the tests' own environment may have.
const UNSET: &str = "unset http_proxy HTTP_PROXY https_proxy HTTPS_PROXY all_proxy ALL_PROXY \
                     no_proxy NO_PROXY \
    REQUEST_METHOD";

/// A server that is called something else than loopback, which a mock otherwise takes for DNS
/// rebinding.
fn elsewhere(mut script: MockScript) -> MockScript {
    script.http.strict = false;
    script
}

/// A script that speaks HTTP+SSE and nothing else over HTTP.
fn pair() -> MockScript {
    let mut script = MockScript::standard().speaking(&[moongate_mock::Revision::V2024_11_05]);
    script.http.streamable = false;
    script.http.pair = true;
    script
}

async fn works(client: &McpClient, server: &str) {
    let tool = format!("{server}__echo");
    until(&format!("{tool} is listed"), || async {
        client.tools().await.contains(&tool).then_some(())
    })
    .await;
    assert_eq!(
        client.call(&tool, json!({"n": 1})).await.text(),
        r#"{"n":1}"#,
        "{server}"
    );
}

/// A gateway in this process, and why its server is not connected.
async fn refusal(setup: Setup) -> (Gateway, String) {
    let gateway = setup.start().await;
    let reason = until("a reason is told", || async {
        let status = gateway.status("a").await;
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        (status["state"] != "ready" && reason.contains("proxy")).then_some(reason)
    });
    let reason = reason.await;
    (gateway, reason)
}

fn address(mock: &MockHandle) -> SocketAddr {
    mock.addr.unwrap()
}

/// Checks that the proxy got its own credentials, and none of a server with a tunnel.
fn assert_each_gets_its_own_credentials(proxy: &ForwardProxy) {
    for head in proxy.heads() {
        let lower = head.to_ascii_lowercase();
        assert!(
            lower.contains(&format!(
                "proxy-authorization: basic {}",
                BASIC.to_ascii_lowercase()
            )),
            "{head}"
        );
        assert!(
            !head.starts_with("CONNECT") || !head.contains("of-the-server"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn every_transport_goes_through_the_servers_proxy() {
    let authority = Authority::new("private");
    let plain = serve(elsewhere(legacy())).await;
    let events = serve(elsewhere(pair())).await;
    let socket = serve_ws(legacy(), loopback(), None).await.unwrap();
    let inner = serve(elsewhere(modern())).await;
    let inner_socket = serve_ws(legacy(), loopback(), None).await.unwrap();
    let tls = |protocols: &[&str]| authority.sign_for("mcp.test").server(protocols);
    let secure = Relay::secure(address(&inner), tls(&["http/1.1"])).await;
    let secure_socket = Relay::secure(address(&inner_socket), tls(&[])).await;
    let hosts = [
        ("mcp.test", address(&plain)),
        ("mcp.test:8001", address(&events)),
        ("mcp.test:8002", address(&socket)),
        ("mcp.test:443", secure.address),
        ("mcp.test:8003", secure_socket.address),
    ];
    let proxy = ForwardProxy::start(&hosts, Some(BASIC), Verdict::Serve).await;
    let mut setup = Setup::new();
    std::fs::write(setup.path("private.pem"), &authority.pem).unwrap();
    let through = format!("proxy = \"http://user:p%40ss@{}\"", proxy.address);
    let header = "headers = { Authorization = \"Bearer of-the-server\" }";
    for (name, url, lines) in [
        ("plain", "http://mcp.test/mcp", ""),
        ("events", "http://mcp.test:8001/sse", "transport = \"sse\""),
        ("socket", "ws://mcp.test:8002/mcp", ""),
        ("secure", "https://mcp.test/mcp", "ca = \"private.pem\""),
        ("wss", "wss://mcp.test:8003/mcp", "ca = \"private.pem\""),
    ] {
        setup = setup.http(name, url).with(
            &format!("servers.{name}"),
            &format!("{through}\n{header}\n{lines}"),
        );
    }
    let gateway = setup.start().await;
    let client = gateway.client(Era::Legacy).await;
    for name in ["plain", "events", "socket", "secure", "wss"] {
        works(&client, name).await;
    }
    assert!(proxy.count("POST http://mcp.test/mcp HTTP/1.1\r\n") > 1);
    assert_eq!(proxy.count("GET http://mcp.test:8001/sse HTTP/1.1\r\n"), 1);
    assert!(proxy.count("POST http://mcp.test:8001/") > 1);
    for tunnel in ["mcp.test:8002", "mcp.test:443", "mcp.test:8003"] {
        assert!(
            proxy.count(&format!("CONNECT {tunnel} HTTP/1.1\r\n")) > 0,
            "{tunnel}: {:?}",
            proxy.heads()
        );
    }
    assert_each_gets_its_own_credentials(&proxy);
    for mock in [&plain, &events, &socket, &inner, &inner_socket] {
        let seen = mock.recorded_requests();
        assert!(
            seen.iter()
                .all(|seen| seen.header("proxy-authorization").is_none())
        );
    }
    assert_eq!(
        plain.recorded_requests()[0].header("authorization"),
        Some("Bearer of-the-server")
    );
}

/// Checks that the reason of a server behind a proxy has these words, the proxy's address and where
/// that is from, and no credentials.
async fn assert_refusal_named(proxy: SocketAddr, user: &str, url: &str, words: &[&str]) {
    let lines = format!("proxy = \"http://{user}{proxy}\"\nconnect_timeout = \"300ms\"");
    let (gateway, reason) = refusal(Setup::new().http("a", url).with("servers.a", &lines)).await;
    let named = format!("{proxy} (from servers.a.proxy)");
    for words in words.iter().copied().chain([&*named]) {
        assert!(
            reason.contains(words),
            "{url} through {proxy}: {words:?} is not in {reason:?}"
        );
    }
    let told = gateway.admin("/api/v1/status").await.text_body();
    assert!(!reason.contains("hush") && !told.contains("hush"), "{told}");
}

#[tokio::test]
async fn a_proxy_that_refuses_or_is_away_is_named_without_its_credentials() {
    let refused = ForwardProxy::start(&[], Some("b3RoZXI6b25l"), Verdict::Serve).await;
    let forbids = ForwardProxy::start(&[], None, Verdict::Refuse(403)).await;
    let floods = ForwardProxy::start(&[], None, Verdict::Flood).await;
    let stalls = ForwardProxy::start(&[], None, Verdict::Stall).await;
    let reserved = ReservedAddress::new();
    let away = reserved.address();
    for (proxy, user, url, words) in [
        (
            refused.address,
            "",
            "https://mcp.test/mcp",
            &["requires credentials (status 407)", "`USER:PASSWORD@`"][..],
        ),
        (
            refused.address,
            "user:hush@",
            "https://mcp.test/mcp",
            &["refused the credentials", "407"],
        ),
        (
            refused.address,
            "user:hush@",
            "http://mcp.test/mcp",
            &["407", "`USER:PASSWORD@`", "it came through the proxy"],
        ),
        (
            forbids.address,
            "user:hush@",
            "http://mcp.test/mcp",
            &["403", "it came through the proxy"],
        ),
        (
            forbids.address,
            "user:hush@",
            "wss://mcp.test/mcp",
            &["mcp.test:443", "status 403", "proxy = \"none\""],
        ),
        (
            floods.address,
            "user:hush@",
            "https://mcp.test/mcp",
            &["more than 100 headers"],
        ),
        (
            stalls.address,
            "user:hush@",
            "https://mcp.test/mcp",
            &["within 300ms", "through the proxy"],
        ),
        (
            stalls.address,
            "user:hush@",
            "ws://mcp.test/mcp",
            &["within 300ms", "through the proxy"],
        ),
        (
            away,
            "user:hush@",
            "http://mcp.test/mcp",
            &["cannot be reached", "refused"],
        ),
        (
            away,
            "user:hush@",
            "https://mcp.test/mcp",
            &["cannot be reached", "refused"],
        ),
    ] {
        assert_refusal_named(proxy, user, url, words).await;
    }
}

/// A gateway in a process of its own, with these variables of proxies and no others.
async fn among(setup: Setup, variables: &str) -> Process {
    setup
        .spawn_after(&format!("{UNSET}; export {variables}"))
        .await
}

/// Checks that a server with these lines is reached without the proxy, among these variables.
async fn assert_looked_up_here(proxy: &ForwardProxy, lines: &str, variables: &str) {
    let before = proxy.heads().len();
    let setup = Setup::new()
        .http("a", "http://mcp.test/mcp")
        .with("servers.a", lines);
    let gateway = among(setup, variables).await;
    let direct = || {
        gateway
            .log()
            .lines()
            .any(|line| line.contains("not connected") && line.contains("dns"))
    };
    holds(
        &format!("{variables} {lines}: the name is looked up"),
        direct,
    )
    .await;
    assert_eq!(proxy.heads().len(), before, "{variables} {lines}");
}

#[tokio::test]
async fn environment_proxies_apply_to_http_servers() {
    let mock = serve(elsewhere(legacy())).await;
    let near = serve(legacy()).await;
    let to = address(&mock);
    let proxy =
        ForwardProxy::start(&[("mcp.test", to), ("b.test:80", to)], None, Verdict::Serve).await;
    let port = proxy.address.port();
    for (variables, name) in [
        (format!("HTTP_PROXY=http://localhost:{port}"), "HTTP_PROXY"),
        (format!("http_proxy=127.0.0.1:{port}"), "http_proxy"),
        (
            format!("ALL_PROXY=http://localhost:{port} HTTPS_PROXY=http://127.0.0.1:1"),
            "ALL_PROXY",
        ),
    ] {
        let before = proxy.count("POST http://mcp.test/mcp");
        // A proxy of the environment is for others than our own machine, whatever stands there.
        let setup = Setup::new()
            .http("far", "http://mcp.test/mcp")
            .http("near", &near.url);
        let gateway = among(setup, &variables).await;
        let client = McpClient::open(&gateway.mcp(), Era::Legacy).await;
        works(&client, "far").await;
        works(&client, "near").await;
        assert!(proxy.count("POST http://mcp.test/mcp") > before, "{name}");
        assert_eq!(
            proxy
                .heads()
                .iter()
                .filter(|head| head.contains("127.0.0.1"))
                .count(),
            0,
            "{name}"
        );
    }
    // `proxy = "none"`, NO_PROXY and a variable of another scheme: the name, which nobody knows, is
    // looked up here.
    for (lines, variables) in [
        (
            "proxy = \"none\"",
            format!("HTTP_PROXY=http://localhost:{port}"),
        ),
        (
            "",
            format!("HTTP_PROXY=http://localhost:{port} NO_PROXY=example.com,.test"),
        ),
        ("", format!("HTTPS_PROXY=http://localhost:{port}")),
        (
            "",
            format!("HTTP_PROXY=http://localhost:{port} REQUEST_METHOD=GET"),
        ),
    ] {
        assert_looked_up_here(&proxy, lines, &variables).await;
    }
    // The server's own proxy comes before the environment's, and before NO_PROXY.
    let setup = Setup::new()
        .http("a", "http://mcp.test/mcp")
        .with("servers.a", &format!("proxy = \"http://127.0.0.1:{port}\""));
    let gateway = among(setup, "HTTP_PROXY=http://127.0.0.1:1 NO_PROXY=*").await;
    works(&McpClient::open(&gateway.mcp(), Era::Legacy).await, "a").await;
}

#[tokio::test]
async fn an_unusable_proxy_variable_is_warned_of_once_and_ignored() {
    let setup = Setup::new()
        .http("a", "https://mcp.test/mcp")
        .http("b", "https://mcp2.test/mcp");
    let gateway = among(setup, "HTTPS_PROXY=socks5://user:hush@127.0.0.1:1080").await;
    let told = || {
        gateway
            .log()
            .lines()
            .filter(|line| line.contains("HTTPS_PROXY"))
            .count()
    };
    let direct = || {
        gateway
            .log()
            .lines()
            .filter(|line| line.contains("not connected") && line.contains("dns"))
            .count()
    };
    holds("both are looked up here", || direct() >= 2).await;
    assert_eq!(told(), 1, "{}", gateway.log());
    assert!(
        gateway.log().contains("socks5") && !gateway.log().contains("hush"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn an_unreachable_environment_proxy_is_named() {
    let gateway = among(
        Setup::new().http("a", "https://mcp.test/mcp"),
        "https_proxy=http://u:hush@127.0.0.1:1",
    )
    .await;
    let told = "the proxy 127.0.0.1:1 (from https_proxy) cannot be reached";
    holds("the variable is named", || gateway.log().contains(told)).await;
    assert!(!gateway.log().contains("hush"), "{}", gateway.log());
}

#[tokio::test]
async fn programs_get_the_environments_proxies() {
    let (mark, env) = crate::users::children::mark();
    let setup = Setup::new().stdio("a", &legacy()).with("servers.a", &env);
    let gateway = among(
        setup,
        "HTTPS_PROXY=http://proxy.test:1 no_proxy=example.com OTHER_SECRET=1",
    )
    .await;
    works(&McpClient::open(&gateway.mcp(), Era::Legacy).await, "a").await;
    let environment = std::fs::read(format!(
        "/proc/{}/environ",
        crate::harness::marked(&mark)[0]
    ))
    .unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(
        environment.contains("HTTPS_PROXY=http://proxy.test:1\0"),
        "{environment}"
    );
    assert!(
        environment.contains("no_proxy=example.com\0") && !environment.contains("OTHER_SECRET"),
        "{environment}"
    );
}

#[tokio::test]
async fn a_server_of_a_private_authority_is_trusted_by_its_own_file_which_is_read_again() {
    let right = Authority::new("right");
    let wrong = Authority::new("wrong");
    let mock = serve(legacy()).await;
    let relay = Relay::secure(address(&mock), right.sign().server(&["http/1.1"])).await;
    let setup = Setup::new()
        .http("a", &relay.url("https"))
        .with("servers.a", "ca = \"private.pem\"");
    let setup = setup.with("gateway", "reload = { interval = \"100ms\" }");
    let file = setup.path("private.pem");
    std::fs::write(&file, &wrong.pem).unwrap();
    let gateway = setup.spawn().await;
    holds("the issuer is unknown", || {
        gateway.log().contains("servers.a.ca") || gateway.log().contains("`ca`")
    })
    .await;
    std::fs::write(&file, format!("{}{}", wrong.pem, right.pem)).unwrap();
    works(&McpClient::open(&gateway.mcp(), Era::Legacy).await, "a").await;
}

#[tokio::test]
async fn client_commands_use_no_environment_proxy() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let proxy = ForwardProxy::start(&[], None, Verdict::Refuse(403)).await;
    let run = async |url: &str| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
        let all = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"];
        command
            .args(["tools", "--url", url])
            .envs(all.map(|name| (name, format!("http://{}", proxy.address))));
        command
            .env_remove("NO_PROXY")
            .env_remove("no_proxy")
            .output()
            .await
            .unwrap()
    };
    let found = run(&gateway.url("/mcp")).await;
    assert!(
        String::from_utf8_lossy(&found.stdout).contains("a__echo"),
        "{found:?}"
    );
    // A gateway elsewhere, too.
    let elsewhere = run("http://gateway.test/mcp").await;
    assert!(
        String::from_utf8_lossy(&elsewhere.stderr).contains("dns"),
        "{elsewhere:?}"
    );
    assert_eq!(proxy.heads(), Vec::<String>::new());
}
