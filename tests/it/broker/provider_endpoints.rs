//! Endpoints of the company's login.
//!
//! Owns the parsing of requests, and the answers. Does not own the rules that tests change
//! (`provider.rs`). Invariant: a request without PKCE, `state`, `nonce` or the client secret gets
//! neither code nor token.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::{Body, Bytes};
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, Method, Response, Uri};
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::parameters::Parameters;
use super::provider::{
    AnswerRule, GATEWAY_ID, ProviderState, ProviderStep, RenewalRule, SentLogin, SignatureRule,
    claims_with,
};
use super::signing_key::SigningKey;

/// Life of an ID token, in seconds.
const LIFE_SECS: i64 = 300;

pub(super) async fn answer(
    State(provider): State<Arc<ProviderState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let is_browser = uri.path() == "/authorize";
    if provider.rules.lock().is_down && !is_browser {
        return reply(503, "text/plain", "down for a moment".to_owned());
    }
    let form = String::from_utf8_lossy(&body);
    match (method.as_str(), uri.path()) {
        ("GET", "/.well-known/openid-configuration") => json_reply(200, &provider.metadata()),
        ("GET", "/keys") => json_reply(200, &provider.key.key_set()),
        ("GET", "/authorize") => provider.authorize(uri.query().unwrap_or_default()),
        ("POST", "/token") => provider.token(&headers, &form),
        ("GET", "/userinfo") => provider.userinfo(&headers),
        _ => reply(404, "text/plain", "there is nothing here".to_owned()),
    }
}

impl ProviderState {
    fn record(&self, step: ProviderStep) {
        self.book.lock().steps.push(step);
    }

    /// Records a fault of a request, which gets an error.
    fn complain(&self, what: &str) -> Response<Body> {
        self.book.lock().complaints.push(what.to_owned());
        json_reply(400, &json!({ "error": "invalid_request" }))
    }

    fn metadata(&self) -> Value {
        let origin = &self.origin;
        json!({
            "issuer": origin,
            "authorization_endpoint": format!("{origin}/authorize"),
            "token_endpoint": format!("{origin}/token"),
            "jwks_uri": format!("{origin}/keys"),
            "userinfo_endpoint": format!("{origin}/userinfo"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "scopes_supported": ["openid", "profile", "email", "groups", "offline_access"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        })
    }

    fn authorize(&self, query: &str) -> Response<Body> {
        self.record(ProviderStep::Authorization);
        let Some((sent, state)) = self.read_authorization(query) else {
            return self.complain(&format!("authorize: {query}"));
        };
        let rule = self.rules.lock().answer;
        let mut book = self.book.lock();
        book.add_secret(&state);
        book.add_secret(&sent.nonce);
        let mut address = Url::parse(&self.redirect.lock()).unwrap();
        let mut answer = address.query_pairs_mut();
        if rule == AnswerRule::Denied {
            answer.append_pair("error", "access_denied");
            // Text of others, which must not become part of a page or of a log line.
            answer.append_pair("error_description", "<script>hostile()</script>");
        } else {
            let code = book.make_secret("provider-code");
            answer.append_pair("code", &code);
            book.codes.insert(code, sent);
        }
        answer.append_pair("state", &state);
        match rule {
            AnswerRule::Right | AnswerRule::Denied => {
                answer.append_pair("iss", &self.origin);
            }
            AnswerRule::WrongIss => {
                answer.append_pair("iss", "http://127.0.0.1:1");
            }
            AnswerRule::MissingIss => {}
        }
        drop(answer);
        redirect(address.as_str())
    }

    /// Reads the request for a login, and its `state`. `None`: something about it is wrong.
    fn read_authorization(&self, query: &str) -> Option<(SentLogin, String)> {
        let query = Parameters::parse(query)?;
        let scopes: Vec<&str> = query.get("scope")?.split(' ').collect();
        let is_right = query.get("client_id")? == GATEWAY_ID
            && query.get("redirect_uri")? == *self.redirect.lock()
            && query.get("response_type")? == "code"
            && query.get("code_challenge_method")? == "S256"
            && scopes.contains(&"openid")
            // What a client requests from the gateway must not reach the company's login.
            && query.get("prompt").is_none()
            && query.get("resource").is_none();
        let sent = SentLogin {
            challenge: query.get("code_challenge")?.to_owned(),
            nonce: query.get("nonce")?.to_owned(),
        };
        let state = query.get("state")?.to_owned();
        let is_random = state.len() >= 43 && sent.nonce.len() >= 22 && sent.challenge.len() == 43;
        (is_right && is_random).then_some((sent, state))
    }

    fn token(&self, headers: &HeaderMap, form: &str) -> Response<Body> {
        let form = Parameters::parse(form).unwrap_or_default();
        if !self.is_gateway(headers, &form) {
            return self.complain("token: another client");
        }
        match form.get("grant_type") {
            Some("authorization_code") => self.exchange(&form),
            Some("refresh_token") => self.renew(&form),
            other => self.complain(&format!("token: {other:?}")),
        }
    }

    /// Returns true if a form came from the gateway.
    fn is_gateway(&self, headers: &HeaderMap, form: &Parameters) -> bool {
        let basic = headers.get("authorization").map(|it| it.to_str().unwrap());
        let Some(basic) = basic else {
            return form.get("client_id") == Some(GATEWAY_ID)
                && form.get("client_secret") == Some(self.client_secret.as_str());
        };
        let encoded =
            |text: &str| -> String { form_urlencoded::byte_serialize(text.as_bytes()).collect() };
        let pair = format!("{}:{}", encoded(GATEWAY_ID), encoded(&self.client_secret));
        basic == format!("Basic {}", STANDARD.encode(pair))
    }

    fn exchange(&self, form: &Parameters) -> Response<Body> {
        self.record(ProviderStep::Exchange);
        let mut book = self.book.lock();
        let sent = form.get("code").and_then(|code| book.codes.remove(code));
        let verifier = form.get("code_verifier").unwrap_or_default();
        book.add_secret(verifier);
        drop(book);
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let is_right = form.get("redirect_uri") == Some(self.redirect.lock().as_str());
        match sent {
            Some(sent) if is_right && sent.challenge == challenge => {
                let rules = self.rules.lock().clone();
                let nonce = ("nonce", json!(sent.nonce));
                self.give(&[&[nonce], &rules.claims], rules.signature)
            }
            _ => self.complain("token: code, verifier or redirect"),
        }
    }

    fn renew(&self, form: &Parameters) -> Response<Body> {
        self.record(ProviderStep::Renewal);
        let rules = self.rules.lock().clone();
        match rules.renewal {
            RenewalRule::Down => return reply(503, "text/plain", "down for a moment".to_owned()),
            RenewalRule::Refuse(code) => return json_reply(400, &json!({ "error": code })),
            RenewalRule::Renew => {}
        }
        let mut book = self.book.lock();
        let token = form.get("refresh_token").unwrap_or_default();
        let Some(at) = book.refresh.iter().position(|other| other == token) else {
            book.complaints.push("renewal: a token twice".to_owned());
            return json_reply(400, &json!({ "error": "invalid_grant" }));
        };
        book.refresh.swap_remove(at);
        drop(book);
        self.give(&[&rules.claims, &rules.renewed], rules.signature)
    }

    /// Issues tokens, with an ID token that has these claims.
    fn give(
        &self,
        changes: &[&[(&'static str, Value)]],
        signature: SignatureRule,
    ) -> Response<Body> {
        let now = jiff::Timestamp::now().as_second();
        let own: [(&'static str, Value); 4] = [
            ("iss", json!(self.origin)),
            ("aud", json!(GATEWAY_ID)),
            ("iat", json!(now)),
            ("exp", json!(now + LIFE_SECS)),
        ];
        let mut all: Vec<&[(&'static str, Value)]> = vec![&own];
        all.extend(changes);
        let claims = Value::Object(claims_with(&all));
        let mut book = self.book.lock();
        let refresh = book.make_secret("provider-refresh");
        book.refresh.push(refresh.clone());
        let id_token = match signature {
            SignatureRule::Right => self.key.sign(&claims),
            SignatureRule::Strange => SigningKey::new().sign(&claims),
        };
        book.add_secret(&id_token);
        let answer = json!({
            "access_token": book.make_secret("provider-access"),
            "token_type": "Bearer",
            "expires_in": LIFE_SECS,
            "refresh_token": refresh,
            "id_token": id_token,
        });
        json_reply(200, &answer)
    }

    fn userinfo(&self, headers: &HeaderMap) -> Response<Body> {
        let token = headers.get("authorization").map(|it| it.to_str().unwrap());
        if !token.is_some_and(|token| token.starts_with("Bearer canary-provider-access-")) {
            return self.complain("userinfo: no token");
        }
        let changes = self.rules.lock().userinfo.clone();
        json_reply(200, &Value::Object(claims_with(&[&changes])))
    }
}

pub(super) fn reply(status: u16, kind: &str, body: String) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .header("cache-control", "no-store")
        .body(Body::from(body))
        .unwrap()
}

pub(super) fn json_reply(status: u16, document: &Value) -> Response<Body> {
    reply(status, "application/json", document.to_string())
}

pub(super) fn redirect(location: &str) -> Response<Body> {
    let mut reply = reply(302, "text/plain", String::new());
    let location = location.parse().unwrap();
    reply.headers_mut().insert("location", location);
    reply
}
