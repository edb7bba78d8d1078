//! Logins and renewals at GitHub, attacks first.

use std::sync::Arc;

use moongate_access::auth::ProviderKind;
use moongate_oauth::SecretText;

use crate::person_row::{PersonRow, ProvenPerson};
use crate::provider::fault::{ProviderFault, RenewFault};
use crate::provider::tests::fake_provider::{FakeProvider, role};

const ANSWER: &str = "code=c&state=state";
const MEMBERSHIPS: &str = "/api/v3/user/memberships/orgs";
const TEAMS: &str = "/api/v3/user/teams";
const TOKEN: &str = "/login/oauth/access_token";

async fn start() -> FakeProvider {
    let orgs = vec!["acme".to_owned()];
    let provider = FakeProvider::start(ProviderKind::GitHub { orgs }).await;
    let teams = role(&provider.issuer, "teams", &["acme/devs"]);
    let orgs = role(&provider.issuer, "orgs", &["acme", "other"]);
    provider.client.replace_roles(Arc::from([teams, orgs]));
    let token = r#"{"access_token":"gho_1","token_type":"bearer","scope":"read:org"}"#;
    provider.answer(TOKEN, 200, token);
    provider.answer("/api/v3/user", 200, r#"{"id":7,"login":"ann"}"#);
    let emails = r#"[{"email":"x@b.test","primary":false,"verified":true},
        {"email":"ann@b.test","primary":true,"verified":true}]"#;
    provider.answer("/api/v3/user/emails", 200, emails);
    provider.answer(MEMBERSHIPS, 200, &membership("active", 1, "Acme"));
    provider.answer(TEAMS, 200, &team(5, "devs", 1));
    provider
}

fn membership(state: &str, id: u64, login: &str) -> String {
    format!(r#"[{{"state":"{state}","organization":{{"id":{id},"login":"{login}"}}}}]"#)
}

fn team(id: u64, slug: &str, organization: u64) -> String {
    format!(
        r#"[{{"id":{id},"slug":"{slug}","organization":{{"id":{organization},"login":"acme"}}}}]"#
    )
}

async fn finish(provider: &FakeProvider) -> Result<ProvenPerson, ProviderFault> {
    let sent = provider.begin().await;
    provider.client.finish(&sent, ANSWER).await
}

async fn log_in(provider: &FakeProvider) -> PersonRow {
    let person = finish(provider).await.unwrap();
    provider.store_login(person).await
}

#[tokio::test]
async fn a_person_is_the_id_with_organizations_teams_and_address() {
    let provider = start().await;
    let row = log_in(&provider).await;
    assert_eq!(row.subject, "7");
    assert_eq!(row.facts.claims["orgs"], ["acme"]);
    assert_eq!(row.facts.claims["teams"], ["acme/devs"]);
    assert_eq!(row.facts.email.as_deref(), Some("ann@b.test"));
    assert_eq!(row.token, Some(SecretText::new("gho_1")));
    let asked = provider.requests_for("/api/v3/user");
    assert!(asked[0].contains("Bearer gho_1"), "{}", asked[0]);
    assert!(provider.client.findings().is_empty());
}

#[tokio::test]
async fn who_is_not_an_active_member_does_not_log_in() {
    let provider = start().await;
    for memberships in [
        "[]".to_owned(),
        membership("pending", 1, "acme"),
        membership("active", 2, "other"),
        membership("active", 3, "acme-inc"),
    ] {
        provider.answer(MEMBERSHIPS, 200, &memberships);
        let found = finish(&provider).await;
        assert_eq!(
            found.unwrap_err(),
            ProviderFault::NotAMember,
            "{memberships}"
        );
    }
}

#[tokio::test]
async fn an_address_that_is_not_verified_does_not_count() {
    let provider = start().await;
    let emails = r#"[{"email":"boss@b.test","primary":true,"verified":false}]"#;
    provider.answer("/api/v3/user/emails", 200, emails);
    let person = finish(&provider).await.unwrap();
    assert_eq!(person.facts.email, None);
}

#[tokio::test]
async fn a_name_with_another_owner_matches_nobody_and_is_a_finding() {
    let provider = start().await;
    log_in(&provider).await;
    // The organization has been renamed, and its members remain members.
    provider.answer(MEMBERSHIPS, 200, &membership("active", 1, "acme-inc"));
    let person = finish(&provider).await.unwrap();
    assert_eq!(person.facts.claims["orgs"], ["acme"]);
    assert_eq!(person.facts.claims["teams"], ["acme/devs"]);
    assert!(provider.client.findings().is_empty());
    // Somebody else took the old name, and created a team with the old name, too.
    provider.answer(MEMBERSHIPS, 200, &membership("active", 666, "acme"));
    provider.answer(TEAMS, 200, &team(667, "devs", 666));
    let found = finish(&provider).await;
    assert_eq!(found.unwrap_err(), ProviderFault::NotAMember);
    let findings = provider.client.findings();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].contains("GitHub's acme "), "{}", findings[0]);
}

#[tokio::test]
async fn a_team_is_of_its_organization_and_keeps_its_id() {
    let provider = start().await;
    log_in(&provider).await;
    for (listed, matches) in [
        (team(5, "renamed", 1), true),
        (team(6, "devs", 1), false),
        (team(5, "devs", 2), false),
        ("[]".to_owned(), false),
    ] {
        provider.answer(TEAMS, 200, &listed);
        let person = finish(&provider).await.unwrap();
        let has_team = person.facts.claims.contains_key("teams");
        assert_eq!(has_team, matches, "{listed}");
    }
}

#[tokio::test]
async fn a_renewal_ends_by_401_or_a_lost_membership_alone() {
    let provider = start().await;
    let row = log_in(&provider).await;
    for status in [403, 404, 429, 500] {
        for path in ["/api/v3/user", MEMBERSHIPS, TEAMS] {
            let provider = start().await;
            let row = log_in(&provider).await;
            provider.answer(path, status, "{}");
            let found = provider.client.renew(&row).await;
            assert_eq!(found.unwrap_err(), RenewFault::Down, "{status} {path}");
        }
    }
    provider.answer(MEMBERSHIPS, 200, "[]");
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::Ended);
    provider.answer("/api/v3/user", 200, r#"{"id":8}"#);
    provider.answer(MEMBERSHIPS, 200, &membership("active", 1, "acme"));
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::OtherSubject);
    provider.answer("/api/v3/user", 401, "{}");
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::Ended);
    // No token was exchanged for any of this.
    assert_eq!(provider.requests_for(TOKEN).len(), 1);
}

#[tokio::test]
async fn tokens_of_an_app_are_exchanged_at_a_renewal() {
    let provider = start().await;
    let tokens = r#"{"access_token":"ghu_1","token_type":"bearer","refresh_token":"ghr_1"}"#;
    provider.answer(TOKEN, 200, tokens);
    let row = log_in(&provider).await;
    assert_eq!(row.token, Some(SecretText::new("ghr_1")));
    let tokens = r#"{"access_token":"ghu_2","token_type":"bearer","refresh_token":"ghr_2"}"#;
    provider.answer(TOKEN, 200, tokens);
    let renewed = provider.client.renew(&row).await.unwrap();
    assert_eq!(renewed.token, Some(SecretText::new("ghr_2")));
    // GitHub sends errors with status 200.
    provider.answer(TOKEN, 200, r#"{"error":"bad_refresh_token"}"#);
    let found = provider.client.renew(&row).await;
    assert_eq!(found.unwrap_err(), RenewFault::Ended);
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let provider = start().await;
    let one = membership("active", 2, "other");
    let entry = one.trim_matches(['[', ']']);
    let page = format!("[{}]", vec![entry; 50].join(","));
    provider.answer(MEMBERSHIPS, 200, &page);
    let found = finish(&provider).await;
    assert_eq!(found.unwrap_err(), ProviderFault::TooManyGroups);
    assert_eq!(provider.requests_for(MEMBERSHIPS).len(), 10);
}
