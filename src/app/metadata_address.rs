//! Early refusal of servers at the metadata service of a cloud, for operators who add one.
//!
//! Owns the check of a target. Has no list (`moongate_transport::metadata_address`), and connects
//! nowhere. Invariant: this is only for a better message, since each connection is checked again by
//! the address that is dialled.

use std::net::IpAddr;
use std::time::Duration;

use moongate_transport::metadata_address::{is_metadata_address, is_metadata_host};
use moongate_transport::socket::SocketAddress;
use moongate_upstream::ConnectTarget;

/// Returns true for a target that is a metadata service: by its name, its address, or an address
/// that its name stands for. A name that cannot be looked up within the limit isn't one.
pub(super) async fn is_metadata_target(target: &ConnectTarget, limit: Duration) -> bool {
    let (host, port) = match target {
        ConnectTarget::Http {
            url, socket: None, ..
        } => (
            url.host_str().unwrap_or_default(),
            url.port_or_known_default().unwrap_or_default(),
        ),
        ConnectTarget::Socket(SocketAddress::Tcp(address)) => {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            (host, port.parse().unwrap_or_default())
        }
        _ => return false,
    };
    let host = host.trim_matches(['[', ']']);
    is_metadata_host(host)
        || addresses(host, port, limit)
            .await
            .into_iter()
            .any(is_metadata_address)
}

async fn addresses(host: &str, port: u16, limit: Duration) -> Vec<IpAddr> {
    // A name that only a proxy can resolve is none of this machine's networks.
    match tokio::time::timeout(limit, tokio::net::lookup_host((host, port))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}
