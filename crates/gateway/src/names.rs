//! Exposed names: pure functions from servers' names to names that every client and model accepts.
//!
//! Owns prefixes, truncation and collisions. Does not know items (`build_catalog.rs`). Invariant:
//! equal input gives equal names, in any order. No two items get the same name.

use std::collections::{BTreeMap, HashMap};

/// Rules of exposed names.
#[derive(Clone, Debug, PartialEq)]
pub struct NameRules {
    /// Text between prefix and name.
    pub separator: String,
    /// Longest name, in bytes.
    pub max_length: usize,
}

impl NameRules {
    /// Returns what all names with a prefix start with. `None` for no prefix.
    pub fn beginning(&self, prefix: &str) -> Option<String> {
        let nameless = NameRequest {
            server: "",
            prefix,
            name: "",
            local: "",
        };
        (!prefix.is_empty()).then(|| sanitized_name(&nameless, self))
    }
}

/// Request of one item for a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameRequest<'a> {
    /// Server of the item.
    pub server: &'a str,
    /// Prefix of the name. Empty for none.
    pub prefix: &'a str,
    /// Name as the server (or its config) gives it.
    pub name: &'a str,
    /// Server's own name for it. Tells apart two items that the config gives one name.
    pub local: &'a str,
}

/// Digits of the suffix for truncated or colliding names.
// 24 bits: among the names of one gateway a collision is rare, and then the salt changes.
const SUFFIX_DIGITS: usize = 6;

/// Reason why a name is not the requested one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameChange {
    /// Truncated, because it was too long.
    Truncated,
    /// Taken by an item of this server.
    Taken(String),
}

/// Name, and the reason if it is not the requested one.
pub type AssignedName = (String, Option<NameChange>);

/// Assigns each item its name. The result is in the order of the input.
pub fn assign(items: &[NameRequest<'_>], rules: &NameRules) -> Vec<AssignedName> {
    // The winner of a collision is the first by server and name, so that it does not depend on who
    // connected first.
    let order: BTreeMap<&NameRequest<'_>, usize> = items
        .iter()
        .enumerate()
        .map(|(n, item)| (item, n))
        .collect();
    let mut taken: HashMap<String, &str> = HashMap::new();
    let mut names = vec![(String::new(), None); items.len()];
    for (item, n) in order {
        let spelled = sanitized_name(item, rules);
        let (mut name, mut change) = match spelled.len() <= rules.max_length {
            true => (spelled.clone(), None),
            false => (
                with_suffix(&spelled, item, 0, rules.max_length),
                Some(NameChange::Truncated),
            ),
        };
        let mut salt = 0;
        // Each salt gives another suffix, until a name is free.
        while let Some(owner) = taken.get(&name) {
            change.get_or_insert_with(|| NameChange::Taken((*owner).to_owned()));
            name = with_suffix(&spelled, item, salt, rules.max_length);
            salt += 1;
        }
        taken.insert(name.clone(), item.server);
        names[n] = (name, change);
    }
    names
}

/// Joins prefix, separator and name. Keeps only letters, digits, `_` and `-`, with a letter first.
fn sanitized_name(item: &NameRequest<'_>, rules: &NameRules) -> String {
    let mut text =
        String::with_capacity(item.prefix.len() + rules.separator.len() + item.name.len() + 1);
    if !item.prefix.is_empty() {
        text.push_str(item.prefix);
        text.push_str(&rules.separator);
    }
    text.push_str(item.name);
    // 2025-11-25/server/tools.mdx, Tool Names, also allows dots. The APIs of models do not.
    let mut spelled: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    // Some model APIs require a letter first.
    if !spelled.starts_with(|c: char| c.is_ascii_alphabetic()) {
        spelled.insert(0, 'x');
    }
    spelled
}

/// Truncates the name to make room for a suffix, which depends on the server and the whole name.
fn with_suffix(spelled: &str, item: &NameRequest<'_>, salt: u32, max_length: usize) -> String {
    // NUL between the parts, so that no two items are joined to the same text.
    let identity = format!("{}\u{0}{}\u{0}{salt}", item.server, item.local);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, identity.as_bytes());
    let hex: String = digest
        .as_ref()
        .iter()
        .take(SUFFIX_DIGITS.div_ceil(2))
        .map(|b| format!("{b:02x}"))
        .collect();
    let keep = max_length
        .saturating_sub(SUFFIX_DIGITS + 1)
        .min(spelled.len());
    format!("{}_{}", &spelled[..keep], &hex[..SUFFIX_DIGITS])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules() -> NameRules {
        NameRules {
            separator: "__".to_owned(),
            max_length: 45,
        }
    }

    fn names(items: &[(&str, &str, &str)]) -> Vec<String> {
        let items: Vec<NameRequest<'_>> = items
            .iter()
            .map(|(server, prefix, name)| NameRequest {
                server,
                prefix,
                name,
                local: name,
            })
            .collect();
        assign(&items, &rules())
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn plain_names_stay() {
        assert_eq!(
            names(&[("github", "github", "create_issue"), ("a", "", "echo")]),
            ["github__create_issue", "echo"]
        );
        assert_eq!(names(&[("a", "a", "x.y/z w")]), ["a__x_y_z_w"]);
        assert_eq!(names(&[("a", "", "1st")]), ["x1st"]);
    }

    #[test]
    fn both_sides_of_a_collision_can_be_called() {
        let got = names(&[
            ("b", "", "same"),
            ("a", "", "same"),
            ("c", "", "sa.me"),
            ("c", "", "sa_me"),
        ]);
        assert_eq!(got[1], "same");
        assert!(got[0].starts_with("same_"), "{got:?}");
        assert_eq!(got[2], "sa_me");
        assert!(got[3].starts_with("sa_me_"), "{got:?}");
    }

    fn tool<'a>(name: &'a str, local: &'a str) -> NameRequest<'a> {
        NameRequest {
            server: "a",
            prefix: "a",
            name,
            local,
        }
    }

    #[test]
    fn two_tools_of_one_name_by_config_are_both_there() {
        let rules = rules();
        let got = assign(&[tool("find", "search"), tool("find", "find")], &rules);
        assert_eq!(got[1], ("a__find".to_owned(), None));
        assert_eq!(got[0].1, Some(NameChange::Taken("a".to_owned())));
        let long = "x".repeat(90);
        assert_eq!(
            assign(&[tool(&long, "x")], &rules)[0].1,
            Some(NameChange::Truncated)
        );
        assert!(got[0].0.starts_with("a__find_"), "{got:?}");
    }

    proptest! {
        #[test]
        fn every_name_is_legal_unique_and_stable(
            raw in prop::collection::btree_set(("[a-c]{1,3}", "\\PC{0,80}"), 0..40),
            shuffle in any::<u64>(),
        ) {
            let raw: Vec<(String, String)> = raw.into_iter().collect();
            let items: Vec<NameRequest<'_>> =
                raw.iter().map(|(s, n)| NameRequest { server: s,
                    prefix: if s.len() == 1 { "" } else { s }, name: n, local: n }).collect();
            let first = assign(&items, &rules());
            let mut order: Vec<usize> = (0..items.len()).collect();
            order.sort_by_key(|n| (*n as u64).wrapping_mul(shuffle | 1));
            let shuffled: Vec<NameRequest<'_>> = order.iter().map(|n| items[*n].clone()).collect();
            let second = assign(&shuffled, &rules());
            for (at, n) in order.iter().enumerate() {
                prop_assert_eq!(&second[at], &first[*n]);
            }
            let mut unique: Vec<&String> = first.iter().map(|(name, _)| name).collect();
            unique.sort();
            unique.dedup();
            prop_assert_eq!(unique.len(), first.len());
            for (name, _) in &first {
                prop_assert!(name.len() <= 45 && name.starts_with(|c: char| c.is_ascii_alphabetic()));
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
            }
        }
    }
}
