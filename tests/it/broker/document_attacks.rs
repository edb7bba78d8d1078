//! Attacks through client documents and signed assertions: nothing private is fetched, nothing is
//! stored, and a valid login works afterwards.

use serde_json::{Value, json};

use super::client::{LoginClient, assert_oauth_error, random_text};
use super::documents::DocumentRule;
use super::parameters::Parameters;
use super::provider::ProviderStep;
use super::shapes::{CHATGPT, CLAUDE_CODE, OPENCODE};
use super::world::Company;

/// Returns a document of a client at an address.
fn document_of(id: &str) -> Value {
    json!({
        "client_id": id,
        "client_name": "Claude Code",
        "redirect_uris": [OPENCODE.redirect],
        "token_endpoint_auth_method": "none",
    })
}

/// Asks for a login of a client with an id. Returns true if the consent page comes.
async fn asks(company: &Company, id: &str) -> bool {
    let mut client = LoginClient::discover(&company.mcp(), &OPENCODE).await;
    client.id = id.to_owned();
    let page = company.browser().open(&client.address()).await;
    assert!(page.stays(), "{id}: {page:?}");
    page.reply.status < 400
}

#[tokio::test]
async fn a_document_that_is_not_plainly_the_clients_is_refused() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let host = &company.documents;
    let id = |path: &str| host.url(path);
    let good = |path: &str| document_of(&host.url(path));
    let with = |path: &str, member: &str, value: Value| {
        let mut document = good(path);
        document[member] = value;
        DocumentRule::Document(document)
    };
    host.publish("/good", DocumentRule::Document(good("/good")));
    assert!(asks(&company, &id("/good")).await);
    for (path, rule) in [
        ("/wrong-id", DocumentRule::Document(good("/good"))),
        ("/moved", DocumentRule::Moved("/good".to_owned())),
        ("/page", DocumentRule::Page(good("/page"))),
        ("/large", DocumentRule::Large(good("/large"))),
        ("/drips", DocumentRule::Drips),
        ("/list", DocumentRule::Document(json!([good("/list")]))),
        (
            "/secret",
            with(
                "/secret",
                "token_endpoint_auth_method",
                json!("client_secret_basic"),
            ),
        ),
        (
            "/no-address",
            with("/no-address", "redirect_uris", json!([])),
        ),
        (
            "/script",
            with("/script", "redirect_uris", json!(["javascript:alert(1)"])),
        ),
        (
            "/no-keys",
            with(
                "/no-keys",
                "token_endpoint_auth_method",
                json!("private_key_jwt"),
            ),
        ),
    ] {
        host.publish(path, rule);
        assert!(!asks(&company, &id(path)).await, "{path}");
    }
    for path in ["/missing", "/", "/a/../good", "/good?x=1", "/good#x"] {
        assert!(!asks(&company, &id(path)).await, "{path}");
    }
    let port = host.url("").rsplit(':').next().unwrap().to_owned();
    let user = format!("http://user@127.0.0.1:{port}/good");
    assert!(!asks(&company, &user).await);
    assert_eq!(company.provider.count(ProviderStep::Authorization), 0);
    company.assert_unharmed(&gateway, "odd documents").await;
}

#[tokio::test]
async fn no_document_is_fetched_from_a_private_address() {
    let company = Company::start().await;
    // Nothing on loopback may be fetched for a client.
    let company = company.with("egress", "allow = [\"clients.invalid\"]");
    let gateway = company.gateway().await;
    let host = &company.documents;
    host.publish(
        "/good",
        DocumentRule::Document(document_of(&host.url("/good"))),
    );
    let port = host.url("").rsplit(':').next().unwrap().to_owned();
    for id in [
        host.url("/good"),
        format!("https://127.0.0.1:{port}/good"),
        format!("https://localhost:{port}/good"),
        format!("https://[::1]:{port}/good"),
        format!("https://[::ffff:127.0.0.1]:{port}/good"),
        format!("https://2130706433:{port}/good"),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://10.0.0.1/client".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("{}/api/v1/people", gateway.admin_url().await),
    ] {
        assert!(!asks(&company, &id).await, "{id}");
    }
    assert_eq!(host.fetches("/good"), 0);
    company.assert_unharmed(&gateway, "private addresses").await;
}

/// Replaces a member of an assertion, or takes it away.
fn claims_with(client: &LoginClient, member: &str, value: Value) -> Value {
    let mut claims = client.assertion();
    match value {
        Value::Null => {
            claims.as_object_mut().unwrap().remove(member);
        }
        value => claims[member] = value,
    }
    claims
}

#[tokio::test]
async fn a_client_that_signs_proves_itself_at_each_request() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&CHATGPT).await;
    let answer = company.browser().log_in(&client.address()).await;
    let code = client.code_of(&answer);
    let form = client.exchange_form(&code);
    let token = client.metadata.token.clone();
    let host = &company.documents;
    let now = jiff::Timestamp::now().as_second();
    let both = json!([client.metadata.token, client.metadata.issuer]);
    for (what, claims) in [
        (
            "another audience",
            claims_with(&client, "aud", json!("https://evil.example")),
        ),
        ("two audiences", claims_with(&client, "aud", both)),
        (
            "another subject",
            claims_with(&client, "sub", json!("https://evil.example/c")),
        ),
        (
            "another issuer",
            claims_with(&client, "iss", json!("https://evil.example/c")),
        ),
        ("an hour", claims_with(&client, "exp", json!(now + 3_600))),
        ("the past", claims_with(&client, "exp", json!(now - 3_600))),
        ("no end", claims_with(&client, "exp", Value::Null)),
        ("no id", claims_with(&client, "jti", Value::Null)),
    ] {
        let reply = client
            .post_form(&token, &client.signed(&form, &claims, host))
            .await;
        assert_oauth_error(&reply, "invalid_client");
        company.assert_nothing(&gateway, what).await;
    }
    let reply = client.post_form(&token, &form).await;
    assert_oauth_error(&reply, "invalid_client");
    let strange = super::signing_key::SigningKey::new().sign(&client.assertion());
    let signed = client.signed(&form, &client.assertion(), host);
    let forged = signed.with("client_assertion", strange);
    let reply = client.post_form(&token, &forged).await;
    assert_oauth_error(&reply, "invalid_client");
    // None of that used up the code; an assertion works once.
    let once = client.signed(&form, &client.assertion(), host);
    let reply = client.post_form(&token, &once).await;
    let tokens = super::client::read_tokens(&reply);
    let assertion = once.get("client_assertion").unwrap().to_owned();
    let renewal = client
        .refresh_form(&tokens.refresh)
        .with(
            "client_assertion_type",
            once.get("client_assertion_type").unwrap(),
        )
        .with("client_assertion", assertion);
    let reply = client.post_form(&token, &renewal).await;
    assert_oauth_error(&reply, "invalid_client");
    let renewed = client.refresh(&tokens.refresh, host).await;
    client.call(&renewed.access).await;
}

#[tokio::test]
async fn a_client_cannot_act_for_another_one() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in_with(&CLAUDE_CODE).await;
    let thief = company.client(&OPENCODE).await;
    let host = &company.documents;
    let form = thief.refresh_form(&login.tokens.refresh);
    let reply = thief.post_token(&form, host).await;
    assert_oauth_error(&reply, "invalid_grant");
    // Another client's token and an unknown one cause no error and have no effect.
    thief.revoke(&login.tokens.refresh, host).await;
    thief.revoke(&login.tokens.access, host).await;
    thief.revoke(&random_text(), host).await;
    let form = Parameters::of(&[("token", &login.tokens.refresh)]);
    let reply = thief.post_form(&thief.metadata.revoke, &form).await;
    assert_eq!(reply.status, 401, "{reply:?}");
    let renewed = login.client.refresh(&login.tokens.refresh, host).await;
    login.client.call(&renewed.access).await;
    // An access token ends the login as well.
    login.client.revoke(&renewed.access, host).await;
    let form = login.client.refresh_form(&renewed.refresh);
    let reply = login.client.post_token(&form, host).await;
    assert_oauth_error(&reply, "invalid_grant");
    company.server.reset_record();
    company.assert_unharmed(&gateway, "another client").await;
}
