//! Faults that a script asks for.

use moongate_mock::{FaultAction, FaultRule, MockScript};
use serde_json::json;
use tokio::time::timeout;

use crate::mock::fixtures::{
    LONG, answer, call, content, http, initialize, read_events, request, session, start,
    start_legacy, text,
};

#[tokio::test]
async fn faults_over_http() {
    let server = http(MockScript::standard()).await;
    let web = session(&server.url, "2025-06-18").await;
    let list = request(1, "tools/list", json!({}));
    let busy = FaultAction::Status {
        status: 503,
        headers: [("retry-after".to_owned(), "1".to_owned())].into(),
        body: "<html>".into(),
        content_type: Some("text/html".into()),
    };
    server.set_fault(FaultRule::on("tools/list", busy).after(1).times(1));
    assert_eq!(web.post(&list).await.status(), 200);
    let response = web.post(&list).await;
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["content-type"], "text/html");
    assert_eq!(web.post(&list).await.status(), 200);
    server.set_fault(FaultRule::on("tools/list", FaultAction::WrongId));
    assert_ne!(answer(web.post(&list).await).await["id"], 1);
    server.set_fault(FaultRule::on(
        "tools/list",
        FaultAction::Huge { bytes: 1 << 20 },
    ));
    assert!(text(web.post(&list).await).await.len() > 1 << 20);
    server.set_fault(FaultRule::on("tools/list", FaultAction::Duplicate));
    let mut events = read_events(web.post(&list).await);
    assert_eq!(events.message().await.unwrap()["id"], 1);
    assert_eq!(events.message().await.unwrap()["id"], 1);
    server.set_fault(FaultRule::on(
        "tools/list",
        FaultAction::ContentType {
            value: "text/plain".into(),
        },
    ));
    assert_eq!(
        web.post(&list).await.headers()["content-type"],
        "text/plain"
    );
    server.set_fault(FaultRule::on(
        "tools/list",
        FaultAction::Body {
            text: String::new(),
        },
    ));
    assert_eq!(text(web.post(&list).await).await, "");
    for act in [
        FaultAction::Reset,
        FaultAction::Close,
        FaultAction::Exit { code: 1 },
    ] {
        server.set_fault(FaultRule::on("tools/list", act));
        assert!(web.send("POST", &list, &[]).await.is_err());
    }
    server.clear_faults();
    assert!(
        web.send("POST", &call(2, "crash", json!({})), &[])
            .await
            .is_err()
    );
    assert_eq!(web.post(&list).await.status(), 200);
    assert_eq!(server.drop_sessions(), 1);
    assert_eq!(web.post(&list).await.status(), 404);
}

#[tokio::test]
async fn faults_over_stdio() {
    let script = MockScript::standard()
        .with_fault(FaultRule::on("tools/call:add", FaultAction::Exit { code: 9 }).after(1));
    let mut pipe = start_legacy("2025-11-25", &script).await;
    let add = call(1, "add", json!({"a": 1, "b": 2}));
    assert_eq!(content(&pipe.ask(&add).await), "3");
    pipe.send(&add).await;
    assert_eq!(
        timeout(LONG, pipe.child.wait())
            .await
            .unwrap()
            .unwrap()
            .code(),
        Some(9)
    );

    let mut pipe = start_legacy("2025-11-25", &MockScript::standard()).await;
    pipe.send(&call(1, "crash", json!({}))).await;
    assert_eq!(
        timeout(LONG, pipe.child.wait())
            .await
            .unwrap()
            .unwrap()
            .code(),
        Some(3)
    );

    let mut script = MockScript::standard();
    script.stdio.banner = Some("hello".into());
    script.stdio.exit_after = 1;
    let mut pipe = start(&script);
    assert_eq!(pipe.line().await.unwrap(), "hello");
    pipe.ask(&initialize("2025-11-25")).await;
    assert_eq!(
        timeout(LONG, pipe.child.wait())
            .await
            .unwrap()
            .unwrap()
            .code(),
        Some(4)
    );
}
