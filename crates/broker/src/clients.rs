//! Lookup of clients by id.
//!
//! Owns which of the two kinds an id is, and client authentication. Does not fetch documents or
//! open ids itself. Invariant: a document is fetched only from hosts that the operator allows.

use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use moongate_access::auth::{BrokerSettings, ClientKinds};
use moongate_telemetry::{BrokerLimit, Metrics};
use moongate_tokens::{AssertionUse, verify_assertion};
use moongate_transport::fetcher::FetchRules;
use url::Url;

use crate::assertion_ids::{AssertionIds, IdUse};
use crate::client_authentication::read_client;
use crate::client_documents::ClientDocuments;
pub(crate) use crate::client_fault::ClientFault;
use crate::client_keys::ClientKeys;
use crate::client_record::{ClientProof, ClientRecord};
use crate::client_registration::{ID_PREFIX, RegisteredClient, open_client, register_client};
use crate::document_metadata::parse_document_id;
use crate::form_fields::FormFields;
use crate::login_row::{ClientMark, client_mark};
use crate::login_store::LoginStore;
use crate::oauth_error::{INVALID_GRANT, OAuthCode, OAuthError};
use crate::redirect_rules::RedirectRules;

/// Error for a missing or invalid assertion, the same for every cause.
const NOT_PROVED: OAuthError = OAuthError::new(
    OAuthCode::InvalidClient,
    "The client needs a valid client_assertion",
);
/// Error for a client without keys that sends an assertion.
const NO_KEYS: OAuthError = OAuthError::new(
    OAuthCode::InvalidClient,
    "The client has registered no keys for a client_assertion",
);
/// Error if a client cannot be checked at the moment.
const LATER: OAuthError = OAuthError::new(
    OAuthCode::TemporarilyUnavailable,
    "The client cannot be checked right now: try again later",
);
/// Error if registration is switched off.
const NO_REGISTRATION: OAuthError = OAuthError::new(
    OAuthCode::InvalidClientMetadata,
    "Clients cannot register here",
);

/// Clients that request logins.
pub(crate) struct Clients {
    kinds: ClientKinds,
    fetch_rules: FetchRules,
    redirects: RedirectRules,
    documents: Arc<ClientDocuments>,
    store: Arc<LoginStore>,
    used: AssertionIds,
    /// Token endpoint and issuer, as in the metadata.
    audiences: [String; 2],
    metrics: Arc<Metrics>,
}

impl Clients {
    /// Creates the lookup for a config. Documents are fetched by these rules.
    pub(crate) fn new(
        settings: &BrokerSettings,
        rules: &FetchRules,
        store: Arc<LoginStore>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let issuer = settings.issuer();
        Clients {
            kinds: settings.clients,
            fetch_rules: rules.clone(),
            redirects: RedirectRules::new(settings),
            documents: ClientDocuments::new(rules, metrics.clone()),
            store,
            used: AssertionIds::default(),
            audiences: [format!("{issuer}/token"), issuer],
            metrics,
        }
    }

    /// Finds a client by its id.
    pub(crate) async fn find(&self, id: &str) -> Result<Arc<ClientRecord>, ClientFault> {
        if id.starts_with(ID_PREFIX) {
            return self.find_registered(id);
        }
        self.documents.find(&self.document_url(id)?).await
    }

    /// Finds the client of an id without a fetch. `None`: only a fetch would show it.
    fn find_known(&self, id: &str) -> Option<Result<Arc<ClientRecord>, ClientFault>> {
        if id.starts_with(ID_PREFIX) {
            return Some(self.find_registered(id));
        }
        match self.document_url(id) {
            Ok(url) => self.documents.find_kept(url.as_str()),
            Err(fault) => Some(Err(fault)),
        }
    }

    /// Returns the address of the document that an id names.
    fn document_url(&self, id: &str) -> Result<Url, ClientFault> {
        let url = parse_document_id(id, &self.fetch_rules).filter(|_| self.kinds.documents);
        let url = url.ok_or(ClientFault::Unknown)?;
        let host = url.host_str().unwrap_or_default();
        if !self.redirects.allows_host(host) {
            let host = host.to_owned();
            return Err(ClientFault::NotAllowed { host });
        }
        Ok(url)
    }

    fn find_registered(&self, id: &str) -> Result<Arc<ClientRecord>, ClientFault> {
        if !self.kinds.registered {
            return Err(ClientFault::Unknown);
        }
        let seal = self.store.client_seal().ok_or(ClientFault::NotReady)?;
        let record = open_client(id, &seal).ok_or(ClientFault::Unknown)?;
        Ok(Arc::new(record))
    }

    /// Registers a client. Stores nothing.
    pub(crate) fn register(&self, body: &[u8]) -> Result<RegisteredClient, OAuthError> {
        if !self.kinds.registered {
            return Err(NO_REGISTRATION);
        }
        let seal = self.store.client_seal().ok_or(LATER)?;
        register_client(body, &self.redirects, &seal)
    }

    /// Finds the client of a request to `/token` or `/revoke`, and has it prove itself. `holder` is
    /// the client that has the grant in the request. For another one nothing is fetched.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        form: &FormFields,
        holder: Option<&ClientMark>,
    ) -> Result<Arc<ClientRecord>, OAuthError> {
        let sent = read_client(headers, form)?;
        // Whoever has no grant could name any address at an allowed host. These fetches would take
        // the room of clients that renew.
        let is_holder = holder == Some(&client_mark(&sent.id));
        let found = if is_holder {
            self.find(&sent.id).await
        } else {
            self.find_known(&sent.id).ok_or(INVALID_GRANT)?
        };
        let client = found.map_err(|fault| fault.error())?;
        self.prove(&client, sent.assertion, is_holder).await?;
        Ok(client)
    }

    /// Has a client prove itself. Without a grant of its own, an assertion is not looked at: it
    /// would cost a signature, and a fetch of keys that others wait for.
    async fn prove(
        &self,
        client: &ClientRecord,
        assertion: Option<&str>,
        is_holder: bool,
    ) -> Result<(), OAuthError> {
        match (&client.proof, assertion) {
            (ClientProof::None, None) => Ok(()),
            (ClientProof::None, Some(_)) => Err(NO_KEYS),
            (ClientProof::Keys(_), None) => Err(NOT_PROVED),
            (ClientProof::Keys(_), Some(_)) if !is_holder => Err(INVALID_GRANT),
            (ClientProof::Keys(keys), Some(assertion)) => {
                self.check_assertion(client, keys, assertion).await
            }
        }
    }

    async fn check_assertion(
        &self,
        client: &ClientRecord,
        keys: &ClientKeys,
        assertion: &str,
    ) -> Result<(), OAuthError> {
        let keys = keys.find(assertion).await.ok_or(LATER)?;
        let now = Timestamp::now();
        let [endpoint, issuer] = &self.audiences;
        let call = AssertionUse {
            client_id: &client.id,
            audiences: [endpoint, issuer],
            now,
        };
        let verified = verify_assertion(assertion, &keys, &call).map_err(|fault| {
            let cause = fault.cause();
            tracing::debug!("client assertion refused: {cause}");
            NOT_PROVED
        })?;
        let mark = client.mark();
        match self.used.record(&mark, &verified.id, verified.expires, now) {
            IdUse::First => Ok(()),
            IdUse::Repeated => Err(NOT_PROVED),
            IdUse::Full => {
                self.metrics.broker.refused.inc(BrokerLimit("assertions"));
                Err(LATER)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use futures_util::FutureExt as _;
    use moongate_access::auth::PrincipalTable;
    use moongate_oauth::RootSecrets;
    use moongate_session::store::StateStore;
    use moongate_tokens::JwkSet;
    use tokio::net::TcpListener;

    use crate::client_record::ClientOrigin;
    use crate::test_broker::settings;

    use super::*;

    fn clients_of(settings: &BrokerSettings) -> Clients {
        clients_by(settings, &FetchRules::default())
    }

    fn clients_by(settings: &BrokerSettings, rules: &FetchRules) -> Clients {
        let metrics = Arc::new(Metrics::new());
        let store = LoginStore::new(
            StateStore::memory(),
            &RootSecrets::of_bytes(&[7; 32]),
            Arc::new(PrincipalTable::default()),
            metrics.clone(),
        );
        Clients::new(settings, rules, store, metrics)
    }

    fn clients() -> Clients {
        let clients = clients_of(&settings());
        clients.store.restore(None).unwrap();
        clients
    }

    fn register(clients: &Clients) -> String {
        let body = br#"{"redirect_uris":["http://127.0.0.1/cb"],"client_name":"shape"}"#;
        let client = clients.register(body).unwrap();
        let answer = serde_json::to_string(&client).unwrap();
        let id = answer.split('"').find(|text| text.starts_with(ID_PREFIX));
        id.unwrap().to_owned()
    }

    #[tokio::test]
    async fn other_ids_are_unknown_and_hosts_that_are_not_allowed_are_not_asked() {
        let clients = clients();
        let id = register(&clients);
        let cut = &id[..id.len() - 1];
        for id in [
            "",
            "mgc_",
            "mgc_x",
            cut,
            "ann",
            "https://claude.ai",
            "file:///etc/passwd",
        ] {
            let fault = clients.find(id).await.unwrap_err();
            assert_eq!(fault, ClientFault::Unknown, "{id}");
        }
        let fault = clients.find("https://evil.test/client.json").await;
        let host = "evil.test".to_owned();
        assert_eq!(fault.unwrap_err(), ClientFault::NotAllowed { host });
    }

    #[tokio::test]
    async fn a_kind_that_is_off_is_unknown() {
        let off = BrokerSettings {
            clients: ClientKinds {
                documents: false,
                registered: false,
            },
            allow_clients: vec!["claude.ai".to_owned()],
            ..settings()
        };
        let id = register(&clients());
        let clients = clients_of(&off);
        clients.store.restore(None).unwrap();
        for id in [&*id, "https://claude.ai/oauth/client.json"] {
            let fault = clients.find(id).await.unwrap_err();
            assert_eq!(fault, ClientFault::Unknown, "{id}");
        }
        let refused = clients.register(br#"{"redirect_uris":["http://127.0.0.1/cb"]}"#);
        assert_eq!(refused.unwrap_err(), NO_REGISTRATION);
    }

    #[tokio::test]
    async fn nothing_is_unknown_before_the_keys_are_read() {
        let clients = clients_of(&settings());
        let fault = clients.find("mgc_x").await.unwrap_err();
        assert_eq!(fault, ClientFault::NotReady);
        let refused = clients.register(b"{}").unwrap_err();
        assert_eq!(refused.code, OAuthCode::TemporarilyUnavailable);
    }

    #[tokio::test]
    async fn a_registered_client_proves_itself_by_nothing() {
        let clients = clients();
        let id = register(&clients);
        let headers = HeaderMap::new();
        let form = FormFields::of_query(&format!("client_id={id}")).unwrap();
        let client = clients.authenticate(&headers, &form, None).await;
        let client = client.unwrap();
        assert_eq!(client.id, id);
        assert_eq!(client.name, "shape");
        assert_eq!(client.origin, ClientOrigin::Registered);
        let form = FormFields::of_query("client_id=mgc_x").unwrap();
        let refused = clients.authenticate(&headers, &form, None).await;
        assert_eq!(refused.unwrap_err().code, OAuthCode::InvalidClient);
    }

    #[tokio::test]
    async fn only_the_holder_of_a_grant_has_a_document_fetched_at_the_token_endpoint() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let id = format!("http://{}/client.json", listener.local_addr().unwrap());
        let host = "127.0.0.1".to_owned();
        let rules = FetchRules {
            hosts: vec![host.clone()],
            ..FetchRules::default()
        };
        let allowing = BrokerSettings {
            allow_clients: vec![host],
            ..settings()
        };
        let clients = clients_by(&allowing, &rules);
        clients.store.restore(None).unwrap();
        let headers = HeaderMap::new();
        let form = FormFields::of_query(&format!("client_id={id}")).unwrap();
        for holder in [None, Some(client_mark("mgc_1"))] {
            let refused = clients.authenticate(&headers, &form, holder.as_ref());
            assert_eq!(refused.await.unwrap_err(), INVALID_GRANT);
        }
        assert!(listener.accept().now_or_never().is_none());
        let own = client_mark(&id);
        tokio::select! {
            asked = listener.accept() => assert!(asked.is_ok()),
            _ = clients.authenticate(&headers, &form, Some(&own)) => panic!("nothing was asked"),
        }
    }

    #[tokio::test]
    async fn an_assertion_without_a_grant_starts_no_fetch_of_keys() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let rules = FetchRules {
            hosts: vec!["127.0.0.1".to_owned()],
            ..FetchRules::default()
        };
        let clients = clients();
        let keys = ClientKeys::fetched(Url::parse(&url).unwrap(), &rules);
        let client = ClientRecord {
            id: "https://claude.ai/client.json".to_owned(),
            name: "shape".to_owned(),
            host: Some("claude.ai".to_owned()),
            origin: ClientOrigin::Document,
            redirects: Vec::new(),
            proof: ClientProof::Keys(Arc::new(keys)),
        };
        let refused = clients.prove(&client, Some("x"), false).await;
        assert_eq!(refused, Err(INVALID_GRANT));
        assert_eq!(clients.prove(&client, None, true).await, Err(NOT_PROVED));
        assert!(listener.accept().now_or_never().is_none());
        tokio::select! {
            asked = listener.accept() => assert!(asked.is_ok()),
            _ = clients.prove(&client, Some("x"), true) => panic!("nothing was asked"),
        }
    }

    /// Returns the key set of a pair.
    fn keys_of(pair: &Ed25519KeyPair) -> ClientKeys {
        let key = URL_SAFE_NO_PAD.encode(pair.public_key());
        let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{key}"}}]}}"#);
        ClientKeys::inline(JwkSet::read(set.as_bytes()).unwrap())
    }

    fn sign(pair: &Ed25519KeyPair, audience: &str, id: &str) -> String {
        let client = "https://claude.ai/client.json";
        let expires = Timestamp::now().as_second() + 60;
        let claims = format!(
            r#"{{"iss":"{client}","sub":"{client}","aud":"{audience}","jti":"{id}",
                "exp":{expires}}}"#
        );
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA"}"#);
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    #[tokio::test]
    async fn an_assertion_counts_once_and_only_with_the_clients_own_signature() {
        let clients = clients();
        let random = SystemRandom::new();
        let pair = || {
            let secret = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
            Ed25519KeyPair::from_pkcs8(secret.as_ref()).unwrap()
        };
        let own = pair();
        let keys = keys_of(&own);
        let client = ClientRecord {
            id: "https://claude.ai/client.json".to_owned(),
            name: "shape".to_owned(),
            host: Some("claude.ai".to_owned()),
            origin: ClientOrigin::Document,
            redirects: Vec::new(),
            proof: ClientProof::None,
        };
        let endpoint = "https://mcp.test/token";
        for assertion in [
            sign(&pair(), endpoint, "1"),
            sign(&own, "https://mcp.test/mcp", "1"),
            // {"alg":"none"}
            "eyJhbGciOiJub25lIn0.e30.".to_owned(),
            "x".to_owned(),
        ] {
            let refused = clients.check_assertion(&client, &keys, &assertion).await;
            assert_eq!(refused, Err(NOT_PROVED), "{assertion}");
        }
        for (audience, id) in [(endpoint, "1"), ("https://mcp.test", "2")] {
            let good = sign(&own, audience, id);
            let proved = clients.check_assertion(&client, &keys, &good).await;
            assert_eq!(proved, Ok(()));
            let again = clients.check_assertion(&client, &keys, &good).await;
            assert_eq!(again, Err(NOT_PROVED));
        }
    }
}
