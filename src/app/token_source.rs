//! Authentication methods of a running gateway, including access tokens.
//!
//! Owns the secret that marks people's handles. Does not verify tokens (`moongate_tokens`).
//! Invariant: without a folder for secrets, the gateway still starts, but whatever people have open
//! ends with the process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::app::login_parts::LoginParts;
use moongate_access::auth::AuthMethods;
use moongate_access::policy::AccessTable;
use moongate_config::Plan;
use moongate_oauth::RootSecret;
use moongate_tokens::TokenMethods;

/// Purpose of the key that is derived from the root secret.
const PURPOSE: &str = "secrets of people";

/// Creates the methods of a gateway with listeners at these addresses, and the table of what each
/// role may use.
pub(super) async fn open_methods(
    plan: &Plan,
    login: &LoginParts,
    own: Vec<SocketAddr>,
) -> (Arc<AuthMethods>, AccessTable) {
    login.principals.set_people_max(plan.limits.principals);
    let tokens = open_token_source(plan, own).await;
    AuthMethods::with_source(
        login.principals.clone(),
        login.methods.clone(),
        Some(tokens),
        &plan.auth,
    )
}

async fn open_token_source(plan: &Plan, own: Vec<SocketAddr>) -> Arc<TokenMethods> {
    let is_needed = plan.auth.tokens.is_some();
    let folder = plan.login_folder.clone().filter(|_| is_needed);
    let secret = match folder {
        Some(folder) => person_secret(folder).await,
        // Issuers that a reload adds get a lasting secret at the next start.
        None => None,
    };
    let secret = secret.unwrap_or_else(moongate_random::random_bytes);
    Arc::new(TokenMethods::new(own, &secret))
}

async fn person_secret(folder: PathBuf) -> Option<[u8; 32]> {
    let opened = tokio::task::spawn_blocking(move || RootSecret::open(&folder)).await;
    match opened.ok()? {
        Ok(secret) => Some(secret.purpose_key(PURPOSE)),
        Err(error) => {
            tracing::warn!("secrets of people not kept: {error}");
            None
        }
    }
}
