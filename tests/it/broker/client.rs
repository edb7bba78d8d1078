//! Client that logs a person in to the gateway: discovery, identity, code, tokens and revocation.
//!
//! Owns what a client sends, which attacks modify. Does not open addresses (`browser.rs`).
//! Invariant: unless a test modifies it, each request matches the client's shape.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::documents::{DocumentHost, DocumentRule};
use super::parameters::Parameters;
use super::shapes::{ClientShape, ShapeIdentity};
use crate::harness::{Era, HttpClient, HttpReply, McpClient};

/// Type of a body that is a form.
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
/// Type of an assertion (RFC 7523).
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Client that logs in.
#[derive(Clone)]
pub(super) struct LoginClient {
    /// URL of the endpoint.
    pub(super) endpoint: String,
    pub(super) metadata: ServerMetadata,
    pub(super) resource: String,
    pub(super) id: String,
    pub(super) redirect: String,
    pub(super) verifier: String,
    pub(super) state: String,
    scope: Option<&'static str>,
    more: &'static [(&'static str, &'static str)],
    /// True if it signs an assertion with each request for tokens.
    signs: bool,
}

/// Metadata of the authorization server.
#[derive(Clone)]
pub(super) struct ServerMetadata {
    pub(super) issuer: String,
    pub(super) authorize: String,
    pub(super) token: String,
    pub(super) revoke: String,
    pub(super) register: String,
    pub(super) document: Value,
}

/// Tokens of a client.
#[derive(Clone, Debug)]
pub(super) struct ClientTokens {
    pub(super) access: String,
    pub(super) refresh: String,
}

impl LoginClient {
    /// Finds the authorization server of an endpoint, as the specification says.
    pub(super) async fn discover(endpoint: &str, shape: &ClientShape) -> LoginClient {
        let http = HttpClient::new();
        let reply = McpClient::new("2025-11-25", endpoint, json!({}))
            .request_as(1, "initialize", initialize())
            .await;
        assert_eq!(reply.status, 401, "{reply:?}");
        let challenge = reply.header("www-authenticate").to_owned();
        let (_, rest) = challenge
            .split_once("resource_metadata=\"")
            .unwrap_or_else(|| panic!("{challenge}"));
        let document = http.get(rest.split('"').next().unwrap()).await.json();
        assert_eq!(document["resource"], endpoint);
        let issuer = document["authorization_servers"][0].as_str().unwrap();
        let metadata = ServerMetadata::fetch(&http, issuer).await;
        LoginClient {
            endpoint: endpoint.to_owned(),
            metadata,
            resource: endpoint.to_owned(),
            id: String::new(),
            redirect: shape.redirect.to_owned(),
            verifier: random_text(),
            state: random_text(),
            scope: shape.scope,
            more: shape.more,
            signs: false,
        }
    }

    /// Gets an id: by its document, or by a registration.
    pub(super) async fn identify(&mut self, shape: &ClientShape, host: &DocumentHost) {
        match &shape.identity {
            ShapeIdentity::Document { id, text } => {
                let mut document: Value = serde_json::from_str(text).unwrap();
                let path = document_path(id);
                self.id = host.url(&path);
                document["client_id"] = self.id.clone().into();
                self.signs = document["jwks_uri"].is_string();
                if self.signs {
                    document["jwks_uri"] = host.keys_url().into();
                }
                host.publish(&path, DocumentRule::Document(document));
            }
            ShapeIdentity::Registration(body) => {
                let reply = self.register(body).await;
                assert_eq!(reply.status, 201, "{}: {reply:?}", shape.name);
                let answer = reply.json();
                self.id = answer["client_id"].as_str().unwrap().to_owned();
                let members = answer.as_object().unwrap();
                let nulls = members.iter().filter(|(_, value)| value.is_null());
                assert_eq!(nulls.count(), 0, "{answer}");
            }
        }
    }

    /// Registers with a body.
    pub(super) async fn register(&self, body: &str) -> HttpReply {
        let headers = [("content-type", "application/json")];
        let url = &self.metadata.register;
        HttpClient::new()
            .send("POST", url, &headers, body.to_owned())
            .await
    }

    /// Returns the request for a login.
    pub(super) fn request(&self) -> Parameters {
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()));
        let query = Parameters::of(&[
            ("response_type", "code"),
            ("client_id", &self.id),
            ("redirect_uri", &self.redirect),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", &self.state),
            ("resource", &self.resource),
        ]);
        let query = match self.scope {
            Some(scope) => query.with("scope", scope),
            None => query,
        };
        let more = self.more.iter();
        more.fold(query, |query, (name, value)| query.with(name, *value))
    }

    /// Returns the address that a person opens.
    pub(super) fn address(&self) -> String {
        self.address_of(&self.request())
    }

    pub(super) fn address_of(&self, request: &Parameters) -> String {
        format!("{}?{}", self.metadata.authorize, request.encode())
    }

    /// Checks the answer of a login. Returns its code.
    pub(super) fn code_of(&self, answer: &str) -> String {
        assert!(answer.starts_with(&self.redirect), "{answer}");
        let query = Parameters::of_address(answer);
        assert_eq!(query.get("state"), Some(self.state.as_str()), "{answer}");
        assert_eq!(query.get("iss"), Some(self.metadata.issuer.as_str()));
        let code = query.get("code");
        code.unwrap_or_else(|| panic!("no code in {answer}"))
            .to_owned()
    }

    /// Returns the form that exchanges a code.
    pub(super) fn exchange_form(&self, code: &str) -> Parameters {
        Parameters::of(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("client_id", &self.id),
            ("code_verifier", &self.verifier),
            ("resource", &self.resource),
        ])
    }

    /// Exchanges a code.
    pub(super) async fn exchange(&self, code: &str, host: &DocumentHost) -> ClientTokens {
        let reply = self.post_token(&self.exchange_form(code), host).await;
        read_tokens(&reply)
    }

    pub(super) fn refresh_form(&self, refresh: &str) -> Parameters {
        Parameters::of(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh),
            ("client_id", &self.id),
            ("resource", &self.resource),
        ])
    }

    /// Renews tokens.
    pub(super) async fn refresh(&self, refresh: &str, host: &DocumentHost) -> ClientTokens {
        let reply = self.post_token(&self.refresh_form(refresh), host).await;
        read_tokens(&reply)
    }

    /// Sends a form for tokens, with an assertion if the client signs.
    pub(super) async fn post_token(&self, form: &Parameters, host: &DocumentHost) -> HttpReply {
        let form = match self.signs {
            true => self.signed(form, &self.assertion(), host),
            false => form.clone(),
        };
        self.post_form(&self.metadata.token, &form).await
    }

    /// Returns the claims of an assertion.
    pub(super) fn assertion(&self) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({
            "iss": self.id,
            "sub": self.id,
            "aud": self.metadata.token,
            "jti": random_text(),
            "iat": now,
            "exp": now + 60,
        })
    }

    /// Adds an assertion to a form.
    pub(super) fn signed(
        &self,
        form: &Parameters,
        claims: &Value,
        host: &DocumentHost,
    ) -> Parameters {
        form.clone()
            .with("client_assertion_type", ASSERTION)
            .with("client_assertion", host.sign(claims))
    }

    pub(super) async fn post_form(&self, url: &str, form: &Parameters) -> HttpReply {
        HttpClient::new()
            .send("POST", url, &[FORM], form.encode())
            .await
    }

    /// Renews tokens at a gateway that may be killed meanwhile. `None`: no answer came.
    pub(super) async fn try_refresh(&self, refresh: &str) -> Option<HttpReply> {
        let headers = [(FORM.0, FORM.1.to_owned())];
        let form = self.refresh_form(refresh).encode();
        HttpClient::new()
            .try_send("POST", &self.metadata.token, &headers, form)
            .await
    }

    /// Ends the login of a token.
    pub(super) async fn revoke(&self, token: &str, host: &DocumentHost) {
        let form = Parameters::of(&[("token", token), ("client_id", &self.id)]);
        let form = match self.signs {
            true => self.signed(&form, &self.assertion(), host),
            false => form,
        };
        let reply = self.post_form(&self.metadata.revoke, &form).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }

    /// Opens a client of the endpoint with a token.
    pub(super) async fn open(&self, token: &str) -> McpClient {
        McpClient::with_key(&self.endpoint, Era::Modern, Some(token)).await
    }

    /// Calls a tool with a token that must be valid.
    pub(super) async fn call(&self, token: &str) {
        let client = self.open(token).await;
        client.call("files__echo", json!({ "n": 1 })).await.text();
    }

    /// Calls a tool with a token. Returns the HTTP status.
    pub(super) async fn call_status(&self, token: &str) -> u16 {
        call_status(&self.endpoint, token).await
    }
}

impl ServerMetadata {
    async fn fetch(http: &HttpClient, issuer: &str) -> ServerMetadata {
        let url = format!("{issuer}/.well-known/oauth-authorization-server");
        let document = http.get(&url).await.json();
        assert_eq!(document["issuer"], issuer);
        let text = |name: &str| document[name].as_str().unwrap().to_owned();
        ServerMetadata {
            issuer: text("issuer"),
            authorize: text("authorization_endpoint"),
            token: text("token_endpoint"),
            revoke: text("revocation_endpoint"),
            register: text("registration_endpoint"),
            document: document.clone(),
        }
    }
}

/// Calls a tool of an endpoint with a token. Returns the HTTP status.
pub(super) async fn call_status(endpoint: &str, token: &str) -> u16 {
    let client = McpClient::with_key(endpoint, Era::Modern, Some(token)).await;
    let params = json!({ "name": "files__echo", "arguments": { "n": 1 } });
    client.request_as(7, "tools/call", params).await.status
}

/// Reads tokens from an answer that must have them.
pub(super) fn read_tokens(reply: &HttpReply) -> ClientTokens {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("cache-control"), "no-store");
    let answer = reply.json();
    assert_eq!(answer["token_type"], "Bearer");
    assert_eq!(answer["scope"], "mcp offline_access");
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    let tokens = ClientTokens {
        access: text("access_token"),
        refresh: text("refresh_token"),
    };
    assert!(tokens.access.starts_with("mga_") && tokens.refresh.starts_with("mgr_"));
    tokens
}

/// Checks that a form got an OAuth error.
pub(super) fn assert_oauth_error(reply: &HttpReply, code: &str) {
    assert_eq!(reply.json()["error"], code, "{reply:?}");
    assert_eq!(reply.header("cache-control"), "no-store");
    let status = match code {
        "invalid_client" => 401,
        _ => 400,
    };
    assert_eq!(reply.status, status, "{reply:?}");
}

/// Path at which the document of an id is served here, such as `/claude.ai/oauth/client`.
pub(super) fn document_path(id: &str) -> String {
    format!("/{}", id.strip_prefix("https://").unwrap())
}

/// Creates an unguessable text that is long enough for a verifier.
pub(super) fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(moongate_random::random_bytes::<32>())
}

fn initialize() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "client", "version": "1" },
    })
}
