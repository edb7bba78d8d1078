//! Tokens that a client gets for itself: `servers.*.auth` with `type = "client_credentials"`.
//!
//! Owns when a token is asked for, and the token in memory. Does not send the request
//! (`token_endpoint.rs`). Invariant: one request at a time, and the client's proof goes to the
//! issuer of the config alone.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use moongate_transport::LinkError;
use moongate_transport::credential_source::{AuthChallenge, CredentialSource};
use moongate_transport::fetcher::Fetcher;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::discovery::discover_token_server;
use crate::login_fetcher::LoginFetcher;
use crate::settings::{ClientCredentialsSettings, LoginTarget};
use crate::token_endpoint::{TokenSet, get_client_token};
use crate::token_server::FoundTokenServer;

/// Share of a token's life after which another one is asked for.
const RENEWAL_SHARE: f64 = 0.8;
/// Age below which a refused token does not lead to another request.
const REFUSAL_PAUSE: Duration = Duration::from_secs(30);
/// Time for which a failure stands for others, so that a server that is down is not asked for each
/// call.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
/// Status of a refused token. 403 means that the token is good and may not do this.
const UNAUTHORIZED: u16 = 401;

/// Source of the tokens that a client gets for itself.
pub struct ClientTokenSource {
    target: LoginTarget,
    settings: ClientCredentialsSettings,
    fetcher: Arc<Fetcher>,
    current: ArcSwapOption<IssuedToken>,
    /// Locked by a request.
    requests: Mutex<TokenRequests>,
}

/// Token in use.
struct IssuedToken {
    header: HeaderValue,
    /// Time before its request, so that its end is never taken for later than it is.
    asked: Instant,
    /// Life, if the server said so. Without it, only a 401 shows the end.
    life: Option<Duration>,
}

/// Requests of the past, as far as the next one needs them.
#[derive(Default)]
struct TokenRequests {
    /// Token endpoint, until a request to it fails.
    found: Option<FoundTokenServer>,
    last: Option<LastRequest>,
}

/// Request that ended last.
struct LastRequest {
    started: Instant,
    ended: Instant,
    failure: Option<String>,
}

impl ClientTokenSource {
    /// Creates the source of a server's tokens. The first one is asked for when it is needed.
    pub fn new(
        target: LoginTarget,
        settings: ClientCredentialsSettings,
        fetcher: Arc<Fetcher>,
    ) -> Self {
        ClientTokenSource {
            target,
            settings,
            fetcher,
            current: ArcSwapOption::empty(),
            requests: Mutex::default(),
        }
    }

    /// Returns the token, until this share of its life is over.
    fn token_within(&self, share: f64) -> Option<HeaderValue> {
        let current = self.current.load();
        let current = current.as_ref()?;
        let is_good = match current.life {
            Some(life) => current.asked.elapsed() < life.mul_f64(share),
            None => true,
        };
        is_good.then(|| current.header.clone())
    }

    /// Asks for a token if none is fresh. One that still lives is used while no other can be had.
    async fn request_if_due(&self) -> Result<Option<HeaderValue>, LinkError> {
        let mut requests = self.requests.lock().await;
        if let Some(header) = self.token_within(RENEWAL_SHARE) {
            return Ok(Some(header));
        }
        let failed = requests.last.as_ref().and_then(LastRequest::recent_failure);
        let asked = match failed {
            Some(failure) => Err(failure),
            None => self.request(&mut requests).await,
        };
        match (asked, self.token_within(1.0)) {
            (Ok(header), _) | (Err(_), Some(header)) => Ok(Some(header)),
            (Err(failure), None) => {
                let server = &self.target.server;
                let text = format!("servers.{server}.auth: {failure}");
                Err(LinkError::Unreachable(text))
            }
        }
    }

    /// Asks for a token in place of one that was refused. Returns true if there is another one.
    async fn request_refused(&self, sent: Option<&HeaderValue>) -> bool {
        let mut requests = self.requests.lock().await;
        if self.has_other(sent) {
            return true;
        }
        let is_recent = |last: &LastRequest| last.started.elapsed() < REFUSAL_PAUSE;
        if requests.last.as_ref().is_some_and(is_recent) {
            return false;
        }
        self.request(&mut requests).await.is_ok() && self.has_other(sent)
    }

    fn has_other(&self, sent: Option<&HeaderValue>) -> bool {
        let current = self.token_within(1.0);
        current.is_some() && current.as_ref() != sent
    }

    async fn request(&self, requests: &mut TokenRequests) -> Result<HeaderValue, String> {
        let started = Instant::now();
        let asked = self.get_token(&mut requests.found).await;
        let header = asked.and_then(|tokens| {
            let header = bearer(&tokens).ok_or("it gave a token that no header can carry")?;
            self.current.store(Some(Arc::new(IssuedToken {
                header: header.clone(),
                asked: started,
                life: tokens.expires_in,
            })));
            Ok(header)
        });
        let failure = header.as_ref().err().cloned();
        if let Some(cause) = &failure {
            // The endpoint may have moved.
            requests.found = None;
            let server = &self.target.server;
            tracing::warn!(server, %cause, "client token request failed");
        }
        requests.last = Some(LastRequest {
            started,
            ended: Instant::now(),
            failure,
        });
        header
    }

    async fn get_token(&self, found: &mut Option<FoundTokenServer>) -> Result<TokenSet, String> {
        let fetcher = &self.fetcher;
        let known = match found.take() {
            Some(known) => known,
            None => discover_token_server(fetcher, &self.target, &self.settings)
                .await
                .map_err(|error| error.to_string())?,
        };
        let known = found.insert(known);
        let fetcher = LoginFetcher {
            fetcher,
            server: &self.target.url,
        };
        let tokens = get_client_token(fetcher, known, &self.settings).await;
        tokens.map_err(|failure| failure.to_string())
    }
}

impl CredentialSource for ClientTokenSource {
    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, LinkError>> {
        match self.token_within(RENEWAL_SHARE) {
            Some(header) => std::future::ready(Ok(Some(header))).boxed(),
            None => self.request_if_due().boxed(),
        }
    }

    fn on_refusal<'a>(
        &'a self,
        sent: Option<&'a HeaderValue>,
        challenge: &'a AuthChallenge,
    ) -> BoxFuture<'a, bool> {
        if challenge.status != UNAUTHORIZED {
            return std::future::ready(false).boxed();
        }
        self.request_refused(sent).boxed()
    }

    fn is_personal(&self) -> bool {
        false
    }
}

impl LastRequest {
    /// Returns the failure of a request that ended a moment ago.
    fn recent_failure(&self) -> Option<String> {
        let failure = self.failure.clone();
        failure.filter(|_| self.ended.elapsed() < FAILURE_PAUSE)
    }
}

/// Value of `Authorization` with a token.
fn bearer(tokens: &TokenSet) -> Option<HeaderValue> {
    let text = format!("Bearer {}", tokens.access.expose());
    let mut header = HeaderValue::try_from(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}
