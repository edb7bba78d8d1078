//! Subscriptions at servers that offer none, or say so and serve them all the same.

use futures_util::future::join_all;
use moongate_mock::{FaultAction, FaultRule, MockHandle, MockScript};
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, EventStream, Gateway, McpClient, Setup, legacy, modern, serve, until, within,
};

const WATCHED: &str = "mock://watched";

/// The same server, which says this of its resources.
fn saying(script: MockScript, resources: Value) -> MockScript {
    MockScript {
        capabilities: Some(json!({"tools": {}, "resources": resources})),
        ..script
    }
}

/// The standard server in the words of the Python SDK 1.x, which says `false` whatever handlers
/// there are.
fn denying() -> MockScript {
    saying(legacy(), json!({"subscribe": false, "listChanged": false}))
}

async fn behind(script: MockScript) -> (MockHandle, Gateway) {
    let mock = serve(script).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    (mock, gateway)
}

fn asked(mock: &MockHandle) -> u64 {
    mock.counters().of("resources/subscribe")
}

/// What a modern client is told that it is subscribed to.
async fn honoured(stream: &mut EventStream) -> Value {
    let method = "notifications/subscriptions/acknowledged";
    within("it is told", stream.notification(method)).await["params"]["notifications"].clone()
}

/// Touches the resource until the stream tells of it.
async fn hears(client: &McpClient, stream: &mut EventStream) {
    let touching = async {
        loop {
            client
                .call("a__touch", json!({"uri": WATCHED}))
                .await
                .text();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        _ = within("it is told", stream.notification("notifications/resources/updated")) => {}
        () = touching => {}
    }
}

fn is_plain(error: &Value) {
    assert_eq!(error["code"], -32601, "{error}");
    assert_eq!(
        error["message"],
        "Server \"a\" does not support resource subscriptions"
    );
}

#[tokio::test]
async fn a_server_that_offers_no_subscriptions_is_named() {
    let denied = json!({"subscribe": false});
    for script in [
        saying(legacy(), json!({})),
        saying(modern(), json!({})),
        saying(modern(), denied),
    ] {
        let (mock, gateway) = behind(script).await;
        let client = gateway.client(Era::Legacy).await;
        is_plain(
            &client
                .request("resources/subscribe", json!({"uri": WATCHED}))
                .await
                .error(),
        );
        let mut stream = gateway.client(Era::Modern).await.subscribe(WATCHED).await;
        assert_eq!(honoured(&mut stream).await, json!({}));
        assert_eq!(asked(&mock), 0);
    }
}

#[tokio::test]
async fn a_server_that_serves_undeclared_subscriptions_is_tried_once() {
    for era in ERAS {
        let (mock, gateway) = behind(denying()).await;
        let client = gateway.client(era).await;
        let mut stream = client.subscribe(WATCHED).await;
        if era == Era::Modern {
            assert_eq!(
                honoured(&mut stream).await,
                json!({"resourceSubscriptions": [WATCHED]})
            );
        }
        assert_eq!(asked(&mock), 1);
        hears(&client, &mut stream).await;
        // From then on as anywhere else, and nobody is asked twice for the same.
        let other = gateway.client(Era::Legacy).await;
        let mut heard = other.subscribe(WATCHED).await;
        hears(&other, &mut heard).await;
        assert_eq!(asked(&mock), 1);
        // Also in the next session.
        mock.drop_sessions();
        other.call("a__echo", json!({})).await.text();
        hears(&other, &mut heard).await;
        assert_eq!(asked(&mock), 2);
    }
}

#[tokio::test]
async fn a_server_that_refuses_subscriptions_is_tried_once_for_all_clients() {
    let refused = FaultAction::Error {
        code: -32601,
        message: "Method not found".to_owned(),
    };
    for era in ERAS {
        let script = denying()
            .with_fault(FaultRule::on(
                "resources/subscribe",
                FaultAction::Delay { ms: 300 },
            ))
            .with_fault(FaultRule::on("resources/subscribe", refused.clone()));
        let (mock, gateway) = behind(script).await;
        // Whoever asks meanwhile waits for the same answer.
        let clients = join_all((0..8).map(|_| gateway.client(Era::Legacy))).await;
        let first = gateway.client(era).await;
        let asking = clients
            .iter()
            .map(|client| client.request("resources/subscribe", json!({"uri": WATCHED})));
        let (others, ()) = tokio::join!(join_all(asking), async {
            if era == Era::Modern {
                assert_eq!(
                    honoured(&mut first.subscribe(WATCHED).await).await,
                    json!({})
                );
            } else {
                is_plain(
                    &first
                        .request("resources/subscribe", json!({"uri": WATCHED}))
                        .await
                        .error(),
                );
            }
        });
        for reply in others {
            is_plain(&reply.error());
        }
        is_plain(
            &clients[0]
                .request("resources/subscribe", json!({"uri": "mock://static/text"}))
                .await
                .error(),
        );
        assert_eq!(asked(&mock), 1);
    }
}

#[tokio::test]
async fn a_subscription_error_inside_of_a_4xx_counts_as_well() {
    let body =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}"#;
    let headers = Default::default();
    let content_type = Some("application/json".to_owned());
    let refused = FaultAction::Status {
        status: 400,
        headers,
        body: body.to_owned(),
        content_type,
    };
    let (mock, gateway) =
        behind(denying().with_fault(FaultRule::on("resources/subscribe", refused))).await;
    let client = gateway.client(Era::Legacy).await;
    for _ in 0..3 {
        is_plain(
            &client
                .request("resources/subscribe", json!({"uri": WATCHED}))
                .await
                .error(),
        );
    }
    assert_eq!(asked(&mock), 1);
}

#[tokio::test]
async fn a_refused_subscription_does_not_affect_other_resources() {
    let (mock, gateway) = behind(denying()).await;
    let client = McpClient::open(&gateway.url("/mcp/a"), Era::Legacy).await;
    let unknown = client
        .request("resources/subscribe", json!({"uri": "b://c"}))
        .await
        .error();
    assert_eq!(unknown["code"], -32002, "{unknown}");
    let other = gateway.client(Era::Legacy).await;
    let mut stream = other.subscribe(WATCHED).await;
    until("it is asked for", || async {
        (asked(&mock) == 2).then_some(())
    })
    .await;
    hears(&other, &mut stream).await;
}

#[tokio::test]
async fn a_subscription_waits_for_its_server_in_both_eras() {
    let slow = MockScript::standard()
        .with_fault(FaultRule::on(
            "resources/subscribe",
            FaultAction::Delay { ms: 300 },
        ))
        .with_fault(FaultRule::on("subscriptions/listen", FaultAction::Delay { ms: 300 }).after(1));
    let mock = serve(slow.clone()).await;
    for setup in [
        Setup::new().stdio("a", &slow),
        Setup::new().http("a", &mock.url),
    ] {
        let gateway = setup.start().await;
        gateway.ready(&["a"]).await;
        // Each era has its own process or session, and both are subscribed.
        let old = gateway.client(Era::Legacy).await;
        let new = gateway.client(Era::Modern).await;
        for client in [&new, &old] {
            client.call("a__echo", json!({})).await.text();
        }
        let mut stream = old.listen().await;
        old.request("resources/subscribe", json!({"uri": WATCHED}))
            .await
            .result();
        for client in [&old, &new] {
            assert_ne!(
                client
                    .call("a__touch", json!({"uri": WATCHED}))
                    .await
                    .text(),
                "told 0",
                "{:?}",
                client.era()
            );
            stream.notification("notifications/resources/updated").await;
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_subscription_reaches_its_client() {
    let refused = FaultAction::Error {
        code: -32002,
        message: "Resource not found".to_owned(),
    };
    let (mock, gateway) =
        behind(legacy().with_fault(FaultRule::on("resources/subscribe", refused).times(1))).await;
    let client = gateway.client(Era::Legacy).await;
    let error = client
        .request("resources/subscribe", json!({"uri": WATCHED}))
        .await
        .error();
    assert_eq!(error["code"], -32002, "{error}");
    assert_eq!(asked(&mock), 1, "{error}");
    // It is asked again for the next client.
    hears(&client, &mut client.subscribe(WATCHED).await).await;
    assert_eq!(asked(&mock), 2);
}
