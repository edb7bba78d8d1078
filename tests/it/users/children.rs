//! Programs as servers: complaints 2, 19, 45, 46, 47, 48.

use moongate_mock::{FaultAction, FaultRule, MockScript, StdioRules};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    ERAS, Era, Gateway, McpClient, Setup, alive, holds, legacy, marked, modern, only, until, within,
};

/// A server that does not want to go: it ignores SIGTERM and the end of its input, and so does its
/// child.
fn stubborn() -> MockScript {
    MockScript {
        stdio: StdioRules {
            grandchild: true,
            ignore_sigterm: true,
            ignore_eof: true,
            ..StdioRules::default()
        },
        ..legacy()
    }
}

/// A variable that only this test's servers have.
pub(crate) fn mark() -> (String, String) {
    let name = format!(
        "test-{}-{}",
        std::process::id(),
        tempfile::tempdir().unwrap().path().display()
    );
    (
        format!("TEST_MARK={name}"),
        format!("env = {{ TEST_MARK = {name:?} }}"),
    )
}

#[tokio::test]
async fn a_stop_leaves_no_process_behind() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mark, env) = mark();
        let mut gateway = Setup::new()
            .stdio("a", &stubborn())
            .with("servers.a", &env)
            .spawn()
            .await;
        holds("server and grandchild run", || marked(&mark).len() >= 2).await;
        gateway.signal(signal);
        assert_eq!(gateway.ended().await.code(), Some(0), "{}", gateway.log());
        assert_eq!(
            marked(&mark),
            Vec::<u32>::new(),
            "{signal:?}: all are gone when it ends"
        );
    }
}

#[tokio::test]
async fn a_wrapper_takes_what_it_wrapped_along() {
    let (mark, env) = mark();
    let setup = Setup::new();
    let script = setup.path("script.json");
    std::fs::write(&script, serde_json::to_string(&stubborn()).unwrap()).unwrap();
    // As npx, uvx and sh do it: a parent that only waits.
    let program = env!("CARGO_BIN_EXE_moongate");
    let line = format!("{program} mock {} --stdio; exit 0", script.display());
    let setup = setup.with(
        "servers.a",
        &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]\n{env}"),
    );
    let mut gateway = setup.spawn().await;
    holds("wrapper, server and grandchild run", || {
        marked(&mark).len() >= 3
    })
    .await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(marked(&mark), Vec::<u32>::new());
}

#[tokio::test]
async fn a_killed_gateway_leaves_no_process_behind() {
    let (mark, env) = mark();
    let mut gateway = Setup::new()
        .stdio("a", &stubborn())
        .with("servers.a", &env)
        .stdio("b", &stubborn())
        .with("servers.b", &env)
        .spawn()
        .await;
    holds("servers and grandchildren run", || marked(&mark).len() >= 4).await;
    let run = std::fs::read(format!("/proc/{}/environ", marked(&mark)[0])).unwrap();
    assert!(
        memchr::memmem::find(&run, b"MOONGATE_RUN=").is_some(),
        "children carry the mark of their run"
    );
    gateway.signal(Signal::KILL);
    gateway.ended().await;
    within("they are gone", async {
        holds("they are gone", || marked(&mark).is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_leaves_nothing_either() {
    let (mark, env) = mark();
    let setup = Setup::new().stdio("a", &stubborn()).with("servers.a", &env);
    let mut gateway = setup.with("gateway", "drain = \"1h\"").spawn().await;
    let client = McpClient::open(&gateway.mcp(), Era::Legacy).await;
    until("its tools are listed", || async {
        (!client.tools().await.is_empty()).then_some(())
    })
    .await;
    // A call keeps it from draining.
    let call = tokio::spawn(async move { client.call("a__hang", json!({})).await });
    holds("server and grandchild run", || marked(&mark).len() >= 2).await;
    gateway.signal(Signal::TERM);
    until("it is stopping", || async {
        gateway.log().contains("stopping").then_some(())
    })
    .await;
    // What comes within half a second of the first is taken for its echo.
    let again = tokio::time::Duration::from_millis(600);
    tokio::time::sleep(again).await;
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await.code(), Some(0), "{}", gateway.log());
    call.abort();
    holds("the guard has ended them", || marked(&mark).is_empty()).await;
}

#[tokio::test]
async fn many_clients_share_one_child() {
    let (mark, env) = mark();
    let gateway = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .with("servers.a", &env)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let clients = futures_util::future::join_all((0..100).map(|_| gateway.client(era))).await;
        let calls = clients
            .iter()
            .map(|client| client.call("a__echo", json!({})));
        for reply in futures_util::future::join_all(calls).await {
            assert_eq!(reply.text(), "{}");
        }
    }
    assert_eq!(marked(&mark).len(), 1);
    assert_eq!(gateway.record("a").matches("\"initialize\"").count(), 1);
    gateway.app.stop().await;
    assert_eq!(marked(&mark).len(), 0);
}

#[tokio::test]
async fn a_program_of_both_eras_runs_once_where_its_clients_are_of_one() {
    for (first, other) in [(Era::Legacy, Era::Modern), (Era::Modern, Era::Legacy)] {
        let (mark, env) = mark();
        let script = only(MockScript::standard(), &["echo"]);
        let gateway = Setup::new()
            .stdio("a", &script)
            .with("servers.a", &env)
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(first).await;
        for _ in 0..3 {
            client.call("a__echo", json!({})).await.text();
        }
        holds("one process is left", || marked(&mark).len() == 1).await;
        let shared = gateway.status("a").await["shared"].clone();
        assert_eq!(shared.as_array().unwrap().len(), 1, "{shared}");
        let another = gateway.client(other).await;
        assert_eq!(another.tools().await, ["a__echo"]);
        assert_eq!(marked(&mark).len(), 1, "a list starts nothing");
        another.call("a__echo", json!({})).await.text();
        assert_eq!(marked(&mark).len(), 2);
        let shared = gateway.status("a").await["shared"].clone();
        assert!(
            shared[0]["revision"] != shared[1]["revision"] && shared[1]["pid"].is_u64(),
            "{shared}"
        );
        gateway.app.stop().await;
        assert_eq!(marked(&mark).len(), 0);
    }
}

#[tokio::test]
async fn a_crash_is_explained_and_the_server_restarted() {
    for script in [legacy(), modern()] {
        let gateway = Setup::new().stdio("a", &script).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let failure = client.call("a__crash", json!({})).await.failure();
            assert!(
                failure.contains("\"a\"") && failure.contains("status 3"),
                "{era:?}: {failure}"
            );
            let status = gateway.status("a").await;
            assert!(status["stderr"].to_string().contains("boom"), "{status}");
            let next = client.call("a__echo", json!({"after": "the crash"})).await;
            assert_eq!(next.text(), r#"{"after":"the crash"}"#, "{era:?}");
            gateway.state("a", "ready").await;
        }
        let restarts = gateway
            .metric("moongate_server_restarts_total{mcp_server=\"a\"}")
            .await
            .unwrap();
        assert!((2.0..=6.0).contains(&restarts), "{restarts}");
    }
}

#[tokio::test]
async fn a_child_that_dies_at_start_is_explained_and_backed_off() {
    let script = MockScript {
        stdio: StdioRules {
            exit_at_start: Some(7),
            stderr_flood: 70,
            ..StdioRules::default()
        },
        ..legacy()
    };
    let gateway = Setup::new().stdio("a", &script).start().await;
    let status = gateway.state("a", "backing_off").await;
    let reason = status["reason"].as_str().unwrap();
    assert!(
        reason.contains("status 7") && reason.contains("stderr stderr"),
        "{reason}"
    );
    assert!(status["next_attempt_seconds"].as_f64().unwrap() <= 30.0);
    // Once a failure, with pauses that grow: the third pause is longer than a second.
    until("the pauses grow", || async {
        let next = gateway.status("a").await["next_attempt_seconds"].as_f64();
        (next.unwrap_or_default() > 1.0).then_some(())
    })
    .await;
    let restarts = gateway
        .metric("moongate_server_restarts_total{mcp_server=\"a\"}")
        .await
        .unwrap();
    assert!(restarts <= 4.0, "{restarts} restarts");
}

#[tokio::test]
async fn stray_lines_on_stdout_break_nothing_and_are_counted() {
    for script in [legacy(), modern()] {
        let banner = "Welcome to the server!\r\n\n   \n\u{feff}\n{\"half\": \n[1, 2".to_owned();
        let script = MockScript {
            stdio: StdioRules {
                banner: Some(banner),
                ..StdioRules::default()
            },
            ..script
        };
        // Started once: an attempt in the other era would say it again.
        let setup = Setup::new()
            .stdio("a", &script)
            .with("servers.a", "protocol = \"newest\"");
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        let counted = || gateway.metric("moongate_garbage_total{mcp_server=\"a\"}");
        assert_eq!(
            counted().await,
            Some(3.0),
            "the lines that are no messages and not blank"
        );
        for era in ERAS {
            let client = gateway.client(era).await;
            assert_eq!(
                client.call("a__garbage", json!({})).await.text(),
                "after the garbage"
            );
            assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
        }
        assert_eq!(counted().await, Some(9.0));
    }
}

#[tokio::test]
async fn a_missing_program_is_named_with_its_path_and_parked() {
    let setup = Setup::new();
    let plain = setup.path("plain.txt");
    std::fs::write(&plain, "no program").unwrap();
    let setup = setup
        .with("servers.none", "command = \"moongate-has-no-such-program\"")
        .with("servers.text", &format!("command = {plain:?}"))
        .with(
            "servers.nowhere",
            "command = \"sh\"\ncwd = \"/no/such/directory\"",
        );
    let gateway = setup.start().await;
    let expected = [
        (
            "none",
            "command not found: moongate-has-no-such-program (PATH=",
        ),
        ("text", "not executable: "),
        ("nowhere", "working directory not found: /no/such/directory"),
    ];
    for (server, text) in expected {
        let status = gateway.state(server, "failed").await;
        assert!(
            status["reason"].as_str().unwrap().contains(text),
            "{status}"
        );
        assert!(
            status["next_attempt_seconds"].as_f64().unwrap() > 60.0,
            "parked: {status}"
        );
    }
}

#[tokio::test]
async fn calls_wait_for_a_slow_start() {
    let script = MockScript {
        stdio: StdioRules {
            start_ms: 3000,
            ..StdioRules::default()
        },
        ..only(legacy(), &["echo"])
    };
    let gateway = Setup::new().stdio("a", &script).start().await;
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
    let restarts = gateway
        .metric("moongate_server_restarts_total{mcp_server=\"a\"}")
        .await;
    assert_eq!(restarts.unwrap_or_default(), 0.0);
}

#[tokio::test]
async fn a_slow_call_delays_no_other() {
    for script in [legacy(), modern()] {
        let gateway = Setup::new().stdio("a", &script).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let slow = tokio::spawn({
                let client = client.clone();
                async move { client.call("a__hang", json!({})).await }
            });
            let calls = (0..19).map(|n| client.call("a__add", json!({"a": n, "b": 1})));
            for (n, reply) in futures_util::future::join_all(calls)
                .await
                .into_iter()
                .enumerate()
            {
                assert_eq!(reply.text(), (n + 1).to_string());
            }
            assert!(!slow.is_finished());
            slow.abort();
        }
    }
}

async fn narrow() -> (moongate_mock::MockHandle, Gateway) {
    let mock = crate::harness::serve(legacy()).await;
    let setup = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "max_concurrency = 1\nqueue = 2");
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_names_the_setting() {
    for era in ERAS {
        let (mock, gateway) = narrow().await;
        let client = gateway.client(era).await;
        let call = |client: McpClient| {
            tokio::spawn(async move { client.call("a__sleep", json!({"ms": 1000})).await })
        };
        let running = call(client.clone());
        holds("one runs", || mock.counters().of("tools/call") == 1).await;
        let waiting = [call(client.clone()), call(client.clone())];
        until("two wait", || async {
            let depth = gateway
                .metric("moongate_queue_depth{mcp_server=\"a\"}")
                .await;
            (depth == Some(2.0)).then_some(())
        })
        .await;
        let failure = client.call("a__echo", json!({})).await.failure();
        assert!(
            failure.contains("servers.a.max_concurrency") && failure.contains("busy"),
            "{era:?}: {failure}"
        );
        let reply = client
            .request("resources/read", json!({"uri": "mock://static/text"}))
            .await;
        assert_eq!(
            reply.status, 200,
            "{era:?}: one server that is full says nothing of the gateway"
        );
        assert!(reply.error()["message"].as_str().unwrap().contains("busy"));
        for call in [running].into_iter().chain(waiting) {
            assert_eq!(call.await.unwrap().text(), "slept 1000 ms");
        }
    }
}

#[tokio::test]
async fn a_disconnected_client_leaves_the_queue() {
    let (mock, gateway) = narrow().await;
    let client = gateway.client(Era::Modern).await;
    let call = || {
        // A connection of its own, which closes when the call is dropped.
        let client = McpClient {
            http: crate::harness::HttpClient::new(),
            ..client.clone()
        };
        tokio::spawn(async move { client.call("a__hang", json!({})).await })
    };
    let running = call();
    holds("one runs", || mock.counters().of("tools/call") == 1).await;
    let waiting = call();
    let depth = |wanted: f64| {
        let gateway = &gateway;
        until("the queue", move || async move {
            let depth = gateway
                .metric("moongate_queue_depth{mcp_server=\"a\"}")
                .await;
            (depth == Some(wanted)).then_some(())
        })
    };
    depth(1.0).await;
    waiting.abort();
    depth(0.0).await;
    running.abort();
    holds("the one that ran is cancelled", || {
        !mock.counters().cancelled.is_empty()
    })
    .await;
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
    assert_eq!(mock.counters().of("tools/call"), 2);
}

#[tokio::test]
async fn large_results_pass_whole_and_over_large_ones_fail_alone() {
    let mock = crate::harness::serve(legacy()).await;
    let gateway = Setup::new()
        .http("web", &mock.url)
        .stdio("child", &legacy())
        .with("defaults", "max_message = \"5MiB\"")
        .start()
        .await;
    gateway.ready(&["web", "child"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for server in ["web", "child"] {
            for size in [1 << 20, 4 << 20] {
                let text = client
                    .call(&format!("{server}__big"), json!({"bytes": size}))
                    .await
                    .text();
                assert!(
                    text.len() == size && text.bytes().all(|b| b == b'x'),
                    "{server}, {size}"
                );
            }
            let failure = client
                .call(&format!("{server}__big"), json!({"bytes": 8 << 20}))
                .await
                .failure();
            let named = failure.contains(&format!("servers.{server}.max_message"))
                && failure.contains("5242880");
            assert!(named, "{failure}");
            assert_eq!(
                client
                    .call(&format!("{server}__echo"), json!({}))
                    .await
                    .text(),
                "{}",
                "{server}"
            );
        }
    }
    let pid = gateway.status("child").await["pid"].as_u64().unwrap();
    assert!(
        alive(u32::try_from(pid).unwrap()),
        "the child was not restarted for it"
    );
}

#[tokio::test]
async fn an_over_large_line_fails_its_own_call_wherever_its_id_stands() {
    // As the TypeScript SDK writes it: the result first, with ids of somebody else's inside, and
    // the id last.
    let padding = "x".repeat(3 << 20);
    let inside =
        r#"{"structuredContent":{"id":4,"text":"\"id\":5 PADDING"}}"#.replace("PADDING", &padding);
    let line = format!(r#"{{"result":{inside},"jsonrpc":"2.0","id":50}}"#);
    let script = only(legacy(), &["large", "echo"]);
    let answer = FaultRule::on("tools/call:large", FaultAction::Body { text: line });
    let gateway = Setup::new()
        .stdio("a", &script.with_fault(answer))
        .with("servers.a", "max_message = \"1MiB\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    // Until it is the turn of that id.
    while !gateway.record("a").contains("\"id\":49,") {
        client.call("a__echo", json!({})).await;
    }
    let failure = client.call("a__large", json!({})).await.failure();
    assert!(failure.contains("servers.a.max_message"), "{failure}");
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
}
