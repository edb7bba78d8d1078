//! Host of client documents, on loopback.
//!
//! Owns the documents and the key of a client that signs assertions. Does not know clients
//! (`shapes.rs`). Invariant: it counts every fetch of a document.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use http::{Response, Uri};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::provider_endpoints::{json_reply, redirect, reply};
use super::signing_key::SigningKey;
use crate::harness::loopback;

/// Path of the key set.
const KEYS: &str = "/keys.json";

/// Host of client documents. It ends with this handle.
pub(super) struct DocumentHost {
    state: Arc<HostState>,
    serving: JoinHandle<()>,
}

struct HostState {
    origin: String,
    documents: Mutex<HashMap<String, DocumentRule>>,
    fetches: Mutex<Vec<String>>,
    /// Key of the client that signs, made when somebody needs it.
    key: OnceLock<SigningKey>,
}

/// Response to a fetch of a document.
#[derive(Clone)]
pub(super) enum DocumentRule {
    Document(Value),
    /// Redirect to another path, where a document is.
    Moved(String),
    /// Document with ten megabytes of padding.
    Large(Value),
    /// Head of an answer, and then nothing.
    Drips,
    /// Document with the content type of a page.
    Page(Value),
}

impl DocumentHost {
    pub(super) async fn start() -> DocumentHost {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let state = Arc::new(HostState {
            origin: format!("http://{}", listener.local_addr().unwrap()),
            documents: Mutex::default(),
            fetches: Mutex::default(),
            key: OnceLock::new(),
        });
        let router = Router::new().fallback(answer).with_state(state.clone());
        let serving = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        DocumentHost { state, serving }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.state.origin)
    }

    pub(super) fn keys_url(&self) -> String {
        self.url(KEYS)
    }

    /// Serves a document at a path from now on.
    pub(super) fn publish(&self, path: &str, rule: DocumentRule) {
        self.state.documents.lock().insert(path.to_owned(), rule);
    }

    /// Signs an assertion of the client that signs.
    pub(super) fn sign(&self, claims: &Value) -> String {
        self.state.key.get_or_init(SigningKey::new).sign(claims)
    }

    /// Counts the fetches of a path.
    pub(super) fn fetches(&self, path: &str) -> usize {
        let fetches = self.state.fetches.lock();
        fetches.iter().filter(|other| *other == path).count()
    }
}

impl Drop for DocumentHost {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(host): State<Arc<HostState>>, uri: Uri) -> Response<Body> {
    let path = uri.path();
    host.fetches.lock().push(path.to_owned());
    if path == KEYS {
        return json_reply(200, &host.key.get_or_init(SigningKey::new).key_set());
    }
    let rule = host.documents.lock().get(path).cloned();
    match rule {
        None => reply(404, "text/plain", "there is nothing here".to_owned()),
        Some(DocumentRule::Document(document)) => json_reply(200, &document),
        Some(DocumentRule::Moved(target)) => redirect(&format!("{}{target}", host.origin)),
        Some(DocumentRule::Large(mut document)) => {
            document["padding"] = "x".repeat(10 << 20).into();
            json_reply(200, &document)
        }
        Some(DocumentRule::Drips) => {
            let nothing = futures_util::stream::pending::<Result<Bytes, Infallible>>();
            let mut reply = reply(200, "application/json", String::new());
            *reply.body_mut() = Body::from_stream(nothing);
            reply
        }
        Some(DocumentRule::Page(document)) => reply(200, "text/html", document.to_string()),
    }
}
