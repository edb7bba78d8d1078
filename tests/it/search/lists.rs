//! Lists of search mode, and what clients hear of their changes.

use moongate_mock::MockScript;
use serde_json::json;

use super::{CLIENTS, META_TOOLS, OTHER_META_TOOLS, able, ask, described, names, searching};
use crate::harness::{
    ERAS, McpClient, Setup, holds, legacy, mock_at, modern, only, serve, tool, until,
};

#[tokio::test]
async fn lists_have_the_meta_tools_and_what_is_always_listed() {
    let views = [
        ("views.plain", "servers = [\"a\"]"),
        (
            "views.small",
            "discovery = \"search\"\nsearch = { resources = false, split_calls = true }",
        ),
        ("gateway", "always = [\"a__ad*\"]"),
    ];
    let (_mock, gateway) = searching(legacy(), &views).await;
    for revision in CLIENTS {
        let at = async |path: &str| {
            names(&McpClient::connect(revision, &gateway.url(path), json!({})).await).await
        };
        let whole: Vec<&str> = META_TOOLS
            .into_iter()
            .chain(OTHER_META_TOOLS)
            .chain(["a__add"])
            .collect();
        assert_eq!(at("/mcp").await, whole);
        let small = [
            "search_tools",
            "describe_tool",
            "call_tool",
            "call_readonly_tool",
            "list_servers",
        ];
        assert_eq!(at("/mcp/small").await, small);
        for path in ["/mcp/plain", "/mcp/a"] {
            let all = at(path).await;
            assert!(
                all.len() > 20 && !all.contains(&"search_tools".to_owned()),
                "{path}: {all:?}"
            );
        }
    }
}

#[tokio::test]
async fn instructions_name_the_servers_within_512_bytes() {
    let mock = serve(only(legacy(), &["one"])).await;
    let about =
        "Issues and pull requests of repositories, in twelve words and then some more words.";
    let mut setup = Setup::new().with("gateway", "discovery = \"search\"");
    for n in 0..20 {
        let lines = format!("title = \"Server {n}\"\ndescription = {about:?}");
        setup = setup
            .http(&format!("s{n:02}"), &mock.url)
            .with(&format!("servers.s{n:02}"), &lines);
    }
    let gateway = setup.start().await;
    let mut client = gateway.client(ERAS[0]).await;
    let reply = client.initialize().await;
    let text = reply.result()["instructions"].as_str().unwrap().to_owned();
    assert!(text.len() <= 512, "{}: {text}", text.len());
    assert!(
        text.starts_with("Tools are not listed here: find them with search_tools"),
        "{text}"
    );
    let line = "\n- s00 (Server 0): Issues and pull requests of repositories, in twelve words and \
                then some";
    assert!(text.contains(line), "{text}");
    assert!(text.ends_with(" more: list_servers"), "{text}");
}

#[tokio::test]
async fn changed_tools_are_found_and_not_announced() {
    for script in [only(legacy(), &["one"]), only(modern(), &["one"])] {
        let (mock, mut gateway) = searching(script, &[("views.plain", "")]).await;
        holds("the gateway listens", || mock.listeners() > 0).await;
        let mut streams = Vec::new();
        for era in ERAS {
            let client = gateway.client(era).await;
            streams.push(client.listen().await);
        }
        let finder = able(&gateway, CLIENTS[0]).await;
        ask(&finder, "search_tools", json!({"query": "one"})).await;
        let plain = McpClient::open(&gateway.url("/mcp/plain"), ERAS[0]).await;
        let mut announced = plain.listen().await;
        mock.change_tools_and_notify(&[described("weather", "Forecast for a city")]);
        announced
            .notification("notifications/tools/list_changed")
            .await;
        let text = ask(
            &finder,
            "search_tools",
            json!({"query": "weather forecast"}),
        )
        .await;
        assert!(
            text.starts_with("1 of 1 tools. Call with call_tool.\na__weather()"),
            "{text}"
        );
        // The next that the others hear is that their list has one tool more.
        gateway
            .change(|setup| setup.with("gateway", "always = [\"a__weather\"]"))
            .await;
        for stream in &mut streams {
            stream
                .notification("notifications/tools/list_changed")
                .await;
        }
        gateway
            .change(|setup| setup.with("gateway", "always = []"))
            .await;
        for stream in &mut streams {
            stream
                .notification("notifications/tools/list_changed")
                .await;
        }
    }
}

#[tokio::test]
async fn a_server_that_comes_up_later_is_found_without_a_changed_list() {
    let mock = serve(only(legacy(), &["one"])).await;
    let address = mock.addr.unwrap();
    let url = mock.url.clone();
    mock.stop().await;
    let setup = Setup::new()
        .http("a", &url)
        .with("gateway", "discovery = \"search\"");
    let gateway = setup.start().await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        assert_eq!(names(&client).await, META_TOOLS);
        let text = ask(&client, "search_tools", json!({"query": "echo"})).await;
        assert!(
            text.starts_with("No good match for \"echo\". Not ready: a (")
                && text.ends_with("). Servers: a."),
            "{text}"
        );
        let servers = ask(&client, "list_servers", json!({})).await;
        assert!(
            servers.starts_with("1 server.\na: 0 tools, ") && !servers.contains("ready"),
            "{servers}"
        );
    }
    let _mock = mock_at(only(legacy(), &["echo"]), address).await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        until("the tool is found", || async {
            let text = ask(&client, "search_tools", json!({"query": "echo"})).await;
            text.contains("\na__echo()").then_some(())
        })
        .await;
        assert_eq!(names(&client).await, META_TOOLS);
        assert_eq!(
            ask(&client, "list_servers", json!({})).await,
            "1 server.\na: 1 tool, ready."
        );
    }
}

#[tokio::test]
async fn a_tool_of_a_server_hides_no_meta_tool() {
    let script = MockScript {
        tools: vec![tool("search_tools"), tool("echo")],
        ..only(legacy(), &[])
    };
    let with = [
        ("servers.a", "prefix = \"\""),
        ("gateway", "always = [\"*\"]"),
    ];
    let (_mock, gateway) = searching(script, &with).await;
    for revision in CLIENTS {
        let client = able(&gateway, revision).await;
        assert_eq!(names(&client).await, [&META_TOOLS[..], &["echo"]].concat());
        let found = ask(&client, "search_tools", json!({"query": "search_tools"})).await;
        assert!(found.contains("\nsearch_tools()"), "{found}");
        assert_eq!(
            super::call(&client, "search_tools", json!({"n": 1}))
                .await
                .text(),
            r#"{"n":1}"#
        );
    }
}
