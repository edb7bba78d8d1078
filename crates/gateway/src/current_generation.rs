//! Generation that serves now, with its endpoints.
//!
//! Owns the endpoints by name and by role. Does not build generations (`reconfigure.rs`).
//! Invariant: all its endpoints have the same servers and rules.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

use crate::endpoint::{Endpoint, EndpointHost};
use crate::endpoint_scope::{EndpointScope, EndpointUnion};
use crate::generation::Generation;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Principal, RoleId};

/// Generation with its endpoints.
pub(super) struct CurrentGeneration {
    pub(super) generation: Arc<Generation>,
    pub(super) endpoints: HashMap<String, Arc<Endpoint>, RandomState>,
    /// Union endpoints of the keys that may use only some endpoints.
    union_endpoints: HashMap<RoleId, Arc<Endpoint>>,
    /// Union endpoints of people's sets of roles, each made when it is first used.
    people_unions: Box<[OnceLock<Arc<Endpoint>>]>,
}

impl CurrentGeneration {
    pub(super) fn new(gateway: &Arc<dyn EndpointHost>, generation: Arc<Generation>) -> Self {
        let endpoints = generation.scopes.iter().map(|(name, scope)| {
            let endpoint = Endpoint::new(
                gateway.clone(),
                generation.clone(),
                scope.clone(),
                ByteString::from(name.as_str()),
            );
            (name.clone(), Arc::new(endpoint))
        });
        let unions = generation
            .access
            .restricted_keys()
            .map(|(role, names)| (role, create_union(gateway, &generation, names)));
        let sets = if generation.access.has_people() {
            RoleId::SETS_MAX
        } else {
            0
        };
        CurrentGeneration {
            endpoints: endpoints.collect(),
            union_endpoints: unions.collect(),
            people_unions: (0..sets).map(|_| OnceLock::new()).collect(),
            generation: generation.clone(),
        }
    }

    /// Creates a generation without endpoints, for the time before the start and after the end.
    pub(super) fn without_endpoints(generation: Arc<Generation>) -> Self {
        let endpoints = HashMap::default();
        let union_endpoints = HashMap::new();
        let people_unions = Box::default();
        CurrentGeneration {
            generation,
            endpoints,
            union_endpoints,
            people_unions,
        }
    }

    /// Returns the endpoint of this name, and true if the principal may use it.
    pub(super) fn endpoint(
        &self,
        name: &str,
        principal: &Principal,
    ) -> Option<(&Arc<Endpoint>, bool)> {
        // Roles with limited endpoints have their own union under the empty name.
        let union = if name.is_empty() {
            self.union_endpoint(principal.role())
        } else {
            None
        };
        let endpoint = union.or_else(|| self.endpoints.get(name))?;
        Some((
            endpoint,
            self.generation.access.allows_endpoint(principal, name),
        ))
    }

    /// Returns the union endpoint of a set of roles. `None`: it may use the endpoint over
    /// everything.
    fn union_endpoint(&self, role: RoleId) -> Option<&Arc<Endpoint>> {
        let Some(index) = role.set_index() else {
            return self.union_endpoints.get(&role);
        };
        let names = self.generation.access.allowed_endpoints(role)?;
        let everything = self.endpoints.get("")?;
        let union = self.people_unions.get(index)?;
        Some(union.get_or_init(|| create_union(&everything.gateway, &self.generation, names)))
    }
}

fn create_union(
    gateway: &Arc<dyn EndpointHost>,
    generation: &Arc<Generation>,
    names: &HashSet<String>,
) -> Arc<Endpoint> {
    let union = EndpointUnion::new(names, &generation.scopes);
    Arc::new(Endpoint::new(
        gateway.clone(),
        generation.clone(),
        EndpointScope::Union(Arc::new(union)),
        ByteString::literal(""),
    ))
}
