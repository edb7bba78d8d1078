//! Connecting to servers, and what their failures look like to a client: complaints 3, 7, 12, 13,
//! 16.

mod failed_calls;

use moongate_mock::{FaultAction, FaultRule};
use moongate_testing::ReservedAddress;
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{
    ERAS, Era, EventStream, Gateway, McpClient, Setup, holds, legacy, mock_at, modern, only, serve,
    until, within,
};

#[tokio::test]
async fn a_failing_server_delays_no_other_server_and_is_explained() {
    let good = serve(only(legacy(), &["echo"])).await;
    let stuck = serve(legacy().with_fault(FaultRule::on("tools/list", FaultAction::Hang))).await;
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = ReservedAddress::new();
    let gateway = Setup::new()
        .with(
            "defaults",
            "start_timeout = \"300ms\"\nlist_timeout = \"300ms\"",
        )
        .http("good", &good.url)
        .http("stuck", &stuck.url)
        .http(
            "silent",
            &format!("http://{}/mcp", silent.local_addr().unwrap()),
        )
        .http("refusing", &format!("http://{}/mcp", refusing.address()))
        .with(
            "servers.missing",
            "command = \"moongate-has-no-such-program\"",
        )
        .start()
        .await;
    gateway.ready(&["good"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        assert_eq!(client.tools().await, ["good__echo"], "{era:?}");
        assert_eq!(
            client.call("good__echo", json!({"a": 1})).await.text(),
            r#"{"a":1}"#
        );
    }
    let reasons = [
        ("stuck", "degraded", "servers.stuck.list_timeout"),
        ("silent", "backing_off", "servers.silent.start_timeout"),
        ("refusing", "backing_off", "Connection refused"),
        (
            "missing",
            "failed",
            "command not found: moongate-has-no-such-program",
        ),
    ];
    for (server, state, reason) in reasons {
        let status = gateway.state(server, state).await;
        assert!(
            status["reason"].as_str().unwrap().contains(reason),
            "{status}"
        );
    }
}

/// What an endpoint says of a server that never came up: the instructions, and `_meta` of each
/// empty list.
async fn told(url: &str, era: Era) -> (String, Vec<String>) {
    let mut client = McpClient::open(url, era).await;
    let introduction = match era {
        Era::Legacy => client.initialize().await.result(),
        Era::Modern => client.request("server/discover", json!({})).await.result(),
    };
    let mut reasons = Vec::new();
    for list in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let meta = &client.request(list, json!({})).await.result()["_meta"];
        reasons.extend(meta["moongate/unavailable"].as_str().map(str::to_owned));
    }
    (
        introduction["instructions"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        reasons,
    )
}

#[tokio::test]
async fn an_endpoint_names_why_its_server_never_connected() {
    let good = serve(only(legacy(), &["echo"])).await;
    let dies = "echo 'fatal: token=hush-0815 is no license' >&2; exit 1";
    let gateway = Setup::new()
        .http("good", &good.url)
        .with(
            "servers.missing",
            "command = \"moongate-has-no-such-program\"\ndescription = \"About it.\"",
        )
        .with(
            "servers.unset",
            "url = \"https://a.example/${NOT_SET_0815}\"",
        )
        .with("servers.typo", "command = \"x\"\ntols = {}")
        .with(
            "servers.dies",
            &format!("command = \"sh\"\nargs = [\"-c\", {dies:?}]"),
        )
        .spawn()
        .await;
    let expected = [
        (
            "missing",
            "failed",
            "command not found: moongate-has-no-such-program",
        ),
        ("unset", "failed", "NOT_SET_0815"),
        ("typo", "failed", "`tols`"),
        ("dies", "backing_off", "is no license"),
        ("good", "ready", ""),
    ];
    for (server, state, reason) in expected {
        until("it is in that state", || async {
            (gateway.status(server).await["state"] == state).then_some(())
        })
        .await;
        for era in ERAS {
            let (instructions, reasons) = told(&format!("{}/{server}", gateway.mcp()), era).await;
            if server == "good" {
                assert_eq!(instructions, "", "{era:?}");
                assert!(reasons.is_empty(), "{era:?}");
                continue;
            }
            assert_eq!(reasons.len(), 4, "{server}: {reasons:?}");
            for text in reasons.iter().chain([&instructions]) {
                let begin = format!("Server \"{server}\" is not connected");
                assert!(
                    text.contains(&begin) && text.contains(reason),
                    "{server}: {text}"
                );
                assert!(
                    !text.contains("hush") && !text.trim().contains('\n') || server == "missing",
                    "{text}"
                );
            }
            assert_eq!(
                instructions.starts_with("About it."),
                server == "missing",
                "{instructions}"
            );
        }
    }
    // Where others are up, the list is not empty for that reason.
    for era in ERAS {
        assert_eq!(told(&gateway.mcp(), era).await.1, Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_endpoints_failure_reason_goes_once_its_server_connects() {
    let reserved = ReservedAddress::new();
    let address = reserved.address();
    let gateway = Setup::new()
        .http("late", &format!("http://{address}/mcp"))
        .start()
        .await;
    gateway.state("late", "backing_off").await;
    let url = gateway.url("/mcp/late");
    let mut streams = Vec::new();
    for era in ERAS {
        assert_eq!(told(&url, era).await.1.len(), 4);
        streams.push(McpClient::open(&url, era).await.listen().await);
    }
    let _mock = mock_at(only(legacy(), &["echo"]), address).await;
    for mut stream in streams {
        within(
            "the change is told",
            stream.notification("notifications/tools/list_changed"),
        )
        .await;
    }
    for era in ERAS {
        assert_eq!(told(&url, era).await, (String::new(), Vec::new()));
    }
}

#[tokio::test]
async fn initialize_and_lists_are_answered_without_a_server() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    mock.set_fault(FaultRule::on("*", FaultAction::Hang));
    for era in ERAS {
        let client = gateway.client(era).await;
        assert_eq!(client.tools().await, ["a__echo"]);
        assert!(
            client
                .request("prompts/list", json!({}))
                .await
                .names()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn a_server_with_a_permanent_failure_is_parked() {
    let locked = serve(legacy().with_fault(FaultRule::on(
        "*",
        FaultAction::Status {
            status: 401,
            headers: [("www-authenticate".to_owned(), "Bearer".to_owned())].into(),
            body: String::new(),
            content_type: None,
        },
    )))
    .await;
    let gateway = Setup::new().http("locked", &locked.url).start().await;
    let status = gateway.state("locked", "needs_login").await;
    assert!(
        status["next_attempt_seconds"].as_f64().unwrap() > 60.0,
        "{status}"
    );
    let asked = locked.counters().total();
    // Calls do not wake it: they fail at once, and the host is left alone.
    for era in ERAS {
        let client = gateway.client(era).await;
        let calls = (0..20).map(|_| async {
            client
                .request("resources/read", json!({"uri": "x:y"}))
                .await
                .error()
        });
        futures_util::future::join_all(calls).await;
    }
    assert_eq!(locked.counters().total(), asked);
}

#[tokio::test]
async fn expired_credentials_show_in_the_state_and_a_single_refused_call_does_not() {
    let refuse = |on: &str, status: u16| {
        let headers = [("www-authenticate".to_owned(), "Bearer".to_owned())].into();
        let body = String::new();
        FaultRule::on(
            on,
            FaultAction::Status {
                status,
                headers,
                body,
                content_type: None,
            },
        )
    };
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let clients = [gateway.client(ERAS[0]).await, gateway.client(ERAS[1]).await];
        // What one tool does not let us do says nothing of the server.
        mock.set_fault(refuse("tools/call:sleep", 403));
        for client in &clients {
            let failure = client.call("a__sleep", json!({"ms": 0})).await.failure();
            assert!(
                failure.contains("HTTP status 403") && failure.contains("credentials"),
                "{failure}"
            );
            assert_eq!(
                client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
                "3"
            );
        }
        assert_eq!(gateway.status("a").await["state"], "ready");
    }
    let login = "a needs a login: moongate login a";
    for (script, status, text, reason) in [
        (legacy(), 401, login, login),
        (
            modern(),
            403,
            "HTTP status 403",
            "credentials are missing or refused",
        ),
    ] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        mock.set_fault(refuse("*", status));
        let failure = client.call("a__sleep", json!({"ms": 0})).await.failure();
        assert!(failure.contains(text), "{failure}");
        let told = gateway.state("a", "needs_login").await;
        assert!(told["reason"].as_str().unwrap().contains(reason), "{told}");
        assert_eq!(told["needs_login"], status == 401, "{told}");
        let failure = client.call("a__add", json!({"a": 1, "b": 2})).await;
        let failure = failure.failure();
        assert!(failure.contains(reason), "{failure}");
        // Its tools are still listed, and whoever gave it good ones restarts it.
        assert!(client.tools().await.contains(&"a__add".to_owned()));
        mock.clear_faults();
        assert_eq!(gateway.order("/api/v1/servers/a/restart").await.status, 200);
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3"
        );
    }
}

#[tokio::test]
async fn calls_to_a_disconnected_server_share_one_attempt() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let address = mock.addr.unwrap();
    let gateway = Setup::new()
        .with("defaults", "connect_timeout = \"10s\"")
        .http("a", &mock.url)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    holds("the gateway listens", || mock.listeners() > 0).await;
    mock.stop().await;
    let client = gateway.client(Era::Modern).await;
    gateway.state("a", "backing_off").await;
    let attempts = || gateway.metric("moongate_server_reconnects_total{mcp_server=\"a\"}");
    let before = attempts().await.unwrap_or_default();
    let waiting = (0..50).map(|n| {
        let client = client.clone();
        async move { client.call("a__echo", json!({"n": n})).await.text() }
    });
    let waiting = tokio::spawn(futures_util::future::join_all(waiting));
    until("an attempt was made", || async {
        (attempts().await.unwrap_or_default() > before).then_some(())
    })
    .await;
    let mock = mock_at(only(legacy(), &["echo"]), address).await;
    let answers = waiting.await.unwrap();
    assert_eq!(answers.len(), 50);
    assert_eq!(
        mock.counters().of("initialize"),
        1,
        "one connection for all that waited"
    );
    assert_eq!(mock.counters().of("tools/call"), 50);
    assert!(
        attempts().await.unwrap() - before < 20.0,
        "a handful of attempts, not one for each call"
    );
}

#[test]
fn a_duration_without_a_unit_is_a_config_error() {
    let problems = Setup::new()
        .http("a", "http://127.0.0.1:1/mcp")
        .with("servers.a", "timeout = \"30\"")
        .load();
    let text = problems.unwrap_err().to_string();
    assert!(
        text.contains("servers.a.timeout") && text.contains("30s"),
        "{text}"
    );
}

async fn patient() -> (moongate_mock::MockHandle, Gateway) {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .with("gateway", "keep_alive = \"50ms\"")
        .http("a", &mock.url)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

#[tokio::test]
async fn a_long_call_is_kept_alive() {
    let (_mock, gateway) = patient().await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let call = json!({"name": "a__sleep", "arguments": {"ms": 1000}});
        let response = client.start(7, "tools/call", call).await;
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert!(
            response.headers()["cache-control"]
                .to_str()
                .unwrap()
                .contains("no-cache")
        );
        let mut stream = EventStream::new(response);
        let mut comments = 0;
        let answer = loop {
            let event = stream.next().await.unwrap();
            if event.starts_with(':') {
                comments += 1;
            } else if !event.ends_with("data: ") {
                break event;
            }
        };
        assert!(comments >= 3, "{era:?}: {comments} comments");
        assert!(
            answer.contains("slept 1000 ms") && answer.contains("\"id\":7"),
            "{answer}"
        );
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test]
async fn streams_are_kept_alive_and_a_second_get_replaces_the_first() {
    let (mock, gateway) = patient().await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let mut first = client.listen().await;
        for _ in 0..3 {
            while !first.next().await.unwrap().starts_with(':') {}
        }
        if era == Era::Modern {
            continue;
        }
        let mut second = client.listen().await;
        while first.next().await.is_some() {}
        holds("the gateway listens", || mock.listeners() > 0).await;
        mock.change_tools_and_notify(&[crate::harness::tool("fresh")]);
        second
            .notification("notifications/tools/list_changed")
            .await;
    }
}

#[tokio::test]
async fn a_client_without_streams_gets_its_answer_all_the_same() {
    let (_mock, gateway) = patient().await;
    let client: McpClient = gateway.client(Era::Legacy).await;
    let call = crate::harness::body_of(
        3,
        "tools/call",
        json!({"name": "a__sleep", "arguments": {"ms": 200}}),
    );
    let headers = client
        .headers()
        .into_iter()
        .filter(|(name, _)| *name != "accept")
        .collect::<Vec<_>>();
    let mut headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    headers.push(("accept", "application/json"));
    let reply = client.http.send("POST", &client.url, &headers, call).await;
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.text(), "slept 200 ms");
}
