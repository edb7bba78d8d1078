//! Logins that operators start and end over the API, as the page does.

use serde_json::{Value, json};

use super::browser::browse;
use super::world::{SENTENCE, World, call, is_good, reaches, ready};
use crate::harness::{HttpClient, HttpReply, Process, until};

/// Sends a request about the login at `linear`.
async fn post(gateway: &Process, action: &str, body: &Value) -> HttpReply {
    let base = gateway.admin_url().await;
    let url = format!("{base}/api/v1/servers/linear/{action}");
    let headers = [("content-type", "application/json")];
    HttpClient::new()
        .send("POST", &url, &headers, body.to_string())
        .await
}

#[tokio::test]
async fn an_operator_logs_in_and_out() {
    let world = World::start().await;
    let gateway = world.gateway().await;
    let status = reaches(&gateway, "needs_login").await;
    assert_eq!(status["login"]["state"], "signed_out", "{status}");
    let started = post(&gateway, "login", &json!({})).await;
    assert_eq!(started.status, 200, "{started:?}");
    let start = started.json();
    assert_eq!(start["must_confirm"], false, "{start}");
    assert_eq!(start["host"], "127.0.0.1", "{start}");
    let page = browse(start["url"].as_str().unwrap()).await;
    assert_eq!(page.reply.status, 200, "{}: {:?}", page.url, page.reply);
    let client = ready(&gateway).await;
    assert!(is_good(&call(&client).await));
    let status = gateway.status("linear").await;
    assert_eq!(status["login"]["state"], "signed_in", "{status}");
    assert_eq!(status["login"]["renews"], true, "{status}");
    let ended = post(&gateway, "logout", &json!({})).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_eq!(ended.json()["outcome"], "revoked", "{ended:?}");
    assert!(world.logins().is_empty());
    until("the login is gone", async || {
        let status = gateway.status("linear").await;
        (status["login"]["state"] == "signed_out").then_some(())
    })
    .await;
    assert!(!is_good(&call(&client).await));
    let again = post(&gateway, "logout", &json!({})).await;
    assert_eq!(again.json()["outcome"], "not_signed_in", "{again:?}");
}

#[tokio::test]
async fn a_login_at_another_host_is_confirmed_for_that_host() {
    let world = World::start().await;
    let port = world.issuer.origin().rsplit(':').next().unwrap().to_owned();
    let elsewhere = json!(format!("https://localhost:{port}/authorize"));
    world
        .issuer
        .change(|rules| rules.metadata = vec![("authorization_endpoint", elsewhere)]);
    let gateway = world.gateway().await;
    reaches(&gateway, "needs_login").await;
    for body in [
        json!({}),
        json!({ "confirmed": false, "host": "localhost" }),
        json!({ "confirmed": true, "host": "login.example" }),
    ] {
        let start = post(&gateway, "login", &body).await.json();
        assert_eq!(start["must_confirm"], true, "{body}: {start}");
        assert_eq!(start["url"], Value::Null, "{body}: {start}");
        assert_eq!(start["host"], "localhost", "{body}: {start}");
        assert_eq!(start["server_host"], "127.0.0.1", "{body}: {start}");
    }
    let logins = world.setup.path("state/logins");
    assert!(!logins.exists(), "nothing was written");
    let confirmed = json!({ "confirmed": true, "host": "localhost" });
    let start = post(&gateway, "login", &confirmed).await.json();
    assert_eq!(start["must_confirm"], false, "{start}");
    let url = start["url"].as_str().unwrap();
    assert!(url.starts_with("https://localhost:"), "{url}");
}

#[tokio::test]
async fn a_server_that_refuses_only_calls_can_be_logged_in_to() {
    let world = World::start_refusing_calls().await;
    let gateway = world.gateway().await;
    let client = ready(&gateway).await;
    let error = call(&client).await.text_body();
    assert!(error.contains(SENTENCE), "{error}");
    let started = post(&gateway, "login", &json!({})).await;
    assert_eq!(started.status, 200, "{started:?}");
    world.server.clear_faults();
    browse(started.json()["url"].as_str().unwrap()).await;
    until("calls carry the login", async || {
        call(&client).await;
        let token = world.last_token();
        world.issuer.secrets().contains(&token).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_login_that_cannot_start_says_why() {
    let world = World::start().await;
    let gateway = world.gateway().await;
    reaches(&gateway, "needs_login").await;
    world.issuer.change(|rules| rules.registers = false);
    let refused = post(&gateway, "login", &json!({})).await;
    assert_eq!(refused.status, 502, "{refused:?}");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("auth.client_id"), "{message}");
    let base = gateway.admin_url().await;
    let headers = [("content-type", "application/json")];
    let url = format!("{base}/api/v1/servers/nobody/login");
    let unknown = HttpClient::new().send("POST", &url, &headers, "{}").await;
    assert_eq!(unknown.status, 404, "{unknown:?}");
}
