//! Resolver of the names of servers and proxies.
//!
//! Owns which of the addresses behind a name may be dialled. Does not connect (`tcp_connector.rs`).
//! Invariant: the addresses that are checked are the ones that are dialled, so a name that changes
//! in between changes nothing.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::{BoxError, Service};

use crate::address_guard::AddressGuard;
use crate::metadata_address::is_metadata_address;
use crate::own_listeners::OwnListeners;

/// Resolver of the system, without addresses that must not be dialled.
#[derive(Clone)]
pub(super) struct AddressResolver {
    system: GaiResolver,
    guard: AddressGuard,
    own: OwnListeners,
}

impl AddressResolver {
    pub(super) fn new(guard: AddressGuard) -> Self {
        AddressResolver {
            system: GaiResolver::new(),
            guard,
            own: OwnListeners::default(),
        }
    }

    /// Leaves out the addresses of these listeners, too.
    pub(super) fn except(self, own: OwnListeners) -> Self {
        AddressResolver { own, ..self }
    }
}

impl Service<Name> for AddressResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.system.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let host = name.as_str().to_owned();
        let guard = self.guard;
        let own = self.own.clone();
        let resolving = self.system.call(name);
        async move {
            let permitted = permitted_addresses(&host, resolving.await?, guard)?;
            Ok(own.without(&host, permitted)?)
        }
        .boxed()
    }
}

/// Keeps the addresses that may be dialled. Fails if a name has no other.
fn permitted_addresses(
    host: &str,
    found: impl Iterator<Item = SocketAddr>,
    guard: AddressGuard,
) -> Result<std::vec::IntoIter<SocketAddr>, BoxError> {
    let (refused, permitted): (Vec<_>, Vec<_>) =
        found.partition(|address| guard.refuses(address.ip()));
    match (refused.first(), permitted.is_empty()) {
        (Some(address), true) => {
            let shown = format!("{host} ({})", address.ip());
            Err(guard.error(shown, is_metadata_address(address.ip())).into())
        }
        _ => Ok(permitted.into_iter()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata_address::MetadataAccess;

    fn dialled(addresses: &[&str], metadata: MetadataAccess) -> Result<Vec<SocketAddr>, String> {
        let found = addresses.iter().map(|address| address.parse().unwrap());
        let guard = AddressGuard::Server(metadata);
        permitted_addresses("a.test", found, guard)
            .map(Iterator::collect)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_of_a_name_is_dialled_only_if_it_is_no_metadata_service() {
        let cloud = "169.254.169.254:80";
        let other = "192.0.2.1:80";
        assert_eq!(
            dialled(&[other, cloud], MetadataAccess::Refused),
            Ok(vec![other.parse().unwrap()])
        );
        let refused = dialled(&[cloud, "[fd20:ce::254]:80"], MetadataAccess::Refused).unwrap_err();
        assert!(
            refused.starts_with("a.test (169.254.169.254) is a cloud metadata service"),
            "{refused}"
        );
        assert_eq!(
            dialled(&[cloud], MetadataAccess::Allowed),
            Ok(vec![cloud.parse().unwrap()])
        );
        assert_eq!(
            dialled(&[], MetadataAccess::Refused),
            Ok(Vec::new()),
            "the connector explains it"
        );
    }
}
