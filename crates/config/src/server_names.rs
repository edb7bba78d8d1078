//! Names of servers.
//!
//! Owns the check of a server's name, and legal substitutes. Does not rename anything. Invariant: a legal name has only
//! letters, digits, `-` and `_`, so it fits into paths and before names of tools.

/// Limit of a server's name in characters.
const NAME_MAX: usize = 64;

/// True for characters that an exposed name may have.
pub(super) fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// Returns the reason why a name is not legal. `None` if it is.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    Some(if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_MAX {
        "is longer than 64 characters"
    } else if !name.chars().all(is_name_character) {
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
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(NAME_MAX).collect();
    let legal = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    Some(legal).filter(|legal| !legal.is_empty())
}

/// Makes a legal name that resembles another and is not taken.
pub fn unused_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let legal = legal_name(name).unwrap_or_else(|| "server".to_owned());
    // 56 characters leave room for the number.
    let numbered = (2_u32..).map(|number| format!("{legal:.56}-{number}"));
    std::iter::once(legal.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_legal_and_stay_different() {
        for (name, expected) in
            [("a", "a"), ("My Server", "My-Server"), ("a.b/c", "a-b-c"), ("@x/y", "x-y"), ("a__b", "a-b"), ("-a", "a")]
        {
            assert_eq!(legal_name(name).as_deref(), Some(expected), "{name}");
            assert_eq!(name_problem(expected), None);
        }
        assert_eq!((legal_name(""), legal_name("\u{65e5}\u{672c}")), (None, None));
        assert_eq!(unused_name("a b", |name| name == "a-b"), "a-b-2");
        assert_eq!(unused_name("", |_| false), "server");
        assert!(unused_name(&"x".repeat(100), |name| name.len() == NAME_MAX).len() <= NAME_MAX);
    }
}
