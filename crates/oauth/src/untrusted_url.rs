//! URLs that servers and authorization servers name.
//!
//! Owns the checks that each must pass before anything uses it. Does not fetch. Invariant: such a
//! URL is http or https, short, and without invisible characters, credentials or a fragment.

use std::net::IpAddr;

use url::{Host, Url};

/// Maximum length of a URL, in bytes.
// Errors name its host, and browsers get it as part of a longer one.
const LENGTH_MAX: usize = 2048;

/// Parses a URL from outside. `None`: it must not be used.
pub(crate) fn parse(text: &str) -> Option<Url> {
    // The parser drops tabs and line ends, so other readers of the text would see a different URL.
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.len() > LENGTH_MAX || !is_visible {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "https" | "http");
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    let is_plain = !has_credentials && url.fragment().is_none();
    (is_web && is_plain && url.has_host()).then_some(url)
}

/// Parses a URL that others name, and that is used outside of logins at servers. `None`: nothing may
/// use it.
pub fn parse_untrusted_url(text: &str) -> Option<Url> {
    parse(text)
}

/// Returns true if the host of a URL is this machine.
pub fn is_loopback_url(url: &Url) -> bool {
    is_loopback(url)
}

/// Host of a URL, for messages.
pub(crate) fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Returns the URL of a server for requests over HTTP. WebSocket servers log in over HTTP, too.
pub(crate) fn http_url(url: &Url) -> Url {
    let scheme = match url.scheme() {
        "wss" => "https",
        "ws" => "http",
        _ => return url.clone(),
    };
    let mut url = url.clone();
    url.set_scheme(scheme)
        .expect("these schemes have the same form");
    url
}

/// True if the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        // RFC 6761, section 6.3: names that end in `.localhost` are loopback, too.
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_socket_server_has_an_http_url() {
        for (text, expected) in [
            (
                "wss://mcp.example.com/mcp?x=1",
                "https://mcp.example.com/mcp?x=1",
            ),
            (
                "wss://mcp.example.com:443/mcp",
                "https://mcp.example.com/mcp",
            ),
            (
                "wss://mcp.example.com:80/mcp",
                "https://mcp.example.com:80/mcp",
            ),
            ("ws://127.0.0.1:8080/mcp", "http://127.0.0.1:8080/mcp"),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp"),
        ] {
            let url = http_url(&Url::parse(text).unwrap());
            assert_eq!(url.as_str(), expected, "{text}");
        }
    }

    #[test]
    fn a_loopback_host_is_this_machine() {
        for (text, expected) in [
            ("http://localhost:8080/", true),
            ("http://a.localhost/", true),
            ("http://127.0.0.2/", true),
            ("http://[::1]/", true),
            ("http://[::ffff:127.0.0.1]/", true),
            ("http://mcp.lan/", false),
            ("http://notlocalhost/", false),
            ("http://localhost.example/", false),
            ("http://10.0.0.1/", false),
            ("http://0.0.0.0/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn only_plain_web_addresses_pass() {
        for text in [
            "https://auth.example.com",
            "https://auth.example.com/authorize?tenant=1",
            "http://127.0.0.1:9000/token",
            "https://[::1]/token",
        ] {
            assert!(parse(text).is_some(), "{text}");
        }
        let long = format!("https://auth.example.com/{}", "x".repeat(LENGTH_MAX));
        for text in [
            "",
            "auth.example.com",
            "/authorize",
            "//auth.example.com/authorize",
            "$(x)",
            "javascript:alert(1)",
            "java\nscript:alert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "cursor://auth.example.com/",
            "ftp://auth.example.com/",
            "https://",
            "https://ann@auth.example.com/",
            "https://ann:word@auth.example.com/",
            "https://auth.example.com/#token",
            " https://auth.example.com/",
            "https://auth.example.com/\t",
            "https://auth.example.com/a b",
            "https://b\u{fc}cher.example/",
            long.as_str(),
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
