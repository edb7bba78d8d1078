//! What a change does to servers, their settings and their clients.

use moongate::app::ReloadOutcome;
use serde_json::json;

use crate::harness::{
    Era, Gateway, McpClient, Setup, alive, holds, legacy, modern, only, serve, until,
};

async fn pid(gateway: &Gateway, server: &str) -> u32 {
    u32::try_from(
        gateway.state(server, "ready").await["pid"]
            .as_u64()
            .unwrap(),
    )
    .unwrap()
}

fn is_applied(outcome: &ReloadOutcome) -> bool {
    matches!(outcome, ReloadOutcome::Applied(_))
}

/// Waits until a client lists exactly these.
async fn lists(client: &McpClient, wanted: &[&str]) {
    until(&format!("{wanted:?} are listed"), || async {
        (client.tools().await == wanted).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_of_five_changes_and_four_are_not_touched() {
    let mut setup = Setup::new();
    for name in ["a", "b", "c", "d", "e"] {
        setup = setup.stdio(name, &only(legacy(), &["echo"]));
    }
    let mut gateway = setup.start().await;
    gateway.ready(&["a", "b", "c", "d", "e"]).await;
    let mut before = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        before.push(pid(&gateway, name).await);
    }
    let clients = [
        gateway.client(Era::Legacy).await,
        gateway.client(Era::Modern).await,
    ];
    // Calls to the others, all the while.
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut calling = Vec::new();
    for client in clients.clone() {
        let stopped = stopped.clone();
        calling.push(tokio::spawn(async move {
            let mut calls = 0_u32;
            while !*stopped.borrow() {
                for tool in ["a__echo", "b__echo", "d__echo", "c__echo"] {
                    client.call(tool, json!({"n": calls})).await.text();
                    calls += 1;
                }
            }
            calls
        }));
    }
    let outcome = gateway
        .change(|setup| setup.with("servers.c", "env = { CHANGED = \"1\" }"))
        .await;
    assert!(
        matches!(&outcome,
            ReloadOutcome::Applied(diff) if diff.replaced == ["c"] && diff.changed.is_empty()),
        "{outcome:?}"
    );
    until("c is another process", || async {
        let now = gateway.status("c").await["pid"].as_u64();
        now.is_some_and(|now| now != u64::from(before[2]))
            .then_some(())
    })
    .await;
    holds("the old one is gone", || !alive(before[2])).await;
    stop.send(true).unwrap();
    for calls in calling {
        assert!(calls.await.expect("no call failed") > 0);
    }
    for (name, before) in ["a", "b", "d", "e"]
        .into_iter()
        .zip([before[0], before[1], before[3], before[4]])
    {
        assert_eq!(pid(&gateway, name).await, before, "{name}");
    }
    // The same session goes on.
    assert_eq!(
        clients[0].call("c__echo", json!({"n": 1})).await.text(),
        r#"{"n":1}"#
    );
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_exposure_and_limits_change_in_place() {
    let mut gateway = Setup::new()
        .stdio("a", &only(legacy(), &["x", "y"]))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let before = pid(&gateway, "a").await;
    let client = gateway.client(Era::Modern).await;
    let outcome = gateway
        .change(|setup| {
            setup
                .with(
                    "servers.a",
                    "prefix = \"p\"\ntools = \
                     { deny = [\"y\"], describe = { x = \"why\" } }\ntimeout = \"7s\"",
                )
                .with("servers.a", "max_concurrency = 3\nlist_timeout = \"9s\"")
        })
        .await;
    assert!(
        matches!(&outcome, ReloadOutcome::Applied(diff) if diff.changed == ["a"]),
        "{outcome:?}"
    );
    // At once: a rule that takes something away does not wait for anything.
    assert_eq!(client.tools().await, ["p__x"]);
    assert_eq!(client.call("p__x", json!({})).await.text(), "{}");
    assert!(
        client.call("p__y", json!({})).await.error()["message"]
            .as_str()
            .unwrap()
            .contains("Unknown tool")
    );
    assert_eq!(pid(&gateway, "a").await, before);
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_runs_ends_on_the_server_that_it_began_at() {
    let mut gateway = Setup::new()
        .stdio("a", &legacy())
        .with("gateway", "drain = \"20s\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let old = pid(&gateway, "a").await;
    let clients = [
        gateway.client(Era::Legacy).await,
        gateway.client(Era::Modern).await,
    ];
    let mut running = Vec::new();
    for client in clients.clone() {
        running.push(tokio::spawn(async move {
            client.call("a__sleep", json!({"ms": 1500})).await
        }));
    }
    until("both run", || async {
        gateway
            .metric("moongate_inflight")
            .await
            .filter(|n| *n == 2.0)
    })
    .await;
    gateway
        .change(|setup| setup.with("servers.a", "env = { CHANGED = \"1\" }"))
        .await;
    until("another serves", || async {
        gateway.status("a").await["pid"]
            .as_u64()
            .filter(|pid| *pid != u64::from(old))
    })
    .await;
    for running in running {
        running.await.unwrap().text();
    }
    holds("the old one is gone", || !alive(old)).await;
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_that_fails_to_start_leaves_the_old_server() {
    let mut gateway = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let old = pid(&gateway, "a").await;
    let client = gateway.client(Era::Legacy).await;
    let good = gateway
        .dir
        .path()
        .join("a.json")
        .to_str()
        .unwrap()
        .to_owned();
    assert!(is_applied(
        &gateway
            .change(|setup| setup.with("servers.a", "command = \"/nonexistent/program\""))
            .await
    ));
    let failed = until("the status says so", || async {
        let status = gateway.status("a").await;
        (status["replacement"]["state"] == "failed").then_some(status)
    })
    .await;
    assert_eq!(failed["state"], "ready");
    assert_eq!(failed["pid"].as_u64(), Some(u64::from(old)));
    assert!(
        failed["replacement"]["reason"]
            .as_str()
            .unwrap()
            .contains("/nonexistent/program"),
        "{failed}"
    );
    client.call("a__echo", json!({})).await.text();
    // What is asked for in the end is what counts: as it was, nothing is replaced.
    let program = env!("CARGO_BIN_EXE_moongate");
    gateway
        .change(|setup| setup.with("servers.a", &format!("command = {program:?}")))
        .await;
    let status = gateway.status("a").await;
    assert_eq!(status["pid"].as_u64(), Some(u64::from(old)), "{good}");
    assert_eq!(status["replacement"], json!(null), "{good}");
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_come_and_go() {
    let one = serve(only(legacy(), &["x"])).await;
    let two = serve(only(modern(), &["y"])).await;
    let mut gateway = Setup::new().http("one", &one.url).start().await;
    gateway.ready(&["one"]).await;
    let client = gateway.client(Era::Legacy).await;
    assert_eq!(client.tools().await, ["one__x"]);
    gateway
        .change(|setup| setup.http("two", &two.url).without("servers.one"))
        .await;
    lists(&client, &["two__y"]).await;
    assert!(
        client.call("one__x", json!({})).await.error()["message"]
            .as_str()
            .unwrap()
            .contains("Unknown tool")
    );
    client.call("two__y", json!({})).await.text();
    until("its series are gone", || async {
        let metrics = gateway.admin("/metrics").await.text_body();
        (!metrics.contains("moongate_server_up{mcp_server=\"one\"")).then_some(())
    })
    .await;
    let gone = McpClient {
        url: gateway.url("/mcp/one"),
        ..client.clone()
    };
    assert_eq!(
        gone.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
            .await
            .status,
        404
    );
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repaired_server_connects_at_once_after_a_reload() {
    let mut gateway = Setup::new()
        .with("servers.a", "command = \"/nonexistent/program\"")
        .start()
        .await;
    gateway.state("a", "failed").await;
    gateway
        .change(|setup| setup.stdio("a", &only(legacy(), &["echo"])))
        .await;
    gateway.ready(&["a"]).await;
    gateway
        .client(Era::Modern)
        .await
        .call("a__echo", json!({}))
        .await
        .text();
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_need_a_restart_are_named_and_the_rest_applies() {
    let mut gateway = Setup::new().start().await;
    let outcome = gateway
        .change(|setup| {
            setup
                .with("gateway", "listen = \"127.0.0.1:1\"\ndrain = \"9s\"")
                .with("limits", "connections = 9\nbody = \"2KiB\"")
        })
        .await;
    let ReloadOutcome::Applied(diff) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        diff.needs_restart,
        ["gateway.listen", "gateway.drain", "limits.connections"]
    );
    assert_eq!(diff.settings, ["limits.body"]);
    let client = gateway.client(Era::Modern).await;
    let large = json!({"name": "x", "arguments": {"x": "x".repeat(4096)}});
    assert_eq!(client.request_as(1, "tools/call", large).await.status, 413);
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_moves_to_the_server_that_takes_the_place() {
    let gateway = Setup::new().stdio("a", &legacy()).start().await;
    gateway.ready(&["a"]).await;
    let old = pid(&gateway, "a").await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    let listed = client.request("resources/list", json!({})).await.result();
    let uri = listed["resources"][0]["uri"].as_str().unwrap().to_owned();
    client
        .request("resources/subscribe", json!({"uri": uri}))
        .await
        .result();
    let subscribed = |times: usize| {
        let record = gateway.dir.path().join("a.record");
        move || {
            std::fs::read_to_string(&record)
                .unwrap_or_default()
                .matches("resources/subscribe")
                .count()
                >= times
        }
    };
    holds("it is subscribed to", subscribed(1)).await;
    assert_eq!(gateway.order("/api/v1/servers/a/restart").await.status, 200);
    assert_ne!(pid(&gateway, "a").await, old);
    holds("the new one is subscribed to as well", subscribed(2)).await;
    client.call("a__touch", json!({"uri": uri})).await;
    stream.notification("notifications/resources/updated").await;
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_switched_off_and_on() {
    let setup = Setup::new()
        .stdio("a", &only(legacy(), &["x"]))
        .stdio("b", &only(legacy(), &["y"]));
    let mut gateway = setup.with("servers.b", "enabled = false").start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    assert_eq!(client.tools().await, ["a__x"]);
    assert_eq!(gateway.status("b").await["state"], "disabled");
    let on = |setup: Setup| {
        setup
            .without("servers.b")
            .stdio("b", &only(legacy(), &["y"]))
    };
    let outcome = gateway
        .change(|setup| on(setup).with("servers.a", "enabled = false"))
        .await;
    let ReloadOutcome::Applied(diff) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(diff.added, ["b"]);
    assert_eq!(diff.removed, ["a"]);
    assert!(diff.settings.is_empty(), "{diff:?}");
    gateway.state("b", "ready").await;
    lists(&client, &["b__y"]).await;
    assert_eq!(gateway.status("a").await["state"], "disabled");
    let up = |server: &str, state: &str| {
        format!("moongate_server_up{{mcp_server=\"{server}\",state=\"{state}\"}}")
    };
    until("only that is told of it", || async {
        let told = [
            gateway.metric(&up("a", "disabled")).await,
            gateway.metric(&up("a", "ready")).await,
        ];
        (told == [Some(1.0), None]).then_some(())
    })
    .await;
    assert_eq!(gateway.metric(&up("b", "disabled")).await, Some(0.0));
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_lazy_server_is_listed_again() {
    let setup = Setup::new().stdio("a", &only(legacy(), &["x"]));
    let mut gateway = setup
        .with("servers.a", "start = \"lazy\"\nidle_stop = \"100ms\"")
        .start()
        .await;
    let client = gateway.client(Era::Modern).await;
    lists(&client, &["a__x"]).await;
    gateway.state("a", "stopped").await;
    let other = |setup: Setup| {
        let setup = setup
            .without("servers.a")
            .stdio("a", &only(legacy(), &["y"]));
        setup.with(
            "servers.a",
            "start = \"lazy\"\nidle_stop = \"100ms\"\nenv = { OTHER = \"1\" }",
        )
    };
    let outcome = gateway.change(other).await;
    assert!(
        matches!(&outcome, ReloadOutcome::Applied(diff) if diff.replaced == ["a"]),
        "{outcome:?}"
    );
    lists(&client, &["a__y"]).await;
    gateway.state("a", "stopped").await;
    assert_eq!(client.call("a__y", json!({})).await.text(), "{}");
    // A restart of one that sleeps finds out whether it comes up.
    gateway.state("a", "stopped").await;
    assert_eq!(gateway.order("/api/v1/servers/a/restart").await.status, 200);
    gateway.app.stop().await;
}
