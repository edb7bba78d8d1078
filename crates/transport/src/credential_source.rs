//! Server credentials that can change while a connection is open.
//!
//! Owns the seam to their keeper, and the challenge of a server that refused one. Does not keep or
//! renew any. Invariant: a credential goes only to the origin of its connection, and a request is
//! repeated at most once for it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::LinkError;

/// Maximum number of challenges to keep from one response, and of bytes in each.
// RFC 9110, section 11.6.1: a response may have several challenges, each with a few parameters.
const CHALLENGES_MAX: (usize, usize) = (8, 4096);

/// Source of the credential for one connection.
pub trait CredentialSource: Send + Sync {
    /// Returns the value of `Authorization` for the next request, after a renewal that is due.
    /// `None`: the request has none.
    fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, LinkError>>;

    /// Records that the server refused what was sent. Returns true if the request should be sent
    /// again with a new credential.
    fn on_refusal<'a>(
        &'a self,
        sent: Option<&'a HeaderValue>,
        challenge: &'a AuthChallenge,
    ) -> BoxFuture<'a, bool>;

    /// Returns true if it belongs to one person. Its refusal says nothing about the server.
    fn is_personal(&self) -> bool;
}

/// Finds the source for a connection.
pub trait CredentialDirectory: Send + Sync {
    /// Returns the source. `None`: the connection has only the headers in the config.
    fn find_source(&self, target: &CredentialTarget<'_>) -> Option<Arc<dyn CredentialSource>>;
}

/// Connection that needs a credential.
#[derive(Clone, Copy, Debug)]
pub struct CredentialTarget<'a> {
    /// Name of the server in the config.
    pub server: &'a str,
    /// URL that the connection leads to. While a reload replaces a server, the name alone could
    /// send the credential of the new URL to the old one.
    pub url: &'a url::Url,
    /// Person that the connection is for. `None`: it is for several.
    pub person: Option<&'a [u8; 16]>,
}

/// Response of a server that refused a credential, or the lack of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthChallenge {
    /// HTTP status: 401 or 403.
    pub status: u16,
    /// Values of `WWW-Authenticate`. They are the server's, and must not be trusted.
    pub values: Vec<String>,
}

impl AuthChallenge {
    /// Returns true if a token was refused, or is missing. A 403 means that the token is good and
    /// may not do this.
    pub fn refuses_token(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED.as_u16()
    }

    /// Returns true if a call was refused because its token has too little scope (RFC 6750, section
    /// 3.1). Good for a message: whoever acts on it reads the parameters.
    pub fn wants_more_scope(&self) -> bool {
        let names_it = |value: &String| value.contains("insufficient_scope");
        self.status == StatusCode::FORBIDDEN.as_u16() && self.values.iter().any(names_it)
    }

    /// Reads the challenge of a response. `None`: it refuses no credential.
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        let refuses = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let (number, length) = CHALLENGES_MAX;
        let texts = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let values = texts
            .filter(|text| text.len() <= length)
            .take(number)
            .map(str::to_owned);
        refuses.then(|| AuthChallenge {
            status: status.as_u16(),
            values: values.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use http::Method;
    use moongate_telemetry::{MemoryBudget, MemoryHolder, Metrics};
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::http_client::{HttpClient, HttpEndpoint, HttpRequest};
    use crate::http_settings::HttpSettings;
    use crate::metadata_address::MetadataAccess;
    use crate::sent_credential::SentCredential;
    use crate::trust::tls_without_roots;

    /// Source of one token after another.
    #[derive(Default)]
    struct Tokens {
        current: Mutex<Option<&'static str>>,
        /// Tokens that a refusal makes the current one.
        renewals: Mutex<VecDeque<&'static str>>,
        refusals: Mutex<Vec<(Option<HeaderValue>, AuthChallenge)>>,
    }

    impl CredentialSource for Tokens {
        fn authorization(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, LinkError>> {
            async { Ok(self.current.lock().map(HeaderValue::from_static)) }.boxed()
        }

        fn on_refusal<'a>(
            &'a self,
            sent: Option<&'a HeaderValue>,
            challenge: &'a AuthChallenge,
        ) -> BoxFuture<'a, bool> {
            self.refusals
                .lock()
                .push((sent.cloned(), challenge.clone()));
            let renewed = self.renewals.lock().pop_front();
            if renewed.is_some() {
                *self.current.lock() = renewed;
            }
            std::future::ready(renewed.is_some()).boxed()
        }

        fn is_personal(&self) -> bool {
            false
        }
    }

    /// Server that takes `good` alone, over one connection, and redirects from `/old`. Returns its
    /// port, and what each request carried.
    async fn guarded_server() -> (u16, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let carried = Arc::new(Mutex::new(Vec::new()));
        let record = carried.clone();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = Vec::new();
            while stream.read_buf(&mut read).await.is_ok_and(|size| size > 0) {
                let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
                if !text.contains("\r\n\r\n") || text.starts_with("post") && !text.ends_with("{}") {
                    continue;
                }
                let authorization = text
                    .lines()
                    .find_map(|line| line.strip_prefix("authorization: "));
                let authorization = authorization.unwrap_or("-").to_owned();
                let is_good = authorization.contains("good");
                record.lock().push(authorization);
                read.clear();
                let refusal = "401 Unauthorized\r\nwww-authenticate: Bearer scope=\"x\"";
                let status = match is_good {
                    _ if text.starts_with("post /old ") => {
                        "307 Temporary Redirect\r\nlocation: /mcp"
                    }
                    true => "200 OK",
                    false => refusal,
                };
                let response = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        (port, carried)
    }

    fn endpoint(port: u16, path: &str, source: Arc<Tokens>) -> HttpEndpoint {
        let url = url::Url::parse(&format!("http://127.0.0.1:{port}{path}")).unwrap();
        let settings = HttpSettings {
            url: url.clone(),
            socket: None,
            proxy: None,
            metadata: MetadataAccess::Refused,
            headers: Vec::new(),
            credentials: Some(source),
            forwards_credentials: false,
            connect_timeout: Duration::from_secs(10),
            max_message: 1024,
            memory: MemoryBudget::unlimited(&Metrics::new()).share(MemoryHolder::Local),
            on_garbage: Arc::new(|_| {}),
            on_mended: Arc::new(|| {}),
            was_reached: false,
            on_resume: Arc::new(|| {}),
            dial: None,
        };
        let configured = vec![(http::header::AUTHORIZATION, HeaderValue::from_static("old"))];
        HttpClient::for_origin(&settings, &tls_without_roots())
            .unwrap()
            .endpoint(&url, configured)
            .unwrap()
    }

    fn small_request(method: Method) -> HttpRequest {
        match method {
            Method::POST => {
                HttpRequest::post("application/json", Vec::new(), Bytes::from_static(b"{}"))
            }
            method => HttpRequest::bare(method, "text/event-stream", Vec::new()),
        }
    }

    #[tokio::test]
    async fn each_request_of_a_connection_carries_the_credential_of_its_time() {
        let (port, carried) = guarded_server().await;
        let source = Arc::new(Tokens::default());
        let target = endpoint(port, "/mcp", source.clone());
        for (token, method) in [
            ("good1", Method::POST),
            ("good2", Method::GET),
            ("good3", Method::DELETE),
        ] {
            *source.current.lock() = Some(token);
            assert_eq!(
                target
                    .request(small_request(method))
                    .await
                    .unwrap()
                    .status(),
                StatusCode::OK
            );
        }
        // A refused one is renewed, and the request repeated. The second refusal is the response.
        *source.current.lock() = Some("bad1");
        *source.renewals.lock() = ["good4", "bad2"].into();
        assert_eq!(
            target
                .request(small_request(Method::POST))
                .await
                .unwrap()
                .status(),
            StatusCode::OK
        );
        *source.current.lock() = Some("bad3");
        assert_eq!(
            target
                .request(small_request(Method::POST))
                .await
                .unwrap()
                .status(),
            StatusCode::UNAUTHORIZED
        );
        assert_eq!(
            *carried.lock(),
            ["good1", "good2", "good3", "bad1", "good4", "bad3", "bad2"]
        );
        let refusals = source.refusals.lock();
        let challenge = AuthChallenge {
            status: 401,
            values: vec!["Bearer scope=\"x\"".to_owned()],
        };
        let refused = ["bad1", "bad3"]
            .map(|token| (Some(HeaderValue::from_static(token)), challenge.clone()));
        assert_eq!(*refusals, refused);
    }

    #[tokio::test]
    async fn a_refusal_behind_a_redirect_renews_the_credential_once() {
        let (port, carried) = guarded_server().await;
        let source = Arc::new(Tokens::default());
        let target = endpoint(port, "/old", source.clone());
        for (token, renewals, expected) in [
            ("bad1", ["good1", "unused"], StatusCode::OK),
            ("bad2", ["bad3", "good2"], StatusCode::UNAUTHORIZED),
        ] {
            *source.current.lock() = Some(token);
            *source.renewals.lock() = renewals.into();
            let response = target.request(small_request(Method::POST)).await.unwrap();
            assert_eq!(response.status(), expected, "{token}");
            let noted = response.extensions().get::<SentCredential>();
            assert_eq!(noted.is_some(), expected != StatusCode::OK, "{token}");
        }
        assert_eq!(
            *carried.lock(),
            [
                "bad1", "bad1", "good1", "good1", "bad2", "bad2", "bad3", "bad3"
            ]
        );
        let refusals = source.refusals.lock();
        let refused: Vec<_> = refusals.iter().map(|(sent, _)| sent.clone()).collect();
        let expected = ["bad1", "bad2"].map(|token| Some(HeaderValue::from_static(token)));
        assert_eq!(refused, expected);
    }

    #[test]
    fn the_challenges_of_a_refusal_are_kept_within_bounds() {
        let mut headers = HeaderMap::new();
        headers.append(
            WWW_AUTHENTICATE,
            HeaderValue::from_static(r#"Bearer resource_metadata="https://x.test/y""#),
        );
        headers.append(WWW_AUTHENTICATE, "x".repeat(5000).parse().unwrap());
        headers.append(
            WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"x\""),
        );
        let challenge = AuthChallenge::of(StatusCode::UNAUTHORIZED, &headers).unwrap();
        assert_eq!(challenge.status, 401);
        assert_eq!(
            challenge.values,
            [
                r#"Bearer resource_metadata="https://x.test/y""#,
                "Basic realm=\"x\""
            ]
        );
        assert_eq!(AuthChallenge::of(StatusCode::NOT_FOUND, &headers), None);
        for _ in 0..100 {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        assert_eq!(
            AuthChallenge::of(StatusCode::FORBIDDEN, &headers)
                .unwrap()
                .values
                .len(),
            8
        );
    }
}
