//! Addresses of the metadata services of clouds, which give credentials to whoever asks.
//!
//! Owns their list. Looks names up, and connects nowhere. Invariant: an address in doubt is one of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use moongate_transport::socket::SocketAddress;
use moongate_upstream::ConnectTarget;

/// Names that clouds resolve to their metadata services.
const NAMES: [&str; 4] = ["metadata", "metadata.google.internal", "metadata.goog", "instance-data"];
/// Addresses beside the link-local ones: Alibaba Cloud, and the IPv6 addresses of AWS.
const ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
];

/// Returns true for a target that is a metadata service: by its name, its address, or an address that its name stands
/// for. A name that cannot be looked up within the limit is none.
pub(super) async fn is_metadata_target(target: &ConnectTarget, limit: Duration) -> bool {
    let (host, port) = match target {
        ConnectTarget::Http { url, socket: None, .. } => {
            (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default())
        }
        ConnectTarget::Socket(SocketAddress::Tcp(address)) => {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            (host, port.parse().unwrap_or_default())
        }
        _ => return false,
    };
    let host = host.trim_matches(['[', ']']);
    is_metadata_host(host) || addresses(host, port, limit).await.into_iter().any(is_metadata_address)
}

async fn addresses(host: &str, port: u16, limit: Duration) -> Vec<IpAddr> {
    // A name that only a proxy can resolve is none of this machine's networks.
    match tokio::time::timeout(limit, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Returns true for a host that is a metadata service by its name or its address.
fn is_metadata_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let names = NAMES.iter().any(|name| host == *name || host.starts_with("instance-data."));
    names || host.parse().is_ok_and(is_metadata_address)
}

/// Returns true for the address of a metadata service.
fn is_metadata_address(address: IpAddr) -> bool {
    let embedded = match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(address) => embedded_v4(address),
    };
    // The whole range, since containers have theirs beside 169.254.169.254.
    embedded.is_some_and(|address| address.is_link_local() || ADDRESSES.contains(&IpAddr::V4(address)))
        || ADDRESSES.contains(&address)
}

/// Returns the IPv4 address that an IPv6 address leads to: mapped, compatible, or by NAT64 (RFC 6052).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low] = address.segments();
    let is_nat64 = address.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let is_plain = address.segments()[..6] == [0; 6] || address.to_ipv4_mapped().is_some();
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    (is_nat64 || is_plain).then_some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_known_in_every_spelling() {
        for host in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "[fd00:ec2::254]",
            "::ffff:169.254.169.254",
            "[::ffff:a9fe:a9fe]",
            "64:ff9b::a9fe:a9fe",
            "::a9fe:a9fe",
            "metadata.google.internal",
            "METADATA.GOOGLE.INTERNAL.",
            "instance-data.ec2.internal",
        ] {
            assert!(is_metadata_host(host), "{host}");
        }
        for host in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "[::1]", "fe80::1", "fd00::1", "metadata.example.com", ""]
        {
            assert!(!is_metadata_host(host), "{host}");
        }
    }
}
