//! The client's edge: opening, ending, headers, batches, what its revision has not.

use std::sync::Arc;

use moongate_testing::{EventStream, McpClient};
use serde_json::{Value, json};

use crate::pairs::cell::MatrixCell;
use crate::pairs::rig::ODD_TOOL;

pub(crate) async fn opening(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let answer = match cell.modern_client() {
        true => client.exchange("server/discover", json!({})).await,
        false => client.negotiate(cell.client).await,
    };
    let result = answer.result();
    let capabilities = &result["capabilities"];
    assert_eq!(capabilities["tools"]["listChanged"], true);
    assert_eq!(
        capabilities["resources"],
        json!({"listChanged": true, "subscribe": true})
    );
    assert_eq!(capabilities["prompts"]["listChanged"], true);
    assert!(
        result["instructions"]
            .as_str()
            .unwrap()
            .contains("Main's instructions."),
        "{result}"
    );
    if cell.modern_client() {
        assert_eq!(result["supportedVersions"], json!([cell.client]));
        assert_eq!(result["resultType"], "complete");
        assert!(result["ttlMs"].is_u64() && result["cacheScope"].is_string());
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "moongate"
        );
        return;
    }
    assert_eq!(result["protocolVersion"], cell.client);
    assert_eq!(result["serverInfo"]["name"], "moongate");
    // 2025-11-25/basic/lifecycle.mdx, Version Negotiation: the latest that the server supports.
    assert_eq!(
        client.negotiate("1999-12-31").await.result()["protocolVersion"],
        "2025-11-25"
    );
}

pub(crate) async fn ending(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    if cell.modern_client() {
        for method in ["GET", "DELETE"] {
            let headers = [("mcp-protocol-version", cell.client.to_owned())];
            let response = client.raw(method, &headers, "").await;
            assert_eq!(response.status(), 405, "{method}");
            assert_eq!(response.headers()["allow"], "POST");
        }
        return;
    }
    let mut stream = client.open_server_stream().await;
    assert_eq!(client.delete_session().await, 204);
    // The session's stream ends with it.
    while stream.next_message().await.is_some() {}
    let answer = client.exchange("tools/list", json!({})).await;
    assert_eq!(answer.status, 404, "the session is gone");
    let nobody = McpClient::new(cell.client, &cell.rig.url, json!({}));
    assert_eq!(
        nobody.exchange("tools/list", json!({})).await.status,
        200,
        "without a session id, a request is served alone"
    );
    assert_eq!(nobody.raw("GET", &[], "").await.status(), 405);
}

pub(crate) async fn ping(cell: Arc<MatrixCell>) {
    let answer = cell.client().await.exchange("ping", json!({})).await;
    if cell.modern_client() {
        assert_eq!(answer.code(), -32601, "this revision has no ping");
        assert_eq!(answer.status, 404, "this revision has no ping");
    } else {
        assert_eq!(answer.result(), &json!({}));
    }
}

pub(crate) async fn unknown_method(cell: Arc<MatrixCell>) {
    let answer = cell
        .client()
        .await
        .exchange("com.example/unknown", json!({}))
        .await;
    assert_eq!(answer.code(), -32601);
    assert_eq!(answer.status, if cell.modern_client() { 404 } else { 200 });
}

pub(crate) async fn ids_come_back_as_they_are(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    for id in [
        "0",
        "-7",
        "12345678901234567890123",
        r#""""#,
        r#""\u0031""#,
        r#""a\/b \ud83d\ude00""#,
    ] {
        client.prepare("tools/list").id(id).send().await.result();
        client
            .prepare("tools/call")
            .id(id)
            .members(r#""name":"main__echo""#)
            .send()
            .await
            .result();
    }
    for id in ["null", "1.5", "[1]", "true"] {
        let body = client.prepare("tools/list").id(id).body();
        let headers = [
            ("mcp-protocol-version", cell.client),
            ("mcp-method", "tools/list"),
        ];
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        let sent = if cell.modern_client() {
            &headers[..]
        } else {
            &[]
        };
        let answer = EventStream::of(client.raw("POST", sent, body).await)
            .finish("null")
            .await;
        assert_eq!(answer.status, 400, "{id}");
        assert_eq!(
            answer.messages[0].value["error"]["code"], -32600,
            "{id}: {answer:?}"
        );
    }
}

pub(crate) async fn batches(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let echo = json!({"name": "main__echo", "arguments": {"n": 1}});
    let batch = json!([
        {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": echo},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "ping"},
        {"jsonrpc": "2.0", "id": 3, "method": "nope"},
    ]);
    // Without a version and a session, a request is one of 2025-03-26.
    let version = [("mcp-protocol-version", cell.client.to_owned())];
    let sent = if cell.modern_client() {
        &version[..]
    } else {
        &[]
    };
    let response = client.raw("POST", sent, batch.to_string()).await;
    let status = response.status().as_u16();
    let mut stream = EventStream::of(response);
    let body = stream.next_message().await.unwrap().value;
    // JSON-RPC has them; 2025-03-26 wrote them down, 2025-06-18 took them out.
    if cell.client >= "2025-06-18" {
        assert_eq!(status, 400, "{body}");
        assert_eq!(body["error"]["code"], -32600, "{body}");
        return;
    }
    assert_eq!(status, 200);
    let answers = body
        .as_array()
        .unwrap_or_else(|| panic!("an array is answered with an array: {body}"));
    assert_eq!(answers.len(), 3);
    let by_id = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(
        by_id(json!("a"))["result"]["content"][0]["text"],
        r#"{"n":1}"#
    );
    assert_eq!(by_id(json!(2))["result"], json!({}));
    assert_eq!(by_id(json!(3))["error"]["code"], -32601);
    let silent = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    assert_eq!(
        client.raw("POST", &[], silent.to_string()).await.status(),
        202
    );
    assert_eq!(client.raw("POST", &[], "[]").await.status(), 400);
}

pub(crate) async fn headers_must_agree(cell: Arc<MatrixCell>) {
    let client = cell.client().await;
    let echo = || {
        client
            .prepare("tools/call")
            .members(r#""name":"main__echo""#)
    };
    if !cell.modern_client() {
        // 2025-06-18/basic/transports.mdx, Protocol Version Header: one that is unsupported is a
        // 400.
        let headers = [("mcp-protocol-version", "1999-12-31".to_owned())];
        // A client of this revision sends no such header of its own.
        let mut plain = McpClient::new("2025-03-26", &client.url, json!({}));
        plain.session.clone_from(&client.session);
        assert_eq!(
            plain.raw("POST", &headers, echo().body()).await.status(),
            400
        );
        return;
    }
    let wrong = [
        ("mcp-name", "main__add"),
        ("mcp-method", "tools/list"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    for (name, value) in wrong {
        let answer = echo().header(name, value).send().await;
        assert_eq!(answer.code(), -32020, "{name}: {answer:?}");
        assert_eq!(answer.status, 400, "{name}: {answer:?}");
    }
    let bare = client.raw("POST", &[], echo().body()).await;
    assert_eq!(bare.status(), 400, "without any header");
    let future = McpClient::new("2099-01-01", &client.url, json!({}));
    let answer = future.exchange("tools/list", json!({})).await;
    assert_eq!(answer.code(), -32022);
    assert_eq!(answer.status, 400);
    assert_eq!(answer.error()["data"]["supported"], json!([cell.client]));
    assert_eq!(answer.error()["data"]["requested"], "2099-01-01");
}

pub(crate) async fn a_second_stream_replaces_the_first(cell: Arc<MatrixCell>) {
    if cell.modern_client() {
        return;
    }
    let client = cell.client().await;
    let mut first = client.open_server_stream().await;
    let mut second = client.open_server_stream().await;
    while first.next_message().await.is_some() {}
    assert_eq!(client.delete_session().await, 204);
    while second.next_message().await.is_some() {}
}

pub(crate) async fn an_endpoint_of_its_own(cell: Arc<MatrixCell>) {
    // Over a single server everything keeps the name that the server gave it.
    let client =
        McpClient::connect(cell.client, &format!("{}/main", cell.rig.url), json!({})).await;
    let list = client.exchange("tools/list", json!({})).await;
    let tools = list.result()["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "echo"));
    assert!(
        tools
            .iter()
            .all(|tool| !tool["name"].as_str().unwrap().contains("__"))
    );
    let odd = cell.listed(ODD_TOOL);
    assert!(
        list.raw_result().contains(&odd),
        "not its own bytes: {list:?}"
    );
    assert_eq!(
        client.exchange_tool("echo", json!({"x": 1})).await.text(),
        r#"{"x":1}"#
    );
    assert_eq!(
        client.exchange_tool("main__echo", json!({})).await.code(),
        -32602
    );
    let read = client
        .exchange("resources/read", json!({"uri": "mock://static/text"}))
        .await;
    assert_eq!(
        read.result()["contents"][0]["text"],
        "Hello, wörld.\nA second line."
    );
    assert_eq!(read.result()["contents"][0]["uri"], "mock://static/text");
    if let Some(session) = &client.session {
        let mut elsewhere = McpClient::new(cell.client, &cell.rig.url, json!({}));
        elsewhere.session = Some(session.clone());
        assert_eq!(
            elsewhere.exchange("tools/list", json!({})).await.status,
            404,
            "a session belongs to its endpoint"
        );
    }
}
