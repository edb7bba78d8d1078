//! Proxies that are trusted to name the address of a client.
//!
//! Owns their list and reads `X-Forwarded-For`. Does not limit anything. Invariant: the header
//! counts only if a listed proxy sent the request, and only as far as listed proxies wrote it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// Header to which each proxy appends the address of whoever connected to it.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Entry for proxies that connect over a Unix socket.
const UNIX_ENTRY: &str = "unix";

/// Proxies that are trusted to name the address of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    /// True if whoever connects over a Unix socket is a proxy.
    unix: bool,
}

impl TrustedProxies {
    /// Adds an entry of a config: an address, a block of addresses or `unix`. Returns false if it
    /// is none of these.
    #[must_use]
    pub fn add(&mut self, entry: &str) -> bool {
        if entry == UNIX_ENTRY {
            self.unix = true;
            return true;
        }
        let network = parse_network(entry);
        self.networks.extend(network);
        network.is_some()
    }

    /// Returns the address of a request's client. `direct` is the address that connected here, or
    /// `None` over a Unix socket. It is also the answer if the header is missing or malformed.
    pub fn client_address(&self, direct: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let is_proxy = match direct {
            Some(address) => self.has_address(address),
            None => self.unix,
        };
        if !is_proxy {
            return direct;
        }
        self.forwarded_address(headers).or(direct)
    }

    /// Finds the last forwarded address that isn't a proxy's. Anybody can have written what is in
    /// front of it, so that is not even parsed.
    fn forwarded_address(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for entry in entries {
            // An entry that a proxy left empty or unknown must not give way to the one before it.
            let address = parse_address(entry)?;
            if !self.has_address(address) {
                return Some(address);
            }
        }
        None
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let mut networks = self.networks.iter();
        networks.any(|network| network.contains(&address))
    }
}

/// Parses an address or a block of addresses, which must not have all of them.
fn parse_network(entry: &str) -> Option<IpNet> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some(IpNet::from(address.to_canonical()));
    }
    let network = entry.parse::<IpNet>().ok()?;
    // Addresses are compared as IPv4 where they can be, so a mapped block would match nobody.
    let is_canonical = network.addr().to_canonical() == network.addr();
    (is_canonical && network.prefix_len() > 0).then_some(network)
}

/// Parses a forwarded address. Some proxies add brackets or a port.
fn parse_address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim();
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match inner {
        Some(inner) => IpAddr::V6(inner.parse::<Ipv6Addr>().ok()?),
        None => match text.parse::<SocketAddr>() {
            Ok(socket) => socket.ip(),
            Err(_) => text.parse::<IpAddr>().ok()?,
        },
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::HeaderValue;

    use super::*;

    fn proxies(entries: &[&str]) -> TrustedProxies {
        let mut proxies = TrustedProxies::default();
        for entry in entries {
            assert!(proxies.add(entry), "{entry}");
        }
        proxies
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn forwarded(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            // `from_static` refuses what isn't ASCII, but a client may send it.
            let value = HeaderValue::from_bytes(line.as_bytes()).unwrap();
            headers.append(FORWARDED_FOR, value);
        }
        headers
    }

    #[test]
    fn a_header_from_an_untrusted_peer_counts_for_nothing() {
        let headers = forwarded(&["192.0.2.7"]);
        let direct = ip("198.51.100.1");
        let nobody = TrustedProxies::default();
        assert_eq!(nobody.client_address(direct, &headers), direct);
        assert_eq!(nobody.client_address(None, &headers), None);
        let others = proxies(&["10.0.0.0/8", "unix"]);
        assert_eq!(others.client_address(direct, &headers), direct);
    }

    #[test]
    fn a_trusted_proxy_names_the_address() {
        let trusted = proxies(&["10.0.0.0/8", "127.0.0.1"]);
        for (lines, expected) in [
            (&["192.0.2.7"][..], "192.0.2.7"),
            (&[" 192.0.2.7 "], "192.0.2.7"),
            (&["192.0.2.7:4711"], "192.0.2.7"),
            (&["2001:db8::7"], "2001:db8::7"),
            (&["[2001:db8::7]"], "2001:db8::7"),
            (&["[2001:db8::7]:4711"], "2001:db8::7"),
            (&["::ffff:192.0.2.7"], "192.0.2.7"),
            // The client wrote whatever is in front of its own address.
            (&["198.51.100.9, 192.0.2.7"], "192.0.2.7"),
            (&["garbage,, \u{fc}", "192.0.2.7"], "192.0.2.7"),
            // The second proxy was reached from the first.
            (&["198.51.100.9, 192.0.2.7, 10.0.0.2"], "192.0.2.7"),
            (&["198.51.100.9, 192.0.2.7", "10.0.0.2:80"], "192.0.2.7"),
            (&["192.0.2.7, ::ffff:10.0.0.2, 127.0.0.1"], "192.0.2.7"),
        ] {
            let headers = forwarded(lines);
            let found = trusted.client_address(ip("10.0.0.1"), &headers);
            assert_eq!(found, ip(expected), "{lines:?}");
        }
    }

    #[test]
    fn without_a_valid_entry_the_direct_address_counts() {
        let trusted = proxies(&["10.0.0.0/8"]);
        let direct = ip("10.0.0.1");
        for lines in [
            &[""][..],
            &[],
            &["unknown"],
            &["192.0.2.7,"],
            &["192.0.2.7, unknown"],
            &["192.0.2.7", ""],
            &["192.0.2.7, 10.0.0.2, _hidden"],
            &["192.0.2.7, \"192.0.2.8\""],
            &["192.0.2.7, for=192.0.2.8"],
            &["192.0.2.7 192.0.2.8"],
            &["192.0.2.300"],
            &["192.0.2.7:99999"],
            &["[192.0.2.7]"],
            &["fe80::1%eth0"],
            &["10.0.0.2, 10.0.0.3"],
        ] {
            let found = trusted.client_address(direct, &forwarded(lines));
            assert_eq!(found, direct, "{lines:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("forwarded", HeaderValue::from_static("for=192.0.2.7"));
        assert_eq!(trusted.client_address(direct, &headers), direct);
    }

    #[test]
    fn a_unix_socket_is_trusted_only_if_it_is_listed() {
        let headers = forwarded(&["192.0.2.7"]);
        let addresses = proxies(&["10.0.0.0/8"]);
        assert_eq!(addresses.client_address(None, &headers), None);
        let unix = proxies(&["unix"]);
        assert_eq!(unix.client_address(None, &headers), ip("192.0.2.7"));
        assert_eq!(unix.client_address(None, &HeaderMap::new()), None);
    }

    #[test]
    fn blocks_have_their_own_addresses_alone() {
        let trusted = proxies(&[
            "10.1.2.3/8",
            "192.0.2.64/26",
            "fd00:1::/32",
            "::ffff:7.7.7.7",
        ]);
        for inside in [
            "10.0.0.0",
            "10.255.255.255",
            "::ffff:10.9.9.9",
            "192.0.2.64",
            "192.0.2.127",
            "fd00:1::",
            "fd00:1:ffff::1",
            "7.7.7.7",
        ] {
            assert!(trusted.has_address(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "9.255.255.255",
            "11.0.0.0",
            "192.0.2.63",
            "192.0.2.128",
            "fd00:2::",
            "::a00:1",
            "7.7.7.8",
        ] {
            assert!(!trusted.has_address(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn an_entry_is_an_address_or_a_block() {
        for entry in [
            "",
            "proxy.internal",
            "10.0.0.1:80",
            "10.0.0/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/8 ",
            "fd00::/129",
            "[fd00::1]",
            "::ffff:10.0.0.0/104",
            "0.0.0.0/0",
            "::/0",
            "*",
            "unix:",
            "10.0.0.1,10.0.0.2",
        ] {
            let mut proxies = TrustedProxies::default();
            assert!(!proxies.add(entry), "{entry}");
            assert_eq!(proxies, TrustedProxies::default(), "{entry}");
        }
    }
}
