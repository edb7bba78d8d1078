//! Forged, wrong or missing answers from the company's login, and people without a role.

use serde_json::{Value, json};

use super::browser::{BrowserStop, ConsentButton};
use super::client::assert_oauth_error;
use super::parameters::Parameters;
use super::provider::{
    AnswerRule, GATEWAY_ID, Provider, ProviderChange, ProviderStep, RenewalRule, SignatureRule,
};
use super::shapes::{CLAUDE_CODE, OPENCODE};
use super::world::{Company, people};
use crate::harness::until;

/// Changes of ID tokens, none of which may lead to a login.
const ID_TOKENS: [(&str, ProviderChange); 13] = [
    ("another nonce", |rules| {
        rules.claims.push(("nonce", json!("another")))
    }),
    ("no nonce", |rules| {
        rules.claims.push(("nonce", Value::Null))
    }),
    ("another audience", |rules| {
        rules.claims.push(("aud", json!("somebody")))
    }),
    ("no audience", |rules| {
        rules.claims.push(("aud", Value::Null))
    }),
    ("another party", |rules| {
        rules.claims.push(("azp", json!("somebody")))
    }),
    ("an audience among others", |rules| {
        rules.claims.push(("aud", json!([GATEWAY_ID, "somebody"])));
        rules.claims.push(("azp", json!("somebody")));
    }),
    ("another issuer", |rules| {
        rules.claims.push(("iss", json!("http://127.0.0.1:1")))
    }),
    ("an issuer with a slash more", |rules| {
        rules
            .claims
            .push(("iss", json!("https://login.example.com/")));
    }),
    ("the past", |rules| {
        rules.claims.push(("exp", json!(1_700_000_000)))
    }),
    ("no end", |rules| rules.claims.push(("exp", Value::Null))),
    ("nobody", |rules| rules.claims.push(("sub", Value::Null))),
    ("an empty subject", |rules| {
        rules.claims.push(("sub", json!("")))
    }),
    ("a strange key", |rules| {
        rules.signature = SignatureRule::Strange
    }),
];

#[tokio::test]
async fn an_id_token_that_does_not_fit_starts_no_login() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    for (what, change) in ID_TOKENS {
        company.provider.behave();
        company.provider.change(change);
        let page = company.browser().try_log_in(&client.address()).await;
        assert_ne!(page.reply.status, 500, "{what}: {page:?}");
        company.assert_nothing(&gateway, what).await;
    }
    company.assert_unharmed(&gateway, "ID tokens").await;
}

#[tokio::test]
async fn an_answer_of_another_issuer_or_a_no_starts_no_login() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    for rule in [
        AnswerRule::WrongIss,
        AnswerRule::MissingIss,
        AnswerRule::Denied,
    ] {
        company.provider.change(|rules| rules.answer = rule);
        let page = company.browser().try_log_in(&client.address()).await;
        assert!(!page.html().contains("hostile"), "{rule:?}: {page:?}");
        assert!(!gateway.log().contains("hostile"), "{rule:?}");
        assert_eq!(
            company.provider.count(ProviderStep::Exchange),
            0,
            "{rule:?}"
        );
        company.assert_nothing(&gateway, &format!("{rule:?}")).await;
    }
    company.assert_unharmed(&gateway, "answers").await;
}

#[tokio::test]
async fn a_provider_that_is_down_gets_a_page_and_logins_go_on() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    company.provider.change(|rules| rules.is_down = true);
    let client = company.client(&CLAUDE_CODE).await;
    let mut browser = company.browser();
    let page = browser.open(&client.address()).await;
    let page = browser.press(&page, ConsentButton::Yes).await;
    let BrowserStop::Page(page) = browser.follow(page).await else {
        panic!("it is down");
    };
    assert_ne!(page.reply.status, 500, "{page:?}");
    assert_eq!(people(&gateway).await.len(), 1);
    // People who are logged in remain so, and renew.
    login.client.call(&login.tokens.access).await;
    let host = &company.documents;
    let renewed = login.client.refresh(&login.tokens.refresh, host).await;
    login.client.call(&renewed.access).await;
    company.provider.behave();
    company.log_in_with(&CLAUDE_CODE).await;
}

/// Checks that the person gets a page whose link says that access was denied.
async fn assert_no_role(company: &Company) {
    let client = company.client(&OPENCODE).await;
    let page = company.browser().try_log_in(&client.address()).await;
    let answer = Parameters::of_address(&page.client_link());
    assert_eq!(answer.get("error"), Some("access_denied"), "{page:?}");
    assert_eq!(answer.get("iss"), Some(company.origin.as_str()), "{page:?}");
}

#[tokio::test]
async fn nobody_without_a_role_gets_in() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    for groups in [
        json!(["guests"]),
        json!([]),
        Value::Null,
        json!("staff,x"),
        json!(7),
    ] {
        company.provider.behave();
        company
            .provider
            .change(|rules| rules.set_claim("groups", groups));
        assert_no_role(&company).await;
        company.assert_nothing(&gateway, "no role").await;
    }
    company.assert_unharmed(&gateway, "no role").await;
}

#[tokio::test]
async fn an_email_counts_only_if_it_is_verified() {
    let role = "name = \"staff\"\nmatch = { email = [\"*@example.com\"] }";
    let company = Company::start().await.with("auth.roles.staff", role);
    let gateway = company.gateway().await;
    for (name, value) in [
        ("email_verified", json!(false)),
        ("email_verified", json!("no")),
        ("email_verified", Value::Null),
        ("email", json!("ann@example.com.evil.example")),
        ("email", json!("ann@evil.example@example.com")),
        ("email", Value::Null),
    ] {
        company.provider.behave();
        company
            .provider
            .change(|rules| rules.set_claim(name, value));
        assert_no_role(&company).await;
        company.assert_nothing(&gateway, name).await;
    }
    company.assert_unharmed(&gateway, "emails").await;
}

#[tokio::test]
async fn userinfo_of_somebody_else_starts_no_login() {
    let provider = Provider::start().await;
    let login = format!(
        "issuer = {:?}\nclient_id = {GATEWAY_ID:?}\nclient_secret = {:?}\nuserinfo = true",
        provider.origin(),
        provider.client_secret()
    );
    let role = "name = \"staff\"\nmatch = { groups = [\"staff\"] }";
    let company = Company::in_front_of(&login, provider)
        .await
        .with("auth.roles.staff", role);
    let gateway = company.gateway().await;
    let client = company.client(&OPENCODE).await;
    for sub in [json!("boss-1"), Value::Null] {
        company.provider.behave();
        company
            .provider
            .change(|rules| rules.userinfo.push(("sub", sub)));
        company.browser().try_log_in(&client.address()).await;
        company.assert_nothing(&gateway, "userinfo").await;
    }
    company.assert_unharmed(&gateway, "userinfo").await;
}

#[tokio::test]
async fn a_renewal_that_answers_for_somebody_else_ends_all_logins_of_the_person() {
    for (what, value) in [
        ("sub", json!("boss-1")),
        ("iss", json!("http://127.0.0.1:1")),
        ("aud", json!("somebody")),
    ] {
        let company = Company::start().await;
        let gateway = company.gateway().await;
        let first = company.log_in().await;
        let second = company.log_in_with(&CLAUDE_CODE).await;
        company
            .provider
            .change(|rules| rules.renewed.push((what, value)));
        let company = company.recheck(&gateway).await;
        until("all logins have ended", async || {
            people(&gateway).await.is_empty().then_some(())
        })
        .await;
        for login in [&first, &second] {
            let status = login.client.call_status(&login.tokens.access).await;
            assert_eq!(status, 401, "{what}");
            let form = login.client.refresh_form(&login.tokens.refresh);
            let reply = login.client.post_token(&form, &company.documents).await;
            assert_oauth_error(&reply, "invalid_grant");
        }
        company.assert_unharmed(&gateway, what).await;
    }
}

#[tokio::test]
async fn who_left_the_company_is_out() {
    for code in ["invalid_grant", "interaction_required"] {
        let company = Company::start().await;
        let gateway = company.gateway().await;
        let login = company.log_in().await;
        login.client.call(&login.tokens.access).await;
        company
            .provider
            .change(|rules| rules.renewal = RenewalRule::Refuse(code));
        let company = company.recheck(&gateway).await;
        until("the login has ended", async || {
            people(&gateway).await.is_empty().then_some(())
        })
        .await;
        assert_eq!(login.client.call_status(&login.tokens.access).await, 401);
        company.server.reset_record();
        company.assert_unharmed(&gateway, code).await;
    }
}

#[tokio::test]
async fn a_provider_that_is_down_at_a_renewal_ends_nothing() {
    for rule in [
        RenewalRule::Down,
        RenewalRule::Refuse("temporarily_unavailable"),
        RenewalRule::Refuse("invalid_client"),
    ] {
        let company = Company::start().await;
        let gateway = company.gateway().await;
        let login = company.log_in().await;
        company.provider.change(|rules| rules.renewal = rule);
        let company = company.recheck(&gateway).await;
        let host = &company.documents;
        let tokens = login.client.refresh(&login.tokens.refresh, host).await;
        login.client.call(&tokens.access).await;
        assert_eq!(people(&gateway).await.len(), 1, "{rule:?}");
    }
}

#[tokio::test]
async fn new_claims_count_as_soon_as_they_are_known() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    login.client.call(&login.tokens.access).await;
    company
        .provider
        .change(|rules| rules.set_claim("groups", json!(["guests"])));
    let company = company.recheck(&gateway).await;
    until("the role is gone", async || {
        let status = login.client.call_status(&login.tokens.access).await;
        (status == 403).then_some(())
    })
    .await;
    company.valid_login().await;
}
