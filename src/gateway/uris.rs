//! Exposed URIs: as they are where one server owns them, wrapped where several do. Pure functions.
//!
//! Invariant: unwrapping what was wrapped gives the same bytes.

use std::borrow::Cow;

use crate::revision::APP_SCHEME;

/// What a wrapped URI begins with.
const SCHEME: &str = "moongate:";
/// What a wrapped URI of an app's page begins with, behind the scheme that it must keep.
const APP_HOST: &str = "moongate/";

/// Expressions that a template may have.
const EXPRESSIONS_MAX: usize = 32;

/// A URI that says whose it is.
pub fn wrap(server: &str, uri: &str) -> String {
    match uri.strip_prefix(APP_SCHEME) {
        Some(rest) => format!("{APP_SCHEME}{APP_HOST}{server}/{rest}"),
        None => format!("{SCHEME}{server}:{uri}"),
    }
}

/// The server and its own URI, if the URI is a wrapped one.
pub fn unwrap(uri: &str) -> Option<(&str, Cow<'_, str>)> {
    if let Some(rest) = uri.strip_prefix(SCHEME) {
        return rest.split_once(':').map(|(server, uri)| (server, Cow::Borrowed(uri)));
    }
    let (server, rest) = uri.strip_prefix(APP_SCHEME)?.strip_prefix(APP_HOST)?.split_once('/')?;
    Some((server, Cow::Owned(format!("{APP_SCHEME}{rest}"))))
}

/// Whether a URI must be wrapped even if nobody else has it: it would be read as a wrapped one.
pub fn looks_wrapped(uri: &str) -> bool {
    uri.starts_with(SCHEME) || uri.strip_prefix(APP_SCHEME).is_some_and(|rest| rest.starts_with(APP_HOST))
}

/// Whether a URI can come from a URI template (RFC 6570), as far as that can be told from the text around its
/// expressions. `{x}` stands for anything without a slash; `{+x}`, `{/x*}` and their like for anything.
pub fn matches(template: &str, uri: &str) -> bool {
    // Most templates can be told by how they begin.
    let literal = template.split('{').next().unwrap_or(template);
    if !uri.starts_with(literal) {
        return false;
    }
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((expression, after)) = after.split_once('}') else { return false };
        parts.push((before, Some(!is_simple(expression))));
        rest = after;
    }
    parts.push((rest, None));
    // Templates come from servers; matching goes as deep as they have expressions.
    if parts.len() > EXPRESSIONS_MAX {
        return false;
    }
    match_parts(&parts, uri)
}

fn is_simple(expression: &str) -> bool {
    !expression.starts_with(['+', '#', '/', '?', '&', ';', '.']) && !expression.contains('*')
}

/// Each part is a text and whether what follows it may hold slashes; the last is followed by nothing. Greedy on the
/// shortest fit, with a bound on the tries that grows with the product of both lengths at most.
fn match_parts(parts: &[(&str, Option<bool>)], uri: &str) -> bool {
    let Some(((text, follows), later)) = parts.split_first() else { return false };
    let Some(rest) = uri.strip_prefix(text) else { return false };
    let Some(slashes) = follows else { return rest.is_empty() };
    let Some((next, last)) = later.first().map(|(next, follows)| (*next, follows.is_none())) else { return false };
    let fits = |value: &str| if *slashes { true } else { !value.is_empty() && !value.contains('/') };
    if last {
        return rest.strip_suffix(next).is_some_and(fits);
    }
    if next.is_empty() {
        // Two expressions side by side: where one ends cannot be told, so both together are one.
        let joined = later[0].1.map(|more| more || *slashes);
        let mut merged = vec![("", joined)];
        merged.extend_from_slice(&later[1..]);
        return match_parts(&merged, rest);
    }
    match rest.find(next) {
        Some(at) => fits(&rest[..at]) && match_parts(later, &rest[at..]),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn templates_match_what_they_can_make() {
        let yes = [
            ("test://template/{id}/data", "test://template/123/data"),
            ("file:///{+path}", "file:///a/b/c"),
            ("a://x{?q,r}", "a://x?q=1"),
            ("a://x{?q}", "a://x"),
            ("a://{a}{b}/c", "a://12/c"),
            ("plain://x", "plain://x"),
        ];
        let no = [
            ("test://template/{id}/data", "test://template/1/2/data"),
            ("test://template/{id}/data", "test://template//data"),
            ("test://{id}", "other://1"),
            ("test://{id", "test://1"),
            ("plain://x", "plain://xy"),
        ];
        for (template, uri) in yes {
            assert!(matches(template, uri), "{template} {uri}");
        }
        for (template, uri) in no {
            assert!(!matches(template, uri), "{template} {uri}");
        }
    }

    proptest! {
        #[test]
        fn wrapping_loses_nothing(server in "[a-z][a-z0-9_-]{0,20}", scheme in "(ui://)?(moongate[:/])?", uri in "\\PC{0,200}") {
            let uri = scheme + &uri;
            let wrapped = wrap(&server, &uri);
            prop_assert_eq!(unwrap(&wrapped), Some((server.as_str(), uri.as_str().into())));
            prop_assert_eq!(wrapped.starts_with(APP_SCHEME), uri.starts_with(APP_SCHEME));
            prop_assert!(looks_wrapped(&wrapped));
        }

        #[test]
        fn matching_ends(template in "[a{}/x+]{0,60}", uri in "[a/x]{0,60}") {
            matches(&template, &uri);
        }
    }
}
