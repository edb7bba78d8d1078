//! What the failures of a server look like to the client of a call.

use moongate_mock::{FaultAction, FaultRule};
use serde_json::json;
use tokio::net::TcpListener;

use crate::harness::{ERAS, Era, McpClient, Setup, legacy, modern, serve};

#[tokio::test]
async fn the_error_of_a_slow_call_names_the_setting() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", "timeout = \"200ms\"")
            .start()
            .await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let failure = client
                .call("a__sleep", json!({"ms": 60_000}))
                .await
                .failure();
            assert!(
                failure.contains("servers.a.timeout") && failure.contains("200ms"),
                "{failure}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_to_a_server_that_is_not_up_names_the_setting() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "connect_timeout = \"200ms\"")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    mock.stop().await;
    let client = gateway.client(Era::Modern).await;
    client.call("a__echo", json!({})).await.failure();
    gateway.state("a", "backing_off").await;
    let failure = client.call("a__echo", json!({})).await.failure();
    assert!(
        failure.contains("the next attempt is in") && failure.contains("Connection refused"),
        "{failure}"
    );
    // One that an attempt is under way to is waited for, so long.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let gateway = Setup::new()
        .http("a", &url)
        .with("servers.a", "connect_timeout = \"200ms\"")
        .start()
        .await;
    let client = McpClient::open(&gateway.url("/mcp/a"), Era::Modern).await;
    let reply = client
        .request("resources/read", json!({"uri": "x:y"}))
        .await;
    let message = reply.error()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("servers.a.connect_timeout") && message.contains("200ms"),
        "{message}"
    );
}

/// Every way in which a server behind HTTP fails a call, and a word of how the gateway says so.
fn failures() -> Vec<(&'static str, FaultAction, &'static str)> {
    let status = |status: u16, body: &str| FaultAction::Status {
        status,
        headers: Default::default(),
        body: body.to_owned(),
        content_type: Some("text/html".to_owned()),
    };
    vec![
        ("401", status(401, ""), "moongate login shop"),
        ("403", status(403, "no"), "403"),
        ("429", status(429, "slow down"), "429"),
        ("500", status(500, "<h1>oops</h1>"), "500"),
        ("502", status(502, "<html>bad gateway</html>"), "502"),
        (
            "HTML over 200",
            status(200, "<html>maintenance</html>"),
            "text/html",
        ),
        (
            "nothing over 200",
            FaultAction::Body {
                text: String::new(),
            },
            "broke the protocol",
        ),
        (
            "no JSON",
            FaultAction::Body {
                text: "oops".to_owned(),
            },
            "broke the protocol",
        ),
        ("a reset", FaultAction::Reset, "not available"),
        ("a closed connection", FaultAction::Close, "not available"),
        ("a cut stream", FaultAction::Cut, "without an answer"),
        (
            "another content type",
            FaultAction::ContentType {
                value: "text/plain".to_owned(),
            },
            "text/plain",
        ),
        ("another's id", FaultAction::WrongId, "broke the protocol"),
    ]
}

#[tokio::test]
async fn a_failing_server_is_a_readable_result_over_http_200() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("shop", &mock.url).start().await;
        gateway.ready(&["shop"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            for (what, act, word) in failures() {
                // A tool that says nothing of being repeatable.
                mock.set_fault(FaultRule::on("tools/call:sleep", act).times(1));
                let reply = client.call("shop__sleep", json!({})).await;
                let failure = reply.failure();
                assert!(
                    failure.contains("shop") && failure.contains(word),
                    "{era:?}, {what}: {failure}"
                );
                assert!(!reply.headers.contains_key("www-authenticate"), "{what}");
                mock.clear_faults();
                let next = client.call("shop__echo", json!({"still": "here"})).await;
                assert_eq!(next.text(), r#"{"still":"here"}"#, "{era:?}, after {what}");
            }
        }
    }
}

#[tokio::test]
async fn other_methods_get_a_json_rpc_error_over_http_200() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new().http("shop", &mock.url).start().await;
    gateway.ready(&["shop"]).await;
    for era in ERAS {
        let client = gateway.client(era).await;
        mock.set_fault(FaultRule::on(
            "resources/read",
            FaultAction::Status {
                status: 502,
                headers: Default::default(),
                body: "<html>".to_owned(),
                content_type: None,
            },
        ));
        let reply = client
            .request("resources/read", json!({"uri": "mock://static/text"}))
            .await;
        assert_eq!(reply.status, 200);
        let message = reply.error()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("\"shop\"") && message.contains("502"),
            "{message}"
        );
    }
}
