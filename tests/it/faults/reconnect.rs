//! Servers that go, come back, or keep failing: found again, and not hammered.

use std::time::Duration;

use moongate_mock::{FaultAction, FaultRule};
use moongate_testing::ReservedAddress;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{
    ERAS, Era, Gateway, Setup, holds, legacy, mock_at, modern, only, serve, until,
};

async fn attempts(gateway: &Gateway) -> f64 {
    gateway
        .metric("moongate_server_reconnects_total{mcp_server=\"a\"}")
        .await
        .unwrap_or_default()
}

#[tokio::test]
async fn nothing_is_missed_while_a_subscription_is_added() {
    let mock = serve(modern()).await;
    let gateway = Setup::new().http("a", &mock.url).start().await;
    gateway.ready(&["a"]).await;
    let client = gateway.client(Era::Legacy).await;
    let mut stream = client.listen().await;
    let subscribe = async |uri: &str| {
        assert_eq!(
            client
                .request("resources/subscribe", json!({"uri": uri}))
                .await
                .result(),
            json!({})
        );
    };
    subscribe("mock://watched").await;
    holds("the server is subscribed to", || {
        mock.notify_resource("mock://watched") > 0
    })
    .await;
    stream.notification("notifications/resources/updated").await;
    // A second one: the server is slow to take the new stream, and the first resource changes just
    // then.
    mock.set_fault(FaultRule::on(
        "subscriptions/listen",
        FaultAction::Delay { ms: 300 },
    ));
    mock.reset_record();
    subscribe("mock://static/text").await;
    holds("the server is asked", || {
        mock.counters().of("subscriptions/listen") == 1
    })
    .await;
    assert_eq!(mock.notify_resource("mock://watched"), 1);
    let updated = stream.notification("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "mock://watched");
    holds("the new one counts", || {
        mock.notify_resource("mock://static/text") == 1
    })
    .await;
    let updated = stream.notification("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "mock://static/text");
    holds("the old stream is gone", || mock.listeners() == 1).await;
}

#[tokio::test]
async fn reconnect_attempts_back_off_until_the_server_returns() {
    for script in [legacy(), modern()] {
        let mock = serve(only(script.clone(), &["echo"])).await;
        let address = mock.addr.unwrap();
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        holds("the gateway listens", || mock.listeners() > 0).await;
        mock.stop().await;
        // Nobody calls: it is noticed all the same.
        gateway.state("a", "backing_off").await;
        let began = Instant::now();
        let before = attempts(&gateway).await;
        until("three attempts", || async {
            (attempts(&gateway).await >= before + 3.0).then_some(())
        })
        .await;
        // Half of 0.5 s, of 1 s and of 2 s at least, but for what passed of the first.
        assert!(
            began.elapsed() >= Duration::from_millis(1200),
            "{:?}",
            began.elapsed()
        );
        // What it offered is still listed meanwhile.
        assert_eq!(gateway.client(Era::Modern).await.tools().await, ["a__echo"]);
        let _mock = mock_at(only(script, &["echo"]), address).await;
        for era in ERAS {
            assert_eq!(
                gateway
                    .client(era)
                    .await
                    .call("a__echo", json!({}))
                    .await
                    .text(),
                "{}"
            );
        }
        gateway.ready(&["a"]).await;
    }
}

#[tokio::test]
async fn reopening_a_failing_notification_stream_backs_off() {
    for (script, method) in [(legacy(), "GET"), (modern(), "subscriptions/listen")] {
        let mock =
            serve(only(script, &["echo"]).with_fault(FaultRule::on(method, FaultAction::Close)))
                .await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        until("a second attempt", || async {
            (mock.counters().of(method) >= 2).then_some(())
        })
        .await;
        let began = Instant::now();
        until("two more", || async {
            (mock.counters().of(method) >= 4).then_some(())
        })
        .await;
        assert!(
            began.elapsed() >= Duration::from_millis(1200),
            "{method}: {:?}",
            began.elapsed()
        );
        let lists = mock.counters().of("tools/list");
        assert!(
            lists <= 2 * mock.counters().of(method) + 1,
            "{method}: {lists} lists"
        );
        assert_eq!(
            gateway
                .client(Era::Modern)
                .await
                .call("a__echo", json!({}))
                .await
                .text(),
            "{}"
        );
        gateway.state("a", "ready").await;
    }
}

#[tokio::test]
async fn a_server_that_comes_up_late_is_waited_for() {
    let reserved = ReservedAddress::new();
    let address = reserved.address();
    let gateway = Setup::new()
        .http("a", &format!("http://{address}/mcp"))
        .start()
        .await;
    gateway.state("a", "backing_off").await;
    let _mock = mock_at(only(legacy(), &["echo"]), address).await;
    let client = gateway.client(Era::Modern).await;
    until("its tools are listed", || async {
        (client.tools().await == ["a__echo"]).then_some(())
    })
    .await;
    assert_eq!(client.call("a__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_server_that_changes_its_era_is_opened_in_the_new_one() {
    for (before, after) in [(legacy(), modern()), (modern(), legacy())] {
        let mock = serve(only(before, &["old"])).await;
        let address = mock.addr.unwrap();
        let gateway = Setup::new().http("a", &mock.url).start().await;
        gateway.ready(&["a"]).await;
        holds("the gateway listens", || mock.listeners() > 0).await;
        mock.stop().await;
        let _mock = mock_at(only(after, &["new"]), address).await;
        let client = gateway.client(Era::Modern).await;
        until("the new tools are listed", || async {
            (client.tools().await == ["a__new"]).then_some(())
        })
        .await;
        assert_eq!(client.call("a__new", json!({})).await.text(), "{}");
    }
}

#[tokio::test]
async fn retry_after_delays_the_next_attempt() {
    let date =
        httpdate::fmt_http_date(std::time::SystemTime::now() + std::time::Duration::from_secs(160));
    for wish in ["160", &date] {
        let wait = FaultAction::Status {
            status: 429,
            headers: [("retry-after".to_owned(), wish.to_owned())].into(),
            body: String::new(),
            content_type: None,
        };
        let mock = serve(legacy().with_fault(FaultRule::on("*", wait))).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        let status = gateway.state("a", "backing_off").await;
        // Much longer than it would pause by itself, however slow this machine is.
        assert!(
            status["next_attempt_seconds"].as_f64().unwrap() > 90.0,
            "{wish}: {status}"
        );
    }
}

#[tokio::test]
async fn a_server_that_answers_nonsense_at_first_says_so_in_its_status_and_recovers() {
    let status = |status: u16, body: &str| FaultAction::Status {
        status,
        headers: Default::default(),
        body: body.to_owned(),
        content_type: Some("text/html".to_owned()),
    };
    let nonsense = [
        (status(500, "oops"), "500"),
        (status(502, "<html>bad gateway</html>"), "502"),
        (status(200, "<html>maintenance</html>"), "text/html"),
        (
            FaultAction::Body {
                text: String::new(),
            },
            "the answer is",
        ),
        (
            FaultAction::Body {
                text: r#"{"jsonrpc":"2.0","id":1,"result":7}"#.to_owned(),
            },
            "the answer is",
        ),
        (
            FaultAction::Result {
                json: "{}".to_owned(),
            },
            "revision",
        ),
        (FaultAction::Reset, "connection"),
        (FaultAction::WrongId, "another request"),
    ];
    for (act, word) in nonsense {
        let mock =
            serve(only(legacy(), &["echo"]).with_fault(FaultRule::on("*", act.clone()))).await;
        let gateway = Setup::new().http("a", &mock.url).start().await;
        let status = until("it has failed", || async {
            let status = gateway.status("a").await;
            (status["state"] != "starting").then_some(status)
        })
        .await;
        assert!(
            status["reason"].as_str().unwrap().contains(word),
            "{act:?}: {status}"
        );
        if status["state"] == "backing_off" {
            mock.clear_faults();
            gateway.ready(&["a"]).await;
            assert_eq!(
                gateway
                    .client(Era::Modern)
                    .await
                    .call("a__echo", json!({}))
                    .await
                    .text(),
                "{}"
            );
        }
    }
}
