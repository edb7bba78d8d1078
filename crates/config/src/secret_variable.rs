//! Variables that secrets of a server's entry could go into.
//!
//! Owns their names, and the value that refers to one. Does not judge secrets (`redact`), and sets
//! no variable. Invariant: two secrets of one entry get two names.

use std::collections::{HashMap, HashSet};

/// Schemes of a header whose value is a scheme and a secret.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// Variables of the secrets of one entry.
#[derive(Debug, Default)]
pub struct VariableNames {
    taken: HashSet<String>,
    /// Number to try next, by the name before it.
    next: HashMap<String, u32>,
}

impl VariableNames {
    /// Suggests a variable for the secret at a path, such as `headers.Authorization`. No other
    /// secret gets it.
    pub fn suggest(&mut self, server: &str, path: &str) -> String {
        let wanted = wanted_name(server, path);
        if self.taken.insert(wanted.clone()) {
            return wanted;
        }
        let next = self.next.entry(wanted.clone()).or_insert(2);
        loop {
            let numbered = format!("{wanted}_{next}");
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// Returns the value that takes a secret from a variable. A scheme before it stays, because it
/// isn't a secret and servers need it.
pub fn secret_reference(text: &str, variable: &str) -> String {
    let scheme = text.split_once(' ').map(|(scheme, _)| scheme);
    match scheme.filter(|scheme| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str())) {
        Some(scheme) => format!("{scheme} ${{{variable}}}"),
        None => format!("${{{variable}}}"),
    }
}

/// Name from the server and the header. Variables of programs keep the names that they have.
fn wanted_name(server: &str, path: &str) -> String {
    let words = match path.split_once('.') {
        Some(("env", key)) => key.to_owned(),
        Some(("headers", key)) if key.eq_ignore_ascii_case("authorization") => {
            format!("{server}_TOKEN")
        }
        Some(("headers", key)) => {
            let key = key
                .strip_prefix("X-")
                .or_else(|| key.strip_prefix("x-"))
                .unwrap_or(key);
            format!("{server}_{key}")
        }
        _ => format!("{server}_SECRET"),
    };
    let name: String = words
        .chars()
        .map(|c| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        })
        .collect();
    // A variable's name does not start with a digit.
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_has_a_variable_of_its_own() {
        let mut names = VariableNames::default();
        for (server, path, name) in [
            ("git-hub", "headers.Authorization", "GIT_HUB_TOKEN"),
            ("a", "headers.X-API-Key", "A_API_KEY"),
            ("a", "env.A_TOKEN_2", "A_TOKEN_2"),
            ("a", "headers.X-Token", "A_TOKEN"),
            ("a", "headers.Token", "A_TOKEN_3"),
            ("a", "env.GITHUB_TOKEN", "GITHUB_TOKEN"),
            ("a", "args[2]", "A_SECRET"),
            ("3d", "url", "_3D_SECRET"),
        ] {
            assert_eq!(names.suggest(server, path), name, "{server} {path}");
        }
        let many: Vec<String> = (0..20_000)
            .map(|_| names.suggest("many", "args[0]"))
            .collect();
        assert_eq!(many[19_999], "MANY_SECRET_20000");
    }

    #[test]
    fn a_scheme_stays_before_the_reference() {
        for (text, reference) in [
            ("Bearer x", "Bearer ${A}"),
            ("x y", "${A}"),
            ("x", "${A}"),
            ("basic x", "basic ${A}"),
        ] {
            assert_eq!(secret_reference(text, "A"), reference);
        }
    }
}
