//! Broker for the unit tests of this crate.
//!
//! Owns its settings, one person and one client. Does not use a network, because the person has no
//! provider token. Invariant: without changes by a test, the login is valid.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use moongate_access::auth::{
    AuthSettings, BrokerSettings, ClientKinds, PrincipalTable, ProviderKind, ProviderSettings,
    RoleMatch,
};
use moongate_listener::TrustedProxies;
use moongate_oauth::{RootSecrets, SecretText, code_challenge};
use moongate_session::store::{StateStore, StorePhase, StoreSettings};
use moongate_telemetry::Metrics;
use moongate_transport::fetcher::FetchRules;
use tempfile::TempDir;
use url::Url;

use crate::broker::{Broker, BrokerParts, later};
use crate::client_record::{ClientOrigin, ClientProof, ClientRecord};
use crate::code_table::CodeGrant;
use crate::login_row::{LiveLogin, LoginRow};
use crate::person_facts::PersonFacts;
use crate::person_row::{PersonRow, ProvenPerson};
use crate::token_seals::{AccessClaims, RefreshClaims};

/// Issuer of the company's login.
pub(crate) const ISSUER: &str = "https://login.test";
/// Redirect of the client.
pub(crate) const REDIRECT: &str = "http://127.0.0.1:7000/callback";
/// PKCE verifier of the client.
pub(crate) const VERIFIER: &str = "verifier-verifier-verifier-verifier-verifier";

/// Broker with the folder of its store.
pub(crate) struct TestBroker {
    pub(crate) broker: Arc<Broker>,
    pub(crate) principals: Arc<PrincipalTable>,
    store: StateStore,
    _folder: Option<TempDir>,
}

/// Settings of the broker.
pub(crate) fn settings() -> BrokerSettings {
    BrokerSettings {
        public_url: Url::parse("https://mcp.test").unwrap(),
        provider: ProviderSettings {
            kind: ProviderKind::Issuer,
            issuer: ISSUER.to_owned(),
            client_id: "gateway".to_owned(),
            client_secret: None,
            scopes: None,
            userinfo: false,
            trust_email: false,
        },
        access: Duration::from_secs(24 * 3600),
        max: Duration::from_secs(180 * 24 * 3600),
        recheck: Duration::from_secs(3600),
        unchecked: Duration::from_secs(24 * 3600),
        clients: ClientKinds {
            documents: true,
            registered: true,
        },
        allow_clients: Vec::new(),
        redirect_schemes: Vec::new(),
    }
}

/// Role of the person.
pub(crate) fn staff() -> RoleMatch {
    RoleMatch {
        role: "staff".to_owned(),
        issuer: ISSUER.to_owned(),
        anyone: false,
        claims: [("groups".to_owned(), vec!["staff".to_owned()])].into(),
        emails: None,
    }
}

/// Client with this id.
pub(crate) fn client(id: &str) -> ClientRecord {
    ClientRecord {
        id: id.to_owned(),
        name: "Client".to_owned(),
        host: None,
        origin: ClientOrigin::Registered,
        redirects: vec![REDIRECT.to_owned()],
        proof: ClientProof::None,
    }
}

/// Person as authenticated by the company's login.
pub(crate) fn proven() -> ProvenPerson {
    ProvenPerson {
        subject: "ann".to_owned(),
        facts: PersonFacts {
            name: "ann@example.com".to_owned(),
            claims: [("groups".to_owned(), vec!["staff".to_owned()])].into(),
            ..PersonFacts::default()
        },
        token: None,
        wanted: crate::person_facts::wanted_digest(&[staff()], &settings().provider),
    }
}

impl TestBroker {
    /// Creates a broker whose logins end with the process.
    pub(crate) fn in_memory() -> Self {
        let test = TestBroker::with_store(StateStore::memory(), None);
        test.broker.restore(None).unwrap();
        test
    }

    /// Creates a broker that keeps its logins in a file.
    pub(crate) async fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            file: Some(folder.path().join("state.redb")),
            ..StoreSettings::default()
        };
        let store = StateStore::open(settings, Arc::new(Metrics::new()));
        let mut phase = store.phase();
        phase
            .wait_for(|phase| *phase == StorePhase::Open)
            .await
            .unwrap();
        let mut contents = store.take_contents();
        let test = TestBroker::with_store(store, Some(folder));
        test.broker.restore(contents.as_mut()).unwrap();
        test
    }

    /// Creates a broker whose logins are not loaded yet.
    pub(crate) fn not_restored() -> Self {
        TestBroker::with_store(StateStore::memory(), None)
    }

    fn with_store(store: StateStore, folder: Option<TempDir>) -> Self {
        let principals = Arc::new(PrincipalTable::default());
        let broker = Broker::new(BrokerParts {
            settings: settings(),
            matches: vec![staff()],
            proxies: TrustedProxies::default(),
            principals: principals.clone(),
            store: store.clone(),
            secrets: Arc::new(RootSecrets::of_bytes(&[7; 32])),
            person_secret: [8; 32],
            metrics: Arc::new(Metrics::new()),
            rules: FetchRules::default(),
        });
        TestBroker {
            broker,
            principals,
            store,
            _folder: folder,
        }
    }

    /// Closes the store, so that every later write fails.
    pub(crate) async fn close_store(&self) {
        self.store.close().await;
    }

    /// Settings of authentication with the broker and its role.
    pub(crate) fn auth_settings(&self) -> AuthSettings {
        AuthSettings {
            matches: vec![staff()],
            broker: Some(settings()),
            ..AuthSettings::default()
        }
    }

    /// Person whom the company's login has confirmed a moment ago.
    pub(crate) fn person(&self) -> PersonRow {
        PersonRow::of(ISSUER, proven(), Timestamp::now())
    }

    /// Starts a login of the person with the client "client", after changes to its row.
    pub(crate) async fn login(&self, change: impl FnOnce(&mut LoginRow)) -> LiveLogin {
        let now = Timestamp::now();
        let person = self.person();
        let mut row = LoginRow {
            mark: person.mark(),
            client: client("client").mark(),
            client_name: "Client".to_owned(),
            endpoint: String::new(),
            since: now,
            ends: later(now, Duration::from_secs(3600)),
            last_used: now,
            generation: 0,
            advanced: now,
            is_used: false,
            replays: 0,
        };
        change(&mut row);
        self.broker.store.start(row, person).await.unwrap()
    }

    /// Issues a code for the client "client".
    pub(crate) fn code(&self) -> SecretText {
        let grant = CodeGrant {
            client: client("client").mark(),
            client_name: "Client".to_owned(),
            redirect: REDIRECT.to_owned(),
            challenge: code_challenge(&SecretText::new(VERIFIER)),
            endpoint: String::new(),
            scope: "mcp offline_access".to_owned(),
            person: proven(),
        };
        self.broker.codes.issue(grant).unwrap()
    }

    /// Seals an access token of a login.
    pub(crate) fn access_token(&self, live: &LiveLogin, generation: u32) -> String {
        let claims = AccessClaims {
            login: live.id,
            generation,
            expires: later(Timestamp::now(), Duration::from_secs(600)),
            endpoint: live.row.endpoint.clone(),
        };
        self.broker.seals.seal_access(&claims).expose().to_owned()
    }

    /// Seals a refresh token of a login.
    pub(crate) fn refresh_token(&self, live: &LiveLogin, generation: u32) -> String {
        let claims = RefreshClaims {
            login: live.id,
            generation,
        };
        self.broker.seals.seal_refresh(&claims).expose().to_owned()
    }
}
