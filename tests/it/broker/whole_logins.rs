//! Complete logins of the ten clients, from a 401 to the end of the login.

use super::browser::{BrowserPage, BrowserStop, ConsentButton};
use super::client::{LoginClient, assert_oauth_error};
use super::parameters::Parameters;
use super::provider::{Provider, ProviderStep};
use super::shapes::{CLAUDE_CODE, CURSOR, ClientShape, OPENCODE, SHAPES, ShapeIdentity};
use super::world::{Company, LoggedIn, people, revoke_people};
use crate::harness::{HttpClient, Process, within};

/// Logs in, calls, renews and revokes, as a client of the shape does.
async fn log_in_and_out(company: &Company, gateway: &Process, shape: &ClientShape) {
    let who = format!("{} ({})", shape.name, shape.seen);
    let LoggedIn { client, tokens } = company.log_in_with(shape).await;
    client.call(&tokens.access).await;
    let call = company.server.last_request("tools/call").unwrap();
    assert_eq!(call.header("authorization"), None, "{who}");
    let renewed = client.refresh(&tokens.refresh, &company.documents).await;
    client.call(&renewed.access).await;
    let logins = people(gateway).await;
    assert_eq!(logins.len(), 1, "{who}: {logins:?}");
    assert_eq!(logins[0]["name"], "ann@example.com", "{who}");
    let mut stream = client.open(&renewed.access).await.listen().await;
    client.revoke(&renewed.refresh, &company.documents).await;
    for token in [&tokens.access, &renewed.access] {
        assert_eq!(client.call_status(token).await, 401, "{who}");
    }
    within("the stream ends", async {
        while stream.next().await.is_some() {}
    })
    .await;
    let form = client.refresh_form(&renewed.refresh);
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "invalid_grant");
    assert_eq!(people(gateway).await.len(), 0, "{who}");
}

#[tokio::test]
async fn ten_clients_log_in_call_renew_and_are_revoked() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    for shape in &SHAPES {
        log_in_and_out(&company, &gateway, shape).await;
    }
    let complaints = company.provider.complaints();
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(company.provider.count(ProviderStep::Exchange), SHAPES.len());
    // A document is fetched once, and not at each request.
    for shape in &SHAPES {
        if let ShapeIdentity::Document { id, .. } = shape.identity {
            let path = super::client::document_path(id);
            assert_eq!(company.documents.fetches(&path), 1, "{}", shape.name);
        }
    }
}

#[tokio::test]
async fn the_metadata_says_what_clients_go_by() {
    let company = Company::start().await;
    let _gateway = company.gateway().await;
    let client = LoginClient::discover(&company.mcp(), &OPENCODE).await;
    let document = client.metadata.document;
    for (member, value) in [
        ("response_types_supported", "code"),
        ("response_modes_supported", "query"),
        ("code_challenge_methods_supported", "S256"),
        ("token_endpoint_auth_methods_supported", "none"),
        ("scopes_supported", "mcp"),
    ] {
        assert_eq!(document[member][0], value, "{member}: {document}");
    }
    for member in [
        "authorization_response_iss_parameter_supported",
        "client_id_metadata_document_supported",
    ] {
        assert_eq!(document[member], true, "{member}: {document}");
    }
    let url = format!("{}/.well-known/openid-configuration", company.origin);
    assert_eq!(HttpClient::new().get(&url).await.status, 404);
}

/// Opens the consent page of a client.
async fn consent_page(company: &Company, client: &LoginClient) -> BrowserPage {
    let page = company.browser().open(&client.address()).await;
    assert_eq!(page.reply.status, 200, "{page:?}");
    page
}

#[tokio::test]
async fn the_consent_page_says_who_asks_and_where_the_answer_goes() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let document = company.client(&CLAUDE_CODE).await;
    let text = consent_page(&company, &document).await.text();
    for part in ["Claude Code", &document.id, "a program on this computer"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let registered = company.client(&OPENCODE).await;
    let page = consent_page(&company, &registered).await;
    assert_eq!(page.reply.header("referrer-policy"), "same-origin");
    let text = page.text();
    for part in ["OpenCode", "registered itself", "127.0.0.1"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let everything = registered.request().without("resource");
    let address = registered.address_of(&everything);
    let text = company.browser().open(&address).await.text();
    assert!(text.contains("all servers"), "{text}");
    // The company's login was not asked.
    assert_eq!(company.provider.count(ProviderStep::Authorization), 0);
    company.assert_nothing(&gateway, "only pages").await;
}

#[tokio::test]
async fn whoever_says_no_stays_on_a_page_with_a_link_back() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    let mut browser = company.browser();
    let page = browser.open(&client.address()).await;
    let page = browser.press(&page, ConsentButton::No).await;
    assert!(page.stays(), "{page:?}");
    let link = page.client_link();
    assert!(link.starts_with(&client.redirect), "{link}");
    let answer = Parameters::of_address(&link);
    assert_eq!(answer.get("error"), Some("access_denied"), "{link}");
    assert_eq!(answer.get("state"), Some(client.state.as_str()), "{link}");
    assert_eq!(answer.get("iss"), Some(company.origin.as_str()), "{link}");
    assert_eq!(company.provider.count(ProviderStep::Authorization), 0);
    company.assert_unharmed(&gateway, "a no").await;
}

#[tokio::test]
async fn a_private_scheme_gets_the_answer_by_a_press_alone() {
    let company = Company::start().await;
    let _gateway = company.gateway().await;
    let client = company.client(&CURSOR).await;
    let mut browser = company.browser();
    let page = browser.open(&client.address()).await;
    let page = browser.press(&page, ConsentButton::Yes).await;
    let BrowserStop::Page(page) = browser.follow(page).await else {
        panic!("the page moved on by itself");
    };
    let code = client.code_of(&page.client_link());
    let tokens = client.exchange(&code, &company.documents).await;
    client.call(&tokens.access).await;
}

#[tokio::test]
async fn logins_in_two_tabs_both_end_well() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let first = company.client(&OPENCODE).await;
    let second = company.client(&CLAUDE_CODE).await;
    let mut browser = company.browser();
    let answer = browser.up_to_the_answer(&first.address()).await;
    let code = second.code_of(&browser.log_in(&second.address()).await);
    let other = second.exchange(&code, &company.documents).await;
    let page = browser.open(&answer).await;
    let BrowserStop::Client(answer) = browser.follow(page).await else {
        panic!("the first tab was forgotten");
    };
    let code = first.code_of(&answer);
    let tokens = first.exchange(&code, &company.documents).await;
    first.call(&tokens.access).await;
    second.call(&other.access).await;
    assert_eq!(people(&gateway).await.len(), 2);
}

#[tokio::test]
async fn an_operator_ends_the_logins_of_a_person() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let first = company.log_in().await;
    let second = company.log_in_with(&CLAUDE_CODE).await;
    let mut stream = first.client.open(&first.tokens.access).await.listen().await;
    let logins = people(&gateway).await;
    let texts = |login: &serde_json::Value| login.to_string();
    for part in ["OpenCode", "Claude Code", "staff", "ann@example.com"] {
        assert!(logins.iter().any(|login| texts(login).contains(part)));
    }
    let id = logins
        .iter()
        .find(|login| login["client"] == "OpenCode")
        .unwrap()["id"]
        .as_str()
        .unwrap();
    assert_eq!(revoke_people(&gateway, "nobody@example.com").await, 404);
    assert_eq!(revoke_people(&gateway, id).await, 200);
    assert_eq!(first.client.call_status(&first.tokens.access).await, 401);
    within("the stream ends", async {
        while stream.next().await.is_some() {}
    })
    .await;
    second.client.call(&second.tokens.access).await;
    assert_eq!(revoke_people(&gateway, "ann@example.com").await, 200);
    assert_eq!(second.client.call_status(&second.tokens.access).await, 401);
    assert_eq!(people(&gateway).await.len(), 0);
    company.valid_login().await;
}

#[tokio::test]
async fn another_answer_host_needs_a_line_in_the_config() {
    let provider = Provider::start().await;
    let login = format!(
        "issuer = {:?}\nclient_id = {:?}\nclient_secret = {:?}",
        provider.origin(),
        super::provider::GATEWAY_ID,
        provider.client_secret()
    );
    // Without `allow_clients`, it is the hosts of known clients.
    let role = "name = \"staff\"\nmatch = { groups = [\"staff\"] }";
    let company = Company::in_front_of(&login, provider)
        .await
        .with("auth.roles.staff", role);
    let gateway = company.gateway().await;
    let mut client = LoginClient::discover(&company.mcp(), &OPENCODE).await;
    let address = "https://claude.ai.evil.example/api/mcp/auth_callback";
    let body = format!(r#"{{"client_name":"Claude","redirect_uris":["{address}"]}}"#);
    let reply = client.register(&body).await;
    if reply.status == 201 {
        client.id = reply.json()["client_id"].as_str().unwrap().to_owned();
        client.redirect = address.to_owned();
        let page = company.browser().open(&client.address()).await;
        assert!(page.stays(), "{page:?}");
        let text = page.text();
        for part in ["allow_clients", "claude.ai.evil.example"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    company.assert_unharmed(&gateway, "another host").await;
}
