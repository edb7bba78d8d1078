//! Logins at an authorization server that we did not write: npm `oidc-provider`, which rotates
//! refresh tokens, and ends a login when one comes back.
//!
//! Owns its process, and what a test asks of it. Does not guard the server, which
//! `tests/login/oidc_provider.mjs` does. Invariant: the server gets only requests whose token was
//! issued for it and has not expired.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use moongate_mock::MockHandle;
use serde_json::Value;
use tokio::process::Command;
use url::form_urlencoded;

use super::browser::browse;
use super::command::{CommandEnd, RunningCommand};
use super::ended_logins::keep_calling;
use super::world::{SENTENCE, call, reaches, ready};
use crate::harness::program::Program;
use crate::harness::{HttpClient, HttpReply, Setup, legacy, only, serve, until};

/// Lifetime of an access token, in seconds. It is renewed earlier.
const LIFE_SECS: &str = "4";

/// Folder that `tests/login/setup.sh` filled.
fn login_home() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let home = target.join("login");
    assert!(
        home.join("npm/.stamp").is_file(),
        "the authorization server is missing: run tests/login/setup.sh"
    );
    home
}

/// Returns the command that starts the authorization server with arguments.
pub(crate) fn provider_command(args: &[&str]) -> Command {
    let home = login_home();
    // The package needs Node.js 22.
    let node = home.with_file_name("conformance");
    let mut command = Command::new(node.join("npm/node_modules/.bin/node"));
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/login/oidc_provider.mjs"))
        .args(args)
        .env("LOGIN_HOME", home)
        .stdin(Stdio::piped());
    command
}

/// Server `linear` behind the authorization server, and a config with both.
struct ProviderWorld {
    provider: Program,
    setup: Setup,
    _server: MockHandle,
}

impl ProviderWorld {
    async fn start() -> ProviderWorld {
        let server = serve(only(legacy(), &["echo", "second"])).await;
        let command = provider_command(&[server.url.as_str(), LIFE_SECS]);
        let provider = Program::start(command, "").await;
        let setup = Setup::new()
            .lasting()
            .with("egress", "allow = [\"127.0.0.1\"]")
            .http("linear", &provider.url("/mcp"));
        ProviderWorld {
            provider,
            setup,
            _server: server,
        }
    }

    /// Logs in as a person does.
    async fn log_in(&self) -> CommandEnd {
        let args = ["login", "linear", "--no-browser"];
        let command = RunningCommand::start(&self.setup, &args);
        let address = command.address_at(&self.provider.url("")).await;
        let page = browse(&address).await;
        let html = page.reply.text_body();
        let said = self.provider.said();
        assert!(html.contains("You are logged in"), "{html}\n{said}");
        let end = command.ended().await;
        assert_eq!(end.code, Some(0), "{}\n{said}", end.printed);
        end
    }

    /// Returns what the authorization server has seen.
    async fn seen(&self) -> ProviderState {
        let reply = HttpClient::new()
            .get(&self.provider.url("/test/state"))
            .await;
        ProviderState(reply.json())
    }

    /// Uses a refresh token, as whoever found it would.
    async fn use_token(&self, token: &StolenToken) -> HttpReply {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("client_id", &token.client)
            .append_pair("refresh_token", &token.refresh)
            .finish();
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        HttpClient::new()
            .send("POST", &self.provider.url("/token"), &headers, form)
            .await
    }
}

/// State of the authorization server.
#[derive(Debug)]
struct ProviderState(Value);

impl ProviderState {
    fn count(&self, what: &str) -> u64 {
        self.0[what].as_u64().unwrap()
    }

    /// Lists the refresh tokens, in the order in which they were given.
    fn tokens(&self) -> Vec<StolenToken> {
        let tokens = self.0["tokens"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        tokens
            .map(|token| StolenToken {
                client: text(&token["client_id"]),
                refresh: text(&token["refresh_token"]),
            })
            .collect()
    }
}

/// Refresh token in the wrong hands, and the client that it was given to.
struct StolenToken {
    client: String,
    refresh: String,
}

/// Checks that a token gives nothing.
fn assert_refused(reply: &HttpReply) {
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_eq!(reply.json()["error"], "invalid_grant", "{reply:?}");
}

#[tokio::test]
async fn a_login_lasts_through_renewals_until_a_logout_revokes_it() {
    let world = ProviderWorld::start().await;
    let end = world.log_in().await;
    let renews = "Logged in to linear: ready, 2 tools. The login renews itself.";
    assert!(end.printed.contains(renews), "{}", end.printed);
    let gateway = world.setup.program().await;
    let client = ready(&gateway).await;
    until("the login was renewed three times", async || {
        call(&client).await.text();
        (world.seen().await.count("refreshes") >= 3).then_some(())
    })
    .await;
    let seen = world.seen().await;
    assert_eq!(seen.count("registrations"), 1, "{seen:?}");
    assert_eq!(seen.count("logins"), 1, "{seen:?}");
    assert_eq!(seen.count("reuses"), 0, "{seen:?}");
    let end = RunningCommand::start(&world.setup, &["logout", "linear"])
        .ended()
        .await;
    assert_eq!(end.code, Some(0), "{}", end.printed);
    let seen = world.seen().await;
    assert!(seen.count("revocations") > 0, "{seen:?}");
    let newest = seen.tokens().pop().unwrap();
    assert_refused(&world.use_token(&newest).await);
    reaches(&gateway, "needs_login").await;
    let error = call(&client).await.text_body();
    assert!(error.contains(SENTENCE), "{error}");
}

#[tokio::test]
async fn a_stolen_refresh_token_ends_the_login_and_no_loop_begins() {
    let world = ProviderWorld::start().await;
    world.log_in().await;
    let gateway = world.setup.program().await;
    let client = ready(&gateway).await;
    until("the login was renewed", async || {
        call(&client).await.text();
        (world.seen().await.count("refreshes") > 0).then_some(())
    })
    .await;
    // The first one was used by the gateway already.
    let stolen = world.seen().await.tokens().swap_remove(0);
    assert_refused(&world.use_token(&stolen).await);
    let seen = world.seen().await;
    assert_eq!(seen.count("reuses"), 1, "{seen:?}");
    assert!(seen.count("revocations") > 0, "{seen:?}");
    let status = until("the login has ended", async || {
        call(&client).await;
        let status = gateway.status("linear").await;
        (status["state"] == "needs_login").then_some(status)
    })
    .await;
    assert!(status.to_string().contains(SENTENCE), "{status}");
    let refusals = world.seen().await.count("refusals");
    keep_calling(&client).await;
    let seen = world.seen().await;
    assert_eq!(seen.count("refusals"), refusals, "{seen:?}");
    assert_eq!(seen.count("reuses"), 1, "{seen:?}");
    world.log_in().await;
    let client = ready(&gateway).await;
    call(&client).await.text();
    let seen = world.seen().await;
    assert_eq!(seen.count("registrations"), 2, "{seen:?}");
}
