//! What a server says on a connection that is one client's: that client hears it, and nobody else.
//! (Behind a bridge: `tests/it/fronts/dedicated.rs`.)

use moongate_mock::MockScript;
use serde_json::{Value, json};

use crate::harness::{
    ERAS, Era, EventStream, Gateway, McpClient, Setup, legacy, modern, serve, until, within,
};

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"to one"}}"#;

const WATCHED: &str = "mock://watched";

/// Each client has a child of its own, so that what happens in one shows in no other.
async fn children(script: &MockScript) -> Gateway {
    let gateway = Setup::new()
        .stdio("a", script)
        .with("servers.a", "share = \"session\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    gateway
}

/// Calls a tool until it is told what is wanted: a server without sessions may be listened to a
/// moment later.
async fn heard(
    client: &McpClient,
    stream: &mut EventStream,
    tool: &str,
    arguments: Value,
    method: &str,
) -> Value {
    let hearing = stream.notification(method);
    tokio::pin!(hearing);
    loop {
        client.call(tool, arguments.clone()).await.text();
        tokio::select! {
            heard = &mut hearing => return heard,
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
        }
    }
}

#[tokio::test]
async fn a_list_change_on_a_dedicated_connection_notifies_only_its_client() {
    for script in [legacy(), modern()] {
        let aside = serve(legacy()).await;
        let setup = Setup::new()
            .stdio("a", &script)
            .with("servers.a", "share = \"session\"");
        let gateway = setup.http("aside", &aside.url).start().await;
        gateway.ready(&["a", "aside"]).await;
        let one = gateway.client(Era::Legacy).await;
        let other = gateway.client(Era::Modern).await;
        for (client, silent) in [(&one, &other), (&other, &one)] {
            let mut stream = client.listen().await;
            let mut silence = silent.listen().await;
            silent.call("a__echo", json!({})).await.text();
            let method = "notifications/tools/list_changed";
            heard(client, &mut stream, "a__change", json!({}), method).await;
            // What everybody hears comes behind whatever the other client might have heard.
            until("the gateway listens", || {
                std::future::ready((aside.listeners() > 0).then_some(()))
            })
            .await;
            aside.set_prompts(&[json!({"name": format!("for-{:?}", client.era())})]);
            aside.notify_list("prompts");
            loop {
                let message = silence.message().await.unwrap();
                assert_ne!(
                    message["method"],
                    method,
                    "{:?} hears of what is {:?}'s",
                    silent.era(),
                    client.era()
                );
                if message["method"] == "notifications/prompts/list_changed" {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_resource_update_on_a_dedicated_connection_is_notified() {
    for script in [legacy(), modern()] {
        let gateway = children(&script).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let mut stream = client.subscribe(WATCHED).await;
            let method = "notifications/resources/updated";
            let updated = heard(
                &client,
                &mut stream,
                "a__touch",
                json!({"uri": WATCHED}),
                method,
            )
            .await;
            assert_eq!(updated["params"]["uri"], WATCHED, "{era:?}");
            // Its own server is subscribed to for as long as it wants that.
            let told = async |some: bool| {
                let told = async || {
                    client
                        .call("a__touch", json!({"uri": WATCHED}))
                        .await
                        .text()
                        != "told 0"
                };
                until("its server knows", || async {
                    (told().await == some).then_some(())
                })
                .await;
            };
            told(true).await;
            if era == Era::Legacy {
                client
                    .request("resources/unsubscribe", json!({"uri": WATCHED}))
                    .await
                    .result();
            }
            drop(stream);
            told(false).await;
        }
    }
}

fn with_keys(count: usize) -> Setup {
    let key = |n: usize| format!("name = \"key{n}\"\nkey = \"mg_key_{n}_0123456789\"");
    (1..=count).fold(Setup::new(), |setup, n| {
        setup.with(&format!("auth.keys.{n}"), &key(n))
    })
}

async fn client_of(gateway: &Gateway, key: usize) -> McpClient {
    McpClient::with_key(
        &gateway.url("/mcp"),
        Era::Legacy,
        Some(&format!("mg_key_{key}_0123456789")),
    )
    .await
}

#[tokio::test]
async fn log_messages_outside_of_calls_reach_their_own_session() {
    let mock = serve(legacy()).await;
    let gateway = with_keys(2)
        .http("a", &mock.url)
        .with("servers.a", "share = \"session\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let one = client_of(&gateway, 1).await;
    let other = client_of(&gateway, 2).await;
    let mut stream = one.listen().await;
    let mut silence = other.listen().await;
    for client in [&one, &other] {
        client
            .request("logging/setLevel", json!({"level": "info"}))
            .await
            .result();
    }
    one.call("a__echo", json!({})).await.text();
    until("it is told", || async {
        // The shared session, and the one that is a client's.
        (mock.send_to_sessions(LOG) >= 2).then_some(())
    })
    .await;
    let heard = stream.notification("notifications/message").await;
    assert_eq!(heard["params"]["data"], "to one");
    mock.set_tools(&[json!({"name": "new", "inputSchema": {"type": "object"}})]);
    mock.notify_list("tools");
    loop {
        let message = silence.message().await.unwrap();
        assert_ne!(
            message["method"], "notifications/message",
            "another key hears of it"
        );
        if message["method"] == "notifications/tools/list_changed" {
            break;
        }
    }
}

#[tokio::test]
async fn log_messages_of_the_shared_connection_are_forwarded_only_with_one_key() {
    for keys in [1, 2] {
        // Of both eras: the main connection is in the newer one, and legacy clients share one of
        // their own.
        let mock = serve(MockScript::standard()).await;
        let gateway = with_keys(keys).http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let mut streams = Vec::new();
        for client in [
            client_of(&gateway, 1).await,
            client_of(&gateway, keys).await,
        ] {
            streams.push(client.listen().await);
            client
                .request("logging/setLevel", json!({"level": "debug"}))
                .await
                .result();
            client.call("a__echo", json!({})).await.text();
        }
        until("it is told", || async {
            (mock.send_to_sessions(LOG) == 1).then_some(())
        })
        .await;
        if keys > 1 {
            until("it is dropped", || {
                gateway.metric("moongate_dropped_total{what=\"log\"}")
            })
            .await;
        }
        // What everybody hears comes behind it.
        mock.set_prompts(&[json!({"name": "new"})]);
        mock.notify_list("prompts");
        for mut stream in streams {
            let mut heard = 0;
            loop {
                let message = stream.message().await.unwrap();
                match message["method"].as_str() {
                    Some("notifications/message") => heard += 1,
                    Some("notifications/prompts/list_changed") => break,
                    _ => {}
                }
            }
            assert_eq!(heard, usize::from(keys == 1), "with {keys} keys");
        }
    }
}

#[tokio::test]
async fn a_session_without_a_level_gets_log_messages_outside_of_calls() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    until("it is told", || async {
        (mock.send_to_sessions(LOG) >= 1).then_some(())
    })
    .await;
    let heard = within("it is heard", stream.notification("notifications/message")).await;
    assert_eq!(heard["params"]["data"], "to one");
}

#[tokio::test]
async fn the_connection_of_a_key_that_is_removed_ends() {
    let mock = serve(legacy()).await;
    let setup = with_keys(2)
        .http("a", &mock.url)
        .with("servers.a", "share = \"principal\"");
    let mut gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    for key in [1, 2] {
        client_of(&gateway, key)
            .await
            .call("a__echo", json!({}))
            .await
            .text();
    }
    assert_eq!(mock.sessions(), 3, "the main one, and those of two keys");
    gateway.change(|setup| setup.without("auth.keys.2")).await;
    until("its session ends", || {
        std::future::ready((mock.sessions() == 2).then_some(()))
    })
    .await;
    until("it is no longer counted", || async {
        (gateway
            .metric("moongate_server_connections{mcp_server=\"a\"}")
            .await
            == Some(1.0))
        .then_some(())
    })
    .await;
    client_of(&gateway, 1)
        .await
        .call("a__echo", json!({}))
        .await
        .text();
    assert_eq!(mock.sessions(), 2, "the other one stays");
}
