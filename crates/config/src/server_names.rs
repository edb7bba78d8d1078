//! Names of servers.
//!
//! Owns the check of a server's name, and legal substitutes. Does not rename anything. Invariant: a
//! legal name has only letters, digits, `-` and `_`, so it fits into paths and before names of
//! tools.

use std::collections::{HashMap, HashSet};

/// Limit of a server's name in characters.
const NAME_MAX: usize = 64;

/// True for characters that an exposed name may have.
pub(super) fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// True if a text has only characters of names, so that it fits into a path. A server has no other
/// name.
pub fn has_name_characters(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_character)
}

/// Returns the reason why a name is not legal. `None` if it is.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    Some(if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_MAX {
        "is longer than 64 characters"
    } else if !has_name_characters(name) {
        "has characters other than letters, digits, `-` and `_`"
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        "does not start with a letter or digit"
    // Two underscores separate prefix and name, and levels in names of variables.
    } else if name.contains("__") {
        "has two underscores in a row"
    } else {
        return None;
    })
}

/// Makes a legal name that resembles another. `None` if nothing of it can stay.
pub fn legal_name(name: &str) -> Option<String> {
    if name_problem(name).is_none() {
        return Some(name.to_owned());
    }
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(NAME_MAX)
        .collect();
    let legal = plain
        .split('-')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    Some(legal).filter(|legal| !legal.is_empty())
}

/// Names that are taken, for many servers one after the other.
#[derive(Debug, Default)]
pub struct UnusedNames {
    taken: HashSet<String>,
    /// Number to try next, by the name before it. A thousand servers of one name would try each
    /// number again.
    next: HashMap<String, u32>,
}

impl UnusedNames {
    /// Starts with these names taken.
    pub fn new(taken: impl IntoIterator<Item = String>) -> Self {
        UnusedNames {
            taken: taken.into_iter().collect(),
            next: HashMap::new(),
        }
    }

    /// Takes a legal name that resembles another and is not taken.
    pub fn take(&mut self, name: &str) -> String {
        let legal = legal_name(name).unwrap_or_else(|| "server".to_owned());
        if self.taken.insert(legal.clone()) {
            return legal;
        }
        // 56 characters leave room for the number.
        let start = format!("{legal:.56}");
        let next = self.next.entry(start.clone()).or_insert(2);
        loop {
            let numbered = format!("{start}-{next}");
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_legal_and_stay_different() {
        for (name, expected) in [
            ("a", "a"),
            ("My Server", "My-Server"),
            ("a.b/c", "a-b-c"),
            ("@x/y", "x-y"),
            ("a__b", "a-b"),
            ("-a", "a"),
        ] {
            assert_eq!(legal_name(name).as_deref(), Some(expected), "{name}");
            assert_eq!(name_problem(expected), None);
        }
        for (text, fits) in [("a_b-1", true), ("", false), ("a/b", false), ("a b", false)] {
            assert_eq!(has_name_characters(text), fits, "{text:?}");
        }
        assert_eq!(legal_name(""), None);
        assert_eq!(legal_name("\u{65e5}\u{672c}"), None);
        let mut names = UnusedNames::new(["a-b", "a-b-3"].map(str::to_owned));
        assert_eq!(
            ["a b", "a.b", "a-b-2", "", "c"].map(|name| names.take(name)),
            ["a-b-2", "a-b-4", "a-b-2-2", "server", "c"]
        );
        let long = "x".repeat(100);
        assert_eq!(names.take(&long).len(), NAME_MAX);
        assert_eq!(names.take(&long).len(), 58);
        let many: Vec<String> = (0..20_000).map(|_| names.take("many")).collect();
        assert_eq!(many[19_999], "many-20000");
    }
}
