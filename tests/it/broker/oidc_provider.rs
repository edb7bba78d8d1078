//! Company's login that we did not write: npm `oidc-provider`, which rotates refresh tokens and
//! ends a login when one is reused.
//!
//! Owns its process, and the requests that tests make to it. Does not answer requests
//! (`tests/login/oidc_provider.mjs`). Invariant: the gateway never sends a refresh token twice.

use serde_json::Value;

use super::client::assert_oauth_error;
use super::parameters::Parameters;
use super::provider::Provider;
use super::world::{Company, LoggedIn, people};
use crate::harness::program::Program;
use crate::harness::{HttpClient, HttpReply, Process, until};
use crate::login::oidc_provider::provider_command;

/// Id and secret of the gateway there, as the script has them.
const GATEWAY: (&str, &str) = ("moongate", "secret-of-the-gateway-0123456789");

/// Company whose login is the real one.
struct RealCompany {
    login: Program,
    company: Company,
}

impl RealCompany {
    async fn start() -> RealCompany {
        // The address of the gateway comes first, since the provider has to know it.
        let company = Company::in_front_of("", Provider::start().await).await;
        let redirect = format!("{}/oauth/provider", company.origin);
        let login = Program::start(provider_command(&["company", &redirect]), "").await;
        let (id, secret) = GATEWAY;
        let lines = format!(
            "issuer = {:?}\nclient_id = {id:?}\nclient_secret = {secret:?}\n\
             scopes = [\"openid\", \"email\", \"groups\", \"offline_access\"]",
            login.url("")
        );
        let role = "name = \"staff\"\nmatch = { groups = [\"staff\"] }";
        let company = company
            .with("auth.oauth", &lines)
            .with("auth.roles.staff", role);
        RealCompany { login, company }
    }

    /// Logs in as a person does.
    async fn log_in(&self) -> LoggedIn {
        let company = &self.company;
        let client = company.client(&super::shapes::OPENCODE).await;
        let mut browser = super::browser::PersonBrowser::new(&company.origin, &self.login.url(""));
        let answer = browser.log_in(&client.address()).await;
        let code = client.code_of(&answer);
        let tokens = client.exchange(&code, &company.documents).await;
        LoggedIn { client, tokens }
    }

    /// Has the gateway ask the provider about Ann, who has renewed this often then.
    async fn recheck(self, gateway: &Process, count: usize) -> RealCompany {
        let company = self.company.with_another_role(gateway, count);
        let world = RealCompany { company, ..self };
        until("the provider was asked", async || {
            let refreshes = world.seen().await["refreshes"].as_u64();
            (refreshes == Some(count as u64)).then_some(())
        })
        .await;
        world
    }

    async fn seen(&self) -> Value {
        let url = self.login.url("/test/state");
        HttpClient::new().get(&url).await.json()
    }

    /// Uses a refresh token at the provider, as anybody who found it could.
    async fn use_token(&self, token: &str) -> HttpReply {
        let (id, secret) = GATEWAY;
        let form = Parameters::of(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", token),
            ("client_id", id),
            ("client_secret", secret),
        ]);
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let url = self.login.url("/token");
        HttpClient::new()
            .send("POST", &url, &headers, form.encode())
            .await
    }
}

#[tokio::test]
async fn a_login_in_front_of_a_real_provider_lasts_until_that_ends_it() {
    let world = RealCompany::start().await;
    let gateway = world.company.gateway().await;
    let LoggedIn { client, tokens } = world.log_in().await;
    client.call(&tokens.access).await;
    let logins = people(&gateway).await;
    assert_eq!(logins[0]["name"], "ann@example.com", "{logins:?}");
    let world = world.recheck(&gateway, 1).await;
    let world = world.recheck(&gateway, 2).await;
    let tokens = client
        .refresh(&tokens.refresh, &world.company.documents)
        .await;
    client.call(&tokens.access).await;
    let seen = world.seen().await;
    assert_eq!(seen["reuses"], 0, "{seen}");
    assert_eq!(seen["refusals"], 0, "{seen}\n{}", world.login.said());
    // The first one was used by the gateway already, so the provider ends all of them.
    let stolen = seen["tokens"][0]["refresh_token"].as_str().unwrap();
    assert_eq!(world.use_token(stolen).await.status, 400);
    let company = world.company.with_another_role(&gateway, 3);
    until("the login has ended", async || {
        people(&gateway).await.is_empty().then_some(())
    })
    .await;
    let form = client.refresh_form(&tokens.refresh);
    let reply = client.post_token(&form, &company.documents).await;
    assert_oauth_error(&reply, "invalid_grant");
    assert_eq!(client.call_status(&tokens.access).await, 401);
    // A new login is a new grant there.
    let world = RealCompany { company, ..world };
    let again = world.log_in().await;
    again.client.call(&again.tokens.access).await;
}
