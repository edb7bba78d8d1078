//! Variables that secrets of a server's entry could go into.
//!
//! Owns their names, and the value that refers to one. Does not judge secrets (`redact`), and sets no variable.
//! Invariant: two secrets of one entry get two names.

/// Schemes of a header whose value is a scheme and a secret.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// Suggests a variable for the secret at a path, such as `headers.Authorization`. `taken` are those of other secrets.
pub fn secret_variable<'a>(server: &str, path: &str, taken: impl Iterator<Item = &'a str> + Clone) -> String {
    let wanted = wanted_name(server, path);
    let numbered = (2_u32..).map(|number| format!("{wanted}_{number}"));
    let mut names = std::iter::once(wanted.clone()).chain(numbered);
    names.find(|name| !taken.clone().any(|other| other == name)).unwrap_or(wanted)
}

/// Returns the value that takes a secret from a variable. A scheme before it stays: it is no secret, and servers want it.
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
        Some(("headers", key)) if key.eq_ignore_ascii_case("authorization") => format!("{server}_TOKEN"),
        Some(("headers", key)) => {
            let key = key.strip_prefix("X-").or_else(|| key.strip_prefix("x-")).unwrap_or(key);
            format!("{server}_{key}")
        }
        _ => format!("{server}_SECRET"),
    };
    let letters = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = words.chars().map(letters).collect();
    // A name of a variable does not begin with a digit.
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_has_a_variable_of_its_own() {
        let name = |server: &str, path: &str, taken: &[&str]| secret_variable(server, path, taken.iter().copied());
        assert_eq!(name("git-hub", "headers.Authorization", &[]), "GIT_HUB_TOKEN");
        assert_eq!(name("a", "headers.X-API-Key", &[]), "A_API_KEY");
        assert_eq!(name("a", "headers.X-Token", &["A_TOKEN"]), "A_TOKEN_2");
        assert_eq!(name("a", "headers.Token", &["A_TOKEN", "A_TOKEN_2"]), "A_TOKEN_3");
        assert_eq!(name("a", "env.GITHUB_TOKEN", &["A_TOKEN"]), "GITHUB_TOKEN");
        assert_eq!((name("a", "args[2]", &[]), name("3d", "url", &[])), ("A_SECRET".into(), "_3D_SECRET".into()));
    }

    #[test]
    fn a_scheme_stays_before_the_reference() {
        for (text, reference) in
            [("Bearer x", "Bearer ${A}"), ("x y", "${A}"), ("x", "${A}"), ("basic x", "basic ${A}")]
        {
            assert_eq!(secret_reference(text, "A"), reference);
        }
    }
}
