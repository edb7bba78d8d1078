//! What a change does to servers, clients and keys.

use moongate::app::ReloadOutcome;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{
    ERAS, Era, Gateway, McpClient, Setup, alive, body_of, holds, legacy, modern, modern_meta, only,
    serve, until, within,
};

const ONE: &str = "key-number-1-0123456789";
const TWO: &str = "key-number-2-0123456789";

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

/// The lines of a key.
fn key(n: u8, key: &str) -> String {
    format!("name = \"k{n}\"\nkey = {key:?}")
}

/// The same gateway for those who have one of the two keys.
fn with_keys(setup: Setup) -> Setup {
    setup
        .with("auth.keys.1", &key(1, ONE))
        .with("auth.keys.2", &key(2, TWO))
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
    assert_eq!(
        (&failed["state"], failed["pid"].as_u64()),
        (&json!("ready"), Some(u64::from(old)))
    );
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
    assert_eq!(
        (status["pid"].as_u64(), &status["replacement"]),
        (Some(u64::from(old)), &json!(null)),
        "{good}"
    );
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
async fn list_changes_are_notified_only_for_changed_lists() {
    let one = serve(only(legacy(), &["x", "y"])).await;
    let two = serve(only(modern(), &["z"])).await;
    let mut gateway = with_keys(Setup::new().http("one", &one.url).http("two", &two.url))
        .start()
        .await;
    gateway.ready(&["one", "two"]).await;
    let mut streams = Vec::new();
    for era in ERAS {
        for key in [ONE, TWO] {
            let client = McpClient::with_key(&gateway.url("/mcp"), era, Some(key)).await;
            let stream = client.listen().await;
            streams.push((client, stream));
        }
    }
    let listens = || async {
        gateway
            .metric("moongate_streams")
            .await
            .filter(|n| *n == 4.0)
    };
    until("all listen", listens).await;
    // Only the first key sees less; the limits and hosts concern no list.
    let narrowed = "tools = [\"*\", \"!one__y\"]";
    gateway
        .change(|setup| {
            setup
                .with("auth.keys.1", narrowed)
                .with("limits", "body = \"1MiB\"")
                .with("gateway", "allowed_hosts = [\"h\"]")
        })
        .await;
    for (client, _) in streams
        .iter()
        .filter(|(client, _)| client.key.as_deref() == Some(ONE))
    {
        assert_eq!(client.tools().await, ["one__x", "two__z"]);
    }
    // Then all see something else: whoever heard of the first change hears twice, the others once.
    gateway
        .change(|setup| setup.with("servers.two", "prefix = \"2\""))
        .await;
    for (client, stream) in &mut streams {
        let times = if client.key.as_deref() == Some(ONE) {
            2
        } else {
            1
        };
        for _ in 0..times {
            stream
                .notification("notifications/tools/list_changed")
                .await;
        }
        // Nothing else is owed: the next that comes is what is done next.
        assert!(
            client
                .tools()
                .await
                .iter()
                .any(|name| name.starts_with("x2__")),
            "the new name is there"
        );
    }
    gateway
        .change(|setup| setup.with("servers.two", "prefix = \"3\""))
        .await;
    for (_, stream) in &mut streams {
        stream
            .notification("notifications/tools/list_changed")
            .await;
    }
    gateway
        .change(|setup| {
            setup
                .without("auth.keys.1")
                .without("auth.keys.2")
                .with("auth.keys.9", &key(9, "key-number-9-0123456789"))
        })
        .await;
    for (_, mut stream) in streams {
        let mut told = 0;
        while let Some(message) = stream.message().await {
            told += i32::from(message["method"] == "notifications/tools/list_changed");
        }
        assert_eq!(
            told, 0,
            "one was for the one change, and then comes the end: its key is gone"
        );
    }
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_removed_is_gone_at_once_and_one_that_stays_notices_nothing() {
    let mock = serve(legacy()).await;
    let mut gateway = with_keys(Setup::new().http("a", &mock.url)).start().await;
    gateway.ready(&["a"]).await;
    let one = McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(ONE)).await;
    let two = McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(TWO)).await;
    let modern = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(ONE)).await;
    let mut stream = one.listen().await;
    let mut subscription = modern.listen().await;
    let _kept = two.listen().await;
    // A new key beside the old ones, then the first goes: the second is another row of the file by
    // then.
    gateway
        .change(|setup| setup.with("auth.keys.0", &key(0, "key-number-0-0123456789")))
        .await;
    two.call("a__echo", json!({})).await.text();
    one.call("a__echo", json!({})).await.text();
    gateway.change(|setup| setup.without("auth.keys.1")).await;
    assert_eq!(
        one.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
            .await
            .status,
        401
    );
    while stream.message().await.is_some() {}
    while subscription.message().await.is_some() {}
    until("its session is gone", || async {
        gateway
            .metric("moongate_sessions")
            .await
            .filter(|n| *n == 1.0)
    })
    .await;
    // The same session, whose key was never touched.
    two.call("a__echo", json!({})).await.text();
    // A key of the old name with another secret is somebody else, whatever session it knows of.
    gateway
        .change(|setup| setup.with("auth.keys.1", &key(1, "key-number-3-0123456789")))
        .await;
    let other = McpClient {
        key: Some("key-number-3-0123456789".to_owned()),
        ..one.clone()
    };
    assert_eq!(
        other
            .post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
            .await
            .status,
        404
    );
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_session_ends_with_its_key_is_answered() {
    let mock = serve(legacy()).await;
    let mut gateway = with_keys(Setup::new().http("a", &mock.url)).start().await;
    gateway.ready(&["a"]).await;
    let one = McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(ONE)).await;
    let calling = tokio::spawn(async move { one.call("a__hang", json!({})).await });
    until("the call runs", || async {
        gateway
            .metric("moongate_inflight")
            .await
            .filter(|n| *n == 1.0)
    })
    .await;
    gateway.change(|setup| setup.without("auth.keys.1")).await;
    // Nobody cancelled it: a stream that just ended would leave the client waiting.
    let answered = calling.await.unwrap().error();
    assert!(
        answered["message"]
            .as_str()
            .unwrap()
            .contains("key of this call was removed"),
        "{answered}"
    );
    gateway.app.stop().await;
}

/// Answered at once or as a stream, over HTTP or on a pipe.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_removed_key_end_at_once() {
    let old = serve(legacy()).await;
    let new = serve(modern()).await;
    let mut gateway = with_keys(Setup::new().http("old", &old.url).http("new", &new.url))
        .start()
        .await;
    gateway.ready(&["old", "new"]).await;
    let running = async |wanted: f64| {
        let reached = || async {
            gateway
                .metric("moongate_inflight")
                .await
                .filter(|n| *n == wanted)
        };
        until("the calls run", reached).await;
    };
    let mut calling = Vec::new();
    for server in ["old", "new"] {
        let one = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(ONE)).await;
        let tool = format!("{server}__hang");
        calling.push(tokio::spawn(
            async move { one.call(&tool, json!({})).await },
        ));
    }
    running(2.0).await;
    let two = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(TWO)).await;
    let theirs = tokio::spawn(async move { two.call("new__hang", json!({})).await });
    running(3.0).await;
    // Clients on pipes, one in each era; the input stays open.
    let mut credentials = http::HeaderMap::new();
    credentials.insert("authorization", format!("Bearer {ONE}").parse().unwrap());
    let mut pipes = Vec::new();
    for era in ERAS {
        let (mut input, theirs) = tokio::io::duplex(1 << 16);
        let (out, output) = tokio::io::duplex(1 << 16);
        let pipe = gateway.app.pipe("", &credentials).unwrap();
        let mut params = json!({"name": "new__hang", "arguments": {}});
        if era == Era::Modern {
            params["_meta"] = modern_meta();
        } else {
            let opening = json!({"protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "t", "version": "1"}});
            input
                .write_all(format!("{}\n", body_of(0, "initialize", opening)).as_bytes())
                .await
                .unwrap();
        }
        input
            .write_all(format!("{}\n", body_of(1, "tools/call", params)).as_bytes())
            .await
            .unwrap();
        let serving = async move {
            pipe.serve(theirs, out).await;
            drop(input);
        };
        pipes.push((tokio::spawn(serving), output));
    }
    running(5.0).await;
    gateway.change(|setup| setup.without("auth.keys.1")).await;
    for call in calling {
        let error = within("an answer", call).await.unwrap().error();
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("key of this call was removed"),
            "{error}"
        );
    }
    for (serving, mut output) in pipes {
        within("the end of a pipe", serving).await.unwrap();
        let mut said = String::new();
        output.read_to_string(&mut said).await.unwrap();
        let results = said
            .lines()
            .filter(|line| line.contains("\"id\":1") && line.contains("\"result\""));
        assert_eq!(results.count(), 0, "{said}");
    }
    until("they are over", || async {
        gateway
            .metric("moongate_inflight")
            .await
            .filter(|n| *n == 1.0)
    })
    .await;
    assert!(!theirs.is_finished(), "the other key's call goes on");
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_others_can_reach_is_never_without_keys() {
    let open = Setup::new()
        .with("gateway", "listen = \"0.0.0.0:0\"")
        .with("auth.keys.1", &key(1, ONE));
    let mut gateway = open.start().await;
    // Right for a gateway that starts with it; this one listens elsewhere already.
    let outcome = gateway
        .change(|setup| {
            setup
                .with("gateway", "listen = \"127.0.0.1:0\"")
                .without("auth.keys.1")
        })
        .await;
    assert!(
        matches!(&outcome,
            ReloadOutcome::Refused(why) if why.contains("0.0.0.0") && why.contains("fix")),
        "{outcome:?}"
    );
    let port = gateway.app.addresses[0].port();
    let stranger = McpClient::open(&format!("http://127.0.0.1:{port}/mcp"), Era::Modern).await;
    assert_eq!(
        stranger.request_as(1, "tools/list", json!({})).await.status,
        401
    );
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
    assert_eq!(
        (client.tools().await, &gateway.status("b").await["state"]),
        (vec!["a__x".to_owned()], &json!("disabled"))
    );
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
    assert_eq!(
        (&diff.added[..], &diff.removed[..]),
        (&["b".to_owned()][..], &["a".to_owned()][..])
    );
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
