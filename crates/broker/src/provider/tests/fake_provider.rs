//! Provider on loopback, with a key that signs ID tokens.
//!
//! Owns its answers. Does not interpret requests. Invariant: a path without an answer is 404.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use moongate_access::auth::{
    BrokerSettings, ClientKinds, PrincipalTable, ProviderKind, ProviderSecret, ProviderSettings,
    RoleMatch,
};
use moongate_oauth::{RootSecrets, SecretText};
use moongate_session::store::StateStore;
use moongate_telemetry::Metrics;
use moongate_transport::fetcher::FetchRules;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::login_row::LoginRow;
use crate::login_store::LoginStore;
use crate::person_row::{PersonRow, ProvenPerson};
use crate::provider::client::{ProviderClient, SentRequest};

/// Client at the provider.
pub(crate) const CLIENT: &str = "gateway";

#[derive(Default)]
struct ProviderTable {
    answers: HashMap<String, (u16, String)>,
    /// Complete requests.
    requests: Vec<String>,
}

/// Fake provider, and the client under test.
pub(crate) struct FakeProvider {
    key: EcdsaKeyPair,
    table: Arc<Mutex<ProviderTable>>,
    pub(crate) issuer: String,
    pub(crate) store: Arc<LoginStore>,
    pub(crate) client: Arc<ProviderClient>,
}

/// Role that matches one of these values in a claim.
pub(crate) fn role(issuer: &str, path: &str, values: &[&str]) -> RoleMatch {
    let values = values.iter().map(|&value| value.to_owned()).collect();
    RoleMatch {
        role: "staff".to_owned(),
        issuer: issuer.to_owned(),
        anyone: false,
        claims: [(path.to_owned(), values)].into(),
        emails: None,
    }
}

fn settings(kind: ProviderKind, issuer: &str, userinfo: bool) -> BrokerSettings {
    BrokerSettings {
        public_url: Url::parse("https://mcp.test").unwrap(),
        provider: ProviderSettings {
            kind,
            issuer: issuer.to_owned(),
            client_id: CLIENT.to_owned(),
            client_secret: Some(ProviderSecret::new("hush")),
            scopes: None,
            userinfo,
            trust_email: false,
        },
        access: Duration::from_secs(3600),
        max: Duration::from_secs(3600),
        recheck: Duration::from_secs(3600),
        unchecked: Duration::from_secs(3600),
        clients: ClientKinds {
            documents: true,
            registered: true,
        },
        allow_clients: Vec::new(),
        redirect_schemes: Vec::new(),
    }
}

fn new_key() -> EcdsaKeyPair {
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).unwrap()
}

/// Returns a key set with a key's point, whose first byte is its format.
fn key_set(key: &EcdsaKeyPair) -> String {
    let point: &[u8] = key.public_key().as_ref();
    let (x, y) = point[1..].split_at(point.len() / 2);
    format!(
        r#"{{"keys":[{{"kty":"EC","kid":"k","crv":"P-256","x":"{}","y":"{}"}}]}}"#,
        URL_SAFE_NO_PAD.encode(x),
        URL_SAFE_NO_PAD.encode(y)
    )
}

impl FakeProvider {
    /// Starts a provider of a kind, with a role that matches the group `staff`.
    pub(crate) async fn start(kind: ProviderKind) -> Self {
        FakeProvider::start_with(kind, false).await
    }

    /// Starts a provider, where `userinfo` is the setting of that name.
    pub(crate) async fn start_with(kind: ProviderKind, userinfo: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let table = Arc::new(Mutex::new(ProviderTable::default()));
        let shared = table.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        let metrics = Arc::new(Metrics::new());
        let principals = Arc::new(PrincipalTable::default());
        let secrets = RootSecrets::of_bytes(&[7; 32]);
        let store = LoginStore::new(StateStore::memory(), &secrets, principals, metrics.clone());
        store.restore(None).unwrap();
        let settings = settings(kind, &issuer, userinfo);
        let rules = FetchRules::default();
        let client = ProviderClient::new(&settings, &rules, store.clone(), metrics);
        client.replace_roles(Arc::from([role(&issuer, "groups", &["staff"])]));
        let provider = FakeProvider {
            key: new_key(),
            table,
            issuer,
            store,
            client,
        };
        provider.answer("/keys", 200, &key_set(&provider.key));
        provider.publish(&provider.issuer);
        provider
    }

    /// Publishes metadata of this issuer.
    pub(crate) fn publish(&self, issuer: &str) {
        let own = &self.issuer;
        let document = format!(
            r#"{{"issuer":"{issuer}","authorization_endpoint":"{own}/authorize",
                "token_endpoint":"{own}/token","jwks_uri":"{own}/keys",
                "userinfo_endpoint":"{own}/userinfo",
                "token_endpoint_auth_methods_supported":["client_secret_post"]}}"#
        );
        self.answer("/.well-known/openid-configuration", 200, &document);
    }

    /// Sets the answer of a path.
    pub(crate) fn answer(&self, path: &str, status: u16, body: &str) {
        let answer = (status, body.to_owned());
        self.table.lock().answers.insert(path.to_owned(), answer);
    }

    /// Returns the complete requests for a path.
    pub(crate) fn requests_for(&self, path: &str) -> Vec<String> {
        let table = self.table.lock();
        let requests = table.requests.iter();
        requests
            .filter(|request| path_of(request) == path)
            .cloned()
            .collect()
    }

    /// Signs a valid ID token with one part of the claims replaced.
    pub(crate) fn id_token(&self, nonce: &SecretText, part: &str, other: &str) -> String {
        let now = Timestamp::now().as_second();
        let expires = now + 600;
        let issuer = &self.issuer;
        let nonce = nonce.expose();
        let claims = format!(
            r#"{{"iss":"{issuer}","aud":"{CLIENT}","sub":"ann","iat":{now},"exp":{expires},
                "groups":["staff","x"],"nonce":"{nonce}"}}"#
        );
        assert!(claims.contains(part), "{part}");
        let claims = claims.replacen(part, other, 1);
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"k","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let random = SystemRandom::new();
        let signature = self.key.sign(&random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Makes the token endpoint issue an ID token, with more members at the end of its answer.
    pub(crate) fn give(&self, id_token: &str, more: &str) {
        let body = format!(
            r#"{{"access_token":"access","token_type":"Bearer","id_token":"{id_token}"{more}}}"#
        );
        self.answer("/token", 200, &body);
    }

    /// Starts a login.
    pub(crate) async fn begin(&self) -> SentRequest {
        let state = SecretText::new("state");
        self.client.begin(&state, false).await.unwrap().sent
    }

    /// Stores a login of an authenticated person.
    pub(crate) async fn store_login(&self, person: ProvenPerson) -> PersonRow {
        let now = Timestamp::now();
        let person = PersonRow::of(&self.issuer, person, now);
        let mark = person.mark();
        let login = LoginRow {
            mark,
            client: [0; 16],
            client_name: "Test".to_owned(),
            endpoint: String::new(),
            since: now,
            ends: now + Duration::from_secs(3600),
            last_used: now,
            generation: 0,
            advanced: now,
            is_used: false,
            replays: 0,
        };
        self.store.start(login, person).await.unwrap();
        let stored = self.store.person(&mark).unwrap();
        PersonRow::clone(&stored)
    }
}

/// Returns the path of a request.
fn path_of(request: &str) -> &str {
    let target = request.split(' ').nth(1).unwrap_or_default();
    target.split('?').next().unwrap_or_default()
}

async fn serve(mut stream: TcpStream, table: Arc<Mutex<ProviderTable>>) {
    let Some(request) = read_request(&mut stream).await else {
        return;
    };
    let answer = {
        let mut table = table.lock();
        let answer = table.answers.get(path_of(&request)).cloned();
        table.requests.push(request);
        answer
    };
    let (status, body) = answer.unwrap_or((404, String::new()));
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or_default() {
                return Some(text);
            }
        }
        if stream.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}
