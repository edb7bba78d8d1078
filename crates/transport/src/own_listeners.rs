//! Listeners of this gateway, which no fetch may reach.
//!
//! Owns the comparison of an address with them. Does not look names up (`address_resolver.rs`).
//! Invariant: an address that leads to one of them is refused in whatever form it is written.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use crate::address_guard::GuardError;

/// Addresses of this gateway's listeners at one port.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnListeners(Arc<[IpAddr]>);

impl OwnListeners {
    /// Selects the listeners at a port. The others cannot be reached there.
    pub(super) fn at_port(listeners: &[SocketAddr], port: u16) -> Self {
        let own = listeners.iter().filter(|listener| listener.port() == port);
        OwnListeners(own.map(|listener| listener.ip().to_canonical()).collect())
    }

    /// Refuses a host that is the address of a listener. Names pass.
    pub(super) fn check_host(&self, host: &str) -> Result<(), GuardError> {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        if address.is_ok_and(|it| self.has(it)) {
            return Err(GuardError::Own(host.to_owned()));
        }
        Ok(())
    }

    /// Returns the addresses of a name that lead elsewhere. Fails if it has no other.
    pub(super) fn without(
        &self,
        host: &str,
        found: std::vec::IntoIter<SocketAddr>,
    ) -> Result<std::vec::IntoIter<SocketAddr>, GuardError> {
        if self.0.is_empty() {
            return Ok(found);
        }
        let (own, others): (Vec<_>, Vec<_>) = found.partition(|address| self.has(address.ip()));
        match (own.first(), others.is_empty()) {
            (Some(address), true) => Err(GuardError::Own(format!("{host} ({})", address.ip()))),
            _ => Ok(others.into_iter()),
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|own| {
            *own == address
                // A listener at all addresses is at each of this machine's.
                || own.is_unspecified() && is_local(address)
                // ip(7): a connection to the unspecified address leads to this machine.
                || address.is_unspecified() && own.is_loopback()
        })
    }
}

/// Returns true for an address of this machine: only such a one can be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(listener: &str, host: &str) -> bool {
        let own = OwnListeners::at_port(&[listener.parse().unwrap()], 8080);
        own.check_host(host).is_err()
    }

    #[test]
    fn a_listener_is_refused_in_each_form_of_its_address() {
        for (listener, host) in [
            ("127.0.0.1:8080", "127.0.0.1"),
            ("127.0.0.1:8080", "[::ffff:127.0.0.1]"),
            ("127.0.0.1:8080", "0.0.0.0"),
            ("[::1]:8080", "[::1]"),
            ("[::1]:8080", "[::]"),
            ("0.0.0.0:8080", "127.0.0.1"),
            ("0.0.0.0:8080", "127.9.9.9"),
            ("[::]:8080", "127.0.0.1"),
            ("192.0.2.1:8080", "192.0.2.1"),
        ] {
            assert!(is_refused(listener, host), "{listener} {host}");
        }
        for (listener, host) in [
            ("127.0.0.1:8081", "127.0.0.1"),
            ("127.0.0.1:8080", "127.0.0.2"),
            ("127.0.0.1:8080", "localhost"),
            ("192.0.2.1:8080", "192.0.2.2"),
            ("192.0.2.1:8080", "127.0.0.1"),
        ] {
            assert!(!is_refused(listener, host), "{listener} {host}");
        }
    }

    #[test]
    fn a_name_is_dialled_at_its_other_addresses() {
        let own = OwnListeners::at_port(&["127.0.0.1:8080".parse().unwrap()], 8080);
        let other: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let found = own.without("a.test", vec![loopback, other].into_iter());
        assert_eq!(found.unwrap().collect::<Vec<_>>(), [other]);
        let refused = own.without("a.test", vec![loopback].into_iter());
        assert_eq!(
            refused.unwrap_err().to_string(),
            "a.test (127.0.0.1) is an address of this gateway"
        );
        assert_eq!(
            own.without("a.test", Vec::new().into_iter())
                .unwrap()
                .count(),
            0
        );
    }
}
