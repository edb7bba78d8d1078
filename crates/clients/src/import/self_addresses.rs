//! Addresses of this gateway in the entries of clients.
//!
//! Owns the test that an entry leads back here. Does not say how much it reaches (`gateway_reach`).
//! Invariant: hosts are compared as addresses, so another name of this machine is found, too.

use serde_json::{Map, Value};
use url::{Host, Url};

use super::client_entry::text_of;
use crate::entry_flags::{args_of, values_of};
use crate::start_command::StartCommand;

/// Prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// Addresses of this gateway, which no server may lead back to.
#[derive(Clone, Debug, Default)]
pub struct SelfAddresses {
    /// Hosts and ports of it, such as `127.0.0.1:8080`, with the path that a proxy serves it below,
    /// or `unix:PATH`.
    pub addresses: Vec<String>,
}

impl SelfAddresses {
    /// Names the gateway by one of its endpoints.
    pub fn of_url(url: &str) -> Self {
        let place = EndpointPlace::of(url);
        SelfAddresses {
            addresses: place.map(|place| place.addresses).unwrap_or_default(),
        }
    }

    /// True if an entry leads to this gateway, by its URL or by a bridge, or starts its own
    /// gateway.
    pub fn leads_here(&self, settings: &Map<String, Value>) -> bool {
        if text_of(settings, "url").is_some_and(|url| self.has_url(url)) {
            return true;
        }
        let args = args_of(settings);
        if let Some(urls) = bridge_urls(settings) {
            // A reference, or another path to a socket of this machine, may still mean this one.
            return !urls.iter().any(|url| is_web_url(url) && !self.has_url(url));
        }
        // Whatever else a bridge is called, its arguments name the address that it leads to.
        args.iter()
            .flat_map(|arg| arg.split([' ', '=', '"', '\'']))
            .any(|word| self.has_url(word))
    }

    /// True if an entry is ours to replace: it leads here, or its bridge did before the gateway's
    /// port changed.
    pub fn may_replace(&self, settings: &Map<String, Value>) -> bool {
        let is_near = |url: &&str| Url::parse(url).is_ok_and(|url| is_loopback(&url));
        self.leads_here(settings)
            || bridge_urls(settings).is_some_and(|urls| urls.iter().all(is_near))
    }

    /// True if a URL is one of this gateway's endpoints.
    pub fn has_url(&self, url: &str) -> bool {
        self.endpoint_of(url).is_some()
    }

    /// Returns the endpoint that a URL names, such as `/mcp/coding`, if it is one of this gateway's.
    pub(super) fn endpoint_of(&self, url: &str) -> Option<String> {
        let place = EndpointPlace::of(url)?;
        let is_ours = |address| self.addresses.contains(address);
        place
            .addresses
            .iter()
            .any(is_ours)
            .then_some(place.endpoint)
    }
}

/// Returns the URLs of an entry that starts Moongate as a bridge.
fn bridge_urls(settings: &Map<String, Value>) -> Option<Vec<&str>> {
    let args = args_of(settings);
    // A `moongate` with another command isn't a bridge, such as `moongate mock`.
    text_of(settings, "command")
        .is_some_and(|command| StartCommand::is_bridge(command, &args))
        .then(|| values_of(&args, "--url"))
}

/// True if a URL names a loopback address.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(_)) => hosts_of(url).iter().any(|host| host == "127.0.0.1"),
        None => false,
    }
}

/// True for a URL that names a host.
fn is_web_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.has_host())
}

/// Place that a URL names: a gateway, and one of its endpoints.
struct EndpointPlace {
    /// Forms of its address. Any of them will do.
    addresses: Vec<String>,
    endpoint: String,
}

impl EndpointPlace {
    fn of(text: &str) -> Option<Self> {
        if let Some(location) = text.strip_prefix(UNIX) {
            // As `moongate stdio --url` reads it: `unix:PATH`, or `unix:PATH:/mcp/NAME`.
            let (socket, path) = match location.rsplit_once(":/") {
                Some((socket, path)) => (socket, format!("/{path}")),
                None => (location, "/mcp".to_owned()),
            };
            let (_, endpoint) = split_endpoint(&path).filter(|(before, _)| before.is_empty())?;
            return Some(EndpointPlace {
                addresses: vec![format!("{UNIX}{socket}")],
                endpoint: endpoint.to_owned(),
            });
        }
        let url = Url::parse(text).ok()?;
        let (before, endpoint) = split_endpoint(url.path())?;
        let port = url.port_or_known_default()?;
        Some(EndpointPlace {
            addresses: hosts_of(&url)
                .into_iter()
                .map(|host| format!("{host}:{port}{before}"))
                .collect(),
            endpoint: endpoint.to_owned(),
        })
    }
}

/// Splits a path before its endpoint. A proxy may serve the gateway below a path.
fn split_endpoint(path: &str) -> Option<(&str, &str)> {
    let mut starts = path.match_indices('/').map(|(at, _)| at);
    let at = starts.find(|at| {
        let endpoint = path[at + 1..].split('/').next();
        matches!(endpoint, Some("mcp" | "sse"))
    })?;
    Some(path.split_at(at))
}

/// Returns the hosts that a URL may mean.
fn hosts_of(url: &Url) -> Vec<String> {
    let is_loopback = match url.host() {
        None => return Vec::new(),
        // Names under `localhost` resolve to loopback addresses of either form (RFC 6761, section
        // 6.3).
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        // The system connects to itself for the address of all interfaces.
        Some(Host::Ipv4(address)) => address.is_unspecified(),
        Some(Host::Ipv6(address)) => address.is_unspecified(),
    };
    match is_loopback {
        true => ["127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
        false => url.host_str().map(str::to_owned).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_ours_by_its_address_and_its_endpoint() {
        let own = SelfAddresses {
            addresses: [
                "127.0.0.1:8080",
                "gate.example:443/tools",
                "unix:/run/m.sock",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        for (url, endpoint) in [
            ("http://localhost:8080/mcp", Some("/mcp")),
            ("http://127.0.0.1:8080/sse/files", Some("/sse/files")),
            ("https://gate.example/tools/mcp/coding", Some("/mcp/coding")),
            ("unix:/run/m.sock", Some("/mcp")),
            ("unix:/run/m.sock:/mcp/files", Some("/mcp/files")),
            ("https://gate.example/mcp", None),
            ("http://127.0.0.1:8080/other/mcp", None),
            ("http://127.0.0.1:8080/mcps", None),
            ("http://127.0.0.1:80/mcp", None),
            ("unix:/run/m.sock:/other", None),
            ("unix:/run/other.sock", None),
            ("127.0.0.1:8080", None),
        ] {
            assert_eq!(own.endpoint_of(url).as_deref(), endpoint, "{url}");
        }
        let written = SelfAddresses::of_url("http://[::1]:8080/mcp");
        for url in ["http://localhost:8080/mcp", "http://[::]:8080/mcp"] {
            assert!(written.has_url(url), "{url}");
        }
        assert!(!written.has_url("http://127.0.0.1:8080/mcp"));
        let public = SelfAddresses::of_url("https://gate.example/tools/mcp");
        assert_eq!(public.addresses, ["gate.example:443/tools"]);
    }
}
