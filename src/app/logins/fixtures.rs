//! Logins for tests: one that waits for its answer, and the grant that it ends in.
//!
//! Owns their fields, with a server `files` and an issuer at `auth.example.com`. Does not store
//! them. Invariant: the redirect address is one that the gateway has for the issuer.

use jiff::Timestamp;
use moongate_oauth::{
    ClientAuthMethod, ClientIdentity, LoginGrant, PendingLogin, SecretText, callback_path,
};
use url::Url;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Login that waits for the answer with this state.
pub(crate) fn pending_login(state: &str) -> PendingLogin {
    let issuer = url("https://auth.example.com");
    let redirect = url("http://127.0.0.1:8080").join(&callback_path(&issuer));
    PendingLogin {
        target_server: "files".to_owned(),
        target_url: url("https://mcp.example.com/mcp"),
        state: SecretText::new(state),
        verifier: SecretText::new("verifier"),
        iss: "https://auth.example.com".to_owned(),
        iss_required: false,
        token_endpoint: url("https://auth.example.com/token"),
        revocation_endpoint: None,
        client: ClientIdentity {
            id: "client".to_owned(),
            secret: None,
            method: ClientAuthMethod::None,
            redirect: redirect.unwrap(),
        },
        scope_asked: None,
        resource: None,
        started: Timestamp::now(),
        step_ups: 0,
        issuer,
    }
}

/// Grant that the login ends in, after this many renewals.
pub(crate) fn grant_of(pending: &PendingLogin, renewal: u64) -> LoginGrant {
    LoginGrant {
        issuer: pending.issuer.clone(),
        token_endpoint: pending.token_endpoint.clone(),
        revocation_endpoint: None,
        client: pending.client.clone(),
        scope_asked: None,
        resource: None,
        access: SecretText::new("access"),
        refresh: None,
        obtained: Timestamp::now(),
        expires: None,
        renewal,
        ended: false,
        step_ups: 0,
    }
}
