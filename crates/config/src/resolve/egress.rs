//! Hosts that logins may reach at private addresses: `egress`.
//!
//! Owns the form of such a host. Does not connect (`moongate_transport::fetcher`). Invariant: each
//! entry is one host, so that it allows no other.

use std::net::Ipv6Addr;

use url::Host;

use super::resolver::PlanResolver;
use crate::file::EgressRules;
use crate::problem::ProblemKind;
use crate::tree::ConfigPath;

impl PlanResolver<'_> {
    /// Resolves the hosts, in the form in which URLs have them.
    pub(super) fn egress(&mut self, rules: &EgressRules) -> Vec<String> {
        let path = ConfigPath::of(&["egress", "allow"]);
        let mut hosts = Vec::new();
        for (at, text) in rules.allow.iter().enumerate() {
            if let Some(host) = parse_host(text) {
                hosts.push(host);
                continue;
            }
            let path = path.item(at);
            let message = format!("`{path}`: {} is not a host", self.quoted_value(&path));
            let fix = "write only a name or an address, such as \"auth.internal\"; any port is \
                       allowed, and `*` is not supported";
            self.error(ProblemKind::Value, &path, message, fix);
        }
        hosts
    }
}

/// Parses a name or an address without a scheme, a port or a wildcard.
pub(super) fn parse_host(text: &str) -> Option<String> {
    // `url` knows IPv6 only in brackets.
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.to_string());
    }
    match Host::parse(text).ok()? {
        Host::Domain(name) => name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
            .then_some(name),
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(address) => Some(address.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_alone() {
        for (text, host) in [
            ("localhost", "localhost"),
            ("Auth.Internal", "auth.internal"),
            ("10.0.0.7", "10.0.0.7"),
            ("[::1]", "::1"),
            ("fd00:0::7", "fd00::7"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(parse_host(text).as_deref(), Some(host), "{text}");
        }
        for text in [
            "",
            "*",
            "*.internal",
            "auth.internal:8443",
            "https://auth.internal",
            "auth.internal/login",
            "me@auth.internal",
            "a.internal,b.internal",
            "a.internal b.internal",
            "10.0.0.0/8",
        ] {
            assert_eq!(parse_host(text), None, "{text}");
        }
    }
}
