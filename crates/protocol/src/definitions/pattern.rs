//! Patterns of schemas, by ECMA-262.
//!
//! Owns which of them compile. Does not match with them. Invariant: a pattern that cannot be judged
//! counts as right.
//!
//! JSON Schema's `pattern` is an ECMA-262 expression, and the TypeScript SDKs compile it with the
//! flag `u`. Rust's `regex` knows neither look-around nor back references, and takes what
//! JavaScript refuses.

use std::collections::HashSet;

use regress::{Flags, Regex};

/// Length of a pattern that is judged, in bytes.
const PATTERN_MAX: usize = 4096;
/// Nesting of a pattern that is judged. The parser recurses, and its own limit is too much for the
/// stack of a thread.
const NESTING_MAX: usize = 32;

/// Returns the work of judging a pattern, in the steps of a compilation.
pub(super) fn steps(pattern: &str) -> usize {
    const BYTE_STEPS: usize = 4;
    /// A property such as `\p{L}` means hundreds of ranges, which a class joins to those that it
    /// has.
    const PROPERTY_STEPS: usize = 2000;
    if pattern.len() > PATTERN_MAX {
        return 0;
    }
    let properties = pattern.matches("\\p").count() + pattern.matches("\\P").count();
    BYTE_STEPS * pattern.len() + PROPERTY_STEPS * properties
}

/// Returns true if the pattern does not compile.
pub(super) fn is_broken(pattern: &str) -> bool {
    if pattern.len() > PATTERN_MAX {
        return false;
    }
    let outline = PatternOutline::of(pattern);
    if outline.nesting > NESTING_MAX {
        return false;
    }
    let mut flags = Flags::from("u");
    flags.no_opt = true;
    match Regex::with_flags(pattern, flags) {
        Ok(_) => outline.is_broken,
        // A limit of the parser says nothing about the pattern.
        Err(error) => !error.text.contains("limit"),
    }
}

/// Outline of a pattern, from one pass over it.
#[derive(Default)]
struct PatternOutline<'a> {
    /// Depth of groups.
    nesting: usize,
    /// True if there is a construct that many clients do not know, or that `regress` takes by
    /// mistake.
    is_broken: bool,
    names: HashSet<&'a str>,
}

impl<'a> PatternOutline<'a> {
    fn of(pattern: &'a str) -> Self {
        let mut outline = PatternOutline::default();
        let mut depth = 0_usize;
        let mut is_class = false;
        let mut rest = pattern;
        while let Some(next) = rest.chars().next() {
            let behind = &rest[next.len_utf8()..];
            rest = behind;
            match next {
                '\\' => {
                    let escaped = behind.chars().next();
                    rest = &behind[escaped.map_or(0, char::len_utf8)..];
                    // A word boundary is not an atom: "Nothing to repeat".
                    let is_boundary = matches!(escaped, Some('b' | 'B')) && !is_class;
                    outline.is_broken |= is_boundary && rest.starts_with(['*', '+', '?', '{']);
                }
                '[' => is_class = true,
                ']' => is_class = false,
                '(' if !is_class => {
                    depth += 1;
                    outline.group(behind);
                }
                ')' if !is_class => depth = depth.saturating_sub(1),
                _ => {}
            }
            outline.nesting = outline.nesting.max(depth);
            if depth > NESTING_MAX {
                break;
            }
        }
        outline
    }

    /// Looks at what is new in ECMAScript 2025, which Node.js 20 and 22 do not know: modifiers, and
    /// a group name in two alternatives.
    fn group(&mut self, behind: &'a str) {
        let Some(kind) = behind.strip_prefix('?') else {
            return;
        };
        self.is_broken |= kind.starts_with(['i', 'm', 's', '-']);
        let Some(name) = kind.strip_prefix('<') else {
            return;
        };
        // No name has a parenthesis, so the search ends at the next group.
        if let Some(end) = name
            .find(['>', '('])
            .filter(|end| name[*end..].starts_with('>'))
        {
            // `(?<=` and `(?<!` aren't names.
            self.is_broken |= !name.starts_with(['=', '!']) && !self.names.insert(&name[..end]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_judged_by_the_rules_of_javascript() {
        for right in [
            r"^(?=.*\d)(?!x)[a-z]+$",
            r"(?<year>\d{4})-\k<year>",
            r"\p{L}+",
            r"(a)\1",
            r"[^]",
            r"\u{1F600}",
        ] {
            assert!(!is_broken(right), "{right}");
        }
        for wrong in [
            "(unclosed",
            "[z-a]",
            "a**",
            r"\_",
            r"(?<n>a",
            "a{2,1}",
            r"[\w-.]",
            "*",
            r"\k<none>",
            "(?P<n>a)",
            "(?i:a)",
            r"\b?",
            "(?<n>a)|(?<n>b)",
        ] {
            assert!(is_broken(wrong), "{wrong}");
        }
        for depth in [NESTING_MAX, 1000] {
            assert!(
                !is_broken(&format!("{}{}", "(?<=".repeat(depth), ")".repeat(depth))),
                "{depth}"
            );
        }
        assert!(is_broken(&"(".repeat(NESTING_MAX)));
        assert!(!is_broken(&"(".repeat(PATTERN_MAX + 1)), "not judged");
    }
}
