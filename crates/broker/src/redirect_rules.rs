//! Rules for redirect addresses.
//!
//! Owns their form, and which hosts and schemes are allowed. Does not redirect. Invariant: a code
//! goes only to an address that its client registered and the operator allows, and that every
//! parser reads alike.

use moongate_access::auth::{BrokerSettings, CLIENT_SCHEMES};
use moongate_oauth::is_loopback_url;
use url::Url;

use crate::client_record::ClientRecord;
use crate::loopback_address::LoopbackAddress;

/// Longest address, in bytes.
const LENGTH_MAX: usize = 2048;
/// Schemes that no setting allows, because browsers run or open them themselves.
const NEVER: [&str; 16] = [
    "about",
    "blob",
    "chrome",
    "content",
    "data",
    "file",
    "filesystem",
    "ftp",
    "http",
    "intent",
    "javascript",
    "jar",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];

/// Parameters of an answer. One in the address itself would come first, and many clients read the
/// first of two.
const ANSWER_NAMES: [&str; 4] = ["code", "state", "iss", "error"];

/// Kind of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedirectKind {
    /// Web address at a host.
    Web {
        /// Host.
        host: String,
    },
    /// Program on the person's computer.
    Loopback,
    /// Program that has this scheme on the person's computer.
    Private {
        /// Scheme.
        scheme: String,
    },
}

/// Reason to refuse a redirect address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedirectFault {
    /// Not a URL, or one that programs parse differently.
    Malformed,
    /// This scheme is not allowed.
    Scheme(String),
    /// The address belongs to this gateway.
    OwnHost,
    /// The client has not registered it.
    NotRegistered,
    /// This host is not in `allow_clients`.
    HostNotAllowed(String),
}

/// Rules for redirect addresses.
pub(crate) struct RedirectRules {
    own: Url,
    hosts: Vec<String>,
    schemes: Vec<String>,
}

impl RedirectFault {
    /// Returns true for a private scheme that the config does not know, and that harms nobody.
    pub(crate) fn is_unknown_scheme(&self) -> bool {
        matches!(self, RedirectFault::Scheme(scheme) if !NEVER.contains(&scheme.as_str()))
    }
}

impl RedirectRules {
    /// Creates the rules of the config.
    pub(crate) fn new(settings: &BrokerSettings) -> Self {
        let mut schemes = settings.redirect_schemes.clone();
        schemes.extend(CLIENT_SCHEMES.map(str::to_owned));
        RedirectRules {
            own: settings.public_url.clone(),
            hosts: settings.allow_clients.clone(),
            schemes,
        }
    }

    /// Checks an address without its client.
    pub(crate) fn check(&self, address: &str) -> Result<RedirectKind, RedirectFault> {
        let url = parse_exact(address).ok_or(RedirectFault::Malformed)?;
        if let Some(loopback) = LoopbackAddress::of(&url) {
            let own_port = self.own.port_or_known_default();
            let is_own = is_loopback_url(&self.own) && loopback.port == own_port;
            return if is_own {
                Err(RedirectFault::OwnHost)
            } else {
                Ok(RedirectKind::Loopback)
            };
        }
        if url.scheme() == "https" {
            let host = url.host_str().ok_or(RedirectFault::Malformed)?;
            if self.own.host_str() == Some(host) {
                return Err(RedirectFault::OwnHost);
            }
            let host = host.to_owned();
            return Ok(RedirectKind::Web { host });
        }
        let scheme = url.scheme();
        // RFC 8252, section 7.1: a private scheme is a domain name in reverse.
        let is_private = scheme.contains('.') || self.schemes.iter().any(|known| known == scheme);
        if NEVER.contains(&scheme) || !is_private {
            return Err(RedirectFault::Scheme(scheme.to_owned()));
        }
        let scheme = scheme.to_owned();
        Ok(RedirectKind::Private { scheme })
    }

    /// Checks an address that a client requests.
    pub(crate) fn allows(
        &self,
        client: &ClientRecord,
        address: &str,
    ) -> Result<RedirectKind, RedirectFault> {
        let kind = self.check(address)?;
        if !is_registered(client, address) {
            return Err(RedirectFault::NotRegistered);
        }
        let web_host = match &kind {
            RedirectKind::Web { host } => Some(host),
            RedirectKind::Loopback | RedirectKind::Private { .. } => None,
        };
        for host in client.host.iter().chain(web_host) {
            if !self.allows_host(host) {
                return Err(RedirectFault::HostNotAllowed(host.clone()));
            }
        }
        Ok(kind)
    }

    /// Returns true if clients at a host are allowed.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed == host)
    }
}

/// Parses an address that is written as every program reads it. `None` for others, such as one with
/// a host in another notation, a tab, a backslash, a user or a fragment. Also `None` for one that
/// has a part of an answer.
fn parse_exact(address: &str) -> Option<Url> {
    let is_visible = address.bytes().all(|byte| byte.is_ascii_graphic());
    if address.len() > LENGTH_MAX || !is_visible {
        return None;
    }
    let url = Url::parse(address).ok()?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    // A web address without a path has the path `/`.
    let written = url.as_str();
    let is_exact = written == address || written.strip_suffix('/') == Some(address);
    let has_answer = url
        .query_pairs()
        .any(|(name, _)| ANSWER_NAMES.contains(&&*name));
    (is_plain && !has_answer && url.fragment().is_none() && is_exact).then_some(url)
}

/// Returns true if a client has registered an address. On loopback any port is allowed, even if one
/// is registered (RFC 8252, section 7.3).
fn is_registered(client: &ClientRecord, address: &str) -> bool {
    let loopback = |text: &str| LoopbackAddress::of(&parse_exact(text)?);
    let asked = loopback(address);
    client.redirects.iter().any(|registered| {
        let is_same_program = match (&asked, loopback(registered)) {
            (Some(asked), Some(registered)) => asked.is_same_program(&registered),
            _ => false,
        };
        is_same_program || registered == address
    })
}

#[cfg(test)]
mod tests;
