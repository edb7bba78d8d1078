//! Servers that are not ready: what models read about them.

use moongate_mock::MockScript;
use serde_json::json;

use super::{CLIENTS, able, ask, described, refused};
use crate::harness::{Setup, legacy, only, serve, until};

#[tokio::test]
async fn a_stopped_server_starts_on_the_first_call() {
    let setup = Setup::new()
        .stdio("a", &only(legacy(), &["echo"]))
        .with("gateway", "discovery = \"search\"");
    let gateway = setup
        .with("servers.a", "start = \"lazy\"\nidle_stop = \"200ms\"")
        .start()
        .await;
    gateway.state("a", "stopped").await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        gateway.state("a", "stopped").await;
        let servers = ask(&client, "list_servers", json!({})).await;
        assert_eq!(servers, "1 server.\na: 1 tool, starts on the first call.");
        assert_eq!(
            super::call(&client, "a__echo", json!({"n": 1}))
                .await
                .text(),
            r#"{"n":1}"#
        );
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_named_as_the_reason() {
    let script = MockScript {
        tools: vec![described("delete_all", "Delete all issues")],
        ..only(legacy(), &[])
    };
    let mock = serve(script).await;
    let gone = serve(only(legacy(), &[])).await;
    let url = gone.url.clone();
    gone.stop().await;
    let setup = Setup::new()
        .http("down", &url)
        .http("shop", &mock.url)
        .with("gateway", "discovery = \"search\"");
    let gateway = setup.start().await;
    gateway.ready(&["shop"]).await;
    gateway.state("down", "backing_off").await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        // An attempt may be under way when a model asks.
        until("the attempt has failed", || async {
            let servers = ask(&client, "list_servers", json!({})).await;
            (servers == "2 servers.\ndown: 0 tools, not reachable now.\nshop: 1 tool, ready.")
                .then_some(())
        })
        .await;
        let here = ask(
            &client,
            "search_tools",
            json!({"query": "xylophone", "server": "down"}),
        )
        .await;
        assert_eq!(
            here,
            "No good match for \"xylophone\". Not ready: down (not reachable now). Servers: \
             down, shop."
        );
        let all = ask(&client, "search_tools", json!({"query": "xylophone"})).await;
        let expected = "No good match for \"xylophone\". Not ready: down (not reachable now). Try \
                        other words. \
                        Servers: down, shop.";
        assert_eq!(all, expected);
        let ready = ask(
            &client,
            "search_tools",
            json!({"query": "xylophone", "server": "shop"}),
        )
        .await;
        assert_eq!(
            ready,
            "No good match for \"xylophone\". Try other words. Servers: down, shop."
        );
        let call = refused(&client, "call_tool", json!({"name": "down__delete_al"})).await;
        assert_eq!(
            call,
            "Unknown tool: down__delete_al. Not ready: down (not reachable now)."
        );
    }
}
