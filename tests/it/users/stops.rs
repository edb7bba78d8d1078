//! How a gateway stops: what it finishes first, and which signals end it at once.

use moongate_mock::MockHandle;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    Era, EventStream, HttpClient, McpClient, Setup, alive, holds, legacy, modern, serve, until,
    within,
};

fn ended(mock: &MockHandle) -> (u64, u64) {
    let counters = mock.counters();
    (counters.sessions, counters.deleted)
}

/// Checks the last word on streams of legacy clients, and on subscriptions of modern ones.
async fn assert_streams_end(listening: Vec<EventStream>, subscribed: Vec<EventStream>) {
    for mut stream in listening {
        let mut last = String::new();
        while let Some(event) = stream.next().await {
            last = event;
        }
        assert_eq!(last, "retry: 1000");
    }
    for mut stream in subscribed {
        let mut last = Value::Null;
        while let Some(message) = stream.message().await {
            last = message;
        }
        assert_eq!(last["id"], "listening", "{last}");
        assert!(last["result"].is_object(), "{last}");
    }
}

#[tokio::test]
async fn a_stop_drains_and_leaves_nothing_behind() {
    let old = serve(legacy()).await;
    let new = serve(modern()).await;
    let setup = Setup::new()
        .http("old", &old.url)
        .http("new", &new.url)
        .stdio("child", &legacy());
    let setup = setup.with("gateway", "drain = \"20s\"").with(
        "gateway",
        &format!("admin = \"127.0.0.1:{}\"", crate::harness::lasting_port()),
    );
    let admin = setup.load().unwrap().plan.admin.unwrap();
    let mut process = setup.spawn().await;
    let http = HttpClient::new();
    let pid = until("the servers are ready", || async {
        let status = http
            .get(&format!("http://{admin}/api/v1/status"))
            .await
            .json();
        let servers = status["servers"].as_array().unwrap().clone();
        let pid = servers.iter().find_map(|server| server["pid"].as_u64());
        pid.filter(|_| servers.iter().all(|server| server["state"] == "ready"))
    });
    let pid = u32::try_from(pid.await).unwrap();
    let clients = [
        McpClient::open(&process.mcp(), Era::Legacy).await,
        McpClient::open(&process.mcp(), Era::Modern).await,
    ];
    let url = process.mcp();
    let legacy =
        futures_util::future::join_all((0..20).map(|_| McpClient::open(&url, Era::Legacy))).await;
    let listening =
        futures_util::future::join_all(legacy.iter().map(|client| client.listen())).await;
    let subscribed = futures_util::future::join_all((0..20).map(|_| clients[1].listen())).await;
    let calls = (0..100).map(|n| {
        let client = clients[n % 2].clone();
        let server = ["old", "new", "child"][n % 3];
        let params = json!({"name": format!("{server}__sleep"), "arguments": {"ms": 1500}});
        tokio::spawn(async move { client.request("tools/call", params).await.text() })
    });
    let calls: Vec<_> = calls.collect();
    holds("the calls are running", || {
        old.counters().of("tools/call") + new.counters().of("tools/call") >= 66
    })
    .await;
    process.signal(Signal::TERM);
    until("it is not ready", || async {
        (http.get(&format!("http://{admin}/readyz")).await.status == 503).then_some(())
    })
    .await;
    assert_eq!(http.get(&format!("http://{admin}/livez")).await.status, 200);
    until("nobody else comes in", || async {
        tokio::net::TcpStream::connect(address(&process.base))
            .await
            .err()
    })
    .await;
    assert_streams_end(listening, subscribed).await;
    for call in calls {
        assert_eq!(within("a call ends", call).await.unwrap(), "slept 1500 ms");
    }
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(!alive(pid), "the child has ended");
    let (sessions, deleted) = ended(&old);
    assert!(sessions > 0, "its sessions at servers have ended");
    assert_eq!(deleted, sessions, "its sessions at servers have ended");
}

fn address(base: &str) -> std::net::SocketAddr {
    base.trim_start_matches("http://").parse().unwrap()
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mock = serve(legacy()).await;
    let mut process = Setup::new()
        .http("a", &mock.url)
        .with("gateway", "drain = \"1h\"")
        .spawn()
        .await;
    let client = McpClient::open(&process.mcp(), Era::Legacy).await;
    until("the server is there", || async {
        client
            .tools()
            .await
            .contains(&"a__hang".to_owned())
            .then_some(())
    })
    .await;
    let call = tokio::spawn(async move {
        client
            .start(1, "tools/call", json!({"name": "a__hang"}))
            .await
    });
    holds("the call is running", || {
        mock.counters().of("tools/call") == 1
    })
    .await;
    process.signal(Signal::TERM);
    until("it stops", || {
        std::future::ready(process.log().contains("stopping").then_some(()))
    })
    .await;
    tokio::time::sleep(tokio::time::Duration::from_millis(600)).await;
    process.signal(Signal::TERM);
    assert_eq!(process.ended().await.code(), Some(0));
    call.abort();
}

/// Wrappers such as `timeout` and `npm` signal their child, and then the group that it is in.
#[tokio::test]
async fn a_signal_that_comes_twice_at_once_drains() {
    for signals in [
        [Signal::TERM; 2],
        [Signal::INT; 2],
        [Signal::TERM, Signal::INT],
    ] {
        let mut attempts = 0;
        while !drains_after(signals).await {
            attempts += 1;
            assert!(attempts < 20, "the machine is too busy to tell");
        }
    }
}

/// Signals a gateway twice, and asserts that it drains. Returns false if the second signal came too
/// late to be an echo.
async fn drains_after(signals: [Signal; 2]) -> bool {
    let mock = serve(legacy()).await;
    let mut process = Setup::new()
        .http("a", &mock.url)
        .with("gateway", "drain = \"20s\"")
        .spawn()
        .await;
    let client = McpClient::open(&process.mcp(), Era::Legacy).await;
    until("the server is there", || async {
        client
            .tools()
            .await
            .contains(&"a__sleep".to_owned())
            .then_some(())
    })
    .await;
    let call = tokio::spawn(async move { client.call("a__sleep", json!({"ms": 1000})).await });
    holds("the call is running", || {
        mock.counters().of("tools/call") == 1
    })
    .await;
    let first = tokio::time::Instant::now();
    process.signal(signals[0]);
    until("it stops", || {
        std::future::ready(process.log().contains("stopping").then_some(()))
    })
    .await;
    process.signal(signals[1]);
    if first.elapsed() >= tokio::time::Duration::from_millis(300) {
        call.abort();
        return false;
    }
    assert!(
        !call.await.unwrap().text().is_empty(),
        "the call is answered: {}",
        process.log()
    );
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(
        !process.log().contains("stopped at once"),
        "{}",
        process.log()
    );
    true
}
