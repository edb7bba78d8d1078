//! Servers that have only HTTP+SSE: found without being told, lost with their stream, and never
//! followed elsewhere.

use moongate_mock::{FaultAction, FaultRule, HttpRules, MockHandle, MockScript, Revision};
use serde_json::json;

use crate::harness::{ERAS, Era, Setup, mock_at, serve, until};

fn script() -> MockScript {
    let http = HttpRules {
        streamable: false,
        ..HttpRules::default()
    };
    MockScript {
        http,
        ..MockScript::standard().speaking(&[Revision::V2024_11_05])
    }
}

fn url(mock: &MockHandle) -> String {
    mock.url.replace("/mcp", "/sse")
}

#[tokio::test]
async fn a_server_with_only_http_sse_is_found() {
    for lines in ["", "transport = \"sse\"", "type = \"sse\""] {
        let mock = serve(script()).await;
        let gateway = Setup::new()
            .http("a", &url(&mock))
            .with("servers.a", lines)
            .start()
            .await;
        gateway.ready(&["a"]).await;
        let posts = mock
            .recorded_requests()
            .iter()
            .filter(|s| s.http_method == "POST" && s.path == "/sse")
            .count();
        assert_eq!(
            posts > 0,
            lines.is_empty(),
            "{lines:?}: Streamable HTTP is tried first, unless the config says more"
        );
        for era in ERAS {
            let client = gateway.client(era).await;
            assert_eq!(
                client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
                "3",
                "{lines:?}, {era:?}"
            );
        }
    }
    // And not where the config says that it must be Streamable HTTP.
    let mock = serve(script()).await;
    let gateway = Setup::new()
        .http("a", &url(&mock))
        .with("servers.a", "transport = \"http\"")
        .start()
        .await;
    let status = gateway.state("a", "backing_off").await;
    assert!(
        status["reason"].as_str().unwrap().contains("405"),
        "{status}"
    );
}

#[tokio::test]
async fn a_lost_http_sse_stream_fails_its_calls_and_is_reopened() {
    for act in [FaultAction::Close, FaultAction::Reset] {
        let mock = serve(script()).await;
        let gateway = Setup::new().http("a", &url(&mock)).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Legacy).await;
        let waiting = {
            let client = client.clone();
            tokio::spawn(async move { client.call("a__hang", json!({})).await })
        };
        until("the call is there", || async {
            (mock.counters().of("tools/call") > 0).then_some(())
        })
        .await;
        // A tool that says nothing of being repeatable.
        mock.set_fault(FaultRule::on("tools/call:sleep", act).times(1));
        let failure = client.call("a__sleep", json!({})).await.failure();
        assert!(
            failure.contains("Server \"a\" is not available"),
            "{failure}"
        );
        let failure = waiting.await.unwrap().failure();
        assert!(failure.contains("stream"), "{failure}");
        assert_eq!(
            client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
            "3"
        );
    }
}

#[tokio::test]
async fn a_replaced_http_sse_server_is_reinitialized() {
    let mock = serve(script()).await;
    let address = mock.addr.unwrap();
    let url = url(&mock);
    let gateway = Setup::new().http("a", &url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    mock.stop().await;
    gateway.state("a", "backing_off").await;
    let _again = mock_at(script(), address).await;
    assert_eq!(
        client.call("a__add", json!({"a": 1, "b": 2})).await.text(),
        "3"
    );
}

#[tokio::test]
async fn an_endpoint_at_another_origin_is_refused() {
    let other = serve(script()).await;
    for endpoint in [
        format!("http://{}/message", other.addr.unwrap()),
        "//127.0.0.2/message".to_owned(),
    ] {
        let http = HttpRules {
            streamable: false,
            endpoint: Some(endpoint),
            ..HttpRules::default()
        };
        let mock = serve(MockScript { http, ..script() }).await;
        let lines = "transport = \"sse\"\nheaders = { Authorization = \"Bearer ${file:key}\" }";
        let setup = Setup::new().http("a", &url(&mock)).with("servers.a", lines);
        std::fs::write(setup.path("key"), "secret").unwrap();
        let gateway = setup.start().await;
        let status = gateway.state("a", "backing_off").await;
        assert!(
            status["reason"]
                .as_str()
                .unwrap()
                .contains("another origin"),
            "{status}"
        );
        assert!(
            other.recorded_requests().is_empty(),
            "nothing was sent there"
        );
    }
}
