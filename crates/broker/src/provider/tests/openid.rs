//! Logins and renewals with ID tokens, attacks first.

use moongate_access::auth::ProviderKind;
use moongate_oauth::SecretText;

use crate::person_row::PersonRow;
use crate::provider::fault::{ProviderFault, RenewFault};
use crate::provider::tests::fake_provider::FakeProvider;

const ANSWER: &str = "code=c&state=state";
const REFRESH: &str = r#","refresh_token":"first""#;

fn google() -> ProviderKind {
    ProviderKind::Google {
        domain: "example.com".to_owned(),
    }
}

fn entra() -> ProviderKind {
    ProviderKind::Entra {
        tenant: "t1".to_owned(),
    }
}

/// Logs Ann in at a provider.
async fn log_in(provider: &FakeProvider, part: &str, other: &str) -> PersonRow {
    let sent = provider.begin().await;
    let token = provider.id_token(&sent.nonce, part, other);
    provider.give(&token, REFRESH);
    let person = provider.client.finish(&sent, ANSWER).await.unwrap();
    provider.store_login(person).await
}

#[tokio::test]
async fn a_login_proves_a_person_and_sends_each_secret_once() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let row = log_in(&provider, "", "").await;
    assert_eq!(row.subject, "ann");
    assert_eq!(row.facts.claims["groups"], ["staff"]);
    assert_eq!(row.token, Some(SecretText::new("first")));
    let requests = provider.requests_for("/token");
    assert_eq!(requests.len(), 1);
    for member in ["code=c", "code_verifier=", "client_secret=hush"] {
        assert_eq!(requests[0].matches(member).count(), 1, "{member}");
    }
    assert!(requests[0].contains("redirect_uri=https%3A%2F%2Fmcp.test%2Foauth%2Fprovider"));
    assert!(provider.requests_for("/userinfo").is_empty());
    assert_eq!(provider.client.host(), "127.0.0.1");
}

#[tokio::test]
async fn an_id_token_of_something_else_logs_nobody_in() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let other_issuer = format!(r#""iss":"{}/""#, provider.issuer);
    let issuer = format!(r#""iss":"{}""#, provider.issuer);
    for (part, other, fault) in [
        (r#""nonce""#, r#""other""#, ProviderFault::BadToken),
        (
            r#""aud":"gateway""#,
            r#""aud":"other""#,
            ProviderFault::BadToken,
        ),
        (
            r#""aud":"gateway""#,
            r#""aud":["gateway","other"]"#,
            ProviderFault::BadToken,
        ),
        (
            r#""aud":"gateway""#,
            r#""aud":"gateway","azp":"other""#,
            ProviderFault::BadToken,
        ),
        (&issuer, &other_issuer, ProviderFault::BadToken),
        (r#""exp":"#, r#""exp":1,"ex":"#, ProviderFault::BadToken),
        (r#""iat":"#, r#""iat":1,"ia":"#, ProviderFault::BadToken),
        (r#""sub":"ann""#, r#""sub":"""#, ProviderFault::NoSubject),
    ] {
        let sent = provider.begin().await;
        let token = provider.id_token(&sent.nonce, part, other);
        provider.give(&token, REFRESH);
        let found = provider.client.finish(&sent, ANSWER).await;
        assert_eq!(found.unwrap_err(), fault, "{part} {other}");
    }
    // The token of another login.
    let first = provider.begin().await;
    let second = provider.begin().await;
    provider.give(&provider.id_token(&first.nonce, "", ""), REFRESH);
    let found = provider.client.finish(&second, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::BadToken);
    // Then a valid login works.
    log_in(&provider, "", "").await;
}

#[tokio::test]
async fn an_answer_without_an_id_token_or_of_another_issuer_logs_nobody_in() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    provider.answer("/userinfo", 200, r#"{"sub":"ann","groups":["staff"]}"#);
    let sent = provider.begin().await;
    let body = r#"{"access_token":"a","token_type":"Bearer"}"#;
    provider.answer("/token", 200, body);
    let found = provider.client.finish(&sent, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::BadToken);
    let used = provider.requests_for("/token").len();
    let mixed = "code=c&state=state&iss=https%3A%2F%2Fevil.test";
    let found = provider.client.finish(&sent, mixed).await;
    assert_eq!(found.unwrap_err(), ProviderFault::BadAnswer);
    assert_eq!(provider.requests_for("/token").len(), used);
}

#[tokio::test]
async fn userinfo_is_about_the_same_person() {
    let provider = FakeProvider::start_with(ProviderKind::Issuer, true).await;
    provider.answer("/userinfo", 200, r#"{"sub":"bob","groups":["staff"]}"#);
    let sent = provider.begin().await;
    let without = (r#""groups":["staff","x"]"#, r#""x":1"#);
    let token = provider.id_token(&sent.nonce, without.0, without.1);
    provider.give(&token, REFRESH);
    let found = provider.client.finish(&sent, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::BadToken);
    provider.answer("/userinfo", 200, r#"{"sub":"ann","groups":["staff"]}"#);
    let row = log_in(&provider, without.0, without.1).await;
    assert_eq!(row.facts.claims["groups"], ["staff"]);
    let sent = &provider.requests_for("/userinfo")[0];
    assert!(sent.contains("Bearer access"), "{sent}");
}

#[tokio::test]
async fn groups_that_a_token_cannot_name_are_a_page_unless_another_role_fits() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let overage = r#""_claim_names":{"groups":"src1"}"#;
    let sent = provider.begin().await;
    let token = provider.id_token(&sent.nonce, r#""groups":["staff","x"]"#, overage);
    provider.give(&token, REFRESH);
    let found = provider.client.finish(&sent, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::TooManyGroups);
    let other = format!(r#"{overage},"groups":["staff"]"#);
    log_in(&provider, r#""groups":["staff","x"]"#, &other).await;
}

#[tokio::test]
async fn a_renewal_takes_the_claims_of_today_and_the_new_token() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let row = log_in(&provider, "", "").await;
    let nonce = SecretText::new("other");
    let token = provider.id_token(&nonce, r#""groups":["staff","x"]"#, r#""x":1"#);
    provider.give(&token, r#","refresh_token":"second""#);
    let renewed = provider.client.renew(&row).await.unwrap();
    // A missing claim is empty.
    assert!(renewed.facts.claims.is_empty());
    assert_eq!(renewed.token, Some(SecretText::new("second")));
    let sent = provider.requests_for("/token").pop().unwrap();
    assert!(sent.contains("refresh_token=first"), "{sent}");
    // Without a new token, the previous one is used again.
    provider.give(&provider.id_token(&nonce, "", ""), "");
    let renewed = provider.client.renew(&row).await.unwrap();
    assert_eq!(renewed.token, Some(SecretText::new("first")));
}

#[tokio::test]
async fn a_renewal_for_somebody_else_is_none() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let row = log_in(&provider, "", "").await;
    let nonce = SecretText::new("other");
    let issuer = format!(r#""iss":"{}""#, provider.issuer);
    for (part, other) in [
        (r#""sub":"ann""#, r#""sub":"bob""#),
        (r#""sub":"ann""#, r#""subject":"ann""#),
        (r#""aud":"gateway""#, r#""aud":"other""#),
        (issuer.as_str(), r#""iss":"https://evil.test""#),
    ] {
        provider.give(&provider.id_token(&nonce, part, other), "");
        let found = provider.client.renew(&row).await;
        assert_eq!(found.unwrap_err(), RenewFault::OtherSubject, "{other}");
    }
}

#[tokio::test]
async fn without_an_id_token_a_renewal_asks_userinfo() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let row = log_in(&provider, "", "").await;
    let body = r#"{"access_token":"a","token_type":"Bearer"}"#;
    provider.answer("/token", 200, body);
    provider.answer("/userinfo", 200, r#"{"sub":"bob"}"#);
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::OtherSubject);
    provider.answer("/userinfo", 200, r#"{"sub":"ann","groups":["staff"]}"#);
    let renewed = provider.client.renew(&row).await.unwrap();
    assert_eq!(renewed.facts.claims["groups"], ["staff"]);
}

#[tokio::test]
async fn only_a_known_error_ends_a_login_and_no_new_token_is_lost() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let row = log_in(&provider, "", "").await;
    for (status, body, fault) in [
        (503, "", RenewFault::Down),
        (400, r#"{"error":"invalid_client"}"#, RenewFault::Down),
        (400, r#"{"error":"invalid_grant"}"#, RenewFault::Ended),
        (
            400,
            r#"{"error":"interaction_required"}"#,
            RenewFault::Ended,
        ),
    ] {
        provider.answer("/token", status, body);
        let found = provider.client.renew(&row).await;
        assert_eq!(found.unwrap_err(), fault, "{body}");
    }
    // The answer has a new token, and a later step fails.
    let body = r#"{"access_token":"a","token_type":"Bearer","refresh_token":"second"}"#;
    provider.answer("/token", 200, body);
    provider.answer("/userinfo", 503, "");
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::Down);
    let stored = provider.store.person(&row.mark()).unwrap();
    assert_eq!(stored.token, Some(SecretText::new("second")));
    assert_eq!(stored.checked, row.checked);
    // The end of a replaced token does not end the login.
    provider.answer("/token", 400, r#"{"error":"invalid_grant"}"#);
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::Down);
    let without = PersonRow { token: None, ..row };
    let found = provider.client.renew(&without).await;
    assert_eq!(found.unwrap_err(), RenewFault::Unchecked);
}

#[tokio::test]
async fn google_must_give_a_token_once_and_name_the_domain() {
    let provider = FakeProvider::start(google()).await;
    let (part, other) = (r#""sub":"ann""#, r#""sub":"ann","hd":"example.com""#);
    let sent = provider.begin().await;
    provider.give(&provider.id_token(&sent.nonce, "", ""), REFRESH);
    let found = provider.client.finish(&sent, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::OtherDomain);
    let token = provider.id_token(&sent.nonce, part, other);
    provider.give(&token, "");
    let found = provider.client.finish(&sent, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::NoToken);
    let row = log_in(&provider, part, other).await;
    assert_eq!(row.token, Some(SecretText::new("first")));
    // Now one is stored, and the next login needs none.
    provider.give(&token, "");
    let person = provider.client.finish(&sent, ANSWER).await.unwrap();
    assert_eq!(person.token, None);
    // The account is no longer in the domain.
    provider.give(&provider.id_token(&sent.nonce, "", ""), "");
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::Ended);
}

#[tokio::test]
async fn a_person_of_entra_is_of_the_tenant() {
    let provider = FakeProvider::start(entra()).await;
    let part = r#""sub":"ann""#;
    let sent = provider.begin().await;
    let foreign = r#""sub":"ann","tid":"t2","oid":"o1""#;
    provider.give(&provider.id_token(&sent.nonce, part, foreign), REFRESH);
    let found = provider.client.finish(&sent, ANSWER).await;
    assert_eq!(found.unwrap_err(), ProviderFault::OtherTenant);
    let boss = r#""sub":"ann","tid":"t1","oid":"o1","acct":1,"email":"boss@example.com""#;
    let row = log_in(&provider, part, boss).await;
    assert_eq!(row.subject, "o1");
    assert!(row.facts.is_guest && row.facts.email.is_none());
    let other = r#""sub":"ann","tid":"t1","oid":"o2""#;
    provider.give(&provider.id_token(&sent.nonce, part, other), "");
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::OtherSubject);
    let renewal = provider.requests_for("/token").pop().unwrap();
    assert!(renewal.contains("&scope=openid+profile"), "{renewal}");
}

#[tokio::test]
async fn a_provider_that_is_down_is_asked_once_in_ten_seconds() {
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    let path = "/.well-known/openid-configuration";
    provider.answer(path, 503, "");
    let state = SecretText::new("state");
    for _ in 0..3 {
        let found = provider.client.begin(&state, false).await;
        assert_eq!(found.err(), Some(ProviderFault::Down));
    }
    assert_eq!(provider.requests_for(path).len(), 1);
    // The document of another issuer is refused.
    let provider = FakeProvider::start(ProviderKind::Issuer).await;
    provider.publish("https://evil.test");
    let found = provider.client.begin(&state, false).await;
    assert_eq!(found.err(), Some(ProviderFault::Down));
}
