//! The names that clients and models see, and which of them: complaints 5 and 9.

use std::collections::HashSet;

use moongate_mock::MockScript;
use serde_json::json;

use crate::harness::{ERAS, Era, Setup, legacy, modern, only, serve};

/// Names that some model API or client refuses.
const ODD: [&str; 10] = [
    "plain",
    "with space",
    "dots.and/slashes",
    "ünï-cödé",
    "9starts_with_a_digit",
    "a_name_that_is_far_too_long_for_every_client_that_adds_a_prefix_of_its_own_and_then_counts_to_64",
    "a_name_that_is_far_too_long_for_every_client_that_adds_a_prefix_of_its_own_and_then_counts_to_65",
    "x.y",
    "x/y",
    "x_y",
];

#[tokio::test]
async fn odd_names_become_legal_unique_ones_that_can_be_called() {
    for script in [only(legacy(), &ODD), only(modern(), &ODD)] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let names = client.tools().await;
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), ODD.len());
            for name in &names {
                let legal = name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                assert!(
                    legal
                        && name.len() <= 45
                        && name.starts_with(|c: char| c.is_ascii_alphabetic()),
                    "{name}"
                );
            }
            let before = mock.counters().of("tools/call");
            mock.reset_record();
            for name in &names {
                assert_eq!(
                    client.call(name, json!({"n": name})).await.text(),
                    format!("{{\"n\":\"{name}\"}}")
                );
            }
            let called = mock
                .recorded_requests()
                .into_iter()
                .filter(|s| s.body.contains("tools/call"));
            let own = |body: String| {
                let body: serde_json::Value = serde_json::from_str(&body).unwrap();
                body["params"]["name"].as_str().unwrap().to_owned()
            };
            let called: HashSet<String> = called.map(|seen| own(seen.body)).collect();
            assert_eq!(
                called,
                ODD.iter().map(|n| (*n).to_owned()).collect(),
                "each reached the server ({before})"
            );
        }
    }
}

#[tokio::test]
async fn names_are_the_same_after_a_restart_and_in_any_order() {
    let mut seen = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let mut tools = ODD.to_vec();
        if order[0] == 1 {
            tools.reverse();
        }
        let mocks = [
            serve(only(legacy(), &tools)).await,
            serve(only(modern(), &tools)).await,
        ];
        let gateway = Setup::new()
            .http("a", &mocks[0].url)
            .http("b", &mocks[1].url)
            .with("servers.a", "prefix = \"\"")
            .with("servers.b", "prefix = \"\"")
            .start()
            .await;
        gateway.ready(&["a", "b"]).await;
        seen.push(gateway.client(Era::Modern).await.tools().await);
    }
    assert_eq!(seen[0].len(), 2 * ODD.len());
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_servers_own_endpoint_leaves_its_names_alone() {
    let mock = serve(only(legacy(), &ODD)).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = crate::harness::McpClient::open(&gateway.url("/mcp/a"), Era::Legacy).await;
    assert_eq!(
        client.tools().await.into_iter().collect::<HashSet<_>>(),
        ODD.iter().map(|n| (*n).to_owned()).collect()
    );
    assert_eq!(
        client.call("dots.and/slashes", json!({})).await.text(),
        "{}"
    );
}

#[tokio::test]
async fn what_is_not_allowed_is_not_listed_and_looks_unknown() {
    let mock = serve(legacy()).await;
    let rules = "tools = { allow = [\"e*\", \"add\"], deny = [\"elicit*\"], hide = [\"add\"], rename = { echo = \"say\" } }";
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", rules)
        .with("views.small", "tools = [\"a__say\"]")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        assert_eq!(client.tools().await, ["a__env", "a__error", "a__say"]);
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 1})).await.text(),
            "2",
            "hidden, not forbidden"
        );
        let small = crate::harness::McpClient::open(&gateway.url("/mcp/small"), era).await;
        assert_eq!(small.tools().await, ["a__say"]);
        let told = |reply: crate::harness::HttpReply, name: &str| {
            format!(
                "{} {}",
                reply.status,
                reply.text_body().replace(name, "NAME")
            )
        };
        let ask = |name: &'static str| small.request_as(5, "tools/call", json!({"name": name}));
        let denied = told(ask("a__env").await, "a__env");
        assert_eq!(
            denied,
            told(ask("a__none").await, "a__none"),
            "forbidden by the view and unknown"
        );
        let ask = |name: &'static str| client.request_as(5, "tools/call", json!({"name": name}));
        assert_eq!(
            denied,
            told(ask("a__elicit").await, "a__elicit"),
            "forbidden by the server's rules"
        );
        assert!(
            denied.starts_with("200 ") && denied.contains("-32602"),
            "{denied}"
        );
    }
    assert_eq!(
        mock.counters().of("tools/call"),
        2,
        "nothing forbidden reached the server"
    );
    let bytes = "moongate_catalog_bytes{mcp_server=\"a\"}";
    let tools = "moongate_catalog_items{kind=\"tools\",mcp_server=\"a\"}";
    assert!(gateway.metric(bytes).await.unwrap() > 0.0);
    assert_eq!(gateway.metric(tools).await.unwrap(), 4.0);
}

#[tokio::test]
async fn a_keys_tools_are_all_that_it_sees() {
    let mock = serve(only(legacy(), &["read", "write"])).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with(
            "auth.keys.1",
            "name = \"all\"\nkey = \"key-of-all-0123456789\"",
        )
        .with(
            "auth.keys.2",
            "name = \"some\"\nkey = \"key-of-some-0123456789\"\ntools = [\"*\", \"!*write\"]",
        )
        .start()
        .await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let url = gateway.url("/mcp");
        let all =
            crate::harness::McpClient::with_key(&url, era, Some("key-of-all-0123456789")).await;
        let some =
            crate::harness::McpClient::with_key(&url, era, Some("key-of-some-0123456789")).await;
        assert_eq!(all.tools().await, ["a__read", "a__write"]);
        assert_eq!(some.tools().await, ["a__read"]);
        let told = async |name: &str| {
            let reply = some
                .request_as(1, "tools/call", json!({"name": name}))
                .await;
            (reply.status, reply.text_body().replace(name, "NAME"))
        };
        assert_eq!(told("a__write").await, told("a__other").await);
    }
}

#[tokio::test]
async fn a_forbidden_resource_or_prompt_looks_unknown() {
    let mock = serve(legacy()).await;
    // With a single server, what is in no list is that server's to know.
    let other = serve(MockScript {
        resources: vec![json!({"uri": "other://x", "name": "x"})],
        ..only(legacy(), &[])
    })
    .await;
    let rules = "resources = { deny = [\"mock://private\"] }\nprompts = { deny = [\"plain\"] }";
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", rules)
        .http("b", &other.url)
        .start()
        .await;
    gateway.ready(&["a", "b"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        let ask = async |method: &str, key: &str, value: &str| {
            let reply = client.request_as(1, method, json!({ key: value })).await;
            (reply.status, reply.text_body().replace(value, "NAME"))
        };
        let denied = ask("resources/read", "uri", "mock://private").await;
        assert!(denied.1.contains("error"), "{denied:?}");
        assert_eq!(
            denied,
            ask("resources/read", "uri", "other://unknown").await,
            "{era:?}"
        );
        let denied = ask("prompts/get", "name", "a__plain").await;
        assert_eq!(
            denied,
            ask("prompts/get", "name", "a__unknown").await,
            "{era:?}"
        );
    }
    assert_eq!(mock.counters().of("prompts/get"), 0);
}
