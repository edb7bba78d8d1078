//! Cache of client documents.
//!
//! Owns when a document is fetched and how long it is fresh. Does not parse it
//! (`document_metadata.rs`). Invariant: at most one fetch per document and four in total run at a
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use moongate_telemetry::{BrokerLimit, Metrics};
use moongate_transport::fetcher::{FetchFailure, FetchRules, Fetcher};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use url::Url;

use crate::client_fault::ClientFault;
use crate::client_record::ClientRecord;
use crate::document_metadata::read_document;

/// Maximum size of a document, in bytes.
const SIZE_MAX: usize = 10 * 1024;
/// Maximum number of cached documents and failures.
const COUNT_MAX: usize = 1_000;
/// Maximum number of concurrent fetches.
const FETCHES_MAX: usize = 4;
/// Maximum number of requests that wait for a fetch.
const WAITING_MAX: usize = 64;
/// Longest wait for a fetch, which takes five seconds at most.
const PATIENCE: Duration = Duration::from_secs(6);
/// Shortest lifetime of a document, and the default if its server names none.
const AGE_MIN: Duration = Duration::from_secs(5 * 60);
/// Longest lifetime of a document.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Lifetime of a failure.
const FAILURE_AGE: Duration = Duration::from_secs(60);

type FoundClient = Result<Arc<ClientRecord>, ClientFault>;

/// Client documents.
pub(crate) struct ClientDocuments {
    fetcher: Fetcher,
    rules: FetchRules,
    held: Mutex<HeldDocuments>,
    waiting: Semaphore,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct HeldDocuments {
    kept: HashMap<String, KeptDocument>,
    /// Fetches in progress, each with a channel that wakes its waiters.
    fetching: HashMap<String, watch::Receiver<()>>,
}

struct KeptDocument {
    found: FoundClient,
    until: Instant,
}

impl HeldDocuments {
    fn find(&self, id: &str, now: Instant) -> Option<FoundClient> {
        let kept = self.kept.get(id).filter(|kept| now < kept.until)?;
        Some(kept.found.clone())
    }

    fn keep(&mut self, id: &str, found: FoundClient, age: Duration) {
        let now = Instant::now();
        if self.kept.len() >= COUNT_MAX && !self.kept.contains_key(id) {
            self.kept.retain(|_, kept| now < kept.until);
        }
        if self.kept.len() >= COUNT_MAX && !self.kept.contains_key(id) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.until);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.kept.remove(&id);
            }
        }
        let until = now + age;
        self.kept
            .insert(id.to_owned(), KeptDocument { found, until });
    }
}

impl ClientDocuments {
    /// Creates an empty cache that fetches by these rules.
    pub(crate) fn new(rules: &FetchRules, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(ClientDocuments {
            fetcher: Fetcher::with_system_roots(rules).with_body_max(SIZE_MAX),
            rules: rules.clone(),
            held: Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
            metrics,
        })
    }

    /// Finds the client whose id is this document URL.
    pub(crate) async fn find(self: &Arc<Self>, url: &Url) -> FoundClient {
        let id = url.as_str();
        if let Some(found) = self.find_kept(id) {
            return found;
        }
        let Ok(_seat) = self.waiting.try_acquire() else {
            return Err(self.refuse());
        };
        let Some(mut ended) = self.join_fetch(url) else {
            return Err(self.refuse());
        };
        // An error means that the sender is gone, so the fetch has ended.
        let _ = tokio::time::timeout(PATIENCE, ended.changed()).await;
        self.find_kept(id).unwrap_or(Err(ClientFault::Busy))
    }

    /// Finds the client of a document without a fetch.
    pub(crate) fn find_kept(&self, id: &str) -> Option<FoundClient> {
        self.held.lock().find(id, Instant::now())
    }

    fn refuse(&self) -> ClientFault {
        self.metrics.broker.refused.inc(BrokerLimit("fetches"));
        ClientFault::Busy
    }

    /// Joins the fetch of a document, or starts one. `None`: too many are in progress.
    fn join_fetch(self: &Arc<Self>, url: &Url) -> Option<watch::Receiver<()>> {
        let mut held = self.held.lock();
        if let Some(ended) = held.fetching.get(url.as_str()) {
            return Some(ended.clone());
        }
        if held.fetching.len() >= FETCHES_MAX {
            return None;
        }
        let (sender, ended) = watch::channel(());
        held.fetching.insert(url.to_string(), ended.clone());
        let fetching = DocumentFetch {
            documents: self.clone(),
            url: url.clone(),
            _ended: sender,
        };
        // A separate task, because one waiter may give up while others still need the document.
        tokio::spawn(async move { fetching.run().await });
        Some(ended)
    }
}

/// Fetch in progress. Its end is noticed even if its task panics.
struct DocumentFetch {
    documents: Arc<ClientDocuments>,
    url: Url,
    /// Dropped at the end, which wakes the waiters.
    _ended: watch::Sender<()>,
}

impl DocumentFetch {
    async fn run(&self) {
        let (found, age) = match self.fetch().await {
            Ok((record, age)) => (Ok(Arc::new(record)), age),
            Err(why) => {
                let host = self.url.host_str().unwrap_or_default().to_owned();
                tracing::warn!("client document at {host} not read: {why}");
                (Err(ClientFault::Unreadable { host, why }), FAILURE_AGE)
            }
        };
        let mut held = self.documents.held.lock();
        held.keep(self.url.as_str(), found, age);
    }

    async fn fetch(&self) -> Result<(ClientRecord, Duration), &'static str> {
        let mut request = Request::new(Bytes::new());
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static("application/json"));
        let fetched = self.documents.fetcher.fetch(&self.url, request).await;
        let response = fetched.map_err(|error| explain(error.kind))?;
        check_response(&response)?;
        let record = read_document(&self.url, response.body(), &self.documents.rules)?;
        Ok((record, max_age(response.headers())))
    }
}

impl Drop for DocumentFetch {
    fn drop(&mut self) {
        let mut held = self.documents.held.lock();
        held.fetching.remove(self.url.as_str());
    }
}

fn check_response(response: &Response<Bytes>) -> Result<(), &'static str> {
    if response.status() != StatusCode::OK {
        return Err("its server does not answer with 200");
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|value| value.to_str().ok());
    let is_json = kind
        .and_then(|value| value.split(';').next())
        .is_some_and(|value| value.trim().eq_ignore_ascii_case("application/json"));
    if is_json {
        Ok(())
    } else {
        Err("its content type is not application/json")
    }
}

/// Returns the reason, for the operator. It contains no byte of the response.
fn explain(kind: FetchFailure) -> &'static str {
    match kind {
        FetchFailure::Url => "it is not at an https URL",
        FetchFailure::Private => "it is not at a public address",
        FetchFailure::Metadata => "it is at a cloud metadata address",
        FetchFailure::Own => "it is at an address of this gateway",
        FetchFailure::Unreachable => "its server cannot be reached",
        FetchFailure::Redirect => "its server redirects",
        FetchFailure::TooLarge => "it is too large",
        FetchFailure::Timeout => "its server takes too long",
    }
}

/// Returns how long a document is fresh (RFC 9111, section 5.2.2.1).
fn max_age(headers: &HeaderMap) -> Duration {
    let directives = headers
        .get_all(CACHE_CONTROL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    let mut age = AGE_MIN;
    for directive in directives {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        if name.eq_ignore_ascii_case("max-age")
            && let Ok(seconds) = value.trim_matches('"').parse()
        {
            age = Duration::from_secs(seconds);
        }
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return AGE_MIN;
        }
    }
    age.clamp(AGE_MIN, AGE_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Server that counts its requests and answers each with these bytes. Without bytes, it never
    /// answers.
    async fn serve(response: String, listener: TcpListener) -> Arc<AtomicUsize> {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let response = response.clone();
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    if response.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    let _ = stream.write_all(response.as_bytes()).await;
                });
            }
        });
        requests
    }

    async fn listen() -> (TcpListener, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = Url::parse(&format!("http://{address}/client.json")).unwrap();
        (listener, url)
    }

    fn documents(hosts: &[&str]) -> Arc<ClientDocuments> {
        let rules = FetchRules {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            ..FetchRules::default()
        };
        ClientDocuments::new(&rules, Arc::new(Metrics::new()))
    }

    fn answer(head: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
    }

    fn document(id: &Url) -> String {
        format!(r#"{{"client_id":"{id}","redirect_uris":["http://127.0.0.1/cb"]}}"#)
    }

    const JSON: &str = "200 OK\r\ncontent-type: application/json";

    fn why(found: FoundClient) -> &'static str {
        match found {
            Err(ClientFault::Unreadable { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_hostile_server_is_asked_once_and_costs_one_client() {
        let large = format!("{}{}", "{\"client_id\":\"", "x".repeat(SIZE_MAX));
        for (head, body, expected) in [
            (
                "302 Found\r\nlocation: http://127.0.0.1/",
                "",
                "its server redirects",
            ),
            ("404 Not Found", "", "its server does not answer with 200"),
            ("200 OK", "{}", "its content type is not application/json"),
            (
                "200 OK\r\ncontent-type: text/html",
                "{}",
                "its content type is not application/json",
            ),
            (JSON, "{}", "it is not a client document"),
            (JSON, &large, "it is too large"),
        ] {
            let documents = documents(&["127.0.0.1"]);
            let (listener, url) = listen().await;
            let requests = serve(answer(head, body), listener).await;
            for _ in 0..3 {
                assert_eq!(why(documents.find(&url).await), expected, "{head}");
            }
            assert_eq!(requests.load(Ordering::Relaxed), 1, "{head}");
        }
    }

    #[tokio::test]
    async fn a_private_host_is_not_asked() {
        let documents = documents(&[]);
        let (listener, url) = listen().await;
        let requests = serve(answer(JSON, &document(&url)), listener).await;
        let private = Url::parse(&url.as_str().replace("http:", "https:")).unwrap();
        assert_eq!(why(documents.find(&url).await), "it is not at an https URL");
        let refused = why(documents.find(&private).await);
        assert_eq!(refused, "it is not at a public address");
        assert_eq!(requests.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn requests_share_a_fetch_and_few_hosts_are_asked_at_once() {
        let documents = documents(&["127.0.0.1"]);
        let mut silent = Vec::new();
        for _ in 0..FETCHES_MAX {
            let (listener, url) = listen().await;
            let requests = serve(String::new(), listener).await;
            let ended = documents.join_fetch(&url).unwrap();
            assert!(documents.join_fetch(&url).is_some());
            silent.push((url, requests, ended));
        }
        let (_listener, other) = listen().await;
        assert_eq!(documents.find(&other).await.unwrap_err(), ClientFault::Busy);
        let refused = &documents.metrics.broker.refused;
        assert_eq!(refused.get(BrokerLimit("fetches")), 1);
        for (_, _, ended) in &mut silent {
            let _ = ended.changed().await;
        }
        for (url, requests, _) in &silent {
            assert_eq!(why(documents.find(url).await), "its server takes too long");
            assert_eq!(requests.load(Ordering::Relaxed), 1);
        }
    }

    #[tokio::test]
    async fn a_document_is_kept() {
        let documents = documents(&["127.0.0.1"]);
        let (listener, url) = listen().await;
        let requests = serve(answer(JSON, &document(&url)), listener).await;
        for _ in 0..3 {
            let record = documents.find(&url).await.unwrap();
            assert_eq!(record.id, url.as_str());
            assert_eq!(record.host.as_deref(), Some("127.0.0.1"));
        }
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn few_documents_are_kept_and_none_for_long() {
        let mut held = HeldDocuments::default();
        for n in 0..COUNT_MAX {
            held.keep(&n.to_string(), Err(ClientFault::Unknown), AGE_MIN);
        }
        held.keep("new", Err(ClientFault::Unknown), AGE_MAX);
        assert_eq!(held.kept.len(), COUNT_MAX);
        assert!(held.find("new", Instant::now()).is_some());
        let later = Instant::now() + AGE_MAX;
        assert!(held.find("new", later).is_none());
    }

    #[test]
    fn freshness_is_between_five_minutes_and_a_day() {
        for (value, expected) in [
            ("max-age=600", 600),
            ("public, Max-Age=\"600\"", 600),
            ("max-age=1", 300),
            ("max-age=99999999", 24 * 60 * 60),
            ("max-age=-1", 300),
            ("max-age=600, no-store", 300),
            ("public", 300),
        ] {
            let value = HeaderValue::from_static(value);
            let headers = HeaderMap::from_iter([(CACHE_CONTROL, value.clone())]);
            assert_eq!(max_age(&headers).as_secs(), expected, "{value:?}");
        }
        assert_eq!(max_age(&HeaderMap::new()), AGE_MIN);
    }
}
