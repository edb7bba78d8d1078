//! Refresh tokens: lost answers and several processes are forgiven, a stolen one ends the login.

use super::client::{assert_oauth_error, read_tokens};
use super::provider::ProviderStep;
use super::shapes::CLAUDE_CODE;
use super::world::{Company, people};

#[tokio::test]
async fn a_lost_answer_costs_nothing() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let client = &login.client;
    let host = &company.documents;
    let lost = client.refresh(&login.tokens.refresh, host).await;
    let again = client.refresh(&login.tokens.refresh, host).await;
    client.call(&again.access).await;
    client.call(&lost.access).await;
    // Both are the same successor, so either goes on.
    let next = client.refresh(&lost.refresh, host).await;
    client.call(&next.access).await;
    assert_eq!(people(&gateway).await.len(), 1);
}

#[tokio::test]
async fn processes_that_renew_at_once_all_go_on() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let form = login.client.refresh_form(&login.tokens.refresh);
    let host = &company.documents;
    let renewals = (0..8).map(|_| login.client.post_token(&form, host));
    for reply in futures_util::future::join_all(renewals).await {
        login.client.call(&read_tokens(&reply).access).await;
    }
    assert_eq!(people(&gateway).await.len(), 1);
}

#[tokio::test]
async fn the_provider_is_asked_once_for_all_logins_of_a_person() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let first = company.log_in().await;
    let second = company.log_in_with(&CLAUDE_CODE).await;
    let company = company.recheck(&gateway).await;
    let host = &company.documents;
    let forms = [
        first.client.refresh_form(&first.tokens.refresh),
        second.client.refresh_form(&second.tokens.refresh),
    ];
    let (one, other) = tokio::join!(
        first.client.post_token(&forms[0], host),
        second.client.post_token(&forms[1], host),
    );
    first.client.call(&read_tokens(&one).access).await;
    second.client.call(&read_tokens(&other).access).await;
    assert_eq!(people(&gateway).await.len(), 2);
    assert_eq!(company.provider.count(ProviderStep::Renewal), 1);
    // It rotates, too, and saw none of its tokens twice.
    let complaints = company.provider.complaints();
    assert_eq!(complaints, Vec::<String>::new());
}

#[tokio::test]
async fn an_old_refresh_token_ends_the_login() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let client = &login.client;
    let host = &company.documents;
    let first = client.refresh(&login.tokens.refresh, host).await;
    client.call(&first.access).await;
    let second = client.refresh(&first.refresh, host).await;
    client.call(&second.access).await;
    let renewals = company.provider.count(ProviderStep::Renewal);
    // A thief has the first one.
    let form = client.refresh_form(&login.tokens.refresh);
    let reply = client.post_token(&form, host).await;
    assert_oauth_error(&reply, "invalid_grant");
    for token in [&login.tokens.access, &first.access, &second.access] {
        assert_eq!(client.call_status(token).await, 401);
    }
    let form = client.refresh_form(&second.refresh);
    let reply = client.post_token(&form, host).await;
    assert_oauth_error(&reply, "invalid_grant");
    assert_eq!(company.provider.count(ProviderStep::Renewal), renewals);
    let log = gateway.log();
    let line = "refresh token of ann@example.com reused after its successor";
    assert!(log.contains(line), "{log}");
    company.server.reset_record();
    company.assert_unharmed(&gateway, "a thief").await;
}

#[tokio::test]
async fn a_thief_who_renews_in_step_is_noticed() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let client = &login.client;
    let host = &company.documents;
    let mut owner = login.tokens.clone();
    let mut thief = login.tokens.clone();
    let mut rounds = 0;
    // The owner renews twice for each renewal of the thief, as two processes do sooner or later.
    loop {
        rounds += 1;
        assert!(rounds < 5, "nobody noticed");
        owner = client.refresh(&owner.refresh, host).await;
        client.call(&owner.access).await;
        owner = client.refresh(&owner.refresh, host).await;
        client.call(&owner.access).await;
        let form = client.refresh_form(&thief.refresh);
        let reply = client.post_token(&form, host).await;
        if reply.status != 200 {
            assert_oauth_error(&reply, "invalid_grant");
            break;
        }
        thief = read_tokens(&reply);
    }
    assert_eq!(client.call_status(&owner.access).await, 401);
    assert_eq!(client.call_status(&thief.access).await, 401);
    company.server.reset_record();
    company.assert_unharmed(&gateway, "in step").await;
}

#[tokio::test]
async fn an_access_token_two_generations_old_is_refused() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let client = &login.client;
    let host = &company.documents;
    let first = client.refresh(&login.tokens.refresh, host).await;
    client.call(&login.tokens.access).await;
    let second = client.refresh(&first.refresh, host).await;
    assert_eq!(client.call_status(&login.tokens.access).await, 401);
    client.call(&first.access).await;
    client.call(&second.access).await;
    assert_eq!(people(&gateway).await.len(), 1);
}

#[tokio::test]
async fn a_refresh_token_never_changes_its_resource() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    let client = &login.client;
    let host = &company.documents;
    let right = client.refresh_form(&login.tokens.refresh);
    let files = format!("{}/files", company.mcp());
    for (what, form) in [
        ("a server", right.clone().with("resource", files)),
        (
            "a stranger",
            right.clone().with("resource", "https://evil.example/mcp"),
        ),
    ] {
        let reply = client.post_token(&form, host).await;
        assert_oauth_error(&reply, "invalid_target");
        let call = company.server.last_request("tools/call");
        assert!(call.is_none(), "{what}: {call:?}");
    }
    // More scopes are ignored, and the resource may be left out. Nothing was used up.
    let wide = right.without("resource").with("scope", "mcp admin openid");
    let reply = client.post_token(&wide, host).await;
    client.call(&read_tokens(&reply).access).await;
    assert_eq!(people(&gateway).await.len(), 1);
}
