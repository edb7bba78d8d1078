//! Resources, templates, prompts and completion.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use moongate_testing::RpcAnswer;
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;

fn keys<'a>(answer: &'a RpcAnswer, list: &str, key: &str) -> Vec<&'a str> {
    let items = answer.result()[list]
        .as_array()
        .unwrap_or_else(|| panic!("no {list}: {answer:?}"));
    items
        .iter()
        .map(|item| item[key].as_str().unwrap())
        .collect()
}

/// Whether reads and lists say how long they may be kept.
fn check_hints(cell: &MatrixCell, answer: &RpcAnswer) {
    for member in ["ttlMs", "cacheScope", "resultType"] {
        assert_eq!(
            answer.result().get(member).is_some(),
            cell.modern_client(),
            "{member}: {answer:?}"
        );
    }
}

pub(crate) async fn pages_become_one(cell: Arc<MatrixCell>) {
    // The server cuts its lists into pages of two, and its last cursor leads back to the first.
    let client = cell.client().await;
    let lists = [
        ("tools/list", "tools", "name"),
        ("resources/list", "resources", "uri"),
        (
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
        ),
        ("prompts/list", "prompts", "name"),
    ];
    for (method, list, key) in lists {
        let answer = client.exchange(method, json!({})).await;
        let mut all = keys(&answer, list, key);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{method} lists something twice");
        let named = |key: &&str| {
            ["main__", "own__", "aside__"]
                .iter()
                .any(|prefix| key.starts_with(prefix))
        };
        assert!(
            key != "name" || all.iter().all(named),
            "{method} lists what no server has: {all:?}"
        );
        assert!(
            answer.result().get("nextCursor").is_none(),
            "{method}: {answer:?}"
        );
        check_hints(&cell, &answer);
        let answer = client.exchange(method, json!({"cursor": "page-1"})).await;
        assert_eq!(
            answer.code(),
            -32602,
            "{method} takes a cursor that it never gave"
        );
    }
    let prompts = client.exchange("prompts/list", json!({})).await;
    for prompt in [
        "main__greet",
        "main__interview",
        "main__plain",
        "own__plain",
        "aside__greet",
    ] {
        assert!(
            keys(&prompts, "prompts", "name").contains(&prompt),
            "{prompt}"
        );
    }
}

pub(crate) async fn resources(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let list = client.exchange("resources/list", json!({})).await;
    let uris = keys(&list, "resources", "uri");
    // Two servers have `mock://static/text`: the first by name keeps it.
    for uri in [
        "mock://aside",
        "mock://static/text",
        "moongate:main:mock://static/text",
        "mock://static/blob",
    ] {
        assert!(uris.contains(&uri), "{uri} in {uris:?}");
    }
    let read = async |uri: &str| {
        let answer = client.exchange("resources/read", json!({"uri": uri})).await;
        check_hints(&cell, &answer);
        assert_eq!(answer.result()["contents"][0]["uri"], uri);
        answer.result()["contents"][0].clone()
    };
    assert_eq!(read("mock://static/text").await["text"], "aside's own text");
    assert_eq!(
        read("moongate:main:mock://static/text").await["text"],
        "Hello, wörld.\nA second line."
    );
    let blob = read("mock://static/blob").await;
    assert_eq!(
        STANDARD.decode(blob["blob"].as_str().unwrap()).unwrap(),
        (0..=255).collect::<Vec<u8>>()
    );
    let seen = cell.rig.main.of("resources/read");
    assert!(
        seen.iter()
            .any(|message| message["params"]["uri"] == "mock://static/text"),
        "{seen:?}"
    );
}

pub(crate) async fn links_lead_back(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let answer = client
        .exchange_tool("main__link", json!({"uri": "mock://static/text"}))
        .await;
    let content = answer.result()["content"].as_array().unwrap();
    for block in content {
        let uri = block["uri"]
            .as_str()
            .or(block["resource"]["uri"].as_str())
            .unwrap();
        assert_eq!(uri, "moongate:main:mock://static/text", "{block}");
    }
    assert_eq!(
        content.len(),
        if cell.server_since("2025-06-18") {
            2
        } else {
            1
        }
    );
}

pub(crate) async fn templates(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let list = client.exchange("resources/templates/list", json!({})).await;
    assert!(keys(&list, "resourceTemplates", "uriTemplate").contains(&"mock://item/{id}"));
    let answer = client
        .exchange("resources/read", json!({"uri": "mock://item/sé 1"}))
        .await;
    assert_eq!(answer.result()["contents"][0]["text"], "item sé 1");
}

pub(crate) async fn unknown_resource(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    for uri in ["nope://x", "moongate:nobody:mock://x", ""] {
        let answer = client.exchange("resources/read", json!({"uri": uri})).await;
        // 2025-11-25/server/resources.mdx and 2026-07-28/server/resources.mdx, Error Handling.
        let code = if cell.modern_client() { -32602 } else { -32002 };
        assert_eq!(answer.code(), code, "{uri}");
        assert_eq!(answer.status, 200, "{uri}");
        assert_eq!(answer.error()["data"]["uri"], uri);
    }
}

pub(crate) async fn prompts(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let greet = json!({"name": "main__greet", "arguments": {"name": "Zoë \u{1F600}"}});
    let answer = client.exchange("prompts/get", greet).await;
    assert_eq!(
        answer.result()["messages"][0]["content"]["text"],
        "Please greet Zoë \u{1F600} warmly."
    );
    assert!(answer.result().get("ttlMs").is_none());
    let answer = client
        .exchange("prompts/get", json!({"name": "main__greet"}))
        .await;
    assert_eq!(answer.code(), -32602, "the server's own complaint");
    let answer = client
        .exchange("prompts/get", json!({"name": "main__nope"}))
        .await;
    assert_eq!(answer.code(), -32602);
}

pub(crate) async fn completion(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let complete = async |reference: Value, typed: &str| {
        let argument = json!({"name": "x", "value": typed});
        client
            .exchange(
                "completion/complete",
                json!({"ref": reference, "argument": argument}),
            )
            .await
    };
    let answer = complete(json!({"type": "ref/prompt", "name": "main__greet"}), "a").await;
    assert_eq!(
        answer.result()["completion"]["values"],
        json!(["Ada", "Alan"])
    );
    let answer = complete(
        json!({"type": "ref/resource", "uri": "mock://item/{id}"}),
        "2",
    )
    .await;
    assert_eq!(answer.result()["completion"]["values"], json!(["2", "20"]));
    let answer = complete(json!({"type": "ref/prompt", "name": "main__nope"}), "a").await;
    assert_eq!(answer.code(), -32602);
}
