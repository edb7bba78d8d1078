//! Cookie of a browser that has signed in.
//!
//! Owns its attributes and the choice between its names. Does not know sessions (`sessions`).
//! Invariant: a cookie leaves a browser only over TLS, or stays on its machine.

use http::{HeaderMap, HeaderValue, Uri, header};

use moongate_access::auth::KeyHash;
use moongate_listener::{is_loopback_host, request_hosts};

/// Names of one page's cookie.
#[derive(Clone, Copy, Debug)]
pub struct CookieNames {
    /// Name behind a proxy with TLS. With the prefix `__Host-`, browsers take it only over TLS, and
    /// from no other host.
    pub tls: &'static str,
    /// Name on loopback without TLS.
    pub plain: &'static str,
}

/// Way from the browser to the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserPath {
    /// TLS, which a proxy before the listener ends.
    Tls,
    /// No network: the browser is on this machine, or at the other end of a tunnel.
    Loopback,
}

impl BrowserPath {
    /// Finds the way of a request, or `None` if a cookie would cross a network in plain text.
    ///
    /// A browser states in `Origin` how it reached the page, and no proxy or script changes that.
    pub fn of(headers: &HeaderMap, uri: &Uri) -> Option<Self> {
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

    /// Returns the attributes of a cookie on this way.
    fn attributes(self) -> &'static str {
        match self {
            BrowserPath::Tls => "Secure; HttpOnly; SameSite=Strict; Path=/",
            // Without `Secure`: not every browser keeps such a cookie over plain HTTP, even on
            // loopback.
            BrowserPath::Loopback => "HttpOnly; SameSite=Strict; Path=/",
        }
    }
}

impl CookieNames {
    fn on(self, path: BrowserPath) -> &'static str {
        match path {
            BrowserPath::Tls => self.tls,
            BrowserPath::Loopback => self.plain,
        }
    }

    /// Returns the header that hands a session's secret to the browser. It lives as long as the
    /// browser. `None`: a name or the secret has characters that a header can't have.
    pub fn set(self, path: BrowserPath, secret: &str) -> Option<HeaderValue> {
        let name = self.on(path);
        HeaderValue::from_str(&format!("{name}={secret}; {}", path.attributes())).ok()
    }

    /// Returns the headers that remove the cookie, by either name.
    pub fn clear(self) -> impl Iterator<Item = HeaderValue> {
        [BrowserPath::Tls, BrowserPath::Loopback]
            .into_iter()
            .filter_map(move |path| {
                let name = self.on(path);
                let attributes = path.attributes();
                HeaderValue::from_str(&format!("{name}=; Max-Age=0; {attributes}")).ok()
            })
    }

    /// Returns the hashes of the secrets in a request's cookies.
    ///
    /// A browser that came both ways sends both names, and only one of them may still be good.
    pub fn hashes_in(self, headers: &HeaderMap) -> impl Iterator<Item = KeyHash> {
        // The name for TLS first: a page on another port of this host can set the plain one.
        [self.tls, self.plain]
            .into_iter()
            .filter_map(|name| hash_of_cookie(headers, name))
    }
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

    const NAMES: CookieNames = CookieNames {
        tls: "__Host-moongate",
        plain: "moongate_admin",
    };

    fn browser_path(host: &str, origin: Option<&'static str>) -> Option<BrowserPath> {
        let mut headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
        BrowserPath::of(&headers, &Uri::from_static("/"))
    }

    fn hashes_in(cookies: &[&'static str]) -> Vec<KeyHash> {
        let headers = cookies
            .iter()
            .map(|value| (header::COOKIE, HeaderValue::from_static(value)));
        NAMES.hashes_in(&headers.collect()).collect()
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
            hashes_in(&["a=b; moongate_admin=s; c=d"]),
            [KeyHash::of("s")]
        );
        assert_eq!(
            hashes_in(&["a=b", "__Host-moongate=t; moongate_admin=s"]),
            [KeyHash::of("t"), KeyHash::of("s")],
            "a session of either way may be the one that is good"
        );
        assert_eq!(hashes_in(&["xmoongate_admin=s", "moongate_admin"]), []);
    }

    #[test]
    fn a_cookie_is_set_and_removed_with_the_same_attributes() {
        let set = NAMES.set(BrowserPath::Tls, "s").unwrap();
        assert_eq!(
            set,
            "__Host-moongate=s; Secure; HttpOnly; SameSite=Strict; Path=/"
        );
        let set = NAMES.set(BrowserPath::Loopback, "s").unwrap();
        assert_eq!(set, "moongate_admin=s; HttpOnly; SameSite=Strict; Path=/");
        let cleared: Vec<HeaderValue> = NAMES.clear().collect();
        assert_eq!(
            cleared,
            [
                "__Host-moongate=; Max-Age=0; Secure; HttpOnly; SameSite=Strict; Path=/",
                "moongate_admin=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/",
            ]
        );
        assert_eq!(NAMES.set(BrowserPath::Tls, "a\nb"), None);
    }
}
