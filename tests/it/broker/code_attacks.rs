//! Attacks on codes: each gets no token, and a valid login works afterwards.

use super::client::{assert_oauth_error, random_text, read_tokens};
use super::shapes::CLAUDE_CODE;
use super::world::{Company, people};

#[tokio::test]
async fn a_code_is_for_its_client_verifier_address_and_resource() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let (client, code) = company.code().await;
    let other = company.client(&CLAUDE_CODE).await;
    let right = client.exchange_form(&code);
    let elsewhere = "http://127.0.0.1:19877/mcp/oauth/callback";
    let resource = format!("{}/files", company.mcp());
    for (what, form, error) in [
        (
            "another client",
            right.clone().with("client_id", &other.id),
            "invalid_grant",
        ),
        (
            "an unknown client",
            right.clone().with("client_id", "mgc_AAAA"),
            "invalid_client",
        ),
        (
            "no client",
            right.clone().without("client_id"),
            "invalid_client",
        ),
        (
            "another verifier",
            right.clone().with("code_verifier", random_text()),
            "invalid_grant",
        ),
        (
            "another port",
            right.clone().with("redirect_uri", elsewhere),
            "invalid_grant",
        ),
        (
            "another resource",
            right.clone().with("resource", &resource),
            "invalid_target",
        ),
        (
            "a code of nobody",
            right.clone().with("code", random_text()),
            "invalid_grant",
        ),
        (
            "a code twice",
            right.clone().and_again("code", &code),
            "invalid_request",
        ),
    ] {
        let reply = client.post_token(&form, &company.documents).await;
        assert!(reply.status >= 400, "{what}: {reply:?}");
        let got = reply.json()["error"].clone();
        // Which of two faults is named first does not matter to anybody.
        let is_expected = got == error || got == "invalid_request" || got == "invalid_grant";
        assert!(is_expected, "{what}: {reply:?}");
        company.assert_nothing(&gateway, what).await;
    }
    // None of that used the code up.
    let tokens = client.exchange(&code, &company.documents).await;
    client.call(&tokens.access).await;
}

#[tokio::test]
async fn a_code_without_its_verifier_gives_nothing() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let (client, code) = company.code().await;
    let form = client.exchange_form(&code).without("code_verifier");
    let reply = client.post_token(&form, &company.documents).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    let form = client.exchange_form(&code).with("code_verifier", "short");
    let reply = client.post_token(&form, &company.documents).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    let form = client.exchange_form(&code).with("grant_type", "password");
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "unsupported_grant_type");
    company.assert_unharmed(&gateway, "no verifier").await;
}

#[tokio::test]
async fn a_code_that_comes_twice_ends_its_login() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let (client, code) = company.code().await;
    let tokens = client.exchange(&code, &company.documents).await;
    client.call(&tokens.access).await;
    company.server.reset_record();
    let form = client.exchange_form(&code);
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "invalid_grant");
    assert_eq!(client.call_status(&tokens.access).await, 401);
    let form = client.refresh_form(&tokens.refresh);
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "invalid_grant");
    company.assert_unharmed(&gateway, "a code twice").await;
}

#[tokio::test]
async fn a_code_that_comes_twice_at_once_gives_one_login_at_most() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let (client, code) = company.code().await;
    let form = client.exchange_form(&code);
    let exchanges = (0..8).map(|_| client.post_token(&form, &company.documents));
    let replies = futures_util::future::join_all(exchanges).await;
    let good: Vec<_> = replies.iter().filter(|it| it.status == 200).collect();
    assert!(good.len() <= 1, "{replies:?}");
    assert!(people(&gateway).await.len() <= 1);
    for reply in good {
        let tokens = read_tokens(reply);
        let status = client.call_status(&tokens.access).await;
        // A replay ends the login, whichever request came first.
        assert!(matches!(status, 200 | 401), "{status}");
        client.revoke(&tokens.refresh, &company.documents).await;
    }
    company.server.reset_record();
    company.assert_unharmed(&gateway, "eight exchanges").await;
}

#[tokio::test]
async fn codes_of_before_a_restart_are_refused() {
    let company = Company::start().await;
    let mut gateway = company.gateway().await;
    let (client, code) = company.code().await;
    gateway.signal(rustix::process::Signal::TERM);
    gateway.ended().await;
    let gateway = company.gateway().await;
    let form = client.exchange_form(&code);
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "invalid_grant");
    company.assert_unharmed(&gateway, "an old code").await;
}
