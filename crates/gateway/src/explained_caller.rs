//! Principal that an explanation is about, by the name that an operator gives.
//!
//! Owns the search, and what is said if nobody or more than one has the name. Does not decide
//! (`explain.rs`). Invariant: of several people with one name, none is chosen.

use std::fmt;
use std::sync::Arc;

use moongate_access::auth::AuthMethods;
use moongate_access::policy::AccessTable;
use moongate_model::{Principal, PrincipalKey};
use moongate_search::few_edits_or_beginning;

/// Beginning of the name of a role.
const ROLE: &str = "role:";
/// Maximum number of people that a message suggests or lists.
const PEOPLE_SHOWN: usize = 10;

/// Error for a name that belongs to nothing, or to more than one. It reads on after "there is".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnclearName {
    /// Nothing has the name.
    Unknown {
        /// Thing that was looked for.
        thing: NamedThing,
        /// Name in the question.
        name: String,
        /// Names that exist. Those of endpoints are paths, the nearest first.
        known: Vec<String>,
    },
    /// Several principals have the name.
    Ambiguous {
        /// Name in the question.
        name: String,
        /// Principals, people with their ids.
        found: Vec<String>,
    },
}

/// Thing that an explanation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedThing {
    /// Key, where people cannot log in.
    Key,
    /// Key or person.
    Caller,
    /// Role.
    Role,
    /// Endpoint.
    Endpoint,
}

impl fmt::Display for UnclearName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnclearName::Unknown { thing, name, known } => {
                let thing = match thing {
                    NamedThing::Key => "key",
                    NamedThing::Caller => "key or person",
                    NamedThing::Role => "role",
                    NamedThing::Endpoint => "endpoint",
                };
                write!(f, "no {thing} {name:?}; known: {}", known.join(", "))
            }
            UnclearName::Ambiguous { name, found } => {
                let found = found.join(", ");
                write!(f, "more than one {name:?}: {found}; ask for one by its id")
            }
        }
    }
}

/// Finds the principal of a name: a key, `role:` and a role, or a person by name or id.
pub(super) fn find_caller(
    auth: &AuthMethods,
    access: &AccessTable,
    name: &str,
) -> Result<Arc<Principal>, UnclearName> {
    if let Some(role) = name.strip_prefix(ROLE) {
        return find_role(auth, access, role);
    }
    let mut all = auth.principals().all();
    all.sort_by(|a, b| (&a.name, a.key).cmp(&(&b.name, b.key)));
    let by_name = all.iter().filter(|known| known.name == name);
    let mut found: Vec<&Arc<Principal>> = by_name.collect();
    if found.is_empty() {
        let by_id = all.iter().filter(|known| is_person(known));
        found = by_id.filter(|known| id_of(&known.key) == name).collect();
    }
    match found[..] {
        [only] => Ok(only.clone()),
        [] => Err(unknown_caller(&all, access, name)),
        _ => Err(UnclearName::Ambiguous {
            name: name.to_owned(),
            found: described(&found),
        }),
    }
}

/// Returns the names of keys and roles, without those of people, who may be many.
pub(super) fn configured_names(auth: &AuthMethods, access: &AccessTable) -> Vec<String> {
    let mut all = auth.principals().all();
    all.retain(|known| !is_person(known));
    let mut names: Vec<String> = all.iter().map(|known| known.name.clone()).collect();
    names.sort_unstable();
    names.extend(access.role_names().map(|role| format!("{ROLE}{role}")));
    names
}

/// Creates a principal that has one role alone.
fn find_role(
    auth: &AuthMethods,
    access: &AccessTable,
    role: &str,
) -> Result<Arc<Principal>, UnclearName> {
    let is_known = access.role_names().any(|known| known == role);
    let set = auth.principals().role_sets();
    let Some(id) = is_known.then(|| set.intern(&[role])).flatten() else {
        return Err(UnclearName::Unknown {
            thing: NamedThing::Role,
            name: role.to_owned(),
            known: access.role_names().map(str::to_owned).collect(),
        });
    };
    // No caller has this id, so nothing that is open can be mistaken for its own.
    let principal = Principal::new(&format!("{ROLE}{role}"), Principal::GATEWAY, [0; 16]);
    principal.set_role(id);
    Ok(Arc::new(principal))
}

fn unknown_caller(all: &[Arc<Principal>], access: &AccessTable, name: &str) -> UnclearName {
    let (people, keys): (Vec<_>, Vec<_>) = all.iter().partition(|known| is_person(known));
    let near = people
        .iter()
        .filter(|known| few_edits_or_beginning(name, &known.name).is_some())
        .take(PEOPLE_SHOWN);
    let mut known: Vec<String> = near.map(|known| known.name.clone()).collect();
    known.extend(keys.iter().map(|known| known.name.clone()));
    known.extend(access.role_names().map(|role| format!("{ROLE}{role}")));
    UnclearName::Unknown {
        thing: if access.has_people() {
            NamedThing::Caller
        } else {
            NamedThing::Key
        },
        name: name.to_owned(),
        known,
    }
}

fn described(found: &[&Arc<Principal>]) -> Vec<String> {
    let mut lines: Vec<String> = found
        .iter()
        .take(PEOPLE_SHOWN)
        .map(|known| {
            if is_person(known) {
                format!("person {}", id_of(&known.key))
            } else {
                "a key".to_owned()
            }
        })
        .collect();
    let others = found.len() - lines.len();
    if others > 0 {
        lines.push(format!("{others} others"));
    }
    lines
}

/// Returns true for somebody with roles of people. A key has its own role.
fn is_person(principal: &Principal) -> bool {
    principal.role().set_index().is_some()
}

/// Returns a person's id. It is no secret, and the same in every process.
fn id_of(key: &PrincipalKey) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use moongate_access::auth::{AuthSettings, KeyHash, KeySettings, Person};
    use moongate_access::policy::{GlobList, RoleAccess};
    use moongate_model::PrincipalSecret;

    use super::*;

    fn role(name: &str) -> RoleAccess {
        RoleAccess {
            name: name.to_owned(),
            shared_role: None,
            endpoints: None,
            tools: vec![GlobList::all()],
            rate: None,
        }
    }

    fn methods() -> (Arc<AuthMethods>, AccessTable) {
        let key = KeySettings {
            name: "ci".to_owned(),
            hash: KeyHash::of("mg_ci"),
            role: None,
            views: None,
            tools: GlobList::all(),
            rate: None,
            expires: None,
        };
        AuthMethods::new(&AuthSettings {
            keys: vec![key],
            roles: vec![role("staff"), role("admins")],
            ..AuthSettings::default()
        })
    }

    fn meet(auth: &AuthMethods, n: u8, name: &str) {
        let principals = auth.principals();
        let person = Person {
            key: [n; 16],
            name,
            secret: PrincipalSecret::new([n; 32]),
            role: principals.role_sets().intern(&["staff"]).unwrap(),
            expires: None,
        };
        principals.meet("test", person).unwrap();
    }

    #[test]
    fn a_key_a_role_and_a_person_are_found_by_their_names() {
        let (auth, access) = methods();
        meet(&auth, 0xab, "ann@example.com");
        for (name, found) in [
            ("ci", "ci"),
            ("role:admins", "role:admins"),
            ("ann@example.com", "ann@example.com"),
            (&*"ab".repeat(16), "ann@example.com"),
        ] {
            let principal = find_caller(&auth, &access, name).unwrap();
            assert_eq!(principal.name, found);
        }
        let admins = find_caller(&auth, &access, "role:admins").unwrap();
        assert!(access.allows_endpoint(&admins, "") && !auth.principals().admits(&admins));
        for (name, error) in [
            ("role:admin", "no role \"admin\"; known: staff, admins"),
            (
                "an@example.com",
                "no key or person \"an@example.com\"; known: ann@example.com, ci, role:staff, \
                 role:admins",
            ),
        ] {
            let unclear = find_caller(&auth, &access, name).unwrap_err();
            assert_eq!(unclear.to_string(), error);
        }
        let names = configured_names(&auth, &access);
        assert_eq!(names, ["ci", "role:staff", "role:admins"]);
    }

    #[test]
    fn several_people_of_one_name_are_listed_and_none_is_chosen() {
        let (auth, access) = methods();
        for n in [2, 1] {
            meet(&auth, n, "ann@example.com");
        }
        let id = |n: &str| n.repeat(16);
        let unclear = find_caller(&auth, &access, "ann@example.com").unwrap_err();
        let expected = format!(
            "more than one \"ann@example.com\": person {}, person {}; ask for one by its id",
            id("01"),
            id("02")
        );
        assert_eq!(unclear.to_string(), expected);
        assert_eq!(find_caller(&auth, &access, &id("02")).unwrap().key, [2; 16]);
        for n in 3..20 {
            meet(&auth, n, "ann@example.com");
        }
        let unclear = find_caller(&auth, &access, "ann@example.com").unwrap_err();
        assert!(unclear.to_string().contains("9 others"), "{unclear}");
        // A key cannot be taken for a person, nor a person for a key.
        meet(&auth, 99, "ci");
        let unclear = find_caller(&auth, &access, "ci").unwrap_err();
        let said = unclear.to_string();
        assert!(
            said.contains("a key") && said.contains("person 6363"),
            "{said}"
        );
    }
}
