//! Access of each role.
//!
//! Owns the table of endpoints and tools that the principals of a role may use. Does not know credentials (`auth`).
//! Invariant: a role without an entry may use nothing, except operators, and the anonymous one of an empty table.

use std::collections::HashSet;

use crate::policy::{GlobList, RequestRate};
use moongate_model::{Principal, RoleId};

/// Access of one role.
#[derive(Clone, Debug)]
pub struct RoleAccess {
    /// Name of its key, for reports.
    pub name: String,
    /// Endpoints of views and servers that it may use. `None`: every endpoint. The endpoint over everything unites
    /// them.
    pub endpoints: Option<HashSet<String>>,
    /// Tools that it may see and call, by the name on the endpoint over everything.
    pub tools: GlobList,
    /// Request rate of each principal, instead of the general one. `Some(None)`: no limit.
    pub rate: Option<Option<RequestRate>>,
}

/// Entries of all roles, sorted by id.
#[derive(Clone, Debug, Default)]
pub struct AccessTable(Vec<(RoleId, RoleAccess)>);

/// Principal id of every caller where no credentials are asked for.
pub const ANONYMOUS: u32 = Principal::ANONYMOUS;

impl AccessTable {
    /// Creates a table from the entries of roles.
    pub fn new(mut rows: Vec<(RoleId, RoleAccess)>) -> Self {
        // Sorted for the bisection in `row`, which runs for each item of a list.
        rows.sort_unstable_by_key(|(id, _)| *id);
        AccessTable(rows)
    }

    /// Returns true if there are no entries, so that any caller may do anything.
    fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns each key's name with its globs over tools.
    pub fn tool_globs(&self) -> impl Iterator<Item = (&str, &GlobList)> {
        self.0.iter().map(|(_, access)| (access.name.as_str(), &access.tools))
    }

    /// Returns the globs over tools of a role. `None`: it has no entry.
    pub fn tools_of(&self, role: RoleId) -> Option<&GlobList> {
        match self.row(role) {
            AccessEntry::Some(access) => Some(&access.tools),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    /// Returns the roles that may use only some endpoints, with the names of those.
    pub fn restricted(&self) -> impl Iterator<Item = (RoleId, &HashSet<String>)> {
        self.0.iter().filter_map(|(id, access)| Some((*id, access.endpoints.as_ref()?)))
    }

    /// Returns the only endpoints that the role may use, beside their union. `None`: no such limit.
    pub fn allowed_endpoints(&self, role: RoleId) -> Option<&HashSet<String>> {
        match self.row(role) {
            AccessEntry::Some(access) => access.endpoints.as_ref(),
            // No entry means no limit of this kind. `allows_endpoint` is what refuses a role without one.
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    /// Returns true if the principal may use an endpoint. The empty name is the endpoint over everything.
    pub fn allows_endpoint(&self, principal: &Principal, name: &str) -> bool {
        match self.row(principal.role) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => {
                // The endpoint over everything is open to each key: it unites the endpoints that the key may use.
                name.is_empty() || access.endpoints.as_ref().is_none_or(|names| names.contains(name))
            }
        }
    }

    /// Returns true if the principal may see and call a tool.
    pub fn allows_tool(&self, principal: &Principal, exposed: &str) -> bool {
        match self.row(principal.role) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.tools.matches(exposed),
        }
    }

    /// Returns true if the principal may see and call every tool.
    pub fn allows_all_tools(&self, principal: &Principal) -> bool {
        match self.row(principal.role) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.tools.matches_all(),
        }
    }

    /// Returns false if the principal may use no tool whose exposed name has this beginning.
    pub fn may_allow_from(&self, principal: &Principal, beginning: &str) -> bool {
        match self.row(principal.role) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.tools.may_match_from(beginning),
        }
    }

    /// Returns the request rate that a role has of its own, with the role's name. `Some((_, None))`: no limit.
    pub fn own_rate(&self, role: RoleId) -> Option<(&str, Option<RequestRate>)> {
        match self.row(role) {
            AccessEntry::Some(access) => Some((&access.name, access.rate?)),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    fn row(&self, role: RoleId) -> AccessEntry<'_> {
        // The config's rules about items hold for operators. Rules about keys do not.
        if role == RoleId::OPERATOR {
            return AccessEntry::Everything;
        }
        // Fails closed: once there are keys, an anonymous caller has no entry.
        if role == RoleId::ANONYMOUS && self.is_open() {
            return AccessEntry::Everything;
        }
        let at = self.0.binary_search_by_key(&role, |(id, _)| *id);
        at.map_or(AccessEntry::Nothing, |at| AccessEntry::Some(&self.0[at].1))
    }
}

enum AccessEntry<'a> {
    Everything,
    Nothing,
    Some(&'a RoleAccess),
}
