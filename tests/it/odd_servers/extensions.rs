//! Methods and notifications that no revision knows, between a server with extensions and its
//! clients.

use moongate_testing::messages;
use serde_json::{Value, json};

use super::extended_server::ExtendedServer;
use crate::harness::{ERAS, Era, EventStream, Gateway, McpClient, holds, within};

/// The same server over each transport, behind a gateway with its default settings.
async fn both() -> [(ExtendedServer, Gateway); 2] {
    let [(http, over_http), (tcp, over_tcp)] = [
        ExtendedServer::over_http().await,
        ExtendedServer::over_tcp().await,
    ];
    let gateways = [
        (http, over_http.start().await),
        (tcp, over_tcp.start().await),
    ];
    for (_, gateway) in &gateways {
        gateway.ready(&["a"]).await;
    }
    gateways
}

async fn client_at(gateway: &Gateway, path: &str, era: Era, key: Option<&str>) -> McpClient {
    McpClient::with_key(&gateway.url(path), era, key).await
}

/// What the endpoint announces.
async fn announced(client: &mut McpClient) -> Value {
    let reply = match client.era() {
        Era::Legacy => client.initialize().await,
        Era::Modern => client.request("server/discover", json!({})).await,
    };
    reply.result()["capabilities"].clone()
}

/// Sends methods that are nearly the specification's own. The server gets none of them.
async fn assert_misspelt_methods_reach_no_server(server: &ExtendedServer, gateway: &Gateway) {
    let before = server.received.lock().unwrap().len();
    for era in ERAS {
        let client = client_at(gateway, "/mcp/a", era, None).await;
        for method in [
            "Tools/Call",
            "tools.call",
            "tools//call",
            "TASKS/GET",
            "tasks/delete",
            "rpc.discover",
            "x y",
        ] {
            let params = json!({"name": "asking", "taskId": "t", "arguments": {"method": "ping"}});
            let error = client.request(method, params).await.error();
            assert_eq!(error["code"], -32601, "{method}: {error}");
        }
    }
    let now = server.received.lock().unwrap().clone();
    let others = [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "ping",
        "server/discover",
    ];
    let reached = |message: &&Value| !others.iter().any(|other| message["method"] == *other);
    assert!(
        !now[before..].iter().any(|message| reached(&message)),
        "{:?}",
        &now[before..]
    );
}

#[tokio::test]
async fn methods_of_extensions_pass_at_their_servers_own_endpoint() {
    for (server, gateway) in both().await {
        for era in ERAS {
            let mut client = client_at(&gateway, "/mcp/a", era, None).await;
            let params = json!({"Cursor": [1.0], "name": "x", "_meta": {"com.example/trace": "t"}});
            let reply = client.request("com.example/thing", params).await;
            let result = reply.result();
            assert_eq!(result["echoed"]["Cursor"], json!([1.0]));
            assert_eq!(result["echoed"]["name"], "x");
            assert_eq!(result["echoed"]["_meta"]["com.example/trace"], "t");
            assert_eq!(result["ttlMs"], 5, "it is the extension's own");
            let empty = client
                .request("com.example/thing", json!({}))
                .await
                .result();
            assert!(
                empty["echoed"].is_object(),
                "empty params are params: {empty}"
            );
            let refused = client.request("com.example/other", json!({})).await;
            assert_eq!(refused.status, if era == Era::Modern { 404 } else { 200 });
            let error = refused.error();
            assert_eq!(error["code"], -32601);
            assert_eq!(error["message"], "the server has no com.example/other");
            let capabilities = announced(&mut client).await;
            assert_eq!(
                capabilities["extensions"]["com.example/thing"],
                json!({}),
                "{capabilities}"
            );
            assert_eq!(
                capabilities["experimental"]["com.example/trial"],
                json!({}),
                "{capabilities}"
            );
        }
        assert_misspelt_methods_reach_no_server(&server, &gateway).await;
    }
}

#[tokio::test]
async fn rules_about_any_item_close_the_extensions_of_their_server() {
    const KEY: &str = "some-key-0123456789abcdef0123456789";
    let key = |more: &str| format!("name = \"k\"\nkey = {KEY:?}\n{more}");
    let rules = [
        ("servers.a.tools", "deny = [\"x\"]"),
        ("servers.a.tools", "allow = [\"*\", \"!x\"]"),
        ("servers.a.tools", "hide = [\"x\"]"),
        ("servers.a.tools", "rename = { asking = \"ask\" }"),
        ("servers.a.prompts", "deny = [\"x\"]"),
        ("servers.a.resources", "deny = [\"x:*\"]"),
        ("auth.keys.1", "tools = [\"a__*\"]"),
    ];
    for (table, rule) in rules {
        let (server, setup) = ExtendedServer::over_http().await;
        let rule = if table.starts_with("auth") {
            key(rule)
        } else {
            rule.to_owned()
        };
        let has_key = table.starts_with("auth").then_some(KEY);
        let gateway = setup.with(table, &rule).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let mut client = client_at(&gateway, "/mcp/a", era, has_key).await;
            let error = client.request("com.example/thing", json!({})).await.error();
            assert_eq!(error["code"], -32601, "{table} {rule}: {error}");
            let capabilities = announced(&mut client).await;
            assert!(
                capabilities["experimental"].is_null(),
                "{table} {rule}: {capabilities}"
            );
            assert_eq!(
                capabilities["extensions"],
                json!({"io.modelcontextprotocol/ui": {}}),
                "{table} {rule}"
            );
            client
                .notify("notifications/com.example/hello", json!({}))
                .await;
        }
        assert!(
            server.received("com.example/thing").is_empty(),
            "{table} {rule}"
        );
        assert!(
            server
                .received("notifications/com.example/hello")
                .is_empty(),
            "{table} {rule}"
        );
        gateway.app.stop().await;
    }
    let (_, setup) = ExtendedServer::over_http().await;
    let gateway = setup
        .with("servers.a.tools", "describe = { asking = \"Asks.\" }")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let own = client_at(&gateway, "/mcp/a", Era::Legacy, None).await;
    assert_eq!(
        own.request("com.example/thing", json!({})).await.result()["ttlMs"],
        5,
        "a description hides nothing"
    );
    let mut all = client_at(&gateway, "/mcp", Era::Legacy, None).await;
    assert_eq!(
        all.request("com.example/thing", json!({})).await.error()["code"],
        -32601
    );
    assert!(announced(&mut all).await["experimental"].is_null());
}

#[tokio::test]
async fn a_call_of_an_extension_counts_for_the_rate_of_its_key() {
    const KEY: &str = "some-key-0123456789abcdef0123456789";
    let (_, setup) = ExtendedServer::over_http().await;
    let gateway = setup
        .with(
            "auth.keys.1",
            &format!("name = \"k\"\nkey = {KEY:?}\nrate = \"4/h\""),
        )
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = client_at(&gateway, "/mcp/a", Era::Modern, Some(KEY)).await;
    let mut passed = 0;
    for n in 0..8 {
        let reply = client.request_as(n, "com.example/thing", json!({})).await;
        passed += usize::from(reply.status == 200);
    }
    assert!(
        (1..=4).contains(&passed),
        "{passed} of 8 passed at four an hour"
    );
}

/// Calls `asking` at an endpoint with a client that answers each request: with `{"mine": true}`,
/// after progress.
async fn asked(client: &McpClient, tool: &str, method: &str) -> (Vec<Value>, String) {
    let params = json!({"name": tool, "arguments": {"method": method}});
    let mut stream = EventStream::of(client.start(7, "tools/call", params).await);
    let mut seen = Vec::new();
    loop {
        let message = within("it is asked or answered", stream.message())
            .await
            .unwrap();
        seen.push(message.clone());
        if message["id"] == 7 {
            let text = message["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned();
            return (seen, text);
        }
        if message["method"] == method {
            let token = &message["params"]["_meta"]["progressToken"];
            let progress = json!({"progressToken": token, "progress": 0.5});
            assert_eq!(
                client
                    .post(messages::notification("notifications/progress", progress))
                    .await
                    .status,
                202
            );
            let other = json!({"progressToken": 77, "progress": 0.9});
            assert_eq!(
                client
                    .post(messages::notification("notifications/progress", other))
                    .await
                    .status,
                202
            );
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"mine": true}});
            assert_eq!(client.post(answer.to_string()).await.status, 202);
        }
    }
}

#[tokio::test]
async fn requests_and_news_of_extensions_reach_the_client_of_the_call() {
    for (server, gateway) in both().await {
        let mut client = client_at(&gateway, "/mcp/a", Era::Legacy, None).await;
        client.initialize_with(json!({})).await;
        let (seen, text) = asked(&client, "asking", "com.example/question").await;
        assert!(text.contains(r#""result":{"mine":true}"#), "{text}");
        // On a pipe, news that name no call go to the session's own stream.
        let news = seen
            .iter()
            .any(|message| message["method"] == "notifications/com.example/news");
        assert_eq!(news, server.address.starts_with("http"), "{seen:?}");
        let own =
            |message: &Value| message["params"] == json!({"progressToken": 77, "progress": 0.5});
        holds("the progress is the server's", || {
            server.received("notifications/progress").iter().any(own)
        })
        .await;
        assert_eq!(
            server.received("notifications/progress").len(),
            1,
            "a token that the client was not given"
        );
        // Not where a rule may concern something of the server.
        let mut client = client_at(&gateway, "/mcp", Era::Legacy, None).await;
        client
            .initialize_with(json!({"experimental": {"com.example/trial": {}}}))
            .await;
        let (seen, text) = asked(&client, "a__asking", "com.example/question").await;
        assert!(
            text.contains("-32601") && seen.len() == 1,
            "{text} {seen:?}"
        );
    }
}

#[tokio::test]
async fn a_clients_progress_reaches_the_server_that_asked() {
    for (server, gateway) in both().await {
        let mut client = client_at(&gateway, "/mcp", Era::Legacy, None).await;
        client.initialize_with(json!({"sampling": {}})).await;
        let (seen, text) = asked(&client, "a__asking", "sampling/createMessage").await;
        assert!(
            text.contains(r#""result":{"mine":true}"#),
            "{text} {seen:?}"
        );
        let own =
            |message: &Value| message["params"] == json!({"progressToken": 77, "progress": 0.5});
        holds("the progress is the server's", || {
            server.received("notifications/progress").iter().any(own)
        })
        .await;
        assert_eq!(
            server.received("notifications/progress").len(),
            1,
            "a token that the client was not given"
        );
    }
}

#[tokio::test]
async fn notifications_of_extensions_pass_outside_of_calls() {
    let (server, setup) = ExtendedServer::over_tcp().await;
    let gateway = setup.start().await;
    gateway.ready(&["a"]).await;
    let mut client = client_at(&gateway, "/mcp/a", Era::Legacy, None).await;
    client.initialize_with(json!({})).await;
    let mut stream = client.listen().await;
    let mut at_all = client_at(&gateway, "/mcp", Era::Legacy, None).await;
    at_all.initialize_with(json!({})).await;
    let mut silent = at_all.listen().await;
    client
        .request("com.example/thing", json!({}))
        .await
        .result();
    let large = json!({"text": "x".repeat(70 << 10)});
    assert_eq!(
        client
            .notify("notifications/com.example/hello", large)
            .await,
        202
    );
    assert_eq!(
        at_all
            .notify("notifications/com.example/hello", json!({"from": "all"}))
            .await,
        202
    );
    assert_eq!(
        client
            .notify(
                "notifications/com.example/hello",
                json!({"from": "own", "n": 1.0})
            )
            .await,
        202
    );
    let news = within(
        "the news",
        stream.notification("notifications/com.example/news"),
    )
    .await;
    assert_eq!(news["params"], json!({"n": 2}));
    let hello = server.received("notifications/com.example/hello");
    assert_eq!(
        hello
            .iter()
            .map(|message| &message["params"])
            .collect::<Vec<_>>(),
        [&json!({"from": "own", "n": 1.0})]
    );
    // A client of the newest revision has notifications, too.
    let modern = client_at(&gateway, "/mcp/a", Era::Modern, None).await;
    assert_eq!(
        modern
            .notify("notifications/com.example/hello", json!({"from": "modern"}))
            .await,
        202
    );
    holds("it has that, too", || {
        server.received("notifications/com.example/hello").len() == 2
    })
    .await;
    // The other client's stream has only what concerns it.
    let ping = tokio::time::timeout(std::time::Duration::from_millis(200), silent.message()).await;
    assert!(ping.is_err(), "{ping:?}");
}

#[tokio::test]
async fn the_reason_of_a_cancellation_reaches_the_server() {
    for (server, gateway) in both().await {
        let mut client = client_at(&gateway, "/mcp", Era::Legacy, None).await;
        client.initialize_with(json!({"sampling": {}})).await;
        let reasons = [
            json!("took too long"),
            json!({"not": "a text"}),
            json!("x".repeat(2000)),
        ];
        for (n, reason) in reasons.iter().enumerate() {
            let id = 100 + n;
            let params =
                json!({"name": "a__asking", "arguments": {"method": "sampling/createMessage"}});
            let mut stream = EventStream::of(client.start(id, "tools/call", params).await);
            within("it is asked", stream.notification("sampling/createMessage")).await;
            let cancelled = json!({"requestId": id, "reason": reason});
            assert_eq!(
                client
                    .post(messages::notification("notifications/cancelled", cancelled))
                    .await
                    .status,
                202
            );
            holds("the server hears of it", || {
                server.received("notifications/cancelled").len() == n + 1
            })
            .await;
        }
        let received = server.received("notifications/cancelled");
        let told: Vec<&Value> = received
            .iter()
            .map(|message| &message["params"]["reason"])
            .collect();
        let own = json!("the client no longer waits for it");
        assert_eq!(told, [&json!("took too long"), &own, &own]);
    }
}
