//! URIs that mean another path than the one that a pattern sees.
//!
//! Pure functions. Invariant: what passes here has no segment that a server could resolve to another folder.

/// What may stand around a path segment. Servers on Windows also split at `\`.
const AROUND_SEGMENTS: [char; 7] = ['/', '\\', ':', '?', '#', ';', '&'];

/// Tells whether a URI has dot segments, `%2e`, `%2f` or `%5c` (also encoded twice), or control characters, which some
/// readers of URLs skip. Patterns are compared with the text of a URI, and servers resolve it.
pub fn traverses(uri: &str) -> bool {
    uri.split(AROUND_SEGMENTS).any(|segment| matches!(segment, "." | ".."))
        || uri.split('%').skip(1).any(hides_a_separator)
        || uri.bytes().any(|byte| byte.is_ascii_control())
}

/// Whether what stands behind a percent sign is a dot or a separator.
fn hides_a_separator(mut digits: &str) -> bool {
    while let Some(rest) = digits.strip_prefix("25") {
        digits = rest;
    }
    let code = digits.as_bytes().get(..2).unwrap_or_default();
    [b"2e", b"2f", b"5c"].iter().any(|hidden| code.eq_ignore_ascii_case(*hidden))
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
            assert!(traverses(uri), "{uri:?}");
        }
        for uri in no {
            assert!(!traverses(uri), "{uri:?}");
        }
    }
}
