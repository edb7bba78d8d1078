//! Children that crash, hang, babble or do not read.

use moongate_mock::{FaultAction, FaultRule, MockScript, StdioRules};
use serde_json::{Value, json};

use crate::harness::{ERAS, Era, Gateway, McpClient, Setup, legacy, modern, only, until};

async fn child(script: &MockScript, settings: &str) -> Gateway {
    let gateway = Setup::new()
        .stdio("a", script)
        .with("servers.a", settings)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    gateway
}

/// What the child received of a method, as messages.
fn received(gateway: &Gateway, method: &str) -> Vec<Value> {
    let record = gateway.record("a");
    let all = record
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|message| message["method"] == method).collect()
}

#[tokio::test]
async fn a_crash_fails_every_open_call_and_none_runs_twice() {
    for script in [legacy(), modern()] {
        for era in ERAS {
            let gateway = child(&script, "").await;
            let client = gateway.client(era).await;
            let open = (0..50).map(|n| {
                let client = client.clone();
                tokio::spawn(async move {
                    client
                        .request(
                            "tools/call",
                            json!({"name": "a__hang", "arguments": {"n": n}}),
                        )
                        .await
                        .failure()
                })
            });
            let open: Vec<_> = open.collect();
            until("all are on their way", || async {
                (received(&gateway, "tools/call").len() == 50).then_some(())
            })
            .await;
            client.call("a__crash", json!({})).await.failure();
            for call in open {
                let failure = call.await.unwrap();
                assert!(failure.contains("status 3"), "{failure}");
            }
            assert_eq!(
                client.call("a__echo", json!({"back": 1})).await.text(),
                r#"{"back":1}"#,
                "{era:?}"
            );
            let mut hung: Vec<i64> = received(&gateway, "tools/call")
                .iter()
                .filter_map(|call| call["params"]["arguments"]["n"].as_i64())
                .collect();
            hung.sort_unstable();
            assert_eq!(hung, (0..50).collect::<Vec<_>>(), "each once");
        }
    }
}

#[tokio::test]
async fn a_crash_loop_is_slowed_down() {
    // It ends as soon as it has been listed.
    let script = MockScript {
        stdio: StdioRules {
            exit_after: 5,
            ..StdioRules::default()
        },
        ..legacy()
    };
    let gateway = Setup::new().stdio("a", &script).start().await;
    until("the pauses grow", || async {
        let status = gateway.status("a").await;
        let growing = status["next_attempt_seconds"].as_f64().unwrap_or_default() > 1.0;
        (growing && status["reason"].as_str().unwrap().contains("status 4")).then_some(())
    })
    .await;
    let restarts = gateway
        .metric("moongate_server_restarts_total{mcp_server=\"a\"}")
        .await
        .unwrap();
    assert!(restarts <= 5.0, "{restarts}");
}

#[tokio::test]
async fn a_hanging_call_times_out_with_the_settings_name_and_is_cancelled() {
    for script in [legacy(), modern()] {
        let gateway = child(&script, "timeout = \"300ms\"").await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let failure = client
                .call("a__hang", json!({"era": format!("{era:?}")}))
                .await
                .failure();
            assert!(
                failure.contains("servers.a.timeout") && failure.contains("300ms"),
                "{failure}"
            );
            let call = received(&gateway, "tools/call").pop().unwrap();
            until("the server is told", || async {
                let told = received(&gateway, "notifications/cancelled");
                told.iter()
                    .any(|told| told["params"]["requestId"] == call["id"])
                    .then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_response_after_the_timeout_is_dropped() {
    for script in [legacy(), modern()] {
        let gateway = child(
            &script.with_fault(FaultRule::on(
                "tools/call:add",
                FaultAction::Delay { ms: 1500 },
            )),
            "timeout = \"1s\"",
        )
        .await;
        for era in ERAS {
            let client = gateway.client(era).await;
            client
                .call("a__add", json!({"a": 1, "b": 2}))
                .await
                .failure();
            // Meanwhile and afterwards others get their own.
            for n in 0..40 {
                let text = client
                    .call("a__sleep", json!({"ms": 20, "n": n}))
                    .await
                    .text();
                assert_eq!(text, "slept 20 ms");
            }
        }
    }
}

#[tokio::test]
async fn a_child_that_never_answers_initialize_is_killed_after_start_timeout() {
    let mute = FaultRule::on("*", FaultAction::Hang);
    for script in [
        legacy().with_fault(mute.clone()),
        modern().with_fault(mute.clone()),
    ] {
        let gateway = Setup::new()
            .stdio("a", &script)
            .with("servers.a", "start_timeout = \"300ms\"")
            // Does not even read.
            .with(
                "servers.b",
                "command = \"sleep\"\nargs = [\"600\"]\nstart_timeout = \"300ms\"",
            )
            .start()
            .await;
        for server in ["a", "b"] {
            let status = gateway.state(server, "backing_off").await;
            let reason = status["reason"].as_str().unwrap();
            assert!(
                reason.contains(&format!("servers.{server}.start_timeout")),
                "{reason}"
            );
        }
        for era in ERAS {
            assert!(gateway.client(era).await.tools().await.is_empty());
        }
        gateway.app.stop().await;
    }
}

#[tokio::test]
async fn responses_with_unknown_ids_end_no_other_call() {
    let null = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#;
    let odd = [
        FaultAction::WrongId,
        FaultAction::Body {
            text: null.to_owned(),
        },
        FaultAction::Body {
            text: r#"{"jsonrpc":"2.0","id":"1","result":{}}"#.to_owned(),
        },
        FaultAction::Body {
            text: r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        },
        FaultAction::Body {
            text: r#"{"jsonrpc":"2.0","result":{}}"#.to_owned(),
        },
        FaultAction::Body {
            text: "[]".to_owned(),
        },
    ];
    for script in [legacy(), modern()] {
        let mut script = only(script, &["odd", "echo"]);
        let number = odd.len() as u64;
        for (n, act) in (0..).zip(odd.clone()) {
            script = script.with_fault(FaultRule::on("tools/call:odd", act).after(n).times(1));
        }
        let gateway = child(&script, "timeout = \"700ms\"").await;
        let client = gateway.client(Era::Modern).await;
        for n in 0..number {
            // Nobody can say whose such an answer is; the call that waits for one says that none
            // came.
            let failure = client.call("a__odd", json!({})).await.failure();
            assert!(failure.contains("servers.a.timeout"), "{n}: {failure}");
            assert_eq!(
                client.call("a__echo", json!({"n": n})).await.text(),
                format!("{{\"n\":{n}}}")
            );
        }
        assert_eq!(
            client.call("a__odd", json!({})).await.text(),
            "{}",
            "the faults are over"
        );
    }
}

#[tokio::test]
async fn a_second_response_is_dropped() {
    for script in [legacy(), modern()] {
        let gateway = child(
            &script.with_fault(FaultRule::on("tools/call:add", FaultAction::Duplicate)),
            "",
        )
        .await;
        for era in ERAS {
            let client = gateway.client(era).await;
            for n in 0..20 {
                assert_eq!(
                    client.call("a__add", json!({"a": n, "b": 1})).await.text(),
                    (n + 1).to_string()
                );
                assert_eq!(
                    client.call("a__echo", json!({"n": n})).await.text(),
                    format!("{{\"n\":{n}}}")
                );
            }
        }
    }
}

#[tokio::test]
async fn a_flood_on_stderr_blocks_nobody_and_its_end_is_kept() {
    for script in [legacy(), modern()] {
        let script = MockScript {
            stdio: StdioRules {
                stderr_flood: 1 << 20,
                ..StdioRules::default()
            },
            ..script
        };
        let gateway = child(
            &script.with_fault(FaultRule::on(
                "tools/call:add",
                FaultAction::Stderr { bytes: 1 << 20 },
            )),
            "",
        )
        .await;
        for era in ERAS {
            let client = gateway.client(era).await;
            assert_eq!(
                client.call("a__add", json!({"a": 1, "b": 1})).await.text(),
                "2"
            );
        }
        let status = gateway.state("a", "ready").await;
        assert!(status["stderr"].as_array().unwrap().len() <= 50, "{status}");
    }
}

#[tokio::test]
async fn output_in_pieces_is_put_together() {
    for script in [legacy(), modern()] {
        let setup = Setup::new();
        let file = setup.path("script.json");
        std::fs::write(
            &file,
            serde_json::to_string(&only(script, &["echo"])).unwrap(),
        )
        .unwrap();
        // Every byte is a write of its own.
        let line = format!(
            "{} mock {} --stdio | dd bs=1 2>/dev/null",
            env!("CARGO_BIN_EXE_moongate"),
            file.display()
        );
        let gateway = setup
            .with(
                "servers.a",
                &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
            )
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let client: McpClient = gateway.client(Era::Modern).await;
        let text = "ünï-cödé ".repeat(100);
        assert_eq!(
            client.call("a__echo", json!({"t": text})).await.result()["structuredContent"]["t"],
            text
        );
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_list_that_hangs() {
    for script in [legacy(), modern()] {
        // Every list after those of the connection.
        let gateway = child(
            &script.with_fault(FaultRule::on("tools/list", FaultAction::Hang).after(1)),
            "",
        )
        .await;
        let client = gateway.client(Era::Modern).await;
        until("the lists are taken again", || async {
            client.call("a__change", json!({})).await;
            (received(&gateway, "tools/list").len() > 1).then_some(())
        })
        .await;
        let servers = gateway.app.gateway.clone();
        crate::harness::within("it stops", gateway.app.stop()).await;
        assert_eq!(
            servers.servers()[0].status().state,
            moongate_model::UpstreamState::Stopped
        );
    }
}

/// In a process namespace of its own the gateway is PID 1, as in a container without an init.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn orphans_of_servers_are_reaped_by_pid_1() {
    use crate::harness::Process;
    use std::process::Stdio;
    let unshare = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ];
    let may = tokio::process::Command::new("unshare")
        .args(unshare)
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .await;
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("no namespaces here");
        return;
    }
    let setup = Setup::new().stdio("a", &legacy());
    let line = "for n in 1 2 3 4 5; do (sleep 0.2 &) ; (setsid sleep 0.2 &) ; done; exit 7";
    let setup = setup.with(
        "servers.b",
        &format!("command = \"sh\"\nargs = [\"-c\", {line:?}]"),
    );
    let config = setup.file();
    let mut command = tokio::process::Command::new("unshare");
    command
        .args(unshare)
        .arg(env!("CARGO_BIN_EXE_moongate"))
        .arg("serve")
        .arg("--config")
        .arg(config);
    let gateway = Process::run(command, tempfile::tempdir().unwrap(), None).await;
    // The state and the id of each child of a process.
    let children = |parent: u32| {
        let all = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(move |entry| {
                let entry = entry.ok()?;
                let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
                let mut fields = stat.rsplit(')').next()?.split_whitespace();
                let state = fields.next()?.to_owned();
                let of = fields.next()?.parse::<u32>().ok()?;
                (of == parent).then_some((state, entry.file_name().to_str()?.parse::<u32>().ok()?))
            });
        all.collect::<Vec<_>>()
    };
    let inside = children(gateway.pid())[0].1;
    let zombies = || {
        children(inside)
            .iter()
            .filter(|(state, _)| state == "Z")
            .count()
    };
    // The exits of its own children are not taken: the status of each is known.
    until("the child's exit is known", || async {
        let status = gateway.status("b").await;
        status["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("status 7"))
            .then_some(())
    })
    .await;
    until("its other child works", || async {
        (gateway.status("a").await["state"] == "ready").then_some(())
    })
    .await;
    crate::harness::holds("no zombie stays", || zombies() == 0).await;
}
