//! Hosts and origins that requests may name.
//!
//! Owns how a host is read and compared. Does not refuse requests (`origin`). Invariant: a name
//! that is not a host, a port or an address as RFC 3986 has them is never accepted.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

/// Accepted hosts and origins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostRules {
    /// Exact names, or `*.domain`. Lower case, without ports.
    pub hosts: Vec<String>,
    /// Browser origins, such as `http://localhost:6274`. Lower case.
    pub origins: Vec<String>,
}

impl HostRules {
    /// True if a Host value is accepted. Loopback names and addresses always are: a rebinding
    /// attack arrives under a name of the attacker's.
    pub fn accepts_host(&self, value: &str) -> bool {
        let Some(host) = without_port(value) else {
            return false;
        };
        let host = host.to_ascii_lowercase();
        address_of(&host).is_some()
            || host == "localhost"
            || self.hosts.iter().any(|rule| matches(rule, &host))
    }

    /// Checks every host that a request names, and that it names one. HTTP/1.1 has a header for it,
    /// HTTP/2 the authority. A request with both must not have one checked and the other believed.
    pub fn accepts_request<'a>(
        &self,
        headers: &'a HeaderMap,
        uri: &'a Uri,
    ) -> Result<(), Option<&'a str>> {
        let mut hosts = request_hosts(headers, uri).peekable();
        if hosts.peek().is_none() {
            return Err(None);
        }
        let wrong = hosts.find(|host| !host.is_some_and(|host| self.accepts_host(host)));
        wrong.map_or(Ok(()), Err)
    }

    /// True if pages of this origin may send requests: the origin is listed, or it is our own.
    pub fn accepts_origin(&self, origin: &str, host: Option<&str>) -> bool {
        // Scheme and host are compared without case (RFC 3986, section 6.2.2.1).
        let origin = origin.to_ascii_lowercase();
        // A page that this listener served has its host as the origin.
        let is_own = origin
            .split_once("://")
            .is_some_and(|(_, from)| host.is_some_and(|host| host.eq_ignore_ascii_case(from)));
        is_own || self.origins.contains(&origin)
    }
}

/// Returns each host that a request names, `None` for one that is not text.
pub fn request_hosts<'a>(
    headers: &'a HeaderMap,
    uri: &'a Uri,
) -> impl Iterator<Item = Option<&'a str>> {
    let named = headers
        .get_all(header::HOST)
        .into_iter()
        .map(|value| value.to_str().ok());
    named.chain(uri.authority().map(|authority| Some(authority.as_str())))
}

/// True if a request has several Host headers.
///
/// RFC 9112, section 3.2: "A server MUST respond with a 400 (Bad Request) status code to any
/// HTTP/1.1 request message that lacks a Host header field and to any request message that contains
/// more than one Host header field line".
pub fn has_several_hosts(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().nth(1).is_some()
}

/// True if a Host value names this machine.
pub fn is_loopback_host(value: &str) -> bool {
    let Some(host) = without_port(value) else {
        return false;
    };
    address_of(host).is_some_and(|address| address.to_canonical().is_loopback())
        || host.eq_ignore_ascii_case("localhost")
}

fn matches(rule: &str, host: &str) -> bool {
    match rule.strip_prefix("*.") {
        // A wildcard such as `*.example.com` does not cover `example.com` itself.
        Some(domain) => host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
        None => rule == host,
    }
}

/// Reads an address: `127.0.0.1`, `[::1]`.
fn address_of(host: &str) -> Option<IpAddr> {
    // RFC 3986, section 3.2.2: only an IPv6 address has brackets, and "this is the only place where
    // square bracket characters are allowed in the URI syntax".
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Strips the port: `host`, `host:port`, `[::1]`, `[::1]:port`. `None` for what is none of these.
fn without_port(value: &str) -> Option<&str> {
    // An IPv6 address has colons itself, so its brackets mark the end. Nothing but a port may
    // follow.
    let end = match value.starts_with('[') {
        true => value.find(']')? + 1,
        false => value.find(':').unwrap_or(value.len()),
    };
    let (host, rest) = value.split_at(end);
    let port = rest.strip_prefix(':');
    let has_port = port.is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    (rest.is_empty() || has_port).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let rules = HostRules {
            hosts: vec!["gateway".into(), "*.example.com".into()],
            origins: vec!["http://localhost:6274".into()],
        };
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "10.1.2.3",
            "gateway:1",
            "a.example.com",
            "a.b.example.com:443",
        ] {
            assert!(rules.accepts_host(host), "{host}");
        }
        for host in [
            "evil.test",
            "localhost.evil.test",
            "example.com",
            "xexample.com",
            "",
            ".example.com",
            "gateway.evil.test",
            "127.0.0.1.evil.test",
            "[::1].evil.test",
            "[::1].evil.test:8080",
            "[::1]evil.test",
            "[::1]]",
            "[[::1]]",
            "[::1",
            "::1]",
            "::1",
            "[127.0.0.1]",
            "[localhost]",
            "127.0.0.1:80.evil.test",
            "127.0.0.1:80:80",
            "localhost:80@evil.test",
            "localhost:x",
            "[::1]:8080.evil.test",
            "[::1%25lo]",
            "me@localhost",
        ] {
            assert!(!rules.accepts_host(host), "{host}");
            assert!(!is_loopback_host(host), "{host}");
        }
        for host in [
            "localhost",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "LocalHost:",
        ] {
            assert!(is_loopback_host(host), "{host}");
        }
        assert!(!is_loopback_host("10.1.2.3") && !is_loopback_host("[2001:db8::1]:80"));
        assert!(rules.accepts_origin("http://localhost:6274", Some("localhost:8080")));
        assert!(rules.accepts_origin("http://localhost:8080", Some("localhost:8080")));
        for origin in ["https://evil.test", "null", "http://localhost:6275", ""] {
            assert!(
                !rules.accepts_origin(origin, Some("localhost:8080")),
                "{origin}"
            );
        }
    }
}
