//! Client of the company's login.
//!
//! Owns logins and renewals from end to end. Does not keep transactions or logins. Invariant: only
//! the configured provider authenticates people, and a renewal's new token is stored even if a
//! later step fails.

use std::sync::Arc;

use arc_swap::ArcSwap;
use moongate_access::auth::{BrokerSettings, ProviderKind, ProviderSettings, RoleMatch};
use moongate_oauth::{SecretText, random_text};
use moongate_telemetry::Metrics;
use moongate_tokens::{SubjectKind, person_mark};
use moongate_transport::fetcher::FetchRules;
use url::Url;

use crate::login_store::LoginStore;
use crate::person_row::{PersonRow, ProvenPerson};
use crate::provider::answer::read_code;
use crate::provider::facts::{PersonClaims, WantedFacts, facts_of};
use crate::provider::fault::{ProviderFault, RenewFault, StepFault};
use crate::provider::github::{GitHubFindings, GitHubPerson, endpoints_of, is_refresh_token};
use crate::provider::metadata::{MetadataCache, ProviderEndpoints};
use crate::provider::openid::{OpenIdProvider, subject_of};
use crate::provider::presets::{AuthorizeCall, gives_id_tokens, renewal_scope};
use crate::provider::provider_http::ProviderHttp;
use crate::provider::token_request::{ProviderTokens, TokenClient};

/// Path of the provider's callback.
const CALLBACK: &str = "/oauth/provider";

/// Client of the company's login.
pub(crate) struct ProviderClient {
    settings: ProviderSettings,
    redirect: String,
    http: ProviderHttp,
    metadata: MetadataCache,
    store: Arc<LoginStore>,
    wanted: ArcSwap<WantedFacts>,
    findings: GitHubFindings,
}

/// Secrets of a login in progress.
#[derive(Clone, Debug)]
pub(crate) struct SentRequest {
    /// PKCE verifier.
    pub(crate) verifier: SecretText,
    /// Nonce, which the ID token repeats.
    pub(crate) nonce: SecretText,
}

/// Request that the browser opens.
pub(crate) struct ProviderRequest {
    /// URL to open.
    pub(crate) url: Url,
    /// Secrets with which to check the answer.
    pub(crate) sent: SentRequest,
}

impl ProviderClient {
    /// Creates the client. `rules` are the config's, for other private addresses.
    ///
    /// # Panics
    /// The issuer is not a URL, which the config refuses.
    pub(crate) fn new(
        settings: &BrokerSettings,
        rules: &FetchRules,
        store: Arc<LoginStore>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let provider = settings.provider.clone();
        let issuer = Url::parse(&provider.issuer).expect("the config has checked the issuer");
        let wanted = WantedFacts::new(Arc::from([]), &provider);
        Arc::new(ProviderClient {
            redirect: format!("{}{CALLBACK}", settings.issuer()),
            http: ProviderHttp::new(issuer, rules, metrics),
            metadata: MetadataCache::default(),
            store,
            wanted: ArcSwap::from_pointee(wanted),
            findings: GitHubFindings::default(),
            settings: provider,
        })
    }

    /// Replaces the roles, which determine what is kept about a person.
    pub(crate) fn replace_roles(&self, matches: Arc<[RoleMatch]>) {
        let wanted = WantedFacts::new(matches, &self.settings);
        self.wanted.store(Arc::new(wanted));
    }

    /// Returns the host of the company's login, for pages.
    pub(crate) fn host(&self) -> &str {
        self.http.issuer.host_str().unwrap_or_default()
    }

    /// Returns findings for operators.
    pub(crate) fn findings(&self) -> Vec<String> {
        self.findings.all()
    }

    /// Starts a login. `asks_again`: Google should ask for consent, because it issued no token.
    pub(crate) async fn begin(
        &self,
        state: &SecretText,
        asks_again: bool,
    ) -> Result<ProviderRequest, ProviderFault> {
        let endpoints = self.endpoints().await?;
        let sent = SentRequest {
            verifier: random_text(),
            nonce: random_text(),
        };
        let call = AuthorizeCall {
            settings: &self.settings,
            endpoints: &endpoints,
            redirect: &self.redirect,
            state,
            nonce: &sent.nonce,
            verifier: &sent.verifier,
            asks_again,
        };
        let url = call.url();
        Ok(ProviderRequest { url, sent })
    }

    /// Finishes a login with the query of the callback.
    pub(crate) async fn finish(
        &self,
        sent: &SentRequest,
        query: &str,
    ) -> Result<ProvenPerson, ProviderFault> {
        let proved = self.prove(sent, query).await;
        proved.map_err(|fault| {
            tracing::warn!("login of a person failed: {}", logged_reason(fault));
            fault.into()
        })
    }

    /// Asks the provider if a person still exists, and for current claims.
    pub(crate) async fn renew(&self, person: &PersonRow) -> Result<ProvenPerson, RenewFault> {
        let token = person.token.as_ref().ok_or(RenewFault::Unchecked)?;
        let renewed = match &self.settings.kind {
            ProviderKind::GitHub { orgs } if !is_refresh_token(token) => {
                self.ask_github(orgs, token, token).await
            }
            _ => self.renew_with(person, token).await,
        };
        match renewed {
            Ok(renewed) if renewed.subject == person.subject => Ok(renewed),
            Ok(_) => Err(RenewFault::OtherSubject),
            Err(fault) => {
                let reason = logged_reason(fault);
                tracing::warn!("check of a person failed: {reason}");
                Err(self.renew_fault(person, fault))
            }
        }
    }

    /// Returns what a failure means for a person's logins.
    fn renew_fault(&self, person: &PersonRow, fault: StepFault) -> RenewFault {
        let current = self.store.person(&person.mark());
        let is_replaced = current.is_some_and(|current| current.token != person.token);
        match RenewFault::from(fault) {
            // A login has brought another token in the meantime, so the provider may have revoked
            // this one.
            RenewFault::Ended if is_replaced => RenewFault::Down,
            fault => fault,
        }
    }

    async fn endpoints(&self) -> Result<Arc<ProviderEndpoints>, ProviderFault> {
        let issuer = &self.settings.issuer;
        if gives_id_tokens(&self.settings.kind) {
            self.metadata.find(&self.http, issuer).await
        } else {
            Ok(Arc::new(endpoints_of(issuer, &self.http.issuer)))
        }
    }

    async fn prove(&self, sent: &SentRequest, query: &str) -> Result<ProvenPerson, StepFault> {
        let endpoints = self.endpoints().await?;
        let code = read_code(query, &endpoints)?;
        let exchange = self.token_client(&endpoints);
        let tokens = exchange
            .exchange(&code, &sent.verifier, &self.redirect)
            .await?;
        if let ProviderKind::GitHub { orgs } = &self.settings.kind {
            let kept = tokens.refresh.as_ref().unwrap_or(&tokens.access);
            return self.ask_github(orgs, &tokens.access, kept).await;
        }
        let provider = self.openid(&endpoints);
        let claims = provider.claims_of(&tokens, Some(&sent.nonce)).await?;
        let subject = subject_of(&self.settings, &claims)?;
        let subject = subject.ok_or(ProviderFault::NoSubject)?;
        let person = self.person(subject, &claims, tokens.refresh);
        let wanted = self.wanted.load();
        if claims.lacks_groups() && !wanted.fits(&person.facts) {
            return Err(ProviderFault::TooManyGroups.into());
        }
        self.check_token(&person)?;
        Ok(person)
    }

    /// Checks that a person at Google can be rechecked.
    fn check_token(&self, person: &ProvenPerson) -> Result<(), ProviderFault> {
        let is_google = matches!(self.settings.kind, ProviderKind::Google { .. });
        if !is_google || person.token.is_some() {
            return Ok(());
        }
        // Google gives a token at the first consent alone.
        let authority = self.settings.authority();
        let mark = person_mark(SubjectKind::Person, authority, &person.subject);
        let stored = self.store.person(&mark);
        match stored.is_some_and(|stored| stored.token.is_some()) {
            true => Ok(()),
            false => Err(ProviderFault::NoToken),
        }
    }

    /// Renews with a refresh token.
    async fn renew_with(
        &self,
        person: &PersonRow,
        token: &SecretText,
    ) -> Result<ProvenPerson, StepFault> {
        let endpoints = self.endpoints().await?;
        let client = self.token_client(&endpoints);
        let scope = renewal_scope(&self.settings);
        let tokens = client.renew(token, scope.as_deref()).await?;
        let renewed = self.renewed(person, token, &endpoints, &tokens).await;
        if let (Err(fault), Some(newer)) = (&renewed, &tokens.refresh)
            && RenewFault::from(*fault) == RenewFault::Down
        {
            // The previous token may no longer be valid, and the next renewal needs this one.
            self.keep_token(person, newer).await;
        }
        renewed
    }

    /// Identifies the person of new tokens.
    async fn renewed(
        &self,
        person: &PersonRow,
        token: &SecretText,
        endpoints: &ProviderEndpoints,
        tokens: &ProviderTokens,
    ) -> Result<ProvenPerson, StepFault> {
        let kept = tokens.refresh.as_ref().unwrap_or(token);
        if let ProviderKind::GitHub { orgs } = &self.settings.kind {
            return self.ask_github(orgs, &tokens.access, kept).await;
        }
        let claims = self.openid(endpoints).claims_of(tokens, None).await?;
        let subject = subject_of(&self.settings, &claims)?;
        // A provider that proves nobody at a renewal has at least taken the person's token.
        let subject = subject.unwrap_or_else(|| person.subject.clone());
        Ok(self.person(subject, &claims, Some(kept.clone())))
    }

    /// Stores the token of an answer that was otherwise unusable.
    async fn keep_token(&self, person: &PersonRow, token: &SecretText) {
        let row = PersonRow {
            token: Some(token.clone()),
            version: person.version + 1,
            ..person.clone()
        };
        if let Err(fault) = self.store.put_person(row, person.version).await {
            tracing::warn!("new token for a person not stored: {fault}");
        }
    }

    async fn ask_github(
        &self,
        orgs: &[String],
        access: &SecretText,
        kept: &SecretText,
    ) -> Result<ProvenPerson, StepFault> {
        let wanted = self.wanted.load_full();
        let person = GitHubPerson {
            http: &self.http,
            settings: &self.settings,
            store: &self.store,
            findings: &self.findings,
            wanted: &wanted,
            token: access,
        };
        let (subject, facts) = person.ask(orgs).await?;
        Ok(ProvenPerson {
            subject,
            facts,
            token: Some(kept.clone()),
            wanted: wanted.digest(),
        })
    }

    fn person(
        &self,
        subject: String,
        claims: &PersonClaims,
        token: Option<SecretText>,
    ) -> ProvenPerson {
        let wanted = self.wanted.load();
        ProvenPerson {
            facts: facts_of(&self.settings, &wanted, claims, &subject),
            subject,
            token,
            wanted: wanted.digest(),
        }
    }

    fn token_client<'a>(&'a self, endpoints: &'a ProviderEndpoints) -> TokenClient<'a> {
        TokenClient {
            http: &self.http,
            endpoints,
            settings: &self.settings,
        }
    }

    fn openid<'a>(&'a self, endpoints: &'a ProviderEndpoints) -> OpenIdProvider<'a> {
        OpenIdProvider {
            http: &self.http,
            endpoints,
            settings: &self.settings,
        }
    }
}

/// Returns the reason of a failure for the log. Pages do not show it.
fn logged_reason(fault: StepFault) -> String {
    match fault {
        StepFault::Token(fault) => fault.cause().to_owned(),
        StepFault::Ended => "the company login no longer accepts the token".to_owned(),
        StepFault::OtherSubject => "two answers are about different people".to_owned(),
        StepFault::Provider(fault) => fault.to_string(),
    }
}
