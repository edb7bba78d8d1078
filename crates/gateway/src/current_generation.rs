//! Generation that serves now, with its endpoints.
//!
//! Owns the endpoints by name and by role. Does not build generations (`reconfigure.rs`). Invariant: all its
//! endpoints have the same servers and rules.

use std::collections::HashMap;
use std::sync::Arc;

use crate::endpoint::{Endpoint, EndpointHost};
use crate::endpoint_scope::{EndpointScope, EndpointUnion};
use crate::generation::Generation;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Principal, RoleId};

/// Generation with its endpoints.
pub(super) struct CurrentGeneration {
    pub(super) generation: Arc<Generation>,
    pub(super) endpoints: HashMap<String, Arc<Endpoint>>,
    /// Union endpoints of the roles that may use only some endpoints.
    union_endpoints: HashMap<RoleId, Arc<Endpoint>>,
}

impl CurrentGeneration {
    pub(super) fn new(gateway: &Arc<dyn EndpointHost>, generation: Arc<Generation>) -> Self {
        let endpoint = |name: &str, scope: EndpointScope| {
            Arc::new(Endpoint::new(gateway.clone(), generation.clone(), scope, ByteString::from(name)))
        };
        let endpoints = generation.scopes.iter().map(|(name, scope)| (name.clone(), endpoint(name, scope.clone())));
        let unions = generation.access.restricted().map(|(role, names)| {
            let union = EndpointUnion::new(names, &generation.scopes);
            (role, endpoint("", EndpointScope::Union(Arc::new(union))))
        });
        CurrentGeneration {
            endpoints: endpoints.collect(),
            union_endpoints: unions.collect(),
            generation: generation.clone(),
        }
    }

    /// Creates a generation without endpoints, for the time before the start and after the end.
    pub(super) fn without_endpoints(generation: Arc<Generation>) -> Self {
        CurrentGeneration { generation, endpoints: HashMap::new(), union_endpoints: HashMap::new() }
    }

    /// Returns the endpoint of this name, and true if the principal may use it.
    pub(super) fn endpoint(&self, name: &str, principal: &Principal) -> Option<(&Arc<Endpoint>, bool)> {
        // Roles with limited endpoints have a union of their own under the empty name.
        let union = self.union_endpoints.get(&principal.role).filter(|_| name.is_empty());
        let endpoint = union.or_else(|| self.endpoints.get(name))?;
        Some((endpoint, self.generation.access.allows_endpoint(principal, name)))
    }
}
