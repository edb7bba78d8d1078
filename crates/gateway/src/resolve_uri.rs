//! URI resolution: the server of a URI, and the URI that clients see.
//!
//! Owns the order of the sources: lists, the URI itself, templates, learned links. Does not read
//! requests (`resolve_call.rs`). Invariant: a URI longer than `limits.uri` is never tried with
//! templates or learned links.

use moongate_telemetry::DroppedItem;
use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::endpoint::{Endpoint, EndpointHost};
use crate::endpoint_context::EndpointContext;
use crate::endpoint_scope::EndpointScope;
use crate::permitted::Permitted;
use crate::running_server::{RunningServer, server_name};
use crate::templates::LookupBudget;
use crate::uris;
use moongate_access::policy::has_traversal;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Caller, Error, ItemKind, McpErrorKind};

/// Inputs of a lookup from a URI to its server.
#[derive(Clone, Copy)]
struct UriSearch<'a> {
    snapshot: &'a Snapshot,
    uri: &'a ByteString,
    /// True if the URI is too long for lookups.
    is_long: bool,
    budget: &'a LookupBudget,
}

impl Endpoint {
    /// Resolves a URI to its server, and that server's own URI.
    pub(super) fn resolve_uri(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        uri: &ByteString,
        budget: &LookupBudget,
    ) -> Result<(Permitted<Arc<RunningServer>>, ByteString), Error> {
        let search = UriSearch::new(self.gateway.context(), snapshot, uri, budget);
        let resolved = self.resolve_in_order(
            search,
            || self.lookup(snapshot, caller, ItemKind::Resources, uri),
            true,
        );
        resolved.ok_or_else(|| {
            if search.is_long {
                too_long(self.gateway.context().uri_max())
            } else {
                not_found(uri)
            }
        })
    }

    /// Resolves a URI without a guess, for a caller that did not request it now. Returns `None` if
    /// no source names the owner.
    pub(super) fn resolve_known_uri(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        uri: &ByteString,
        budget: &LookupBudget,
    ) -> Option<(Permitted<Arc<RunningServer>>, ByteString)> {
        self.resolve_in_order(
            UriSearch::new(self.gateway.context(), snapshot, uri, budget),
            || {
                let route = snapshot.find_exposed(ItemKind::Resources, uri)?;
                self.permit_item(&caller.principal, ItemKind::Resources, route)
            },
            false,
        )
    }

    fn resolve_in_order(
        &self,
        search: UriSearch<'_>,
        listed: impl FnOnce() -> Option<Permitted<Arc<CatalogRoute>>>,
        guess: bool,
    ) -> Option<(Permitted<Arc<RunningServer>>, ByteString)> {
        // An endpoint of one server shows that server's own URIs, so there is nothing to look up.
        if let EndpointScope::Server(upstream) = &self.scope {
            return Some((
                self.permit_resource(search.snapshot, upstream, search.uri)?,
                search.uri.clone(),
            ));
        }
        // The lists come first: they are the servers' own words, and all later sources are
        // conclusions.
        if let Some(route) = listed() {
            return Some((route.server(), route.local.clone()));
        }
        // A wrapped URI names its server itself.
        let (server, local) = match uris::unwrap(search.uri) {
            Some((server, local)) => (ByteString::from(server), ByteString::from(&*local)),
            None => (
                self.resolve_unlisted(search)
                    .or_else(|| self.only_server(search.snapshot).filter(|_| guess))
                    .filter(|_| !search.is_long)?,
                search.uri.clone(),
            ),
        };
        Some((
            self.server_for_uri(search.snapshot, &server, &local)?,
            local,
        ))
    }

    /// Resolves a URI in no list, by templates and learned links.
    fn resolve_unlisted(&self, search: UriSearch<'_>) -> Option<ByteString> {
        if search.is_long {
            return None;
        }
        let by_template = search
            .snapshot
            .find_template(search.uri, search.budget)
            .map(|route| server_name(&route.upstream));
        // Templates before learned links: the latter depend on what clients happened to read
        // before.
        by_template.or_else(|| self.gateway.context().learned_uris.server_of(search.uri))
    }

    /// Returns the server of this name, if it is here and may have the resource.
    pub(super) fn server_for_uri(
        &self,
        snapshot: &Snapshot,
        server: &str,
        local: &ByteString,
    ) -> Option<Permitted<Arc<RunningServer>>> {
        let entry = self
            .generation
            .servers
            .iter()
            .find(|entry| entry.settings.name == server)?;
        self.permit_resource(snapshot, entry, local)
    }

    /// Returns the server of a URI in no list, if it is the only one with resources here.
    fn only_server(&self, snapshot: &Snapshot) -> Option<ByteString> {
        // Only servers in this endpoint count, or the guess would reveal servers that the client
        // cannot see.
        let mut servers = snapshot
            .resource_servers()
            .filter(|server| self.includes(server));
        let first = servers.next()?;
        servers.next().is_none().then(|| first.clone())
    }
}

impl<'a> UriSearch<'a> {
    fn new(
        context: &EndpointContext,
        snapshot: &'a Snapshot,
        uri: &'a ByteString,
        budget: &'a LookupBudget,
    ) -> UriSearch<'a> {
        UriSearch {
            snapshot,
            uri,
            is_long: uri.len() > context.uri_max(),
            budget,
        }
    }
}

impl dyn EndpointHost {
    /// Returns the exposed form of a server's own URI, if it differs. Learns URIs in no list.
    pub(super) fn exposed_uri(
        &self,
        server: &ByteString,
        uri: &ByteString,
        budget: &LookupBudget,
    ) -> Option<ByteString> {
        let snapshot = self.snapshot();
        if let Some(route) = snapshot.find_local(ItemKind::Resources, server, uri) {
            return (route.exposed != *uri).then(|| route.exposed.clone());
        }
        // Unwrapped, it would lead to another server.
        if uris::looks_wrapped(uri) || snapshot.find_exposed(ItemKind::Resources, uri).is_some() {
            return Some(wrapped(server, uri));
        }
        if uri.len() > self.context().uri_max() {
            return None;
        }
        match snapshot.find_template(uri, budget) {
            Some(route) if route.upstream.settings.name == server.as_str() => None,
            Some(_) => Some(wrapped(server, uri)),
            // Not all templates were tried, so the owner is unknown: the URI stays as it is.
            None if budget.is_spent() => {
                self.context()
                    .metrics
                    .calls
                    .dropped
                    .inc(DroppedItem::UriLookup);
                None
            }
            // Another server may have used the URI before. Then only the wrapped form leads to this
            // one.
            None => (!self.context().learned_uris.learn(uri, server)).then(|| wrapped(server, uri)),
        }
    }
}

fn wrapped(server: &ByteString, uri: &ByteString) -> ByteString {
    ByteString::from(uris::wrap(server, uri))
}

/// Error for a URI that leads nowhere. Describes its form only as far as that holds for every
/// server.
fn not_found(uri: &ByteString) -> Error {
    let data = JsonObject::new().with("uri", RawJson::string(uri));
    let spelling = match has_traversal(uri) {
        true => " (dot segments, %2e, %2f and %5c are refused if the resources have patterns)",
        false => "",
    };
    Error::new(
        McpErrorKind::UnknownResource,
        format!("Resource not found: {uri}{spelling}"),
    )
    .with_data(data.to_raw())
}

fn too_long(limit: usize) -> Error {
    let message = format!(
        "Invalid params: no server lists this uri, and it is longer than {limit} bytes (limits.uri)"
    );
    Error::new(McpErrorKind::InvalidParams, message)
}
