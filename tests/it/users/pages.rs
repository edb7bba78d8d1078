//! The pages of apps, where the tool that names one and its server are not alone.

use moongate_mock::{ContentPreset, MockScript};
use serde_json::{Value, json};

use crate::harness::{ERAS, Setup, holds, legacy, modern, serve, tool};

/// A server with one tool that names a page, which has this text and is in no list.
fn with_page(script: MockScript, uri: &str, text: &str) -> MockScript {
    let tool = json!({"name": "show", "inputSchema": {"type": "object"},
        "_meta": {"ui": {"resourceUri": uri}}});
    let contents = [(uri.to_owned(), json!(text))].into();
    MockScript {
        preset: ContentPreset::Empty,
        tools: vec![tool],
        contents,
        ..script
    }
}

/// That a server has resources at all.
fn listing(mut script: MockScript, uri: &str) -> MockScript {
    script.resources.push(json!({"uri": uri, "name": uri}));
    script
}

fn page_of(list: &Value, tool: &str) -> String {
    let tools = list["tools"].as_array().unwrap();
    let tool = tools
        .iter()
        .find(|t| t["name"] == tool)
        .unwrap_or_else(|| panic!("no {tool} in {list}"));
    tool["_meta"]["ui"]["resourceUri"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_denied_app_page_cannot_be_read_from_any_server() {
    for script in [legacy(), modern()] {
        let a = serve(listing(
            with_page(script.clone(), "ui://page", "a's"),
            "x://a",
        ))
        .await;
        let b = serve(listing(with_page(script, "ui://page", "b's"), "x://b")).await;
        let gateway = Setup::new()
            .http("a", &a.url)
            .http("b", &b.url)
            .with("servers.b", "resources = { deny = [\"ui://*\"] }")
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let list = client.request("tools/list", json!({})).await.result();
            let theirs = page_of(&list, "a__show");
            let denied = page_of(&list, "b__show");
            assert_eq!(theirs.as_str(), "ui://page");
            assert_eq!(denied.as_str(), "ui://moongate/b/page");
            let read = client
                .request("resources/read", json!({"uri": theirs}))
                .await
                .result();
            assert_eq!(read["contents"][0]["text"], "a's");
            client
                .request("resources/read", json!({"uri": denied}))
                .await
                .error();
        }
        assert_eq!(
            b.counters().of("resources/read"),
            0,
            "it was not even asked"
        );
    }
}

#[tokio::test]
async fn an_app_page_claims_no_uri_that_another_server_lists() {
    let a = serve(with_page(legacy(), "ui://page", "a's")).await;
    let b = serve(listing(
        with_page(legacy(), "ui://page", "b's"),
        "ui://page",
    ))
    .await;
    let gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let list = client.request("tools/list", json!({})).await.result();
        for (tool, uri, text) in [
            ("a__show", "ui://moongate/a/page", "a's"),
            ("b__show", "ui://page", "b's"),
        ] {
            assert_eq!(page_of(&list, tool), uri);
            let read = client
                .request("resources/read", json!({"uri": uri}))
                .await
                .result();
            assert_eq!(read["contents"][0]["uri"], json!(uri));
            assert_eq!(read["contents"][0]["text"], json!(text));
        }
        assert_eq!(
            client.request("resources/list", json!({})).await.names(),
            ["ui://page"]
        );
    }
}

#[tokio::test]
async fn an_app_page_needs_a_ui_uri() {
    let a = serve(with_page(legacy(), "x://secret", "a's")).await;
    let b = serve(listing(with_page(legacy(), "ui://page", "b's"), "x://b")).await;
    let gateway = Setup::new()
        .http("a", &a.url)
        .http("b", &b.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    let client = gateway.client(ERAS[0]).await;
    client
        .request("resources/read", json!({"uri": "x://secret"}))
        .await
        .error();
    assert_eq!(a.counters().of("resources/read"), 0);
}

/// Ext-apps, 2026-01-26, Resource Discovery: "Servers MAY omit UI-only resources from
/// `resources/list` and `notifications/resources/list_changed`".
#[tokio::test]
async fn an_app_page_changes_no_resource_list() {
    let with = with_page(legacy(), "ui://page", "a's");
    let a = serve(MockScript {
        tools: vec![tool("plain")],
        prompts: vec![json!({"name": "p"})],
        ..with.clone()
    })
    .await;
    let gateway = Setup::new().http("a", &a.url).start().await;
    gateway.ready(&["a"]).await;
    holds("the gateway listens", || a.listeners() > 0).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let mut stream = client.listen().await;
        a.change_tools_and_notify(&with.tools);
        stream
            .notification("notifications/tools/list_changed")
            .await;
        let read = client
            .request("resources/read", json!({"uri": "ui://page"}))
            .await
            .result();
        assert_eq!(read["contents"][0]["text"], "a's");
        // Back again, and something else after it: nothing was said in between.
        a.change_tools_and_notify(&[tool("plain")]);
        stream
            .notification("notifications/tools/list_changed")
            .await;
        a.set_prompts(&[json!({"name": format!("{era:?}")})]);
        a.notify_list("prompts");
        let methods = [
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
        ];
        let next = loop {
            let message = stream.message().await.unwrap();
            if methods.iter().any(|method| message["method"] == *method) {
                break message;
            }
        };
        assert_eq!(next["method"], methods[1]);
    }
}

#[tokio::test]
async fn a_result_and_an_output_template_name_the_page_that_can_be_read() {
    let meta = json!({"ui": {"resourceUri": "ui://page"}, "ui/resourceUri": "ui://page",
        "openai/outputTemplate": "ui://page"});
    let tool = json!({"name": "show", "inputSchema": {"type": "object"},
        "_meta": {"openai/outputTemplate": "ui://page"}});
    let answer =
        json!({"content": [{"type": "text", "text": "ui://page", "_meta": meta}], "_meta": meta});
    let with_template = |script: MockScript, text: &str| MockScript {
        preset: ContentPreset::Empty,
        tools: vec![tool.clone()],
        answers: [("show".to_owned(), answer.clone())].into(),
        contents: [("ui://page".to_owned(), json!(text))].into(),
        ..script
    };
    for script in [legacy(), modern()] {
        let a = serve(listing(with_template(script.clone(), "a's"), "ui://page")).await;
        let b = serve(listing(with_template(script, "b's"), "x://b")).await;
        let gateway = Setup::new()
            .http("a", &a.url)
            .http("b", &b.url)
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let list = client.request("tools/list", json!({})).await.result();
            let tools = list["tools"].as_array().unwrap();
            for (server, uri, text) in [
                ("a", "ui://page", "a's"),
                ("b", "ui://moongate/b/page", "b's"),
            ] {
                let name = format!("{server}__show");
                let tool = tools
                    .iter()
                    .find(|tool| tool["name"] == name.as_str())
                    .unwrap();
                assert_eq!(tool["_meta"]["openai/outputTemplate"], uri);
                let result = client.call(&name, json!({})).await.result();
                assert_eq!(
                    result["content"][0]["text"], "ui://page",
                    "a text is no link"
                );
                for meta in [&result["_meta"], &result["content"][0]["_meta"]] {
                    assert_eq!(meta["ui"]["resourceUri"], uri, "{meta}");
                    assert_eq!(meta["ui/resourceUri"], json!(uri));
                    assert_eq!(meta["openai/outputTemplate"], json!(uri));
                }
                let read = client
                    .request("resources/read", json!({"uri": uri}))
                    .await
                    .result();
                assert_eq!(read["contents"][0]["text"], text);
            }
        }
    }
}
