//! Calls that fail: the circuit breaker, the retries and their budget.

use std::time::Duration;

use moongate_mock::{FaultAction, FaultRule};
use serde_json::json;
use tokio::time::Instant;

use super::counted;
use crate::harness::{ERAS, Era, Setup, legacy, modern, only, serve, until};

fn status(status: u16, headers: &[(&str, &str)]) -> FaultAction {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    FaultAction::Status {
        status,
        headers,
        body: "oops".to_owned(),
        content_type: None,
    }
}

#[tokio::test]
async fn the_circuit_breaker_opens_and_closes_when_the_server_recovers() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let good = serve(only(legacy(), &["echo"])).await;
        let settings = "breaker = { failures = 3, open = \"3s\" }\nretry = { attempts = 1 }";
        let gateway = Setup::new()
            .http("a", &mock.url)
            .with("servers.a", settings)
            .http("good", &good.url)
            .start()
            .await;
        gateway.ready(&["a", "good"]).await;
        mock.set_fault(FaultRule::on("tools/call", status(503, &[])));
        let client = gateway.client(Era::Modern).await;
        let began = Instant::now();
        for n in 0..20 {
            let failure = client.call("a__echo", json!({})).await.failure();
            if n < 3 {
                assert!(failure.contains("503"), "{failure}");
            } else if failure.contains("servers.a.breaker") {
                assert!(
                    failure.contains("503") && failure.contains("Server \"a\""),
                    "{failure}"
                );
            }
            assert_eq!(client.call("good__echo", json!({})).await.text(), "{}");
        }
        let sent = mock.counters().of("tools/call");
        let probes = began.elapsed().as_secs() / 3 + 1;
        assert!(
            (3..=3 + probes).contains(&sent),
            "{sent} of 20 calls were sent"
        );
        let degraded = gateway.state("a", "degraded").await;
        assert!(
            degraded["reason"].as_str().unwrap().contains("503"),
            "{degraded}"
        );
        mock.clear_faults();
        until("a call is let through", || async {
            (client.call("a__echo", json!({})).await.result()["isError"] != true).then_some(())
        })
        .await;
        gateway.state("a", "ready").await;
    }
}

#[tokio::test]
async fn json_rpc_errors_never_open_the_circuit_breaker() {
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", "breaker = { failures = 2 }")
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let invalid = FaultAction::Error {
        code: -32602,
        message: "no".to_owned(),
    };
    let failed = FaultAction::Result {
        json: r#"{"content":[],"isError":true}"#.to_owned(),
    };
    for act in [invalid, failed] {
        mock.set_fault(FaultRule::on("tools/call", act));
        for _ in 0..10 {
            client.call("a__echo", json!({})).await;
        }
        mock.clear_faults();
    }
    assert_eq!(mock.counters().of("tools/call"), 20);
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn only_idempotent_requests_are_retried() {
    for script in [legacy(), modern()] {
        let mock = serve(script).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        for era in ERAS {
            let client = gateway.client(era).await;
            let sent = |method: &str| mock.counters().of(method);
            // Says that it only reads.
            mock.set_fault(FaultRule::on("tools/call:echo", status(503, &[])).times(1));
            let before = sent("tools/call");
            assert_eq!(
                client.call("a__echo", json!({})).await.text(),
                "{}",
                "{era:?}"
            );
            assert_eq!(sent("tools/call"), before + 2);
            // Says nothing.
            mock.set_fault(FaultRule::on("tools/call:sleep", status(503, &[])).times(1));
            assert!(
                client
                    .call("a__sleep", json!({}))
                    .await
                    .failure()
                    .contains("503")
            );
            assert_eq!(sent("tools/call"), before + 3, "it may have run");
            mock.set_fault(FaultRule::on("resources/read", FaultAction::Reset).times(1));
            client
                .request("resources/read", json!({"uri": "mock://static/text"}))
                .await
                .result();
            mock.clear_faults();
        }
        let retries = counted(
            &gateway,
            "moongate_retries_total{mcp_server=\"a\",outcome=\"sent\"}",
        )
        .await;
        assert_eq!(retries, 4.0);
        let recent = gateway.admin("/api/v1/calls").await.json();
        let each = recent["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| call["retries"].as_u64().unwrap());
        assert_eq!(each.clone().max(), Some(1), "{recent}");
        assert_eq!(each.sum::<u64>(), 4, "{recent}");
    }
}

#[tokio::test]
async fn the_retry_budget_adds_at_most_a_tenth_of_calls() {
    let settings = "breaker = { failures = 0 }\nretry = { attempts = 5 }";
    let mock = serve(legacy()).await;
    let gateway = Setup::new()
        .http("a", &mock.url)
        .with("servers.a", settings)
        .start()
        .await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Modern).await;
    let read = || client.request("resources/read", json!({"uri": "mock://static/text"}));
    let calls = 200;
    for n in 0..calls {
        match n % 4 {
            1 => mock.set_fault(FaultRule::on("resources/read", status(500, &[]))),
            2 => mock.set_fault(FaultRule::on("resources/read", status(502, &[]))),
            _ => mock.clear_faults(),
        }
        assert_eq!(read().await.status, 200);
    }
    let hits = mock.counters().of("resources/read");
    assert!(
        hits >= calls && hits * 10 <= calls * 11,
        "{hits} requests for {calls} calls"
    );
    assert!(
        counted(
            &gateway,
            "moongate_retries_total{mcp_server=\"a\",outcome=\"over_budget\"}"
        )
        .await
            > 0.0
    );
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_a_cap() {
    let far = "Sat, 01 Jan 2180 00:00:00 GMT";
    for (asked, again) in [
        ("1", true),
        ("1000000000", false),
        (far, false),
        ("soon", true),
    ] {
        let mock = serve(legacy()).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        let client = gateway.client(Era::Modern).await;
        mock.set_fault(
            FaultRule::on("resources/read", status(429, &[("retry-after", asked)])).times(1),
        );
        let read = || client.request("resources/read", json!({"uri": "mock://static/text"}));
        let began = Instant::now();
        let reply = read().await;
        if again {
            reply.result();
            assert!(asked == "soon" || began.elapsed() >= Duration::from_secs(1));
            assert_eq!(mock.counters().of("resources/read"), 2);
            continue;
        }
        let message = reply.error()["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains("429") && message.contains("asks to wait"),
            "{message}"
        );
        for _ in 0..10 {
            let message = read().await.error()["message"].as_str().unwrap().to_owned();
            assert!(
                message.contains("429") && message.contains("servers.a.breaker"),
                "{message}"
            );
        }
        assert_eq!(mock.counters().of("resources/read"), 1, "it is left alone");
        let next = gateway.state("a", "degraded").await["next_attempt_seconds"]
            .as_f64()
            .unwrap();
        assert!(next <= 60.0, "{next}");
    }
}
