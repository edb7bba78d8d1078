//! What an operator is told: metrics, the record of calls, refused keys, reasons.

use moongate_mock::{MockScript, StdioRules};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{
    ERAS, Era, Gateway, HttpClient, McpClient, Setup, body_of, legacy, modern, only, serve, until,
};

/// The count of all series of a family that have these labels.
async fn counted(gateway: &Gateway, family: &str, labels: &[&str]) -> f64 {
    let text = gateway.admin("/metrics").await.text_body();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(family) && labels.iter().all(|label| line.contains(label)));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

const CLIENT_HOP: &str = "mcp_server_operation_duration_seconds_count{";
const SERVER_HOP: &str = "mcp_client_operation_duration_seconds_count{";

#[tokio::test]
async fn a_tool_error_is_counted_on_both_hops_each_with_its_revision() {
    let old = serve(only(legacy(), &["fail", "error"])).await;
    let new = serve(only(modern(), &["fail"])).await;
    let gateway = Setup::new()
        .http("old", &old.url)
        .http("new", &new.url)
        .start()
        .await;
    gateway.ready(&["old", "new"]).await;
    let client = gateway.client(Era::Modern).await;
    client.call("old__fail", json!({})).await.failure();
    let version = |revision: &str| format!("mcp_protocol_version=\"{revision}\"");
    let modern_one = version("2026-07-28");
    let legacy_one = version("2025-11-25");
    let failed = [
        "gen_ai_tool_name=\"old__fail\"",
        "error_type=\"tool_error\"",
    ];
    let of = |revision: &str| [&failed[..], &[revision.to_owned().leak() as &str]].concat();
    assert_eq!(counted(&gateway, CLIENT_HOP, &of(&modern_one)).await, 1.0);
    assert_eq!(
        counted(&gateway, SERVER_HOP, &of(&legacy_one)).await,
        1.0,
        "the server's revision, not the client's"
    );
    gateway
        .client(Era::Legacy)
        .await
        .call("new__fail", json!({}))
        .await
        .failure();
    let failed = [
        "gen_ai_tool_name=\"new__fail\"",
        "error_type=\"tool_error\"",
    ];
    assert_eq!(
        counted(
            &gateway,
            SERVER_HOP,
            &[&failed[..], &[&modern_one]].concat()
        )
        .await,
        1.0
    );
    assert_eq!(
        counted(
            &gateway,
            CLIENT_HOP,
            &[&failed[..], &[&legacy_one]].concat()
        )
        .await,
        1.0
    );
    // What the server answers with an error, and what the gateway does, carry their codes.
    client
        .call("old__error", json!({"code": -32602}))
        .await
        .error();
    for hop in [CLIENT_HOP, SERVER_HOP] {
        let labels = [
            "gen_ai_tool_name=\"old__error\"",
            "error_type=\"-32602\"",
            "status_code=\"-32602\"",
        ];
        assert_eq!(counted(&gateway, hop, &labels).await, 1.0);
    }
    client.call("old__nothing", json!({})).await.error();
    let labels = ["error_type=\"unknown_name\"", "status_code=\"-32602\""];
    assert_eq!(counted(&gateway, CLIENT_HOP, &labels).await, 1.0);
}

#[tokio::test]
async fn unknown_methods_and_the_first_request_of_a_client_are_counted() {
    let gateway = Setup::new().start().await;
    for era in ERAS {
        let client = gateway.client(era).await;
        client.request("no/such/method", json!({})).await.error();
        let unknown = [
            "mcp_method_name=\"_OTHER\"",
            "error_type=\"unknown_method\"",
            "status_code=\"-32601\"",
        ];
        assert!(
            counted(&gateway, CLIENT_HOP, &unknown).await >= 1.0,
            "{era:?}"
        );
    }
    let initialized = [
        "mcp_method_name=\"initialize\"",
        "error_type=\"\"",
        "version=\"2025-11-25\"",
    ];
    assert_eq!(counted(&gateway, CLIENT_HOP, &initialized).await, 1.0);
    gateway
        .client(Era::Modern)
        .await
        .request("server/discover", json!({}))
        .await
        .result();
    assert_eq!(
        counted(
            &gateway,
            CLIENT_HOP,
            &["mcp_method_name=\"server/discover\""]
        )
        .await,
        1.0
    );
}

/// Checks the lines of a call that succeeded, of one that failed, and of one to nothing.
fn assert_calls_described(recorded: &[&str]) {
    let parts = [
        "method=\"tools/call\"",
        "principal=\"laptop\"",
        "client=\"test 1\"",
        "endpoint=\"/mcp\"",
    ];
    let parts = [
        &parts[..],
        &[
            "server=\"a\"",
            "tool=\"a__echo\"",
            "outcome=\"ok\"",
            "bytes=",
        ],
    ]
    .concat();
    assert!(
        parts.iter().all(|part| recorded[0].contains(part)),
        "{}",
        recorded[0]
    );
    assert!(
        recorded[1].contains("tool_error") && recorded[1].contains("a__fail"),
        "{}",
        recorded[1]
    );
    assert!(
        recorded[2].contains("unknown_name") && recorded[2].contains("-32602"),
        "{}",
        recorded[2]
    );
}

#[tokio::test]
async fn calls_are_recorded_with_names_and_sizes_and_without_values() {
    let mock = serve(only(legacy(), &["echo", "fail"])).await;
    for (mode, lines) in [("off", 0), ("errors", 2), ("all", 3)] {
        let setup = Setup::new()
            .http("a", &mock.url)
            .with("telemetry", &format!("calls = {mode:?}"));
        let key = "key-number-1-0123456789";
        let gateway = setup
            .with("auth.keys.1", &format!("name = \"laptop\"\nkey = {key:?}"))
            .spawn()
            .await;
        let client = McpClient::with_key(&gateway.mcp(), Era::Modern, Some(key)).await;
        until("its tools are listed", || async {
            (!client.tools().await.is_empty()).then_some(())
        })
        .await;
        client.call("a__echo", json!({"said": "hush"})).await.text();
        client
            .call("a__fail", json!({"text": "hush"}))
            .await
            .failure();
        client
            .call("a__nothing", json!({"text": "hush"}))
            .await
            .error();
        // Refused keys come last, so that what is before them in the log is there as well.
        HttpClient::new()
            .send(
                "POST",
                &gateway.mcp(),
                &[("authorization", "Bearer hush-key")],
                "",
            )
            .await;
        let log = until("the refusal is logged", || async {
            let log = gateway.log();
            log.contains("key refused").then_some(log)
        })
        .await;
        let refused = log
            .lines()
            .find(|line| line.contains("key refused"))
            .unwrap();
        assert!(
            refused.contains("127.0.0.1") && refused.contains("unknown key"),
            "{refused}"
        );
        assert!(!log.contains("hush"), "{log}");
        let recorded: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("call ended"))
            .collect();
        assert_eq!(recorded.len(), lines, "{mode}: {recorded:?}");
        if mode == "all" {
            assert_calls_described(&recorded);
        }
    }
}

#[tokio::test]
async fn call_recording_can_be_changed_at_runtime() {
    let mut gateway = Setup::new().start().await;
    let outcome = gateway
        .change(|setup| setup.with("telemetry", "calls = \"all\""))
        .await;
    assert!(
        format!("{outcome:?}").contains("telemetry.calls"),
        "{outcome:?}"
    );
}

/// A program that says why it does not start, and then other things.
const FAILS: &str = "echo 'Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables' \
                     >&2; \
    echo 'connecting with api_key=hush-0815' >&2; \
    echo 'Node.js v22.23.3' >&2; exit 1";

#[tokio::test]
async fn a_failed_start_is_explained_with_the_last_lines_of_stderr() {
    let gateway = Setup::new()
        .with(
            "servers.a",
            &format!("command = \"sh\"\nargs = [\"-c\", {FAILS:?}]"),
        )
        .start()
        .await;
    let status = gateway.state("a", "backing_off").await;
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables"),
        "{reason}"
    );
    let stderr = status["stderr"].to_string();
    assert!(
        stderr.contains("Node.js") && stderr.contains("Please set") && !stderr.contains("hush"),
        "{stderr}"
    );
}

#[tokio::test]
async fn the_last_lines_of_a_dead_process_stay_until_its_successor_is_ready() {
    let setup = Setup::new();
    let script = MockScript {
        stdio: StdioRules::default(),
        ..legacy()
    };
    std::fs::write(
        setup.path("a.json"),
        serde_json::to_string(&script).unwrap(),
    )
    .unwrap();
    // It fails as long as the file is not there, and says so in its first life only.
    let program = env!("CARGO_BIN_EXE_moongate");
    let file = setup.path("a.json");
    let flag = setup.path("flag");
    let file = file.display();
    let flag = flag.display();
    let line = format!(
        "[ -e {flag}.go ] && exec {program} mock {file} --stdio; [ -e {flag} ] || echo 'fatal: no \
         license' >&2; touch {flag}; exit 1"
    );
    let go = setup.path("flag.go");
    let setup = setup.with(
        "servers.a",
        &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
    );
    let gateway = setup.start().await;
    let restarts = || gateway.metric("moongate_server_restarts_total{mcp_server=\"a\"}");
    until("it was started again", || async {
        restarts().await.filter(|n| *n >= 2.0)
    })
    .await;
    let stderr = gateway.status("a").await["stderr"].to_string();
    assert!(stderr.contains("no license"), "{stderr}");
    std::fs::write(go, "").unwrap();
    let status = gateway.state("a", "ready").await;
    assert!(
        !status["stderr"].to_string().contains("no license"),
        "{status}"
    );
}

#[tokio::test]
async fn a_refusal_is_logged_once_a_second_and_address() {
    let setup = Setup::new().with(
        "auth.keys.1",
        "name = \"one\"\nkey = \"key-number-1-0123456789\"",
    );
    let gateway = setup.spawn().await;
    let http = HttpClient::new();
    for _ in 0..20 {
        http.send("POST", &gateway.mcp(), &[], body_of(1, "ping", json!({})))
            .await;
    }
    let log = until("the refusal is logged", || async {
        Some(gateway.log()).filter(|log| log.contains("key refused"))
    });
    let lines = log.await.matches("key refused").count();
    assert!((1..20).contains(&lines), "{lines}");
}

/// What `initialize` or `server/discover` says of who answers.
async fn introduced(gateway: &Gateway, endpoint: &str, era: Era) -> Value {
    let mut client = McpClient::open(&gateway.url(endpoint), era).await;
    match era {
        Era::Legacy => client.initialize().await.result()["serverInfo"].clone(),
        Era::Modern => {
            let result = client.request("server/discover", json!({})).await.result();
            result["_meta"]["io.modelcontextprotocol/serverInfo"].clone()
        }
    }
}

#[tokio::test]
async fn a_server_is_described_in_the_status_and_to_clients() {
    let look = "title = \"My Files\"\nicon = \"https://example.com/icon.png\"";
    let mock = serve(only(legacy(), &["echo"])).await;
    let url = format!("{}?key=hush", mock.url);
    let gateway = Setup::new()
        .stdio("a", &legacy())
        .with("servers.a", look)
        .http("b", &url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let status = gateway.status("a").await;
    assert_eq!(status["title"], "My Files", "{status}");
    assert_eq!(status["transport"], "stdio", "{status}");
    assert_eq!(status["icon"], "https://example.com/icon.png");
    assert!(
        status["server"]["name"].is_string() && status["server"]["version"].is_string(),
        "{status}"
    );
    assert!(
        status["since"].as_str().unwrap().ends_with('Z') && status["since_seconds"].is_u64(),
        "{status}"
    );
    assert_eq!(status["restarts"], 0, "{status}");
    assert_eq!(status["target"], "moongate", "{status}");
    assert!(status["tokens"].as_i64().unwrap() > 10, "{status}");
    let other = gateway.status("b").await;
    assert!(
        other["transport"] == "http" && other["target"] == mock.url.as_str(),
        "no query: {other}"
    );
    for era in ERAS {
        let one = introduced(&gateway, "/mcp/a", era).await;
        assert_eq!(one["name"], "moongate", "{era:?}");
        assert_eq!(one["title"], "My Files", "{era:?}");
        assert_eq!(
            one["icons"],
            json!([{"src": "https://example.com/icon.png"}]),
            "{era:?}"
        );
        let all = introduced(&gateway, "/mcp", era).await;
        assert!(
            all["title"] == "Moongate" && all["icons"].is_null(),
            "{era:?}: {all}"
        );
    }
    let mut client = gateway.client(Era::Legacy).await;
    let instructions = client.initialize().await.result()["instructions"].to_string();
    assert!(instructions.contains("a (My Files)"), "{instructions}");
    // A restart is seen.
    gateway
        .client(Era::Legacy)
        .await
        .call("a__crash", json!({}))
        .await
        .failure();
    until("it was restarted", || async {
        (gateway.status("a").await["restarts"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_log_has_state_changes_and_not_each_attempt() {
    let quick = "backoff = { min = \"10ms\", max = \"20ms\" }";
    let gateway = Setup::new()
        .with("servers.a", &format!("command = \"false\"\n{quick}"))
        .spawn()
        .await;
    until("it was tried again and again", || async {
        (gateway.status("a").await["restarts"].as_u64() >= Some(4)).then_some(())
    })
    .await;
    let log = gateway.log();
    assert_eq!(log.matches("not connected").count(), 1, "{log}");
    assert!(log.contains("(1 server)"), "{log}");
}

#[tokio::test]
async fn a_server_that_hangs_at_its_start_is_reported_meanwhile() {
    let line = "echo 'Waiting for a login at https://example.com' >&2; sleep 60";
    let setup = Setup::new().with(
        "servers.a",
        &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
    );
    let gateway = setup
        .with("servers.a", "start_timeout = \"4s\"")
        .spawn()
        .await;
    let reason = until("it is told", || async {
        let status = gateway.status("a").await;
        let reason = status["reason"].as_str().unwrap().to_owned();
        (status["state"] == "starting" && reason.contains("has not answered the handshake"))
            .then_some(reason)
    })
    .await;
    assert!(
        reason.contains("servers.a.start_timeout") && reason.contains("Waiting for a login"),
        "{reason}"
    );
    assert!(
        gateway.log().contains("has not answered the handshake"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn a_queued_call_reports_its_queue_time() {
    let script = only(legacy(), &["hang", "sleep"]);
    let gateway = Setup::new()
        .stdio("a", &script)
        .with("servers.a", "max_concurrency = 1\ntimeout = \"2s\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let first = client.clone();
    let first = tokio::spawn(async move { first.call("a__sleep", json!({"ms": 700})).await });
    until("the call is there", || async {
        gateway.record("a").contains("700").then_some(())
    })
    .await;
    let failure = client.call("a__hang", json!({})).await.failure();
    assert!(
        failure.contains("in the queue (servers.a.max_concurrency = 1)"),
        "{failure}"
    );
    first.await.unwrap();
}

#[tokio::test]
async fn a_port_of_the_systems_choice_leaves_no_state_behind() {
    for state in ["", "state = \"embedded\""] {
        let setup = Setup::new();
        let dir = setup.path("state");
        let setup = setup.with("gateway", &format!("state_dir = {dir:?}\n{state}"));
        let mut gateway = setup.spawn().await;
        let client = McpClient::open(&gateway.mcp(), Era::Legacy).await;
        client.request("ping", json!({})).await.result();
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ended().await.code(), Some(0), "{}", gateway.log());
        let left = std::fs::read_dir(&dir).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{state}");
    }
}

#[tokio::test]
async fn a_429_names_the_limit_and_whose_it_is() {
    let key = |name: &str, more: &str| {
        format!("name = {name:?}\nkey = \"key-number-{name}-0123456789\"\n{more}")
    };
    let setup = Setup::new()
        .with("limits", "rate = \"1/min\"")
        .with("auth.keys.1", &key("own", "rate = \"2/min\""));
    let gateway = setup.with("auth.keys.2", &key("common", "")).start().await;
    for (name, setting) in [
        (
            "own",
            "the rate of the key \"own\" in auth.keys allows 2 in 60s",
        ),
        ("common", "limits.rate allows 1 in 60s"),
    ] {
        let url = gateway.url("/mcp");
        let client = McpClient::with_key(
            &url,
            Era::Modern,
            Some(&format!("key-number-{name}-0123456789")),
        )
        .await;
        let refused = until("it is refused", || async {
            let reply = client.request("tools/list", json!({})).await;
            (reply.status == 429).then_some(reply)
        });
        let told = refused.await.error()["message"]
            .to_string()
            .replace('\\', "");
        assert!(told.contains(setting), "{told}");
    }
}

/// Answers whatever comes with these bytes, and closes; gives its address.
async fn always(answer: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn a_failure_with_a_well_known_cause_names_the_remedy() {
    let login = always(
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer \
                        resource_metadata=\"https://x.example/y\"\r\nContent-Length: \
                        0\r\nConnection: close\r\n\r\n",
    )
    .await;
    let nothing =
        always("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let setup = Setup::new()
        .http("login", &format!("http://{login}/mcp"))
        .http("nothing", &format!("http://{nothing}/"))
        .http("plain", &format!("https://{nothing}/mcp"))
        .with("servers.home", "command = \"~/bin/server\"");
    let gateway = setup.start().await;
    for (server, state, remedy) in [
        (
            "login",
            "needs_login",
            "login needs a login: moongate login login",
        ),
        ("nothing", "backing_off", "is `url` complete?"),
        ("plain", "backing_off", "write http:// instead of https://"),
        ("home", "failed", "write ${HOME} instead"),
    ] {
        let status = gateway.state(server, state).await;
        assert!(
            status["reason"].as_str().unwrap().contains(remedy),
            "{status}"
        );
    }
}
