//! Tokens used where they do not belong, and other people's sessions.

use serde_json::json;

use super::client::{LoginClient, call_status};
use super::shapes::OPENCODE;
use super::world::{Company, LoggedIn};
use crate::harness::{Era, HttpReply, McpClient};

/// Lists the tools with a token. Returns the whole answer.
async fn ask(endpoint: &str, token: &str) -> HttpReply {
    let client = McpClient::with_key(endpoint, Era::Modern, Some(token)).await;
    client.request_as(1, "tools/list", json!({})).await
}

#[tokio::test]
async fn a_token_opens_its_endpoint_alone() {
    let company = Company::start().await;
    let _gateway = company.gateway().await;
    let everything = company.log_in().await;
    let endpoint = format!("{}/files", company.mcp());
    let mut client = LoginClient::discover(&endpoint, &OPENCODE).await;
    client.identify(&OPENCODE, &company.documents).await;
    let answer = company.browser().log_in(&client.address()).await;
    let code = client.code_of(&answer);
    let files = client.exchange(&code, &company.documents).await;
    assert_eq!(ask(&endpoint, &files.access).await.status, 200);
    let everywhere = &everything.tokens.access;
    assert_eq!(ask(&company.mcp(), everywhere).await.status, 200);
    assert_eq!(ask(&endpoint, everywhere).await.status, 401);
    assert_eq!(ask(&company.mcp(), &files.access).await.status, 401);
    // A renewal does not widen it.
    let renewed = client.refresh(&files.refresh, &company.documents).await;
    assert_eq!(ask(&company.mcp(), &renewed.access).await.status, 401);
    assert_eq!(ask(&endpoint, &renewed.access).await.status, 200);
}

#[tokio::test]
async fn every_token_that_is_not_ours_gets_the_same_answer() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let LoggedIn { client, tokens } = company.log_in().await;
    let secrets = company.provider.secrets();
    let id_token = secrets.iter().find(|it| it.starts_with("eyJ")).unwrap();
    let provider_access = secrets
        .iter()
        .find(|it| it.starts_with("canary-provider-access"))
        .unwrap();
    let (start, end) = tokens.access.split_at(tokens.access.len() / 2);
    let other = if end.starts_with('A') { 'B' } else { 'A' };
    let changed = format!("{start}{other}{}", &end[1..]);
    let long = "mga_A".repeat(5_000);
    let expected = ask(&company.mcp(), "mga_AAAA").await;
    assert_eq!(expected.status, 401, "{expected:?}");
    for (what, token) in [
        ("an ID token", id_token.as_str()),
        ("a token of the company's login", provider_access.as_str()),
        ("a refresh token", tokens.refresh.as_str()),
        ("the id of a client", client.id.as_str()),
        ("a changed token", changed.as_str()),
        ("a token without its start", &tokens.access[4..]),
        ("a long token", long.as_str()),
    ] {
        let reply = ask(&company.mcp(), token).await;
        assert_eq!(reply.status, 401, "{what}: {reply:?}");
        assert_eq!(reply.body, expected.body, "{what}");
        let challenge = expected.header("www-authenticate");
        assert_eq!(reply.header("www-authenticate"), challenge, "{what}");
    }
    client.revoke(&tokens.refresh, &company.documents).await;
    let reply = ask(&company.mcp(), &tokens.access).await;
    assert_eq!(reply.body, expected.body, "a revoked token");
    company.assert_unharmed(&gateway, "other tokens").await;
}

#[tokio::test]
async fn a_token_of_another_issuer_has_no_role_of_the_companys_people() {
    let company = Company::start().await;
    let issuer = "https://partner.example";
    let table = format!(
        "issuer = {issuer:?}\njwks_url = {:?}",
        company.documents.keys_url()
    );
    let role =
        format!("name = \"partners\"\nmatch = {{ issuer = {issuer:?}, groups = [\"partners\"] }}");
    let company = company
        .with("auth.jwt.other", &table)
        .with("auth.roles.partners", &role);
    let gateway = company.gateway().await;
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({
        "iss": issuer,
        "aud": company.mcp(),
        "sub": "ann-1",
        "email": "ann@example.com",
        "email_verified": true,
        "groups": ["staff"],
        "scope": "mcp",
        "iat": now,
        "exp": now + 600,
    });
    let token = company.documents.sign(&claims);
    assert_eq!(call_status(&company.mcp(), &token).await, 403);
    company.assert_unharmed(&gateway, "another issuer").await;
}

#[tokio::test]
async fn keys_go_on_beside_logins() {
    let key = "key-of-a-program-0123456789-abcdef";
    let lines = format!("name = \"ci\"\nkey = {key:?}");
    let company = Company::start().await.with("auth.keys.ci", &lines);
    let _gateway = company.gateway().await;
    assert_eq!(ask(&company.mcp(), key).await.status, 200);
    company.valid_login().await;
    assert_eq!(ask(&company.mcp(), key).await.status, 200);
    let nobody = McpClient::open(&company.mcp(), Era::Modern).await;
    let reply = nobody.request_as(1, "tools/list", json!({})).await;
    assert_eq!(reply.status, 401, "{reply:?}");
}

/// Logs in as somebody.
async fn log_in_as(company: &Company, client: &LoginClient, who: usize) -> String {
    let subject = json!(format!("person-{who}"));
    let email = json!(format!("person-{who}@example.com"));
    company.provider.behave();
    company.provider.change(|rules| {
        rules.set_claim("sub", subject);
        rules.set_claim("email", email);
    });
    let answer = company.browser().log_in(&client.address()).await;
    let code = client.code_of(&answer);
    client.exchange(&code, &company.documents).await.access
}

#[tokio::test]
async fn no_session_or_item_crosses_between_people() {
    let company = Company::start().await;
    let _gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let mut clients = Vec::new();
    for who in 0..16 {
        let token = log_in_as(&company, &client, who).await;
        clients.push(McpClient::with_key(&company.mcp(), Era::Legacy, Some(&token)).await);
    }
    let calls = clients.iter().enumerate().map(|(who, client)| async move {
        for n in 0..20 {
            let value = json!({ "who": who, "n": n });
            let text = client.call("files__echo", value).await.text();
            assert!(text.contains(&format!("\"who\":{who},")), "{who}: {text}");
        }
    });
    futures_util::future::join_all(calls).await;
    // Somebody else's session is unknown.
    let mut thief = clients.pop().unwrap();
    for owner in &clients {
        thief.session.clone_from(&owner.session);
        let reply = thief.request_as(9, "tools/list", json!({})).await;
        assert_eq!(reply.status, 404, "{reply:?}");
    }
    for request in company.server.recorded_requests() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
}
