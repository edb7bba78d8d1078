//! Access of each key, and of each set of people's roles.
//!
//! Owns the table of the endpoints, tools and rates that a principal may use. Does not know
//! credentials (`auth`). Invariant: a principal without an entry may use nothing, unless it is an
//! operator, or the anonymous principal of an empty table.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use crate::policy::{GlobList, RequestRate, RoleSets};
use moongate_model::{Principal, RoleId};

/// Access of one role, or of several together.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleAccess {
    /// Name of its key or role, for reports.
    pub name: String,
    /// Endpoints of views and servers that it may use. `None`: every endpoint. The endpoint over
    /// everything unites them.
    pub endpoints: Option<HashSet<String>>,
    /// Tools that it may see and call, by the name on the endpoint over everything: those of any
    /// list.
    pub tools: Vec<GlobList>,
    /// Request rate of each principal, instead of the general one. `Some(None)`: no limit.
    pub rate: Option<Option<RequestRate>>,
}

impl RoleAccess {
    /// Adds up what several roles may use. Of their rates, the most generous one counts.
    fn sum(name: String, roles: &[&RoleAccess]) -> Self {
        let endpoints: Option<Vec<_>> = roles.iter().map(|role| role.endpoints.as_ref()).collect();
        RoleAccess {
            name,
            endpoints: endpoints.map(|all| all.into_iter().flatten().cloned().collect()),
            tools: roles
                .iter()
                .flat_map(|role| role.tools.iter().cloned())
                .collect(),
            rate: roles
                .iter()
                .filter_map(|role| role.rate)
                .max_by(|a, b| RequestRate::cmp_generosity(*a, *b)),
        }
    }

    fn allows_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tools| tools.matches(name))
    }
}

/// Entries of all roles.
#[derive(Clone, Debug, Default)]
pub struct AccessTable {
    /// Roles of keys, sorted by id.
    keys: Vec<(RoleId, RoleAccess)>,
    people: Option<Arc<PeopleAccess>>,
}

/// Roles of people, and the sets that were made of them.
#[derive(Debug)]
struct PeopleAccess {
    roles: Vec<RoleAccess>,
    sets: Arc<RoleSets>,
    /// Access of each set, added up when it is first used.
    sums: Box<[OnceLock<Option<RoleAccess>>]>,
}

impl PeopleAccess {
    fn row(&self, index: usize) -> Option<&RoleAccess> {
        let sum = self.sums.get(index)?;
        sum.get_or_init(|| self.sum_up(index)).as_ref()
    }

    fn sum_up(&self, index: usize) -> Option<RoleAccess> {
        let names = self.sets.names(index)?;
        let roles: Vec<_> = self
            .roles
            .iter()
            .filter(|role| names.contains(&role.name))
            .collect();
        // A role that is no longer in the config gives nothing, and none of several takes anything
        // away.
        (!roles.is_empty()).then(|| RoleAccess::sum(names.join(", "), &roles))
    }
}

/// Principal id of every caller where no credentials are asked for.
pub const ANONYMOUS: u32 = Principal::ANONYMOUS;

impl AccessTable {
    /// Creates a table from the entries of keys.
    pub fn new(mut keys: Vec<(RoleId, RoleAccess)>) -> Self {
        // Sorted for the bisection in `row`, which runs for each item of a list.
        keys.sort_unstable_by_key(|(id, _)| *id);
        AccessTable { keys, people: None }
    }

    /// Adds the roles of people, of which these sets are made.
    pub fn with_roles(self, roles: Vec<RoleAccess>, sets: Arc<RoleSets>) -> Self {
        AccessTable {
            people: (!roles.is_empty()).then(|| {
                Arc::new(PeopleAccess {
                    roles,
                    sets,
                    sums: (0..RoleId::SETS_MAX).map(|_| OnceLock::new()).collect(),
                })
            }),
            ..self
        }
    }

    /// Returns true if there are no entries, so that any caller may do anything.
    fn is_open(&self) -> bool {
        self.keys.is_empty() && self.people.is_none()
    }

    /// Returns true if people have roles.
    pub fn has_people(&self) -> bool {
        self.people.is_some()
    }

    /// Returns each name of a key or role with its globs over tools.
    pub fn tool_globs(&self) -> impl Iterator<Item = (&str, &GlobList)> {
        let roles = self.people.iter().flat_map(|people| &people.roles);
        let all = self.keys.iter().map(|(_, access)| access).chain(roles);
        all.flat_map(|access| {
            access
                .tools
                .iter()
                .map(|tools| (access.name.as_str(), tools))
        })
    }

    /// Returns the globs over tools of a set of roles that decide about a tool. `None`: it has no
    /// entry.
    pub fn tools_of(&self, role: RoleId, exposed: &str) -> Option<&GlobList> {
        match self.row(role) {
            AccessEntry::Some(RoleAccess { tools, .. }) => tools
                .iter()
                .find(|tools| tools.matches(exposed))
                .or_else(|| tools.first()),
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    /// Returns the roles of keys that may use only some endpoints, with the names of those.
    pub fn restricted_keys(&self) -> impl Iterator<Item = (RoleId, &HashSet<String>)> {
        self.keys
            .iter()
            .filter_map(|(id, access)| Some((*id, access.endpoints.as_ref()?)))
    }

    /// Returns the only endpoints that the role may use, besides their union. `None`: no such
    /// limit.
    pub fn allowed_endpoints(&self, role: RoleId) -> Option<&HashSet<String>> {
        match self.row(role) {
            AccessEntry::Some(access) => access.endpoints.as_ref(),
            // No entry means no limit of this kind. `allows_endpoint` is what refuses a role
            // without one.
            AccessEntry::Everything | AccessEntry::Nothing => None,
        }
    }

    /// Returns true if the principal may use an endpoint. The empty name is the endpoint over
    /// everything.
    pub fn allows_endpoint(&self, principal: &Principal, name: &str) -> bool {
        match self.row(principal.role()) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => {
                // The endpoint over everything is open to each key: it unites the endpoints that
                // the key may use.
                name.is_empty()
                    || access
                        .endpoints
                        .as_ref()
                        .is_none_or(|names| names.contains(name))
            }
        }
    }

    /// Returns true if the principal may see and call a tool.
    pub fn allows_tool(&self, principal: &Principal, exposed: &str) -> bool {
        match self.row(principal.role()) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.allows_tool(exposed),
        }
    }

    /// Returns true if the principal may see and call every tool.
    pub fn allows_all_tools(&self, principal: &Principal) -> bool {
        match self.row(principal.role()) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access.tools.iter().any(GlobList::matches_all),
        }
    }

    /// Returns false if the principal may use no tool whose exposed name has this beginning.
    pub fn may_allow_from(&self, principal: &Principal, beginning: &str) -> bool {
        match self.row(principal.role()) {
            AccessEntry::Everything => true,
            AccessEntry::Nothing => false,
            AccessEntry::Some(access) => access
                .tools
                .iter()
                .any(|tools| tools.may_match_from(beginning)),
        }
    }

    /// Returns the own request rate of a set of roles, with its name. `Some((_, None))`: no limit.
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
        if let Some(index) = role.set_index() {
            let row = self.people.as_ref().and_then(|people| people.row(index));
            return row.map_or(AccessEntry::Nothing, AccessEntry::Some);
        }
        let at = self.keys.binary_search_by_key(&role, |(id, _)| *id);
        at.map_or(AccessEntry::Nothing, |at| {
            AccessEntry::Some(&self.keys[at].1)
        })
    }
}

enum AccessEntry<'a> {
    Everything,
    Nothing,
    Some(&'a RoleAccess),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn role(
        name: &str,
        endpoints: Option<&[&str]>,
        tools: &[&str],
        rate: Option<Option<u32>>,
    ) -> RoleAccess {
        RoleAccess {
            name: name.to_owned(),
            endpoints: endpoints.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            tools: vec![
                GlobList::new(
                    &tools
                        .iter()
                        .map(|&tool| tool.to_owned())
                        .collect::<Vec<_>>(),
                )
                .unwrap(),
            ],
            rate: rate.map(|count| {
                count.map(|count| RequestRate {
                    count,
                    per: Duration::from_secs(1),
                })
            }),
        }
    }

    fn person(role: RoleId) -> Principal {
        let person = Principal::new("ann", 1, [1; 16]);
        person.set_role(role);
        person
    }

    #[test]
    fn the_roles_of_a_set_add_up() {
        let sets = Arc::<RoleSets>::default();
        let read = role("read", Some(&["docs"]), &["*", "!delete"], Some(Some(1)));
        let delete = role("delete", Some(&["files"]), &["delete"], Some(Some(5)));
        let table = AccessTable::default().with_roles(vec![read, delete], sets.clone());
        let both = person(sets.intern(&["read", "delete"]).unwrap());
        let reader = person(sets.intern(&["read"]).unwrap());
        assert!(table.allows_tool(&both, "delete") && table.allows_tool(&both, "x"));
        assert!(!table.allows_tool(&reader, "delete") && table.allows_tool(&reader, "x"));
        assert!(table.allows_endpoint(&both, "files") && !table.allows_endpoint(&reader, "files"));
        assert_eq!(table.allowed_endpoints(both.role()).unwrap().len(), 2);
        assert_eq!(table.own_rate(both.role()).unwrap().1.unwrap().count, 5);
        // What a reload takes from a role, its people lose.
        let later = AccessTable::default()
            .with_roles(vec![role("read", None, &["read"], None)], sets.clone());
        assert!(later.allows_tool(&both, "read") && !later.allows_tool(&both, "delete"));
        assert!(!later.allows_endpoint(&person(sets.intern(&["delete"]).unwrap()), ""));
        assert!(!AccessTable::default().allows_endpoint(&both, ""));
    }
}
