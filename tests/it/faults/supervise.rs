//! Supervision: servers that loop, sleep, fill up, or fail call after call, and what the gateway
//! spares them and others.

mod failing_calls;

use std::time::Duration;

use moongate_mock::{FaultAction, FaultRule, MockScript, StdioRules};
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{
    ERAS, Era, Gateway, McpClient, Setup, alive, holds, legacy, mock_at, modern, only, serve, until,
};

async fn counted(gateway: &Gateway, series: &str) -> f64 {
    gateway.metric(series).await.unwrap_or_default()
}

// === states, attempts, waiting ===

#[tokio::test]
async fn each_server_reports_exactly_one_state() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .http("off", "http://127.0.0.1:1/mcp")
        .with("servers.off", "enabled = false")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let metrics = gateway.admin("/metrics").await.text_body();
    let up: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with("moongate_server_up{"))
        .collect();
    let ones: Vec<&str> = up
        .iter()
        .copied()
        .filter(|line| line.ends_with(" 1"))
        .collect();
    assert_eq!(ones.len(), 2, "{ones:?}");
    assert!(
        ones.iter()
            .any(|one| one.contains("mcp_server=\"a\"") && one.contains("state=\"ready\"")),
        "{ones:?}"
    );
    assert!(
        ones.iter()
            .any(|one| one.contains("mcp_server=\"off\"") && one.contains("state=\"disabled\""))
    );
    assert_eq!(gateway.status("off").await["state"], "disabled");
}

#[tokio::test]
async fn a_loop_of_crashes_keeps_its_tools_listed_and_leaves_others_alone() {
    // Each start succeeds, and ends with the fifth request.
    let script = MockScript {
        stdio: StdioRules {
            exit_after: 5,
            ..StdioRules::default()
        },
        ..only(legacy(), &["echo"])
    };
    let mock = serve(only(modern(), &["echo"])).await;
    let gateway = Setup::new()
        .stdio("a", &script)
        .with("servers.a", "connect_timeout = \"500ms\"")
        .http("good", &mock.url)
        .start()
        .await;
    gateway.ready(&["good"]).await;
    let client = gateway.client(Era::Modern).await;
    let good = gateway.status("good").await;
    // Calls keep coming, and are no reason for more starts.
    until("it is left alone for a while", || async {
        client.call("a__echo", json!({})).await;
        assert_eq!(client.call("good__echo", json!({})).await.text(), "{}");
        let next = gateway.status("a").await["next_attempt_seconds"]
            .as_f64()
            .unwrap_or_default();
        (next > 2.0).then_some(())
    })
    .await;
    let failure = client.call("a__echo", json!({})).await.failure();
    assert!(
        failure.contains("backing_off") && failure.contains("the next attempt is in"),
        "{failure}"
    );
    assert!(
        client.tools().await.contains(&"a__echo".to_owned()),
        "what it offered stays"
    );
    assert!(counted(&gateway, "moongate_server_restarts_total{mcp_server=\"a\"}").await <= 8.0);
    assert_eq!(gateway.status("good").await["revision"], good["revision"]);
    assert_eq!(
        counted(
            &gateway,
            "moongate_server_reconnects_total{mcp_server=\"good\"}"
        )
        .await,
        0.0
    );
    assert_eq!(gateway.admin("/readyz").await.status, 200);
}

#[tokio::test]
async fn an_unsent_call_is_retried_after_reconnect() {
    for script in [legacy(), modern()] {
        // Without a hint that it may be repeated.
        let script = only(script, &["once"]);
        let mock = serve(script.clone()).await;
        let address = mock.addr.unwrap();
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Modern).await;
        mock.stop().await;
        gateway.state("a", "backing_off").await;
        let call = tokio::spawn(async move { client.call("a__once", json!({})).await.text() });
        let mock = mock_at(script, address).await;
        assert_eq!(call.await.unwrap(), "{}");
        assert_eq!(mock.counters().of("tools/call"), 1);
    }
}

#[tokio::test]
async fn a_call_to_a_server_that_has_long_been_away_fails_as_soon_as_an_attempt_does() {
    let mock = serve(only(legacy(), &["echo"])).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "connect_timeout = \"1s\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    mock.stop().await;
    let client = gateway.client(Era::Modern).await;
    until("the pauses are long", || async {
        let next = gateway.status("a").await["next_attempt_seconds"]
            .as_f64()
            .unwrap_or_default();
        (next > 3.0).then_some(())
    })
    .await;
    let began = Instant::now();
    let calls = (0..20).map(|_| client.call("a__echo", json!({})));
    for reply in futures_util::future::join_all(calls).await {
        let failure = reply.failure();
        assert!(
            failure.contains("Connection refused") && failure.contains("the next attempt is in"),
            "{failure}"
        );
    }
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "twenty calls did not wait one after another"
    );
}

#[tokio::test]
async fn a_child_that_closes_its_output_but_lives_is_replaced() {
    let setup = Setup::new();
    let file = setup.path("script.json");
    std::fs::write(
        &file,
        serde_json::to_string(&only(legacy(), &["echo"])).unwrap(),
    )
    .unwrap();
    // The first one ends its output after a moment and stays; those after it are well.
    let program = env!("CARGO_BIN_EXE_moongate");
    let mark = setup.path("was-here");
    let file = file.display();
    let mark = mark.display();
    let line = format!(
        "if [ -e {mark} ]; then exec {program} mock {file} --stdio; fi; touch {mark}; exec >&-; \
         sleep 600"
    );
    let gateway = setup
        .with(
            "servers.a",
            &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
        )
        .start()
        .await;
    gateway.ready(&["a"]).await;
    assert_eq!(
        gateway
            .client(Era::Modern)
            .await
            .call("a__echo", json!({}))
            .await
            .text(),
        "{}"
    );
    gateway.app.stop().await;
}

// === started on use ===

#[tokio::test]
async fn a_server_that_nobody_uses_is_stopped_and_started_by_the_next_call() {
    for script in [legacy(), modern()] {
        let gateway = Setup::new()
            .stdio("a", &only(script, &["echo"]))
            .with("servers.a", "start = \"lazy\"\nidle_stop = \"300ms\"")
            .start()
            .await;
        // Once, to learn what it offers.
        let stopped = gateway.state("a", "stopped").await;
        assert!(
            stopped["reason"]
                .as_str()
                .unwrap()
                .contains("servers.a.idle_stop"),
            "{stopped}"
        );
        assert!(stopped["pid"].is_null(), "{stopped}");
        let client = gateway.client(Era::Modern).await;
        until("its tools are listed", || async {
            (client.tools().await == ["a__echo"]).then_some(())
        })
        .await;
        for starts in 2..4 {
            let calls = (0..20).map(|n| client.call("a__echo", json!({"n": n})));
            for (n, reply) in futures_util::future::join_all(calls)
                .await
                .iter()
                .enumerate()
            {
                assert_eq!(reply.text(), format!("{{\"n\":{n}}}"));
            }
            let restarts =
                counted(&gateway, "moongate_server_restarts_total{mcp_server=\"a\"}").await;
            assert_eq!(restarts, f64::from(starts) - 1.0, "one start for all");
            let pid = gateway.status("a").await["pid"].as_u64();
            gateway.state("a", "stopped").await;
            if let Some(pid) = pid {
                assert!(!alive(u32::try_from(pid).unwrap()), "its process is gone");
            }
            assert_eq!(
                client.tools().await,
                ["a__echo"],
                "its tools are still listed"
            );
        }
    }
}

#[tokio::test]
async fn a_subscription_keeps_a_server_that_is_started_on_use() {
    let gateway = Setup::new()
        .stdio("a", &legacy())
        .with("servers.a", "start = \"lazy\"\nidle_stop = \"200ms\"")
        .start()
        .await;
    gateway.state("a", "stopped").await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    let uri = json!({"uri": "mock://watched"});
    client
        .request("resources/subscribe", uri.clone())
        .await
        .result();
    gateway.ready(&["a"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client
        .call("a__touch", json!({"uri": "mock://watched"}))
        .await;
    stream.notification("notifications/resources/updated").await;
    assert_eq!(
        counted(&gateway, "moongate_server_restarts_total{mcp_server=\"a\"}").await,
        1.0,
        "it was kept"
    );
    client.request("resources/unsubscribe", uri).await.result();
    gateway.state("a", "stopped").await;
}

#[tokio::test]
async fn a_call_that_runs_keeps_a_server_that_is_started_on_use() {
    let gateway = Setup::new()
        .stdio("a", &legacy())
        .with("servers.a", "start = \"lazy\"\nidle_stop = \"200ms\"")
        .start()
        .await;
    gateway.state("a", "stopped").await;
    for era in ERAS {
        let reply = gateway
            .client(era)
            .await
            .call("a__sleep", json!({"ms": 1500}))
            .await;
        assert_eq!(reply.text(), "slept 1500 ms");
    }
}

// === health ===

#[tokio::test]
async fn a_connection_that_leads_nowhere_is_found_by_pings_and_opened_anew() {
    let script = legacy().with_fault(FaultRule::on("ping", FaultAction::Hang));
    let ping = "ping = { interval = \"200ms\", timeout = \"100ms\", misses = 2 }";
    let gateway = Setup::new()
        .stdio("a", &script)
        .with("servers.a", ping)
        .start()
        .await;
    until("it is opened again", || async {
        let status = gateway.status("a").await;
        let restarts = counted(&gateway, "moongate_server_restarts_total{mcp_server=\"a\"}").await;
        let says = status["reason"]
            .as_str()
            .unwrap()
            .contains("servers.a.ping");
        (restarts >= 1.0 && says).then_some(())
    })
    .await;
    assert!(
        counted(
            &gateway,
            "moongate_server_pings_missed_total{mcp_server=\"a\"}"
        )
        .await
            >= 2.0
    );
}

#[tokio::test]
async fn only_connections_that_support_ping_and_hold_state_are_pinged() {
    let ping = "ping = { interval = \"50ms\", timeout = \"5s\" }";
    let stateless = MockScript {
        http: moongate_mock::HttpRules {
            session: false,
            ..Default::default()
        },
        ..legacy()
    };
    for (script, pinged) in [(legacy(), true), (stateless, false), (modern(), false)] {
        let mock = serve(script).await;
        let gateway = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", ping)
            .start()
            .await;
        gateway.ready(&["a"]).await;
        if pinged {
            holds("it is pinged", || mock.counters().of("ping") >= 3).await;
        } else {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(mock.counters().of("ping"), 0);
        }
        // None while a call is open.
        let client = gateway.client(Era::Modern).await;
        let call =
            tokio::spawn(async move { client.call("a__sleep", json!({"ms": 600})).await.text() });
        holds("it runs", || mock.counters().of("tools/call") == 1).await;
        let before = mock.counters().of("ping");
        call.await.unwrap();
        assert!(mock.counters().of("ping") <= before + 1);
        assert_eq!(
            counted(
                &gateway,
                "moongate_server_reconnects_total{mcp_server=\"a\"}"
            )
            .await,
            0.0
        );
    }
}

// === who shares, and how many ===

#[tokio::test]
async fn connections_for_single_clients_have_a_limit_and_the_unused_one_makes_room() {
    let mock = serve(legacy()).await;
    let keys = [
        "first-key-0123456789abcdef0123456789",
        "second-key-0123456789abcdef0123456789",
    ];
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "share = \"principal\"\nmax_connections = 1")
        .with(
            "auth.keys.1",
            &format!("name = \"one\"\nkey = {:?}", keys[0]),
        )
        .with(
            "auth.keys.2",
            &format!("name = \"two\"\nkey = {:?}", keys[1]),
        )
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let url = gateway.url("/mcp");
    let first = McpClient::with_key(&url, Era::Modern, Some(keys[0])).await;
    let second = McpClient::with_key(&url, Era::Modern, Some(keys[1])).await;
    for _ in 0..2 {
        assert_eq!(first.call("a__echo", json!({})).await.text(), "{}");
    }
    let opened = mock.counters().of("initialize");
    assert_eq!(
        second.call("a__echo", json!({})).await.text(),
        "{}",
        "the first one's is not in use"
    );
    assert_eq!(mock.counters().of("initialize"), opened + 1);
    assert_eq!(
        counted(&gateway, "moongate_server_connections{mcp_server=\"a\"}").await,
        1.0
    );
    let calls = mock.counters().of("tools/call");
    let busy = tokio::spawn({
        let second = second.clone();
        async move { second.call("a__hang", json!({})).await }
    });
    holds("it runs", || mock.counters().of("tools/call") > calls).await;
    let failure = first.call("a__echo", json!({})).await.failure();
    assert!(failure.contains("servers.a.max_connections"), "{failure}");
    busy.abort();
}

#[tokio::test]
async fn waiting_for_a_turn_is_part_of_a_calls_time() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "max_concurrency = 1\ntimeout = \"2s\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.call("a__sleep", json!({"ms": 1200})).await }
    });
    holds("one runs", || mock.counters().of("tools/call") == 1).await;
    // It has its turn, but no longer two seconds.
    let failure = client.call("a__sleep", json!({"ms": 1200})).await.failure();
    assert!(failure.contains("servers.a."), "{failure}");
    first.await.unwrap();
}
