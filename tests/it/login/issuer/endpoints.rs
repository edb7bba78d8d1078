//! Endpoints of the test authorization server.
//!
//! Owns the reading of requests and the answers. Does not keep tokens (`token_book.rs`). Invariant:
//! a request that repeats a parameter, or lacks a required one, is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::{Body, Bytes};
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, Method, Response, Uri};
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::token_book::{CodeRecord, GivenTokens};
use super::{ClientMethod, IssRule, IssuerState, IssuerStep, KnownClient, RefreshRule, SCOPE};

const OAUTH_METADATA: &str = "/.well-known/oauth-authorization-server";
const OPENID_METADATA: &str = "/.well-known/openid-configuration";

type Parameters = BTreeMap<String, String>;

pub(super) async fn answer(
    State(issuer): State<Arc<IssuerState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let is_openid = issuer.rules.lock().is_openid;
    let query = uri.query().unwrap_or_default();
    let form = String::from_utf8_lossy(&body);
    match (method.as_str(), uri.path()) {
        ("GET", "/resource") => issuer.resource(query),
        ("GET", OAUTH_METADATA) if !is_openid => issuer.metadata(),
        ("GET", OPENID_METADATA) if is_openid => issuer.metadata(),
        ("GET", "/moved") => {
            issuer.record(IssuerStep::Moved);
            json_reply(200, &issuer.metadata_document())
        }
        ("POST", "/register") => issuer.register(&body),
        ("GET", "/authorize") => issuer.authorize(query),
        ("POST", "/token") => issuer.token(&headers, &form).await,
        ("POST", "/revoke") => issuer.revoke(&headers, &form),
        _ => {
            issuer.record(IssuerStep::Other);
            reply(404, "text/plain", "there is nothing here".to_owned())
        }
    }
}

impl IssuerState {
    fn record(&self, step: IssuerStep) {
        self.steps.lock().push(step);
    }

    /// Records a fault of a request. Returns the error code again.
    fn complain(&self, what: &str, code: &'static str) -> &'static str {
        self.complaints.lock().push(format!("{what}: {code}"));
        code
    }

    fn resource(&self, query: &str) -> Response<Body> {
        self.record(IssuerStep::Resource);
        let resource = parameters(query).and_then(|mut query| query.remove("of"));
        let document = json!({
            "resource": resource.unwrap_or_default(),
            "authorization_servers": [self.origin],
            "scopes_supported": [SCOPE],
        });
        json_reply(200, &document)
    }

    fn metadata(&self) -> Response<Body> {
        self.record(IssuerStep::Metadata);
        if self.rules.lock().moves_metadata {
            return redirect(&format!("{}/moved", self.origin));
        }
        json_reply(200, &self.metadata_document())
    }

    fn metadata_document(&self) -> Value {
        let rules = self.rules.lock().clone();
        let origin = &self.origin;
        let mut document = json!({
            "issuer": origin,
            "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"),
            "revocation_endpoint": format!("{origin}/revoke"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": [rules.method.name()],
            "client_id_metadata_document_supported": rules.takes_documents,
            "authorization_response_iss_parameter_supported": rules.iss != IssRule::Unknown,
        });
        if rules.registers {
            document["registration_endpoint"] = format!("{origin}/register").into();
        }
        for (member, value) in rules.metadata {
            match value {
                Value::Null => {
                    document.as_object_mut().unwrap().remove(member);
                }
                value => document[member] = value,
            }
        }
        document
    }

    fn register(&self, body: &[u8]) -> Response<Body> {
        self.record(IssuerStep::Registration);
        let rules = self.rules.lock().clone();
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let redirect = request["redirect_uris"][0].as_str();
        let is_right = request["token_endpoint_auth_method"] == rules.method.name()
            && request["application_type"] == "native"
            && request["grant_types"] == json!(["authorization_code", "refresh_token"]);
        let Some(redirect) = redirect.filter(|_| rules.registers && is_right) else {
            let code = self.complain("register", "invalid_client_metadata");
            return json_reply(400, &json!({ "error": code }));
        };
        let mut book = self.book.lock();
        let secret = (rules.method != ClientMethod::None).then(|| book.make_secret("client"));
        drop(book);
        let mut clients = self.clients.lock();
        let id = format!("registered-{}", clients.len() + 1);
        let mut answer = json!({
            "client_id": id,
            "redirect_uris": [redirect],
            "token_endpoint_auth_method": rules.method.name(),
        });
        if let Some(secret) = &secret {
            answer["client_secret"] = secret.as_str().into();
        }
        let client = KnownClient {
            secret,
            method: rules.method,
            redirect: redirect.to_owned(),
        };
        clients.insert(id, client);
        json_reply(201, &answer)
    }

    fn authorize(&self, query: &str) -> Response<Body> {
        self.record(IssuerStep::Authorization);
        let Some((record, state)) = self.read_authorization(query) else {
            self.complain("authorize", "invalid_request");
            // RFC 6749, section 4.1.2.1: no redirect to an address that may be another's.
            let text = "the client or its redirect address is unknown".to_owned();
            return reply(400, "text/plain", text);
        };
        let rules = self.rules.lock().clone();
        let mut location = Url::parse(&record.redirect).unwrap();
        let (name, value) = match rules.denies {
            true => ("error", "access_denied".to_owned()),
            false => ("code", self.book.lock().add_code(record)),
        };
        let mut parameters = location.query_pairs_mut();
        parameters.append_pair(name, &value);
        parameters.append_pair("state", &state);
        match rules.iss {
            IssRule::Right => {
                parameters.append_pair("iss", &self.origin);
            }
            IssRule::Wrong => {
                parameters.append_pair("iss", "http://127.0.0.1:1");
            }
            IssRule::Missing | IssRule::Unknown => {}
        }
        drop(parameters);
        redirect(location.as_str())
    }

    /// Reads the request for a login, and its `state`. `None`: something about it is wrong.
    fn read_authorization(&self, query: &str) -> Option<(CodeRecord, String)> {
        let mut query = parameters(query)?;
        let client = query.remove("client_id")?;
        let redirect = query.remove("redirect_uri")?;
        let mut clients = self.clients.lock();
        // A real server would fetch the document, which lists the redirect address.
        if self.rules.lock().takes_documents && client.starts_with("https://") {
            let document = KnownClient {
                secret: None,
                method: ClientMethod::None,
                redirect: redirect.clone(),
            };
            clients.insert(client.clone(), document);
        }
        let challenge = query.remove("code_challenge")?;
        let is_right = clients.get(&client)?.redirect == redirect
            && query.get("response_type")? == "code"
            && query.get("code_challenge_method")? == "S256"
            && challenge.len() == 43;
        let state = query.remove("state").filter(|state| state.len() >= 43)?;
        let record = CodeRecord {
            client,
            redirect,
            challenge,
            resource: query.remove("resource"),
        };
        is_right.then_some((record, state))
    }

    async fn token(&self, headers: &HeaderMap, form: &str) -> Response<Body> {
        let form = parameters(form).unwrap_or_default();
        let is_refresh = form
            .get("grant_type")
            .is_some_and(|it| it == "refresh_token");
        self.record(match is_refresh {
            true => IssuerStep::Refresh,
            false => IssuerStep::Exchange,
        });
        let Some(client) = self.authenticate(headers, &form) else {
            let code = self.complain("token", "invalid_client");
            return json_reply(401, &json!({ "error": code }));
        };
        let rule = self.rules.lock().refresh;
        match rule {
            RefreshRule::Hold if is_refresh => return std::future::pending().await,
            RefreshRule::Down if is_refresh => {
                return reply(503, "text/plain", "down for a moment".to_owned());
            }
            RefreshRule::Refuse(code) if is_refresh => {
                return json_reply(400, &json!({ "error": code }));
            }
            _ => {}
        }
        let given = match is_refresh {
            true => self.refresh(&client, &form),
            false => self.exchange(&client, &form),
        };
        if is_refresh && rule == RefreshRule::Lose {
            return std::future::pending().await;
        }
        match given {
            Ok(tokens) => self.tokens_reply(&tokens),
            Err(code) => {
                let code = self.complain("token", code);
                json_reply(400, &json!({ "error": code }))
            }
        }
    }

    fn tokens_reply(&self, tokens: &GivenTokens) -> Response<Body> {
        let life = self.rules.lock().life;
        let answer = json!({
            "access_token": tokens.access,
            "token_type": "Bearer",
            "expires_in": life.as_secs(),
            "refresh_token": tokens.refresh,
            "scope": SCOPE,
        });
        json_reply(200, &answer)
    }

    fn exchange(&self, client: &str, form: &Parameters) -> Result<GivenTokens, &'static str> {
        let code = form.get("code").ok_or("invalid_request")?;
        let verifier = form.get("code_verifier").ok_or("invalid_request")?;
        let life = self.rules.lock().life;
        let mut book = self.book.lock();
        book.add_secret(verifier);
        let record = book.take_code(code).ok_or("invalid_grant")?;
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let is_right = record.client == client
            && form.get("redirect_uri") == Some(&record.redirect)
            && challenge == record.challenge;
        if !is_right {
            return Err("invalid_grant");
        }
        if form.get("resource") != record.resource.as_ref() {
            return Err("invalid_target");
        }
        Ok(book.start_login(&record, life))
    }

    fn refresh(&self, client: &str, form: &Parameters) -> Result<GivenTokens, &'static str> {
        let token = form.get("refresh_token").ok_or("invalid_request")?;
        let resource = form.get("resource").map(String::as_str);
        let life = self.rules.lock().life;
        self.book.lock().renew(token, client, resource, life)
    }

    fn revoke(&self, headers: &HeaderMap, form: &str) -> Response<Body> {
        self.record(IssuerStep::Revocation);
        let form = parameters(form).unwrap_or_default();
        if self.authenticate(headers, &form).is_none() {
            let code = self.complain("revoke", "invalid_client");
            return json_reply(401, &json!({ "error": code }));
        }
        if let Some(token) = form.get("token") {
            self.book.lock().revoke(token);
        }
        reply(200, "text/plain", String::new())
    }

    /// Finds the client that sent a form. `None`: an unknown one, or one that uses the wrong
    /// method.
    fn authenticate(&self, headers: &HeaderMap, form: &Parameters) -> Option<String> {
        let header = headers.get("authorization");
        let (id, secret, method) = match (header, form.get("client_id"), form.get("client_secret"))
        {
            (Some(header), None, None) => {
                let (id, secret) = read_basic(header.to_str().ok()?)?;
                (id, Some(secret), ClientMethod::Basic)
            }
            (None, Some(id), Some(secret)) => {
                (id.clone(), Some(secret.clone()), ClientMethod::Post)
            }
            (None, Some(id), None) => (id.clone(), None, ClientMethod::None),
            _ => return None,
        };
        let clients = self.clients.lock();
        let known = clients.get(&id)?;
        (known.method == method && known.secret == secret).then_some(id)
    }
}

/// Reads client id and secret of a header with HTTP Basic (RFC 6749, section 2.3.1).
fn read_basic(header: &str) -> Option<(String, String)> {
    let decoded = STANDARD.decode(header.strip_prefix("Basic ")?).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((form_decoded(id), form_decoded(secret)))
}

fn form_decoded(text: &str) -> String {
    let mut pairs = form_urlencoded::parse(text.as_bytes());
    pairs
        .next()
        .map_or_else(String::new, |(name, _)| name.into_owned())
}

/// Reads a query or a form. `None`: a parameter appears twice.
fn parameters(text: &str) -> Option<Parameters> {
    let mut read = Parameters::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()).into_owned() {
        if read.insert(name, value).is_some() {
            return None;
        }
    }
    Some(read)
}

fn reply(status: u16, kind: &str, body: String) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .header("cache-control", "no-store")
        .body(Body::from(body))
        .unwrap()
}

fn json_reply(status: u16, document: &Value) -> Response<Body> {
    reply(status, "application/json", document.to_string())
}

fn redirect(location: &str) -> Response<Body> {
    let mut reply = reply(302, "text/plain", String::new());
    reply
        .headers_mut()
        .insert("location", location.parse().unwrap());
    reply
}
