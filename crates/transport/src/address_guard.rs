//! Addresses that a connection may lead to.
//!
//! Owns the choice between two rules: anywhere but to metadata services, and to public addresses
//! alone. Looks nothing up (`address_resolver.rs`). Invariant: an address in doubt is not public,
//! in whatever form it is embedded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::loopback_host::is_loopback;
use crate::metadata_address::{MetadataAccess, is_metadata_address, is_metadata_host};

/// Rule for the addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressGuard {
    /// To a server of the config, wherever it is.
    Server(MetadataAccess),
    /// To public addresses, since others chose the URL.
    Public,
}

/// Refusal to connect to an address.
#[derive(Debug, thiserror::Error)]
pub(super) enum GuardError {
    #[error(
        "{0} is a cloud metadata service, which gives credentials to anyone who asks; \
         `allow_metadata = true` allows it"
    )]
    Metadata(String),
    #[error("{0} is a cloud metadata service, which gives credentials to anyone who asks")]
    FetchedMetadata(String),
    #[error("{0} is not a public address")]
    Private(String),
    #[error("{0} is an address of this gateway")]
    Own(String),
}

impl AddressGuard {
    /// Refuses a host by its name, or by its address if it is one.
    pub(super) fn check_host(self, host: &str) -> Result<(), GuardError> {
        let is_refused = match self {
            AddressGuard::Server(access) => {
                access == MetadataAccess::Refused && is_metadata_host(host)
            }
            AddressGuard::Public => {
                let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
                is_loopback(host.trim_end_matches('.'))
                    || is_metadata_host(host)
                    || address.is_ok_and(|it| !is_public(it))
            }
        };
        if is_refused {
            Err(self.error(host.to_owned(), is_metadata_host(host)))
        } else {
            Ok(())
        }
    }

    /// Returns true for an address that must not be dialled.
    pub(super) fn refuses(self, address: IpAddr) -> bool {
        match self {
            AddressGuard::Server(access) => {
                access == MetadataAccess::Refused && is_metadata_address(address)
            }
            AddressGuard::Public => !is_public(address),
        }
    }

    /// Returns the error for a host that is refused.
    pub(super) fn error(self, host: String, is_metadata: bool) -> GuardError {
        match self {
            AddressGuard::Server(_) => GuardError::Metadata(host),
            AddressGuard::Public if is_metadata => GuardError::FetchedMetadata(host),
            AddressGuard::Public => GuardError::Private(host),
        }
    }
}

/// Returns true for an address that IANA calls globally reachable, except metadata services.
pub(super) fn is_public(address: IpAddr) -> bool {
    !is_metadata_address(address)
        && match address {
            IpAddr::V4(address) => is_public_v4(address),
            IpAddr::V6(address) => is_public_v6(address),
        }
}

/// IANA IPv4 Special-Purpose Address Registry.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_special = match address.octets() {
        // This network, private use, shared address space, loopback, link-local.
        [0 | 10 | 127, ..]
        | [100, 64..=127, ..]
        | [169, 254, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..] => true,
        // Protocol assignments, the relays of 6to4, benchmarks, documentation, multicast and what
        // is reserved.
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => true,
        [224..=255, ..] => true,
        _ => false,
    };
    !is_special
}

/// IANA IPv6 Special-Purpose Address Registry, and the addresses that represent one of IPv4.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [_, _, second, third, fourth, fifth, .., a, b, c, d] = address.octets();
    let end = Ipv4Addr::new(a, b, c, d);
    match address.segments() {
        // Mapped addresses and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(end),
        // 6to4 (RFC 3056).
        [0x2002, ..] => is_public_v4(Ipv4Addr::new(second, third, fourth, fifth)),
        // Protocol assignments with Teredo, and documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Nothing else is global unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_can_lead_to_public_addresses_only() {
        let public = [
            "8.8.8.8",
            "1.1.1.1",
            "100.63.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "2606:4700::1",
            "[2a00::1]",
        ];
        let embedded = ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"];
        for host in public.into_iter().chain(embedded).chain([
            "example.com",
            "example.com.",
            "localhost.example.com",
        ]) {
            assert!(AddressGuard::Public.check_host(host).is_ok(), "{host}");
        }
        for host in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "[::1]",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
            "localhost",
            "a.localhost",
            "localhost.",
            "metadata.google.internal",
        ] {
            let error = AddressGuard::Public.check_host(host).unwrap_err();
            let is_metadata = matches!(
                host,
                "169.254.1.1" | "168.63.129.16" | "metadata.google.internal"
            );
            let kind = match is_metadata {
                true => "a cloud metadata service, which gives credentials to anyone who asks",
                false => "not a public address",
            };
            assert_eq!(error.to_string(), format!("{host} is {kind}"));
        }
    }
}
