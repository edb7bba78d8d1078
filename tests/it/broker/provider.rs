//! Company's login of the tests, on loopback: an OpenID provider whose only person is Ann.
//!
//! Owns the rules that a test may change, and what it may query. Does not answer requests
//! (`provider_endpoints.rs`). Invariant: it checks what a real one checks, so a gateway that omits
//! something gets no token.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::provider_endpoints::answer;
use super::signing_key::SigningKey;
use crate::harness::loopback;

/// Id of the gateway there.
pub(super) const GATEWAY_ID: &str = "moongate-at-the-company";

/// Company's login. It ends with this handle.
pub(super) struct Provider {
    state: Arc<ProviderState>,
    serving: JoinHandle<()>,
}

/// State that the endpoints share.
pub(super) struct ProviderState {
    pub(super) origin: String,
    /// Only redirect address of the gateway.
    pub(super) redirect: Mutex<String>,
    pub(super) client_secret: String,
    pub(super) rules: Mutex<ProviderRules>,
    pub(super) key: SigningKey,
    pub(super) book: Mutex<ProviderBook>,
}

/// All that was given and asked.
#[derive(Default)]
pub(super) struct ProviderBook {
    pub(super) codes: HashMap<String, SentLogin>,
    /// Refresh tokens that are still valid.
    pub(super) refresh: Vec<String>,
    pub(super) steps: Vec<ProviderStep>,
    pub(super) complaints: Vec<String>,
    secrets: Vec<String>,
}

/// Request for a login, for which there is a code.
#[derive(Clone)]
pub(super) struct SentLogin {
    pub(super) challenge: String,
    pub(super) nonce: String,
}

/// Request that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProviderStep {
    Authorization,
    Exchange,
    Renewal,
}

/// Behaviour, which a test may change at any time.
#[derive(Clone, Default)]
pub(super) struct ProviderRules {
    /// Claims of every ID token that differ from Ann's. Null takes one away.
    pub(super) claims: Vec<(&'static str, Value)>,
    /// Claims of renewed ID tokens that differ from those.
    pub(super) renewed: Vec<(&'static str, Value)>,
    /// Claims at the endpoint for those that differ from Ann's.
    pub(super) userinfo: Vec<(&'static str, Value)>,
    pub(super) answer: AnswerRule,
    pub(super) renewal: RenewalRule,
    pub(super) signature: SignatureRule,
    /// True if every request but those of browsers gets HTTP status 503.
    pub(super) is_down: bool,
}

/// Change of the behaviour.
pub(super) type ProviderChange = fn(&mut ProviderRules);

/// Answer that a browser delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerRule {
    #[default]
    Right,
    /// Names another issuer.
    WrongIss,
    /// Names none, although that is announced.
    MissingIss,
    /// Error, because Ann refused.
    Denied,
}

/// Answer to a refresh token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RenewalRule {
    #[default]
    Renew,
    /// Error with this code.
    Refuse(&'static str),
    /// HTTP status 503.
    Down,
}

/// Signature of ID tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SignatureRule {
    #[default]
    Right,
    /// By a key that is not in the key set.
    Strange,
}

impl ProviderRules {
    /// Sets a claim of Ann, in ID tokens and wherever else claims are.
    pub(super) fn set_claim(&mut self, name: &'static str, value: Value) {
        self.claims.push((name, value.clone()));
        self.userinfo.push((name, value));
    }
}

impl Provider {
    pub(super) async fn start() -> Provider {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let mut book = ProviderBook::default();
        let client_secret = book.make_secret("client");
        let state = Arc::new(ProviderState {
            origin: format!("http://{}", listener.local_addr().unwrap()),
            redirect: Mutex::default(),
            client_secret,
            rules: Mutex::default(),
            key: SigningKey::new(),
            book: Mutex::new(book),
        });
        let router = Router::new().fallback(answer).with_state(state.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Provider { state, serving }
    }

    /// Issuer identifier.
    pub(super) fn origin(&self) -> &str {
        &self.state.origin
    }

    pub(super) fn client_secret(&self) -> &str {
        &self.state.client_secret
    }

    /// Registers the redirect address of the gateway.
    pub(super) fn set_redirect(&self, address: String) {
        *self.state.redirect.lock() = address;
    }

    /// Changes its behaviour from now on.
    pub(super) fn change(&self, change: impl FnOnce(&mut ProviderRules)) {
        change(&mut self.state.rules.lock());
    }

    /// Returns to the usual behaviour.
    pub(super) fn behave(&self) {
        *self.state.rules.lock() = ProviderRules::default();
    }

    pub(super) fn count(&self, step: ProviderStep) -> usize {
        let book = self.state.book.lock();
        book.steps.iter().filter(|other| **other == step).count()
    }

    /// Lists what was wrong with requests.
    pub(super) fn complaints(&self) -> Vec<String> {
        self.state.book.lock().complaints.clone()
    }

    /// Lists all secrets so far: of the gateway, of each login and of Ann.
    pub(super) fn secrets(&self) -> Vec<String> {
        self.state.book.lock().secrets.clone()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ProviderBook {
    /// Creates an unguessable text, which tests find wherever it leaks.
    pub(super) fn make_secret(&mut self, kind: &str) -> String {
        let mut secret = format!("canary-{kind}-");
        for byte in moongate_random::random_bytes::<12>() {
            write!(secret, "{byte:02x}").unwrap();
        }
        self.secrets.push(secret.clone());
        secret
    }

    /// Remembers a secret that somebody else made.
    pub(super) fn add_secret(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
    }
}

/// Claims of Ann, with those of a list instead. Null takes one away.
pub(super) fn claims_with(changes: &[&[(&'static str, Value)]]) -> Map<String, Value> {
    let mut claims = Map::new();
    let usual = [
        ("sub", json!("ann-1")),
        ("email", json!("ann@example.com")),
        ("email_verified", json!(true)),
        ("groups", json!(["staff", "all"])),
    ];
    let changes = changes.iter().flat_map(|list| list.iter().cloned());
    for (name, value) in usual.into_iter().chain(changes) {
        match value {
            Value::Null => claims.remove(name),
            value => claims.insert(name.to_owned(), value),
        };
    }
    claims
}
