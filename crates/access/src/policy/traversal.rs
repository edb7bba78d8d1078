//! Path traversal check for URIs: a server may resolve another path than a pattern sees.
//!
//! Owns the check, in pure functions. Does not match patterns (`rules.rs`). Invariant: an accepted
//! URI has no segment that a server could resolve to another directory.

/// Characters that may surround a path segment. Servers on Windows also split at `\`.
const AROUND_SEGMENTS: [char; 7] = ['/', '\\', ':', '?', '#', ';', '&'];

/// Returns true if a URI has dot segments, `%2e`, `%2f` or `%5c` (also encoded twice), or control
/// characters. Some URL readers skip control characters. Patterns compare the text of a URI, but
/// servers resolve it.
pub fn has_traversal(uri: &str) -> bool {
    uri.split(AROUND_SEGMENTS).any(|segment| matches!(segment, "." | ".."))
        // 2025-11-25/server/resources.mdx, Security Considerations: "Servers MUST validate all
        // resource URIs". A pattern here is useless if the server decodes another path.
        || uri.split('%').skip(1).any(hides_a_separator)
        || uri.bytes().any(|byte| byte.is_ascii_control())
}

/// Returns true if a dot or a separator follows a percent sign.
fn hides_a_separator(mut digits: &str) -> bool {
    // `%25` is an encoded percent sign: `%252e` is a dot that was encoded twice.
    while let Some(rest) = digits.strip_prefix("25") {
        digits = rest;
    }
    let code = digits.as_bytes().get(..2).unwrap_or_default();
    [b"2e", b"2f", b"5c"]
        .iter()
        .any(|hidden| code.eq_ignore_ascii_case(*hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_seen() {
        let yes = [
            "file:///data/../etc/passwd",
            "file:///data/./x",
            "file:///data/..",
            "file:///data/..?x",
            "file:///data/..#x",
            "file:..",
            "../etc",
            ".",
            "file:///data/..\\etc",
            "file:///data/%2e%2E/etc",
            "file:///data/.%2e/etc",
            "file:///data%2Fetc",
            "file:///data%5cetc",
            "file:///data/%252e%252e/etc",
            "file:///data/.\t./etc",
            "x:?path=a/../b",
            "x:?a;../b",
        ];
        let no = [
            "file:///data/a.txt",
            "file:///data/.env",
            "file:///data/...",
            "file:///data/a..b",
            "file:///data/%20x",
            "file:///data/%2",
            "file:///data/%",
            "file:///data/%é",
            "https://example.com/a?b=c.d",
            "",
        ];
        for uri in yes {
            assert!(has_traversal(uri), "{uri:?}");
        }
        for uri in no {
            assert!(!has_traversal(uri), "{uri:?}");
        }
    }
}
