//! Broker of a running gateway, and the secrets of people.
//!
//! Owns what it is made of: the secrets, the settings of the plan and the rules for its fetches.
//! Does not answer or restore (`moongate_broker`, `persistence.rs`). Invariant: a gateway whose
//! plan has no `auth.oauth` starts even if no secret can be kept, but then whatever people have
//! open ends with the process.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use moongate_broker::{Broker, BrokerParts, broker_routes};
use moongate_config::Plan;
use moongate_listener::PeopleRoutes;
use moongate_oauth::RootSecrets;
use moongate_session::store::StateStore;
use moongate_telemetry::Metrics;
use moongate_transport::fetcher::FetchRules;

use crate::app::login_parts::LoginParts;

/// Purpose of the key from which each person's secrets are derived.
const PERSON_PURPOSE: &str = "secrets of people";

/// Secrets of people's logins, and the broker if the plan has one.
pub(super) struct PeopleLogins {
    pub(super) secrets: Arc<RootSecrets>,
    pub(super) broker: Option<Arc<Broker>>,
}

impl PeopleLogins {
    /// Opens them for a gateway with listeners at the addresses `own`.
    ///
    /// Fails if the plan has a broker and its secret cannot be used.
    pub(super) async fn open(
        plan: &Plan,
        login: &LoginParts,
        own: Vec<SocketAddr>,
        store: &StateStore,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let secrets = open_secrets(plan).await?;
        let broker = open_broker(plan, login, own, store, &secrets, metrics);
        Ok(PeopleLogins { secrets, broker })
    }

    /// Returns the routes that people's browsers and clients use.
    pub(super) fn routes(&self) -> PeopleRoutes {
        self.broker.as_ref().map(broker_routes).unwrap_or_default()
    }

    /// Returns the secret from which each person's secrets are derived.
    pub(super) fn person_secret(&self) -> [u8; 32] {
        self.secrets.purpose_key(PERSON_PURPOSE)
    }
}

/// Opens the root secrets. If nobody can log in, they end with the process.
async fn open_secrets(plan: &Plan) -> anyhow::Result<Arc<RootSecrets>> {
    // Issuers added by a reload get a lasting secret with the next start.
    if plan.auth.broker.is_none() && plan.auth.tokens.is_none() {
        return Ok(Arc::new(temporary_secrets()));
    }
    let folder = plan.login_folder.clone();
    let settings = plan.secrets.clone();
    let opening =
        tokio::task::spawn_blocking(move || RootSecrets::open(folder.as_deref(), &settings));
    let secrets = match opening.await? {
        Ok(secrets) => secrets,
        Err(error) if plan.auth.broker.is_none() => {
            tracing::warn!("people's secrets not kept: {error}");
            temporary_secrets()
        }
        Err(error) => {
            return Err(error).context("people's logins cannot be used (auth.oauth)");
        }
    };
    Ok(Arc::new(secrets))
}

fn temporary_secrets() -> RootSecrets {
    RootSecrets::of_bytes(&moongate_random::random_bytes())
}

fn open_broker(
    plan: &Plan,
    login: &LoginParts,
    own: Vec<SocketAddr>,
    store: &StateStore,
    secrets: &Arc<RootSecrets>,
    metrics: &Arc<Metrics>,
) -> Option<Arc<Broker>> {
    let settings = plan.auth.broker.clone()?;
    Some(Broker::new(BrokerParts {
        settings,
        matches: plan.auth.matches.clone(),
        proxies: plan.trusted_proxies.clone(),
        principals: login.principals.clone(),
        store: store.clone(),
        secrets: secrets.clone(),
        person_secret: secrets.purpose_key(PERSON_PURPOSE),
        metrics: metrics.clone(),
        rules: FetchRules {
            origins: Vec::new(),
            hosts: plan.egress.clone(),
            own,
        },
    }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use moongate_access::auth::{BrokerSettings, ClientKinds, ProviderKind, ProviderSettings};
    use moongate_config::LoadOptions;
    use moongate_protocol::SUPPORTED;
    use url::Url;

    use super::*;

    fn plan(folder: &Path) -> Plan {
        let options = LoadOptions {
            revisions: &SUPPORTED,
            ..LoadOptions::default()
        };
        let mut plan = moongate_config::load(&options).unwrap().plan;
        plan.login_folder = Some(folder.to_owned());
        plan
    }

    fn settings() -> BrokerSettings {
        BrokerSettings {
            public_url: Url::parse("https://mcp.test").unwrap(),
            provider: ProviderSettings {
                kind: ProviderKind::Issuer,
                issuer: "https://login.test".to_owned(),
                client_id: "gateway".to_owned(),
                client_secret: None,
                scopes: None,
                userinfo: false,
                trust_email: false,
            },
            access: Duration::from_secs(60),
            max: Duration::from_secs(600),
            recheck: Duration::from_secs(60),
            unchecked: Duration::from_secs(60),
            clients: ClientKinds {
                documents: true,
                registered: true,
            },
            allow_clients: Vec::new(),
            redirect_schemes: Vec::new(),
        }
    }

    async fn open(plan: &Plan) -> anyhow::Result<PeopleLogins> {
        PeopleLogins::open(
            plan,
            &LoginParts::default(),
            Vec::new(),
            &StateStore::memory(),
            &Arc::new(Metrics::new()),
        )
        .await
    }

    #[tokio::test]
    async fn without_logins_there_is_no_secret_and_no_route() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path());
        let people = open(&plan).await.unwrap();
        assert!(people.broker.is_none());
        assert!(!people.routes().has_routes());
        assert!(!folder.path().join("secret").exists());
        let other = open(&plan).await.unwrap();
        assert_ne!(people.person_secret(), other.person_secret());
    }

    #[tokio::test]
    async fn with_logins_the_secret_stays_and_a_short_one_is_no_start() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = plan(folder.path());
        plan.auth.broker = Some(settings());
        let people = open(&plan).await.unwrap();
        assert!(people.broker.is_some() && people.routes().has_routes());
        let again = open(&plan).await.unwrap();
        assert_eq!(people.person_secret(), again.person_secret());
        std::fs::write(folder.path().join("secret"), "short").unwrap();
        assert!(open(&plan).await.is_err());
    }
}
