//! Addresses of the metadata services of clouds, which give credentials to whoever asks.
//!
//! Owns their list. Does not refuse any (`address_guard.rs`). Invariant: an address in doubt is one
//! of them, in whatever form it is embedded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names that clouds resolve to their metadata services.
const NAMES: [&str; 7] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "metadata.tencentyun.com",
    "instance-data",
    "rancher-metadata",
];
/// Addresses besides the link-local ones: Alibaba Cloud, Oracle Cloud and Azure.
const ADDRESSES: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
/// Link-local addresses that services have, also as the end of an IPv6 address in any network: EC2
/// and most others, and the containers of ECS and EKS.
const ENDS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 0, 23),
];
/// IPv6 addresses that embed none of the above: AWS, EKS, Google Cloud, Scaleway.
const ADDRESSES_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// Right of a server to be where clouds keep credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataAccess {
    /// No connection leads there.
    #[default]
    Refused,
    /// The owner of the config allows it.
    Allowed,
}

/// Returns true for a host that is a metadata service by its name or its address.
pub fn is_metadata_host(host: &str) -> bool {
    let host = host
        .trim_matches(['[', ']'])
        .trim_end_matches('.')
        .to_ascii_lowercase();
    let is_name = NAMES.iter().any(|name| host == *name) || host.starts_with("instance-data.");
    // A scope names the network card, and no other address.
    let address = host.split('%').next().unwrap_or_default();
    is_name || address.parse().is_ok_and(is_metadata_address)
}

/// Returns true for the address of a metadata service.
pub fn is_metadata_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_listed(address),
        IpAddr::V6(address) => {
            let [.., end] = embedded(address);
            ADDRESSES_V6.contains(&address)
                // Whatever the network before it is: translators use their own prefixes.
                || ENDS.contains(&end)
                || ADDRESSES.contains(&end)
                || is_translated(address) && embedded(address).into_iter().any(is_listed)
        }
    }
}

/// The whole link-local range, since containers and other clouds have theirs next to
/// 169.254.169.254.
fn is_listed(address: Ipv4Addr) -> bool {
    address.is_link_local() || ADDRESSES.contains(&address)
}

/// Returns true for a network whose addresses represent IPv4 addresses: mapped, compatible and
/// translated ones (RFC 4291, RFC 2765), NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC
/// 4380), ISATAP (RFC 5214).
fn is_translated(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let is_isatap = matches!(segments[4..6], [0 | 0x200, 0x5efe]);
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => true,
        [0x64, 0xff9b, 0 | 1, ..] | [0x2002, ..] | [0x2001, 0, ..] => true,
        _ => is_isatap,
    }
}

/// Returns the IPv4 addresses that may be embedded in an address. The end of the address is the
/// last one.
fn embedded(address: Ipv6Addr) -> [Ipv4Addr; 7] {
    let bytes = address.octets();
    let inverted = Ipv4Addr::from([12, 13, 14, 15].map(|position: usize| !bytes[position]));
    [
        // 6to4, and NAT64 with a prefix of 48, 56 and 64 bits, which leave out the ninth byte.
        address_at(&bytes, [2, 3, 4, 5]),
        address_at(&bytes, [6, 7, 9, 10]),
        address_at(&bytes, [7, 9, 10, 11]),
        address_at(&bytes, [9, 10, 11, 12]),
        // Teredo: the server, and the client with its bits inverted.
        address_at(&bytes, [4, 5, 6, 7]),
        inverted,
        address_at(&bytes, [12, 13, 14, 15]),
    ]
}

fn address_at(bytes: &[u8; 16], positions: [usize; 4]) -> Ipv4Addr {
    Ipv4Addr::from(positions.map(|position| bytes[position]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_known_in_every_spelling() {
        for host in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.1.1",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "[fd00:ec2::254]",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
            "fe80::a9fe:a9fe%eth0",
            "fd00:c1::a9fe:a9fe",
            "2001:db8:1::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "[::ffff:a9fe:a9fe]",
            "::ffff:0:a9fe:101",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::a83f:8110",
            "64:ff9b:1::a9fe:101",
            "64:ff9b:1:a9fe:1:100::",
            "64:ff9b:1:a9:fe:101::",
            "64:ff9b:1:0:a9:fe01:100:0",
            "2002:a9fe:a9fe::1",
            "2002:c000:c0::",
            "2001:0:a9fe:a9fe::1",
            "2001:0:1::5601:5601",
            "fe80::5efe:169.254.1.1",
            "2001:db8::200:5efe:100.100.100.200",
            "::a9fe:a9fe",
            "metadata.google.internal",
            "METADATA.GOOGLE.INTERNAL.",
            "instance-data.ec2.internal",
        ] {
            assert!(is_metadata_host(host), "{host}");
        }
    }

    #[test]
    fn other_addresses_are_none() {
        for host in [
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "192.0.0.191",
            "[::1]",
            "::",
            "::ffff:10.0.0.1",
            "fe80::1",
            "fe80::a9fe:1234",
            "fd00::1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2606:4700::6810:84e5",
            "metadata.example.com",
            "",
        ] {
            assert!(!is_metadata_host(host), "{host}");
        }
    }
}
