//! Test authorization server on loopback, and the metadata of the resources behind it.
//!
//! Owns the rules that a test may change, and what it may ask. Does not answer requests
//! (`endpoints.rs`), and does not keep tokens (`token_book.rs`). Invariant: it checks what a real
//! one checks, so a client that omits something gets no token.

mod endpoints;
mod token_book;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use moongate_mock::MockHandle;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use url::Url;

use crate::harness::loopback;
use token_book::TokenBook;

/// Scope of the resources.
const SCOPE: &str = "read";

/// Authorization server. It ends with this handle.
pub(super) struct Issuer {
    state: Arc<IssuerState>,
    serving: JoinHandle<()>,
}

/// State that the endpoints share.
struct IssuerState {
    origin: String,
    rules: Mutex<IssuerRules>,
    book: Mutex<TokenBook>,
    clients: Mutex<HashMap<String, KnownClient>>,
    steps: Mutex<Vec<IssuerStep>>,
    complaints: Mutex<Vec<String>>,
}

/// Change of the behaviour.
pub(super) type RuleChange = fn(&mut IssuerRules);

/// Behaviour, which a test may change at any time.
#[derive(Clone)]
pub(super) struct IssuerRules {
    /// Lifetime of access tokens, as announced.
    pub(super) life: Duration,
    /// True if the metadata is only where OpenID Connect has it.
    pub(super) is_openid: bool,
    /// True if it registers clients.
    pub(super) registers: bool,
    /// True if it accepts client documents.
    pub(super) takes_documents: bool,
    /// Method by which clients authenticate.
    pub(super) method: ClientMethod,
    /// Parameter `iss` of its answers.
    pub(super) iss: IssRule,
    /// True if whoever asks for a login is denied it.
    pub(super) denies: bool,
    /// Answer to a refresh token.
    pub(super) refresh: RefreshRule,
    /// True if the metadata redirects to another address, where it is.
    pub(super) moves_metadata: bool,
    /// Members of the metadata to replace. Null removes one.
    pub(super) metadata: Vec<(&'static str, Value)>,
}

/// Method by which a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientMethod {
    None,
    Basic,
    Post,
}

/// Parameter `iss` of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IssRule {
    /// Announced and correct.
    Right,
    /// Announced, and of another issuer.
    Wrong,
    /// Announced, and missing.
    Missing,
    /// Not announced and not sent.
    Unknown,
}

/// Answer to a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefreshRule {
    /// New tokens. The old refresh token is used up.
    Renew,
    /// No answer, and nothing changes.
    Hold,
    /// New tokens, whose answer never leaves.
    Lose,
    /// Error with this code.
    Refuse(&'static str),
    /// HTTP status 503.
    Down,
}

/// Request that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IssuerStep {
    /// Metadata of a resource.
    Resource,
    /// Metadata of the server.
    Metadata,
    /// Metadata at the address that the right one redirects to.
    Moved,
    Registration,
    Authorization,
    Exchange,
    Refresh,
    Revocation,
    Other,
}

struct KnownClient {
    secret: Option<String>,
    method: ClientMethod,
    redirect: String,
}

impl Issuer {
    pub(super) async fn start() -> Issuer {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let state = Arc::new(IssuerState {
            origin: format!("http://{}", listener.local_addr().unwrap()),
            rules: Mutex::default(),
            book: Mutex::default(),
            clients: Mutex::default(),
            steps: Mutex::default(),
            complaints: Mutex::default(),
        });
        let router = Router::new()
            .fallback(endpoints::answer)
            .with_state(state.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Issuer { state, serving }
    }

    /// Issuer identifier.
    pub(super) fn origin(&self) -> &str {
        &self.state.origin
    }

    /// Changes its behaviour from now on.
    pub(super) fn change(&self, change: impl FnOnce(&mut IssuerRules)) {
        change(&mut self.state.rules.lock());
    }

    /// Makes a server demand tokens that this issuer issued for it.
    pub(super) fn guard(&self, server: &MockHandle) {
        let mut metadata = Url::parse(&self.state.origin).unwrap();
        metadata.set_path("/resource");
        metadata.query_pairs_mut().append_pair("of", &server.url);
        let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"{SCOPE}\"");
        let state = self.state.clone();
        let resource = server.url.clone();
        server.demand_bearer(challenge, move |token| {
            state.book.lock().is_good(token, &resource)
        });
    }

    /// Registers a client by hand, for one redirect address. Returns its secret.
    pub(super) fn add_client(&self, id: &str, redirect: &str) -> String {
        let secret = self.state.book.lock().make_secret("client");
        let client = KnownClient {
            secret: Some(secret.clone()),
            method: ClientMethod::Basic,
            redirect: redirect.to_owned(),
        };
        self.state.clients.lock().insert(id.to_owned(), client);
        secret
    }

    /// Counts the requests of a kind.
    pub(super) fn count(&self, step: IssuerStep) -> usize {
        let steps = self.state.steps.lock();
        steps.iter().filter(|&&other| other == step).count()
    }

    /// Counts the requests at the token endpoint.
    pub(super) fn token_requests(&self) -> usize {
        self.count(IssuerStep::Exchange) + self.count(IssuerStep::Refresh)
    }

    /// Returns true if the last access token has expired.
    pub(super) fn has_expired(&self) -> bool {
        let end = self.state.book.lock().newest_end();
        end.is_some_and(|end| end <= Instant::now())
    }

    /// Returns true if the last access token is valid for another second.
    pub(super) fn is_fresh(&self) -> bool {
        let end = self.state.book.lock().newest_end();
        end.is_some_and(|end| end > Instant::now() + Duration::from_secs(1))
    }

    /// Counts the logins that are still valid.
    pub(super) fn live_logins(&self) -> usize {
        self.state.book.lock().live_logins()
    }

    /// Counts the refresh tokens that came again.
    pub(super) fn reuses(&self) -> usize {
        self.state.book.lock().reuses()
    }

    /// Lists every code, token and secret so far, and the verifiers that clients made.
    pub(super) fn secrets(&self) -> Vec<String> {
        self.state.book.lock().secrets()
    }

    /// Lists the faults that it found in requests.
    pub(super) fn complaints(&self) -> Vec<String> {
        self.state.complaints.lock().clone()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Default for IssuerRules {
    fn default() -> Self {
        IssuerRules {
            life: Duration::from_secs(3600),
            is_openid: false,
            registers: true,
            takes_documents: false,
            method: ClientMethod::None,
            iss: IssRule::Right,
            denies: false,
            refresh: RefreshRule::Renew,
            moves_metadata: false,
            metadata: Vec::new(),
        }
    }
}

impl ClientMethod {
    fn name(self) -> &'static str {
        match self {
            ClientMethod::None => "none",
            ClientMethod::Basic => "client_secret_basic",
            ClientMethod::Post => "client_secret_post",
        }
    }
}
