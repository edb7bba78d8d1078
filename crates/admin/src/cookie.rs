//! Cookie of a browser that has signed in.
//!
//! Owns its names, its attributes and the choice between them. Does not know sessions (`sign_in`).
//! Invariant: a cookie leaves a browser only over TLS, or stays on its machine.

use http::{HeaderMap, HeaderValue, Uri, header};

use moongate_access::auth::KeyHash;
use moongate_listener::{is_loopback_host, request_hosts};

/// Name behind a proxy with TLS. Browsers take this prefix only over TLS, and from no other host.
const TLS_NAME: &str = "__Host-moongate";
/// Name on loopback without TLS.
const PLAIN_NAME: &str = "moongate_admin";

/// Way from the browser to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrowserPath {
    /// TLS, which a proxy before the listener ends.
    Tls,
    /// No network: the browser is on this machine, or at the other end of a tunnel.
    Loopback,
}

impl BrowserPath {
    /// Finds the way of a request, or `None` if a cookie would cross a network in plain text.
    ///
    /// A browser states in `Origin` how it reached the page, and no proxy or script changes that.
    pub(super) fn of(headers: &HeaderMap, uri: &Uri) -> Option<Self> {
        let origin = headers
            .get(header::ORIGIN)
            .map(|origin| origin.to_str().unwrap_or_default());
        if origin.is_some_and(|origin| origin.starts_with("https://")) {
            return Some(BrowserPath::Tls);
        }
        let host = match origin {
            // An opaque origin, `null`, says nothing about the way, so it gets no cookie.
            Some(origin) => origin.strip_prefix("http://"),
            None => request_hosts(headers, uri).next().flatten(),
        };
        host.is_some_and(is_loopback_host)
            .then_some(BrowserPath::Loopback)
    }

    /// Returns the header that hands a session's secret to the browser. It lives as long as the
    /// browser.
    pub(super) fn set_cookie(self, secret: &str) -> String {
        match self {
            BrowserPath::Tls => {
                format!("{TLS_NAME}={secret}; Secure; HttpOnly; SameSite=Strict; Path=/")
            }
            // Without `Secure`: not every browser keeps such a cookie over plain HTTP, even on
            // loopback.
            BrowserPath::Loopback => {
                format!("{PLAIN_NAME}={secret}; HttpOnly; SameSite=Strict; Path=/")
            }
        }
    }
}

/// Headers that remove the cookie, by either name.
pub(super) const CLEAR_COOKIES: [HeaderValue; 2] = [
    HeaderValue::from_static(
        "__Host-moongate=; Max-Age=0; Secure; HttpOnly; SameSite=Strict; Path=/",
    ),
    HeaderValue::from_static("moongate_admin=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/"),
];

/// Returns the hash of the secret in a request's cookie.
pub(super) fn cookie_hash(headers: &HeaderMap) -> Option<KeyHash> {
    // The name for TLS first: a page on another port of this host can set the plain one.
    hash_of_cookie(headers, TLS_NAME).or_else(|| hash_of_cookie(headers, PLAIN_NAME))
}

/// Returns the hash of a cookie's value.
fn hash_of_cookie(headers: &HeaderMap, wanted: &str) -> Option<KeyHash> {
    let values = headers
        .get_all(header::COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let mut cookies = values
        .flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='));
    let (_, secret) = cookies.find(|(name, _)| *name == wanted)?;
    Some(KeyHash::of(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn browser_path(host: &str, origin: Option<&'static str>) -> Option<BrowserPath> {
        let mut headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
        BrowserPath::of(&headers, &Uri::from_static("/"))
    }

    fn hash_in(cookies: &[&'static str]) -> Option<KeyHash> {
        let headers = cookies
            .iter()
            .map(|value| (header::COOKIE, HeaderValue::from_static(value)));
        cookie_hash(&headers.collect())
    }

    #[test]
    fn a_cookie_needs_tls_or_loopback() {
        for host in [
            "127.0.0.1:9090",
            "localhost:9090",
            "[::1]:9090",
            "LOCALHOST",
        ] {
            assert_eq!(
                browser_path(host, None),
                Some(BrowserPath::Loopback),
                "{host}"
            );
        }
        assert_eq!(
            browser_path("127.0.0.1:9090", Some("http://localhost:9090")),
            Some(BrowserPath::Loopback)
        );
        assert_eq!(
            browser_path("gateway.example.com", Some("https://gateway.example.com")),
            Some(BrowserPath::Tls)
        );
        // A proxy may put its own address into Host. The browser says where it is.
        assert_eq!(
            browser_path("127.0.0.1:9090", Some("http://gateway.example.com")),
            None
        );
        for host in [
            "192.0.2.1:9090",
            "gateway.example.com",
            "localhost.example.com",
            "",
        ] {
            assert_eq!(browser_path(host, None), None, "{host}");
        }
        assert_eq!(browser_path("127.0.0.1:9090", Some("null")), None);
    }

    #[test]
    fn the_secret_is_found_among_other_cookies() {
        assert_eq!(
            hash_in(&["a=b; moongate_admin=s; c=d"]),
            Some(KeyHash::of("s"))
        );
        assert_eq!(
            hash_in(&["a=b", "__Host-moongate=t; moongate_admin=s"]),
            Some(KeyHash::of("t"))
        );
        assert_eq!(hash_in(&["xmoongate_admin=s", "moongate_admin"]), None);
    }
}
