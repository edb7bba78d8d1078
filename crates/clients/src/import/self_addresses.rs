//! Addresses of this gateway in the entries of clients.
//!
//! Owns the test that an entry leads back here. Does not say how much it reaches (`gateway_reach`).
//! Invariant: hosts are compared as addresses, so another name of this machine is found, too.

use serde_json::{Map, Value};
use url::Url;

use super::client_entry::text_of;
use crate::start_command::StartCommand;

/// Addresses of this gateway, which no server may lead back to.
#[derive(Clone, Debug, Default)]
pub struct SelfAddresses {
    /// Hosts and ports that it listens on, such as `127.0.0.1:8080`.
    pub addresses: Vec<String>,
}

impl SelfAddresses {
    /// Names the gateway by one of its endpoints.
    pub fn of_url(url: &str) -> Self {
        let address = Url::parse(url).ok().and_then(|url| address_of(&url));
        SelfAddresses {
            addresses: address.into_iter().collect(),
        }
    }

    /// True if an entry leads to this gateway, by its URL or by a bridge, or starts its own
    /// gateway.
    pub fn leads_here(&self, settings: &Map<String, Value>) -> bool {
        if text_of(settings, "url").is_some_and(|url| self.has_url(url)) {
            return true;
        }
        let args = settings
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let args: Vec<&str> = args.filter_map(Value::as_str).collect();
        // Whatever the bridge is called, its arguments name the address that it leads to.
        if args
            .iter()
            .flat_map(|arg| arg.split([' ', '=', '"', '\'']))
            .any(|word| self.has_url(word))
        {
            return true;
        }
        // A `moongate` with another command isn't a bridge, such as `moongate mock`.
        text_of(settings, "command").is_some_and(|command| StartCommand::is_bridge(command, &args))
    }

    /// True if a URL is one of this gateway's endpoints.
    pub fn has_url(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else {
            return false;
        };
        let path = url.path();
        let is_endpoint = ["/mcp", "/sse"]
            .iter()
            .any(|start| path == *start || path.starts_with(&format!("{start}/")));
        is_endpoint && address_of(&url).is_some_and(|address| self.addresses.contains(&address))
    }
}

/// Host and port of a URL.
fn address_of(url: &Url) -> Option<String> {
    let host = match url.host_str()? {
        // Names under `localhost` resolve to loopback addresses (RFC 6761, section 6.3).
        host if host == "localhost" || host.ends_with(".localhost") => "127.0.0.1",
        host => host,
    };
    Some(format!("{host}:{}", url.port_or_known_default()?))
}
