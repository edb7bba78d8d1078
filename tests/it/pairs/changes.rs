//! Changes that servers tell of: lists and resources.

use std::sync::Arc;

use moongate_testing::wait::{LONG, holds};
use moongate_testing::{EventStream, McpClient};
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Waits until the gateway listens to the server.
pub(crate) async fn listened_to(cell: &MatrixCell) {
    match &cell.rig.main.handle {
        Some(handle) => holds("the gateway listens", || handle.listeners() > 0).await,
        None if cell.modern_server() => {
            holds("the gateway listens", || {
                !cell.rig.main.of("subscriptions/listen").is_empty()
            })
            .await;
        }
        None => {}
    }
}

/// The client's stream for these changes.
async fn hear(cell: &MatrixCell, client: &McpClient, filter: Value) -> EventStream {
    if !cell.modern_client() {
        let stream = client.open_server_stream().await;
        for uri in filter["resourceSubscriptions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert_eq!(
                client
                    .exchange("resources/subscribe", json!({"uri": uri}))
                    .await
                    .result(),
                &json!({})
            );
        }
        return stream;
    }
    let params = json!({"notifications": filter});
    let mut stream = client
        .prepare("subscriptions/listen")
        .id(r#""sub\u002d1""#)
        .params(&params)
        .open()
        .await;
    assert!(
        stream.is_events(),
        "{}: {:?}",
        stream.status,
        stream.headers
    );
    let first = stream.next_message().await.unwrap();
    assert_eq!(
        first.method(),
        "notifications/subscriptions/acknowledged",
        "it must come first"
    );
    assert_eq!(first.value["params"]["notifications"], filter);
    assert!(
        first
            .raw
            .contains(&format!(r#""{SUBSCRIPTION}":"sub\u002d1""#)),
        "{}",
        first.raw
    );
    stream
}

fn check_tag(cell: &MatrixCell, message: &Value) {
    let wanted = if cell.modern_client() {
        json!("sub-1")
    } else {
        Value::Null
    };
    assert_eq!(
        message["params"]["_meta"][SUBSCRIPTION], wanted,
        "{message}"
    );
}

pub(crate) async fn list_changed(cell: Arc<MatrixCell>) {
    listened_to(&cell).await;
    let client = cell.client().await;
    let mut stream = hear(&cell, &client, json!({"toolsListChanged": true})).await;
    let name = client
        .exchange_tool("main__change", json!({}))
        .await
        .text()
        .to_owned();
    let message = stream.next_message().await.expect("the stream ended");
    assert_eq!(
        message.method(),
        "notifications/tools/list_changed",
        "{}",
        message.raw
    );
    check_tag(&cell, &message.value);
    // Whoever hears of it finds it.
    let list = client.exchange("tools/list", json!({})).await;
    let tools = list.result()["tools"].as_array().unwrap();
    assert!(
        tools
            .iter()
            .any(|tool| tool["name"] == format!("main__{name}")),
        "{name}"
    );
    assert_eq!(
        client
            .exchange_tool(&format!("main__{name}"), json!({"new": 1}))
            .await
            .text(),
        r#"{"new":1}"#
    );
}

/// Says that a resource of `main` changed, until as many are told as should be.
async fn touch(client: &McpClient, uri: &str, heard: bool) {
    let touching = async {
        loop {
            let answer = client
                .exchange_tool("main__touch", json!({"uri": uri}))
                .await;
            if (answer.text() != "told 0") == heard {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let touched = tokio::time::timeout(LONG, touching).await;
    assert!(
        touched.is_ok(),
        "the server still believes that {} hears of {uri}",
        if heard { "nobody" } else { "somebody" }
    );
}

pub(crate) async fn resource_updates(cell: Arc<MatrixCell>) {
    listened_to(&cell).await;
    let (client, other) = (cell.client().await, cell.client().await);
    // One that is only main's, and one that another server has too.
    for (local, exposed) in [
        ("mock://watched", "mock://watched"),
        ("mock://static/text", "moongate:main:mock://static/text"),
    ] {
        let mut stream = hear(&cell, &client, json!({"resourceSubscriptions": [exposed]})).await;
        touch(&other, local, true).await;
        let message = stream.until("notifications/resources/updated").await;
        assert_eq!(message.value["params"]["uri"], exposed);
        check_tag(&cell, &message.value);
        if !cell.modern_client() {
            assert_eq!(
                client
                    .exchange("resources/unsubscribe", json!({"uri": exposed}))
                    .await
                    .result(),
                &json!({})
            );
        }
        drop(stream);
        touch(&other, local, false).await;
    }
}

pub(crate) async fn nobody_subscribes_to_what_is_not_there(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    if !cell.modern_client() {
        assert_eq!(
            client
                .exchange("resources/subscribe", json!({"uri": "nope://x"}))
                .await
                .code(),
            -32002
        );
        assert_eq!(
            client
                .exchange("resources/subscribe", json!({}))
                .await
                .code(),
            -32602
        );
        return;
    }
    let params =
        json!({"notifications": {"resourceSubscriptions": ["nope://x", "mock://watched"]}});
    let mut stream = client
        .prepare("subscriptions/listen")
        .params(&params)
        .open()
        .await;
    let first = stream.next_message().await.unwrap();
    assert_eq!(
        first.value["params"]["notifications"],
        json!({"resourceSubscriptions": ["mock://watched"]})
    );
    let answer = client.exchange("subscriptions/listen", json!({})).await;
    assert_eq!(answer.code(), -32602);
}

pub(crate) async fn one_of_two_listeners_goes(cell: Arc<MatrixCell>) {
    listened_to(&cell).await;
    let uri = "mock://watched";
    let one = cell.client().await;
    let two = cell.client().await;
    let filter = json!({"resourceSubscriptions": [uri]});
    let first = hear(&cell, &one, filter.clone()).await;
    let mut second = hear(&cell, &two, filter).await;
    touch(&two, uri, true).await;
    second.until("notifications/resources/updated").await;
    if !cell.modern_client() {
        assert_eq!(
            one.exchange("resources/unsubscribe", json!({"uri": uri}))
                .await
                .result(),
            &json!({})
        );
    }
    drop(first);
    // The other one's interest counts as before.
    assert_ne!(
        two.exchange_tool("main__touch", json!({"uri": uri}))
            .await
            .text(),
        "told 0"
    );
    assert_eq!(
        second.until("notifications/resources/updated").await.value["params"]["uri"],
        uri
    );
    if !cell.modern_client() {
        assert_eq!(two.delete_session().await, 204);
    }
    drop(second);
    // Nobody is left, however it went.
    touch(&one, uri, false).await;
}
