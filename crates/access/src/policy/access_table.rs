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
    /// Role that a key shares. `None`: this is a role itself, or what the key has on its own.
    pub shared_role: Option<String>,
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
            shared_role: None,
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

    /// Returns the entry that a key has its access from.
    fn source_of_key(&self) -> AccessSource<'_> {
        match &self.shared_role {
            Some(role) => AccessSource::Role(role),
            None => AccessSource::Key(&self.name),
        }
    }
}

/// Entry of the config that gives access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSource<'a> {
    /// Key with this name.
    Key(&'a str),
    /// Role with this name.
    Role(&'a str),
}

impl<'a> AccessSource<'a> {
    /// Returns the path of a setting of the entry. Entries go by their names.
    pub fn setting(self, key: &'a str) -> [&'a str; 4] {
        match self {
            AccessSource::Key(name) => ["auth", "keys", name, key],
            AccessSource::Role(name) => ["auth", "roles", name, key],
        }
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
        let roles = self.roles_in(&names);
        // A role that is no longer in the config gives nothing, and none of several takes anything
        // away.
        (!roles.is_empty()).then(|| RoleAccess::sum(names.join(", "), &roles))
    }

    /// Returns the roles of these names, in the order of the config.
    fn roles_in(&self, names: &[String]) -> Vec<&RoleAccess> {
        let roles = self.roles.iter();
        roles.filter(|role| names.contains(&role.name)).collect()
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

    /// Returns the names of the config's roles.
    pub fn role_names(&self) -> impl Iterator<Item = &str> {
        let roles = self.people.iter().flat_map(|people| &people.roles);
        roles.map(|role| role.name.as_str())
    }

    /// Returns each entry of the config with its globs over tools. A key that shares a role has
    /// none.
    pub fn tool_globs(&self) -> impl Iterator<Item = (AccessSource<'_>, &GlobList)> {
        let keys = self
            .keys
            .iter()
            .filter(|(_, access)| access.shared_role.is_none())
            .map(|(_, access)| (AccessSource::Key(&access.name), access));
        let roles = self
            .people
            .iter()
            .flat_map(|people| &people.roles)
            .map(|access| (AccessSource::Role(&access.name), access));
        keys.chain(roles)
            .flat_map(|(source, access)| access.tools.iter().map(move |tools| (source, tools)))
    }

    /// Returns the globs over tools that decide about a tool for a set of roles, with their entry
    /// of the config. `None`: the set has no entry.
    pub fn tools_of(&self, role: RoleId, exposed: &str) -> Option<(AccessSource<'_>, &GlobList)> {
        let entries = self.entries_of(role);
        let lists: Vec<_> = entries
            .into_iter()
            .flat_map(|(source, access)| access.tools.iter().map(move |tools| (source, tools)))
            .collect();
        let matching = lists.iter().find(|(_, tools)| tools.matches(exposed));
        matching.or_else(|| lists.first()).copied()
    }

    /// Returns the entry of the config that gives a set of roles its endpoints, or the first of
    /// several. `None`: the set has no entry.
    pub fn source_of(&self, role: RoleId) -> Option<AccessSource<'_>> {
        self.entries_of(role).first().map(|(source, _)| *source)
    }

    fn entries_of(&self, role: RoleId) -> Vec<(AccessSource<'_>, &RoleAccess)> {
        if let Some(index) = role.set_index() {
            let Some(people) = &self.people else {
                return Vec::new();
            };
            let names = people.sets.names(index);
            let roles = names.map_or_else(Vec::new, |names| people.roles_in(&names));
            let named = roles.into_iter();
            return named
                .map(|access| (AccessSource::Role(&access.name), access))
                .collect();
        }
        match self.row(role) {
            AccessEntry::Some(access) => vec![(access.source_of_key(), access)],
            AccessEntry::Everything | AccessEntry::Nothing => Vec::new(),
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
            shared_role: None,
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

    #[test]
    fn the_entry_that_decides_is_the_role_also_for_a_key_that_shares_one() {
        let sets = Arc::<RoleSets>::default();
        let read = role("read", None, &["get"], None);
        let write = role("write", None, &["put"], None);
        let shared = RoleAccess {
            name: "ci".to_owned(),
            shared_role: Some("read".to_owned()),
            ..read.clone()
        };
        let own = role("laptop", None, &["*"], None);
        let table = AccessTable::new(vec![(RoleId(1), shared), (RoleId(2), own)])
            .with_roles(vec![read, write], sets.clone());
        let both = sets.intern(&["write", "read"]).unwrap();
        for (id, tool, source) in [
            (RoleId(1), "get", AccessSource::Role("read")),
            (RoleId(1), "put", AccessSource::Role("read")),
            (RoleId(2), "put", AccessSource::Key("laptop")),
            (both, "put", AccessSource::Role("write")),
            (both, "nothing", AccessSource::Role("read")),
        ] {
            let found = table.tools_of(id, tool).map(|(source, _)| source);
            assert_eq!(found, Some(source), "{id:?} {tool}");
        }
        assert_eq!(table.tools_of(RoleId(3), "get"), None);
        assert_eq!(table.source_of(both), Some(AccessSource::Role("read")));
        // A pattern of a shared role is reported once.
        let sources: Vec<_> = table.tool_globs().map(|(source, _)| source).collect();
        let expected = [
            AccessSource::Key("laptop"),
            AccessSource::Role("read"),
            AccessSource::Role("write"),
        ];
        assert_eq!(sources, expected);
    }
}
