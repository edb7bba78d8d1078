//! What a change means for what outlives it: rates, and what is kept for a restart.

use std::time::Duration;

use moongate::app::ReloadOutcome;
use serde_json::json;

use crate::harness::{Era, Gateway, McpClient, Setup, holds, legacy, only, serve, until};

const ONE: &str = "key-number-1-0123456789";
const TWO: &str = "key-number-2-0123456789";

fn key(name: &str, key: &str) -> String {
    format!("name = \"{name}\"\nkey = \"{key}\"")
}

async fn with_key(gateway: &Gateway, key: &str) -> McpClient {
    McpClient::with_key(&gateway.url("/mcp"), Era::Legacy, Some(key)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_rate_keeps_its_tokens_and_a_changed_rate_applies_at_once() {
    let slow = format!("{}\nrate = \"2/h\"", key("one", ONE));
    let mut gateway = Setup::new().with("auth.keys.1", &slow).start().await;
    let client = McpClient {
        key: Some(ONE.to_owned()),
        ..gateway.client(Era::Modern).await
    };
    let lists = || async { client.request_as(1, "tools/list", json!({})).await.status };
    assert_eq!(
        [lists().await, lists().await, lists().await],
        [200, 200, 429]
    );
    // Another key stands before it now; what was used of the rate is still used.
    let outcome = gateway
        .change(|setup| setup.with("auth.keys.0", &key("two", TWO)))
        .await;
    assert!(
        matches!(&outcome, ReloadOutcome::Applied(diff) if diff.settings == ["auth.keys"]),
        "{outcome:?}"
    );
    assert_eq!(lists().await, 429);
    let other = McpClient {
        key: Some(TWO.to_owned()),
        ..client.clone()
    };
    for _ in 0..5 {
        assert_eq!(
            other.request_as(1, "tools/list", json!({})).await.status,
            200,
            "it has no rate"
        );
    }
    gateway
        .change(|setup| setup.with("limits", "rate = \"1/h\""))
        .await;
    let others = [
        other.request_as(1, "tools/list", json!({})).await.status,
        other.request_as(1, "tools/list", json!({})).await.status,
    ];
    assert_eq!(others, [200, 429], "the rate of all is a new one for it");
    assert_eq!(lists().await, 429, "its own did not change");
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_added_keys_are_restored_and_those_of_removed_keys_end() {
    let setup = Setup::new().lasting().with("auth.keys.1", &key("one", ONE));
    let mut gateway = setup.life().await;
    let one = with_key(&gateway, ONE).await;
    gateway
        .change(|setup| setup.with("auth.keys.2", &key("two", TWO)))
        .await;
    let two = with_key(&gateway, TWO).await;
    gateway.app.stop().await;
    let setup = setup.with("auth.keys.2", &key("two", TWO));
    let mut gateway = setup.life().await;
    assert_eq!(gateway.app.metrics.clients.sessions.get(), 2);
    // One that came with a change is known as well as one that was there from the start.
    assert_eq!(two.request_as(1, "ping", json!({})).await.status, 200);
    // One whose client has not come back yet goes with its key, and does not come back with it.
    gateway.change(|setup| setup.without("auth.keys.1")).await;
    assert_eq!(gateway.app.metrics.clients.sessions.get(), 1);
    gateway
        .change(|setup| setup.with("auth.keys.1", &key("one", ONE)))
        .await;
    assert_eq!(one.request_as(1, "ping", json!({})).await.status, 404);
    assert_eq!(two.request_as(1, "ping", json!({})).await.status, 200);
    gateway.app.stop().await;
    let gateway = setup.life().await;
    assert_eq!(
        gateway.app.metrics.clients.sessions.get(),
        1,
        "nor after a restart"
    );
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_server_that_was_removed_do_not_come_back() {
    let a = serve(only(legacy(), &["x"])).await;
    let b = serve(only(legacy(), &["y"])).await;
    let setup = Setup::new().lasting().http("a", &a.url).http("b", &b.url);
    let mut gateway = setup.life().await;
    gateway.ready(&["a", "b"]).await;
    gateway.change(|setup| setup.without("servers.a")).await;
    let gone = || async {
        gateway
            .metric("moongate_server_up{mcp_server=\"a\",state=\"ready\"}")
            .await
            .is_none()
    };
    until("it has ended", || async { gone().await.then_some(()) }).await;
    gateway.app.stop().await;
    drop((a, b));
    let gateway = setup.life().await;
    let client = gateway.client(Era::Modern).await;
    assert_eq!(
        client.tools().await,
        ["b__y"],
        "of what was there at the end"
    );
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_removed_server_are_deleted_at_it() {
    let mock = serve(legacy()).await;
    let setup = Setup::new()
        .lasting()
        .http("a", &mock.url)
        .with("servers.a", "share = \"session\"");
    let mut gateway = setup.life().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    assert_eq!(
        client.call("a__echo", json!({"n": 1})).await.text(),
        "{\"n\":1}"
    );
    let own = mock.sessions();
    assert!(own >= 2, "the gateway's, and the client's: {own}");
    gateway.change(|setup| setup.without("servers.a")).await;
    holds("all of them ended", || mock.sessions() == 0).await;
    tokio::time::timeout(Duration::from_secs(60), gateway.app.stop())
        .await
        .unwrap();
}
