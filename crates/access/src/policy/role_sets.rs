//! Numbers for sets of people's roles.
//!
//! Owns the mapping between numbers and sets. Does not know what a role may use
//! (`access_table.rs`), or who has it. Invariant: a number always means the same role names, so a
//! reload changes what a set may use, but not who has it.

use std::sync::Arc;

use moongate_model::RoleId;
use parking_lot::RwLock;

/// Sets of roles, by their numbers.
#[derive(Debug, Default)]
pub struct RoleSets(RwLock<Vec<Arc<[String]>>>);

impl RoleSets {
    /// Returns the number of a set of roles, in any order. `None` if there are too many sets.
    pub fn intern(&self, roles: &[&str]) -> Option<RoleId> {
        let mut names: Vec<String> = roles.iter().map(|&role| role.to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        let names: Arc<[String]> = names.into();
        let known = find_set(&self.0.read(), &names);
        let index = known.or_else(|| {
            let mut sets = self.0.write();
            // Another request may have added it meanwhile.
            let known = find_set(&sets, &names);
            known.or_else(|| {
                (sets.len() < RoleId::SETS_MAX).then(|| {
                    sets.push(names.clone());
                    sets.len() - 1
                })
            })
        })?;
        u8::try_from(index).ok().map(RoleId::of_set)
    }

    /// Returns the names of a set.
    pub(super) fn names(&self, index: usize) -> Option<Arc<[String]>> {
        self.0.read().get(index).cloned()
    }
}

fn find_set(sets: &[Arc<[String]>], names: &Arc<[String]>) -> Option<usize> {
    sets.iter().position(|set| set == names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_one_number_and_there_are_256() {
        let sets = RoleSets::default();
        let both = sets.intern(&["b", "a", "b"]);
        assert!(both.is_some() && both == sets.intern(&["a", "b"]) && both != sets.intern(&["a"]));
        let others = (0..1000)
            .filter(|n| sets.intern(&[&n.to_string()]).is_some())
            .count();
        assert_eq!(others, 254);
        assert_eq!(sets.intern(&["a", "b"]), both);
    }
}
