//! Logins and revocations survive restarts, crashes and changes of the root secret.

use rustix::process::Signal;

use super::client::{ClientTokens, LoginClient, assert_oauth_error, read_tokens};
use super::shapes::{CHATGPT, CLAUDE_CODE};
use super::world::{Company, LoggedIn, people};
use crate::harness::{Process, until};

/// Ends a gateway with a signal, and starts it again.
async fn restart(company: &Company, mut gateway: Process, signal: Signal) -> Process {
    gateway.signal(signal);
    gateway.ended().await;
    company.gateway().await
}

/// Calls and renews with tokens of before. Returns the new ones.
async fn go_on(company: &Company, login: &LoggedIn) -> ClientTokens {
    login.client.call(&login.tokens.access).await;
    let host = &company.documents;
    let tokens = login.client.refresh(&login.tokens.refresh, host).await;
    login.client.call(&tokens.access).await;
    tokens
}

#[tokio::test]
async fn logins_outlive_a_restart_and_a_crash() {
    let company = Company::start().await;
    let mut gateway = company.gateway().await;
    let mut registered = company.log_in().await;
    let mut signing = company.log_in_with(&CHATGPT).await;
    for signal in [Signal::TERM, Signal::KILL] {
        gateway = restart(&company, gateway, signal).await;
        assert_eq!(people(&gateway).await.len(), 2);
        registered.tokens = go_on(&company, &registered).await;
        signing.tokens = go_on(&company, &signing).await;
    }
    // A client id of before a restart still registers nothing and logs in.
    let client = &registered.client;
    let answer = company.browser().log_in(&client.address()).await;
    client
        .exchange(&client.code_of(&answer), &company.documents)
        .await;
}

#[tokio::test]
async fn a_revoked_login_stays_revoked() {
    let company = Company::start().await;
    let gateway = company.gateway().await;
    let LoggedIn { client, tokens } = company.log_in().await;
    client.revoke(&tokens.refresh, &company.documents).await;
    let gateway = restart(&company, gateway, Signal::KILL).await;
    assert_refused(&company, &client, &tokens).await;
    company.assert_unharmed(&gateway, "a revoked login").await;
}

/// Checks that neither token of a client opens anything.
async fn assert_refused(company: &Company, client: &LoginClient, tokens: &ClientTokens) {
    assert_eq!(client.call_status(&tokens.access).await, 401);
    let form = client.refresh_form(&tokens.refresh);
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "invalid_grant");
}

#[tokio::test]
async fn a_crash_while_renewing_costs_nothing() {
    let company = Company::start().await;
    let mut gateway = company.gateway().await;
    let LoggedIn { client, mut tokens } = company.log_in().await;
    for _ in 0..10 {
        let renewal = client.try_refresh(&tokens.refresh);
        let crash = async {
            // Somewhere in the middle, which differs from run to run.
            tokio::task::yield_now().await;
            gateway.signal(Signal::KILL);
            gateway.ended().await;
        };
        let (reply, ()) = tokio::join!(renewal, crash);
        gateway = company.gateway().await;
        if let Some(reply) = reply {
            tokens = read_tokens(&reply);
        }
        tokens = client.refresh(&tokens.refresh, &company.documents).await;
        client.call(&tokens.access).await;
        assert_eq!(people(&gateway).await.len(), 1);
    }
}

/// Returns the lines of a root secret, and of those before it.
fn secret_lines(secret: &str, before: &[&str]) -> String {
    format!("secret = {secret:?}\nsecret_before = {before:?}")
}

const SECRETS: [&str; 3] = [
    "canary-root-secret-number-one-0123456789abcdef",
    "canary-root-secret-number-two-0123456789abcdef",
    "canary-root-secret-number-three-0123456789abcd",
];

#[tokio::test]
async fn every_client_goes_on_after_two_new_secrets() {
    let [first, second, third] = SECRETS;
    let mut company = Company::start()
        .await
        .with("gateway", &secret_lines(first, &[]));
    let mut gateway = company.gateway().await;
    let mut registered = company.log_in().await;
    let mut document = company.log_in_with(&CLAUDE_CODE).await;
    for lines in [
        secret_lines(second, &[first]),
        secret_lines(third, &[second, first]),
        // The rows were sealed again, and the tokens have been renewed.
        secret_lines(third, &[]),
    ] {
        company = company.with("gateway", &lines);
        gateway = restart(&company, gateway, Signal::TERM).await;
        registered.tokens = go_on(&company, &registered).await;
        document.tokens = go_on(&company, &document).await;
    }
    assert_eq!(people(&gateway).await.len(), 2);
    let answer = company.browser().log_in(&registered.client.address()).await;
    registered.client.code_of(&answer);
}

#[tokio::test]
async fn a_new_secret_without_the_old_one_ends_all_logins() {
    let [first, second, _] = SECRETS;
    let company = Company::start()
        .await
        .with("gateway", &secret_lines(first, &[]));
    let gateway = company.gateway().await;
    // Ids of registered clients end with the secret, too. A document is its own id.
    let LoggedIn { client, tokens } = company.log_in_with(&CLAUDE_CODE).await;
    let company = company.with("gateway", &secret_lines(second, &[]));
    let gateway = restart(&company, gateway, Signal::TERM).await;
    assert_refused(&company, &client, &tokens).await;
    assert_eq!(people(&gateway).await.len(), 0);
    company.assert_unharmed(&gateway, "a leaked secret").await;
}

#[tokio::test]
async fn a_role_that_a_reload_takes_away_takes_effect_at_once() {
    let mut company = Company::start().await;
    let gateway = company.gateway().await;
    let login = company.log_in().await;
    login.client.call(&login.tokens.access).await;
    let role = "name = \"staff\"\nmatch = { groups = [\"board\"] }";
    company = company.with("auth.roles.staff", role);
    company.setup.file();
    gateway.signal(Signal::HUP);
    until("the role is gone", async || {
        let status = login.client.call_status(&login.tokens.access).await;
        (status == 403).then_some(())
    })
    .await;
    let role = "name = \"staff\"\nmatch = { groups = [\"staff\"] }";
    company = company.with("auth.roles.staff", role);
    company.setup.file();
    gateway.signal(Signal::HUP);
    until("the role is back", async || {
        let status = login.client.call_status(&login.tokens.access).await;
        (status == 200).then_some(())
    })
    .await;
}
