//! What clients are subscribed to while servers go and come back.

use moongate::app::ReloadOutcome;
use moongate_mock::{MockHandle, MockScript};
use serde_json::{Value, json};

use crate::harness::{Era, EventStream, Gateway, Setup, holds, legacy, modern, only, serve};

const WATCHED: &str = "mock://watched";

/// The same server with one resource and nothing else.
fn watching(script: MockScript, uri: &str) -> MockScript {
    MockScript {
        resources: vec![json!({"uri": uri, "name": "x"})],
        ..only(script, &["echo"])
    }
}

async fn switch(gateway: &mut Gateway, on: bool) {
    let outcome = gateway
        .change(|setup| setup.with("servers.a", &format!("enabled = {on}")))
        .await;
    assert!(matches!(outcome, ReloadOutcome::Applied(_)), "{outcome:?}");
}

/// Hears that the resource changed, however often that is said.
async fn hears(server: &MockHandle, stream: &mut EventStream) {
    holds("the server is subscribed to", || {
        server.notify_resource(WATCHED) > 0
    })
    .await;
    let told: Value = stream.notification("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], WATCHED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_survives_disabling_and_enabling_its_server() {
    for (script, era) in [
        (legacy(), Era::Legacy),
        (legacy(), Era::Modern),
        (modern(), Era::Legacy),
    ] {
        let a = serve(watching(script, WATCHED)).await;
        let b = serve(watching(legacy(), "b://x")).await;
        let mut gateway = Setup::new()
            .http("a", &a.url)
            .http("b", &b.url)
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        let client = gateway.client(era).await;
        let mut stream = client.subscribe(WATCHED).await;
        hears(&a, &mut stream).await;
        for _ in 0..2 {
            switch(&mut gateway, false).await;
            holds("nobody is subscribed", || a.notify_resource(WATCHED) == 0).await;
            switch(&mut gateway, true).await;
            gateway.ready(&["a"]).await;
            hears(&a, &mut stream).await;
        }
        assert_eq!(
            b.counters().of("resources/subscribe"),
            0,
            "it is no other server's"
        );
        gateway.app.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_outlives_changes_in_quick_succession() {
    let a = serve(watching(legacy(), WATCHED)).await;
    let b = serve(watching(legacy(), "b://x")).await;
    let mut gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.subscribe(WATCHED).await;
    hears(&a, &mut stream).await;
    for _ in 0..5 {
        switch(&mut gateway, false).await;
        switch(&mut gateway, true).await;
    }
    gateway.ready(&["a"]).await;
    hears(&a, &mut stream).await;
    // And it ends with its client.
    client
        .request("resources/unsubscribe", json!({"uri": WATCHED}))
        .await
        .result();
    holds("nobody is subscribed", || a.notify_resource(WATCHED) == 0).await;
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_may_refuse_a_subscription() {
    let b = serve(watching(legacy(), "b://x")).await;
    let gateway = Setup::new().http("b", &b.url).start().await;
    gateway.ready(&["b"]).await;
    let client = gateway.client(Era::Legacy).await;
    let refusal = client
        .request("resources/subscribe", json!({"uri": WATCHED}))
        .await;
    assert_eq!(refusal.answer()["error"]["code"], -32002, "{refusal:?}");
    gateway.app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_finds_the_server_that_lists_its_resource_at_last() {
    let a = serve(watching(legacy(), WATCHED)).await;
    let b = serve(watching(legacy(), "b://x")).await;
    let setup = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .with("servers.a", "enabled = false");
    let mut gateway = setup.start().await;
    gateway.ready(&["b"]).await;
    let client = gateway.client(Era::Legacy).await;
    // Only one server has resources: it is asked, as long as nobody knows better.
    let mut stream = client.subscribe(WATCHED).await;
    holds("the other is subscribed to", || {
        b.counters().of("resources/subscribe") == 1
    })
    .await;
    switch(&mut gateway, true).await;
    gateway.ready(&["a"]).await;
    hears(&a, &mut stream).await;
    // Subscribing once more changes nothing about that.
    client
        .request("resources/subscribe", json!({"uri": WATCHED}))
        .await
        .result();
    hears(&a, &mut stream).await;
    assert_eq!(b.counters().of("resources/subscribe"), 1);
    gateway.app.stop().await;
}
