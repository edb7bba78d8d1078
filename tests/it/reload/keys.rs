//! What a change does to client keys, and to the sessions, streams and calls of those who have them.

use moongate::app::ReloadOutcome;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;

use crate::harness::{
    ERAS, Era, EventStream, Gateway, McpClient, Setup, body_of, legacy, modern, modern_meta, only,
    serve, until, within,
};

const ONE: &str = "key-number-1-0123456789";
const TWO: &str = "key-number-2-0123456789";

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

/// Clients of both eras with each of the two keys, and their streams.
async fn listening(gateway: &Gateway) -> Vec<(McpClient, EventStream)> {
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
    streams
}

/// Reads a stream to its end; gives how often it told of other tools.
async fn count_list_changes(mut stream: EventStream) -> i32 {
    let mut told = 0;
    while let Some(message) = stream.message().await {
        told += i32::from(message["method"] == "notifications/tools/list_changed");
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn list_changes_are_notified_only_for_changed_lists() {
    let one = serve(only(legacy(), &["x", "y"])).await;
    let two = serve(only(modern(), &["z"])).await;
    let mut gateway = with_keys(Setup::new().http("one", &one.url).http("two", &two.url))
        .start()
        .await;
    gateway.ready(&["one", "two"]).await;
    let mut streams = listening(&gateway).await;
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
    for (_, stream) in streams {
        assert_eq!(
            count_list_changes(stream).await,
            0,
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

/// Waits until so many calls run.
async fn until_inflight(gateway: &Gateway, wanted: f64) {
    let reached = || async {
        gateway
            .metric("moongate_inflight")
            .await
            .filter(|n| *n == wanted)
    };
    until("the calls run", reached).await;
}

/// Calls a tool that never answers, on a pipe whose input stays open. Gives the task that serves
/// it, and its output.
async fn hang_on_pipe(
    gateway: &Gateway,
    credentials: &http::HeaderMap,
    era: Era,
) -> (JoinHandle<()>, DuplexStream) {
    let (mut input, theirs) = tokio::io::duplex(1 << 16);
    let (out, output) = tokio::io::duplex(1 << 16);
    let pipe = gateway.app.pipe("", credentials).unwrap();
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
    (tokio::spawn(serving), output)
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
    let mut calling = Vec::new();
    for server in ["old", "new"] {
        let one = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(ONE)).await;
        let tool = format!("{server}__hang");
        calling.push(tokio::spawn(
            async move { one.call(&tool, json!({})).await },
        ));
    }
    until_inflight(&gateway, 2.0).await;
    let two = McpClient::with_key(&gateway.url("/mcp"), Era::Modern, Some(TWO)).await;
    let theirs = tokio::spawn(async move { two.call("new__hang", json!({})).await });
    until_inflight(&gateway, 3.0).await;
    // Clients on pipes, one in each era; the input stays open.
    let mut credentials = http::HeaderMap::new();
    credentials.insert("authorization", format!("Bearer {ONE}").parse().unwrap());
    let mut pipes = Vec::new();
    for era in ERAS {
        pipes.push(hang_on_pipe(&gateway, &credentials, era).await);
    }
    until_inflight(&gateway, 5.0).await;
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
