//! Redirect addresses of programs on the person's own computer.
//!
//! Owns their form. Does not know clients. Invariant: such an address has one of three literal
//! hosts, because another name or notation may resolve elsewhere.

use url::Url;

/// Hosts of loopback addresses (RFC 8252, sections 7.3 and 8.3).
const HOSTS: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

/// Address without its port, which may vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopbackAddress {
    host: &'static str,
    /// Port, by default the scheme's.
    pub(crate) port: Option<u16>,
    path: String,
    query: Option<String>,
}

impl LoopbackAddress {
    /// Parses an address. `None`: it is not on loopback.
    pub(crate) fn of(url: &Url) -> Option<Self> {
        let named = url.host_str().filter(|_| url.scheme() == "http")?;
        let host = HOSTS.into_iter().find(|host| *host == named)?;
        Some(LoopbackAddress {
            host,
            port: url.port_or_known_default(),
            path: url.path().to_owned(),
            query: url.query().map(str::to_owned),
        })
    }

    /// Returns true if two addresses differ at most in their ports.
    pub(crate) fn is_same_program(&self, other: &LoopbackAddress) -> bool {
        self.host == other.host && self.path == other.path && self.query == other.query
    }
}

/// Returns true if a text is a loopback address.
pub(crate) fn is_loopback_address(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| LoopbackAddress::of(&url).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<LoopbackAddress> {
        LoopbackAddress::of(&Url::parse(text).unwrap())
    }

    #[test]
    fn three_hosts_are_on_loopback_and_none_is_another() {
        for text in [
            "https://127.0.0.1/cb",
            "http://127.0.0.2/cb",
            "http://localhost.evil.test/cb",
            "http://a.localhost/cb",
            "http://[::ffff:127.0.0.1]/cb",
            "http://0.0.0.0/cb",
            "cursor://localhost/cb",
        ] {
            assert_eq!(address(text), None, "{text}");
            assert!(!is_loopback_address(text), "{text}");
        }
        let first = address("http://127.0.0.1/cb").unwrap();
        for (text, is_same) in [
            ("http://127.0.0.1:65535/cb", true),
            ("http://localhost/cb", false),
            ("http://[::1]/cb", false),
            ("http://127.0.0.1/cb/", false),
            ("http://127.0.0.1/cb?x=1", false),
            ("http://127.0.0.1/", false),
        ] {
            let other = address(text).unwrap();
            assert_eq!(first.is_same_program(&other), is_same, "{text}");
        }
        let bare = address("http://localhost:1").unwrap();
        assert!(bare.is_same_program(&address("http://localhost:2/").unwrap()));
    }
}
