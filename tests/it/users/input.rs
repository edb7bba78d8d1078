//! Bad input of a client costs that request and nothing else.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{ERAS, Era, HttpClient, Setup, body_of, legacy, serve, within};

/// Bodies that are no message, and the code of the error that says so.
fn malformed() -> Vec<(String, i64)> {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut bodies: Vec<(String, i64)> =
        ["", "{", "nonsense", "{\"jsonrpc\":\"2.0\",}", "\u{feff}"]
            .map(|body| (body.to_owned(), -32700))
            .to_vec();
    let shapes = [
        "null",
        "7",
        "\"text\"",
        "[]",
        "{}",
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
    ];
    bodies.extend(shapes.map(|body| (body.to_owned(), -32600)));
    bodies.push((deep, 0));
    bodies
}

#[tokio::test]
async fn a_malformed_body_is_one_error_over_400_and_the_session_lives_on() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for (body, code) in malformed() {
            let shown: String = body.chars().take(60).collect();
            let reply = client.post(body).await;
            assert_eq!(reply.status, 400, "{era:?}: {shown}");
            let error = reply.error();
            assert!(
                code == 0 || error["code"] == code,
                "{era:?}: {shown}: {error}"
            );
            assert_eq!(reply.answer()["jsonrpc"], "2.0");
        }
        assert_eq!(
            client.call("a__echo", json!({"on": 1})).await.text(),
            r#"{"on":1}"#,
            "{era:?}"
        );
    }
}

#[tokio::test]
async fn the_error_of_a_malformed_request_names_its_fault() {
    let gateway = Setup::new().start().await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for (body, words) in [
            ("7", "not a number"),
            (
                r#"{"id":1,"method":"ping"}"#,
                "jsonrpc must be \"2.0\", but it is missing",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                "not a fraction",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
                "the method must be a string",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}"#,
                "params must be an object, not an array",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
                "params has \"name\" twice",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
                "the member id occurs twice",
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, "none of them"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
                "has both",
            ),
        ] {
            let message = client.post(body.to_owned()).await.error()["message"].to_string();
            assert!(
                message.replace("\\\"", "\"").contains(words),
                "{era:?}: {body}: {message}"
            );
        }
        for (method, params, words) in [
            ("tools/call", json!({}), "name is missing"),
            ("tools/call", json!({"name": 7}), "name must be a string"),
            (
                "resources/read",
                json!({"uri": ["a"]}),
                "uri must be a string",
            ),
        ] {
            let message = client.request(method, params).await.error()["message"].to_string();
            assert!(message.contains(words), "{era:?}: {method}: {message}");
        }
    }
}

#[tokio::test]
async fn a_malformed_body_leaves_the_connection_usable() {
    let gateway = Setup::new().start().await;
    let mut stream = tokio::net::TcpStream::connect(gateway.app.addresses[0])
        .await
        .unwrap();
    let mut seen = Vec::new();
    for (body, status) in [
        ("{broken", "400"),
        (r#"{"jsonrpc":"2.0"}"#, "400"),
        (&*hello(), "200"),
    ] {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: \
             application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        seen.clear();
        while !seen.ends_with(b"}") {
            let read = within("an answer", stream.read_buf(&mut seen))
                .await
                .unwrap();
            assert!(read > 0, "the connection was closed");
        }
        let text = String::from_utf8_lossy(&seen);
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}")),
            "{body}: {text}"
        );
    }
}

fn hello() -> String {
    body_of(
        1,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}),
    )
}

#[tokio::test]
async fn an_unknown_name_is_one_error_and_is_called_nowhere() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    mock.reset_record();
    for era in ERAS {
        let client = gateway.client(era).await;
        let unknown = [
            ("tools/call", json!({"name": "a__nothing"})),
            ("tools/call", json!({"name": "echo"})),
            ("tools/call", json!({"name": 7})),
            ("tools/call", json!({})),
            ("prompts/get", json!({"name": "a__nothing"})),
        ];
        for (method, params) in unknown {
            let reply = client.request_as(1, method, params.clone()).await;
            assert_eq!(reply.error()["code"], -32602, "{era:?} {method} {params}");
        }
        let reply = client.request_as(1, "no/such/method", json!({})).await;
        assert_eq!(reply.error()["code"], -32601);
    }
    // It is listed once more, in case that the names are newer than its lists, and called for
    // nothing.
    let counters = mock.counters();
    let lists = counters.of("tools/list") + counters.of("prompts/list");
    assert_eq!(lists, 2, "{counters:?}");
    assert_eq!(counters.total(), 2, "{counters:?}");
    // What clients make up does not become a series of its own.
    let metrics = gateway.admin("/metrics").await.text_body();
    assert!(
        !metrics.contains("a__nothing") && !metrics.contains("no/such/method"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_413_that_names_it() {
    let gateway = Setup::new()
        .with("limits", "body = \"64KiB\"")
        .start()
        .await;
    for era in ERAS {
        let client = gateway.client(era).await;
        for size in [65 << 10, 1 << 20, 16 << 20] {
            let body = body_of(
                1,
                "tools/call",
                json!({"name": "x", "arguments": {"a": "x".repeat(size)}}),
            );
            let reply = client.post(body).await;
            assert_eq!(reply.status, 413, "{era:?}, {size}");
            let message = reply.error()["message"].as_str().unwrap().to_owned();
            assert!(
                message.contains("limits.body") && message.contains("65536"),
                "{message}"
            );
        }
        let fits = body_of(2, "ping", json!({"a": "x".repeat(60 << 10)}));
        let status = client.post(fits).await.status;
        assert_ne!(status, 413, "{era:?}");
        assert!(client.tools().await.is_empty());
    }
}

#[tokio::test]
async fn invalid_client_messages_are_refused_and_the_session_goes_on() {
    let gateway = Setup::new().start().await;
    let client = gateway.client(Era::Legacy).await;
    let list = body_of(1, "tools/list", json!({}));
    for (verb, status) in [("PUT", 405), ("PATCH", 405)] {
        assert_eq!(
            client.raw(verb, &[], list.clone()).await.status(),
            status,
            "{verb}"
        );
    }
    let batch = format!("[{list},{list}]");
    let reply = client.post(batch).await;
    assert_eq!(reply.status, 400, "2025-11-25 has no batches");
    let no_session = crate::harness::McpClient {
        session: None,
        ..client.clone()
    };
    let reply = no_session.raw("DELETE", &[], "").await;
    assert_eq!(reply.status(), 400, "there is no session to end");
    assert!(client.tools().await.is_empty());
}

#[tokio::test]
async fn listening_beyond_loopback_without_keys_is_refused_with_exit_code_2() {
    let setup = Setup::new();
    let run = async |listen: &str, keys: &str| {
        let config = setup.path("open.toml");
        std::fs::write(
            &config,
            format!("gateway.listen = {listen:?}\ngateway.admin = false\n{keys}"),
        )
        .unwrap();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .arg("check")
            .arg("--config")
            .arg(&config)
            .kill_on_drop(true);
        let checked = within("check ends", command.output()).await.unwrap();
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_moongate"));
        command
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .kill_on_drop(true);
        (checked, command)
    };
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080"] {
        let (checked, mut serve) = run(listen, "").await;
        assert_eq!(checked.status.code(), Some(2), "{listen}");
        let served = within("serve ends", serve.output()).await.unwrap();
        assert_eq!(served.status.code(), Some(2), "{listen}");
        let text = String::from_utf8(served.stderr).unwrap();
        assert!(
            text.contains(listen) && text.contains("auth.keys"),
            "{text}"
        );
    }
    let key = "[[auth.keys]]\nname = \"one\"\nkey = \"key-number-1-0123456789\"\n";
    assert_eq!(
        run("0.0.0.0:0", key).await.0.status.code(),
        Some(0),
        "with a key it may"
    );
    assert_eq!(
        run("[::1]:0", "").await.0.status.code(),
        Some(0),
        "loopback needs none"
    );
}

#[tokio::test]
async fn a_batch_of_calls_is_answered_as_one() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let http = HttpClient::new();
    let url = gateway.url("/mcp");
    let params = json!({"protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let plain = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let opened = http
        .send("POST", &url, &plain, body_of(1, "initialize", params))
        .await;
    let session = opened.header("mcp-session-id").to_owned();
    let headers = [plain[0], plain[1], ("mcp-session-id", &session)];
    let call = |id: u64, tool: &str| {
        body_of(
            id,
            "tools/call",
            json!({"name": tool, "arguments": {"id": id}}),
        )
    };
    let batch = format!(
        "[{},7,{},{}]",
        call(1, "a__echo"),
        call(2, "a__nothing"),
        call(3, "a__echo")
    );
    let answers = http.send("POST", &url, &headers, batch).await.json();
    let answers = answers.as_array().unwrap();
    let of = |id: Value| {
        answers
            .iter()
            .find(|answer| answer["id"] == id)
            .unwrap_or_else(|| panic!("{id}: {answers:?}"))
    };
    assert_eq!(answers.len(), 4);
    assert_eq!(of(json!(1))["result"]["content"][0]["text"], r#"{"id":1}"#);
    assert_eq!(of(json!(2))["error"]["code"], -32602);
    assert_eq!(of(json!(3))["result"]["content"][0]["text"], r#"{"id":3}"#);
    assert_eq!(of(Value::Null)["error"]["code"], -32600);
    crate::harness::holds("nothing is left", || {
        gateway.app.metrics.calls.inflight.get() == 0
    })
    .await;
}
