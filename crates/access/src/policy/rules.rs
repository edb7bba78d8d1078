//! Rules over names: globs, and a server's rules for its items.
//!
//! Owns matching. Does not know which items exist (`gateway`). Invariant: an exclusion wins over
//! any pattern that includes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use globset::{Glob, GlobBuilder, GlobSet};

use crate::policy::has_traversal;

/// Ordered list of globs. A name matches if a plain glob matches and no `!` glob does.
#[derive(Clone, Debug)]
pub struct GlobList {
    allow: GlobMatcher,
    deny: GlobMatcher,
    patterns: Vec<String>,
    /// Patterns one by one, without their `!`, for reports.
    compiled: Arc<OnceLock<GlobSet>>,
}

/// Matcher for some patterns. Most lists are a lone star or empty, and build no automaton.
#[derive(Clone, Debug)]
enum GlobMatcher {
    None,
    All,
    Some(GlobSet),
}

impl GlobMatcher {
    fn of(globs: Vec<Glob>) -> Result<Self, String> {
        if globs.is_empty() {
            return Ok(GlobMatcher::None);
        }
        // A lone star decides for the whole list.
        if globs.iter().any(|glob| glob.glob() == "*") {
            return Ok(GlobMatcher::All);
        }
        GlobSet::new(globs)
            .map(GlobMatcher::Some)
            .map_err(|e| e.to_string())
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            GlobMatcher::None => false,
            GlobMatcher::All => true,
            GlobMatcher::Some(set) => set.is_match(name),
        }
    }
}

/// Rules of a server's config for its tools, resources or prompts. Patterns match the server's own
/// names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemRules {
    /// Items that exist. All others do not.
    pub allow: GlobList,
    /// Items that do not exist.
    pub deny: GlobList,
    /// Items that are not listed, but can be called.
    pub hide: GlobList,
    /// Exposed names that replace own names (before the prefix).
    pub rename: BTreeMap<String, String>,
    /// Descriptions that replace the server's, by own name.
    pub describe: BTreeMap<String, String>,
}

/// Limit of braces within each other. The compiler of patterns calls itself for each.
const NESTED_MAX: usize = 16;

/// Counts the braces of a pattern that are open at once.
fn nesting(pattern: &str) -> usize {
    let mut open = 0_usize;
    let mut most = 0;
    let mut is_escaped = false;
    for byte in pattern.bytes() {
        match byte {
            _ if is_escaped => {}
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        is_escaped = byte == b'\\' && !is_escaped;
        most = most.max(open);
    }
    most
}

impl GlobList {
    /// Compiles patterns. `*` matches any characters, `?` one, `[ab]` a set, `{a,b}` alternatives.
    /// A leading `!` excludes.
    ///
    /// Fails with the pattern and what is wrong with it.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let mut allow = Vec::new();
        let mut deny = Vec::new();
        for pattern in patterns {
            let (set, text) = match pattern.strip_prefix('!') {
                Some(rest) => (&mut deny, rest),
                None => (&mut allow, pattern.as_str()),
            };
            if nesting(text) > NESTED_MAX {
                return Err(format!(
                    "a pattern has more than {NESTED_MAX} braces within each other"
                ));
            }
            // `*` also matches slashes, which names and URIs may contain.
            let glob = GlobBuilder::new(text).literal_separator(false).build();
            set.push(glob.map_err(|e| format!("{pattern:?} is not a pattern: {e}"))?);
        }
        let allow = GlobMatcher::of(allow)?;
        let deny = GlobMatcher::of(deny)?;
        Ok(GlobList {
            allow,
            deny,
            patterns: patterns.to_vec(),
            compiled: Arc::default(),
        })
    }

    /// Matches nothing.
    pub fn none() -> Self {
        GlobList {
            allow: GlobMatcher::None,
            deny: GlobMatcher::None,
            patterns: Vec::new(),
            compiled: Arc::default(),
        }
    }

    /// Matches everything.
    pub fn all() -> Self {
        GlobList::new(&["*".to_owned()]).expect("a lone star is a pattern")
    }

    /// Returns the patterns as they were written.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Returns the patterns that match none of these names. Skips a lone `*`, which cannot be
    /// misspelled.
    pub fn unmatched<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<&str> {
        if self
            .patterns
            .iter()
            .all(|pattern| without_exclusion(pattern) == "*")
        {
            return Vec::new();
        }
        let each = self.compiled_patterns();
        let mut matched = vec![false; self.patterns.len()];
        let mut found = Vec::new();
        for name in names {
            each.matches_into(name, &mut found);
            found.iter().for_each(|at| matched[*at] = true);
        }
        let left = self
            .patterns
            .iter()
            .zip(matched)
            .filter(|(pattern, matched)| !matched && without_exclusion(pattern) != "*");
        left.map(|(pattern, _)| pattern.as_str()).collect()
    }

    /// Returns the patterns one by one, without their `!`. Compiled on first use, since only
    /// reports need them.
    fn compiled_patterns(&self) -> &GlobSet {
        self.compiled.get_or_init(|| {
            let globs = self.patterns.iter().filter_map(|pattern| {
                GlobBuilder::new(without_exclusion(pattern))
                    .literal_separator(false)
                    .build()
                    .ok()
            });
            GlobSet::new(globs).unwrap_or_default()
        })
    }

    /// Returns the index of the pattern that decides about a name, if one does: an exclusion, or
    /// else one that includes. The last one of several, since exact names are written last.
    pub fn deciding(&self, name: &str) -> Option<usize> {
        let mut found = self.compiled_patterns().matches(name);
        found.sort_unstable();
        found
            .iter()
            .rev()
            .copied()
            .find(|at| self.patterns[*at].starts_with('!'))
            .or_else(|| found.last().copied())
    }

    /// Returns the pattern that decides about a name.
    pub fn deciding_pattern(&self, name: &str) -> Option<&str> {
        self.deciding(name).map(|at| self.patterns[at].as_str())
    }

    /// Returns false if no name with this beginning can match.
    pub fn may_match_from(&self, beginning: &str) -> bool {
        // No item has a name with NUL, so only an exclusion of everything with this beginning
        // matches it.
        !self.deny.matches(&format!("{beginning}\0"))
            && self.patterns.iter().any(|pattern| {
                let literal = literal_beginning(pattern);
                !pattern.starts_with('!')
                    && (literal.starts_with(beginning) || beginning.starts_with(literal))
            })
    }

    /// Returns true if every name matches.
    pub fn matches_all(&self) -> bool {
        matches!(
            (&self.allow, &self.deny),
            (GlobMatcher::All, GlobMatcher::None)
        )
    }

    /// Returns true if `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.allow.matches(name) && !self.deny.matches(name)
    }
}

/// Returns the text that every match of a pattern starts with.
pub fn literal_beginning(pattern: &str) -> &str {
    let pattern = without_exclusion(pattern);
    &pattern[..pattern
        .find(['*', '?', '[', '{', '\\'])
        .unwrap_or(pattern.len())]
}

/// Returns a pattern without the `!` of an exclusion.
fn without_exclusion(pattern: &str) -> &str {
    pattern.strip_prefix('!').unwrap_or(pattern)
}

impl Default for GlobList {
    fn default() -> Self {
        GlobList::none()
    }
}

impl PartialEq for GlobList {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl ItemRules {
    /// Allows every item, unchanged.
    pub fn allow_all() -> Self {
        ItemRules {
            allow: GlobList::all(),
            ..ItemRules::default()
        }
    }

    /// Returns true if the item exists, by its own name.
    pub fn allows_name(&self, name: &str) -> bool {
        self.allow.matches(name) && !self.deny.matches(name)
    }

    /// Returns true if every item exists, is listed, and keeps its own name.
    pub fn leaves_all(&self) -> bool {
        !self.has_patterns() && self.hide.patterns.is_empty() && self.rename.is_empty()
    }

    /// Returns the rule that decides whether the item exists: its list, and the place in it. `None`
    /// if it exists because everything does, or is missing because no pattern allows it.
    pub fn deciding(&self, name: &str) -> Option<(&'static str, usize)> {
        if self.allow.matches(name)
            && let Some(at) = self.deny.deciding(name)
        {
            return Some(("deny", at));
        }
        let at = self.allow.deciding(name)?;
        (self.allow.patterns[at] != "*").then_some(("allow", at))
    }

    /// Returns true if patterns other than a lone `*` decide which items exist.
    pub fn has_patterns(&self) -> bool {
        !matches!(
            (&self.allow.allow, &self.allow.deny, &self.deny.allow),
            // The three parts that can decide. An exclusion inside `deny` only takes back what
            // `deny` matches.
            (GlobMatcher::All, GlobMatcher::None, GlobMatcher::None)
        )
    }

    /// Returns true if the resource exists, by its URI. Where patterns decide, the URI must mean
    /// the path that they see.
    pub fn allows_uri(&self, uri: &str) -> bool {
        // Without patterns every resource exists, so no path needs a check.
        !self.has_patterns() || (self.allows_name(uri) && !has_traversal(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(patterns: &[&str]) -> GlobList {
        GlobList::new(&patterns.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn nested(n: usize) -> String {
        format!("{}a{}", "{".repeat(n), "}".repeat(n))
    }

    #[test]
    fn nested_braces_end_at_a_depth() {
        assert!(globs(&[&nested(NESTED_MAX)]).matches("a"));
        for n in [NESTED_MAX + 1, 100_000] {
            let refused = GlobList::new(&[nested(n)]).unwrap_err();
            assert_eq!(
                refused,
                "a pattern has more than 16 braces within each other"
            );
        }
        assert!(GlobList::new(&["{".repeat(100_000)]).is_err());
        assert!(
            globs(&[&format!("{}a", "\\{".repeat(40)), &"{a,b}".repeat(40)])
                .matches(&"a".repeat(40))
        );
    }

    #[test]
    fn a_beginning_can_match_as_long_as_nothing_excludes_all_of_it() {
        for (patterns, may_match) in [
            (&["*"][..], true),
            (&["pay*"], true),
            (&["payroll__list"], true),
            (&["shop__*", "*__list"], true),
            (&["*", "!*__delete"], true),
            (&["shop__*"], false),
            (&["*", "!payroll__*"], false),
            (&["*", "!pay*"], false),
            (&[], false),
        ] {
            assert_eq!(
                globs(patterns).may_match_from("payroll__"),
                may_match,
                "{patterns:?}"
            );
        }
    }

    #[test]
    fn the_deciding_pattern_is_the_one_that_a_person_would_change() {
        for (allow, deny, name, rule) in [
            (&["*"][..], &["a*", "ab"][..], "ab", Some(("deny", 1))),
            (&["*"], &["a*", "!ab"], "ab", Some(("deny", 1))),
            (&["*"], &["a*"], "b", None),
            (&["*", "!b"], &[], "b", Some(("allow", 1))),
            (&["a*"], &[], "ab", Some(("allow", 0))),
            (&["a*"], &[], "b", None),
        ] {
            let rules = ItemRules {
                allow: globs(allow),
                deny: globs(deny),
                ..ItemRules::default()
            };
            assert_eq!(rules.deciding(name), rule, "{allow:?} {deny:?} {name}");
        }
    }

    #[test]
    fn a_name_matches_if_a_pattern_does_and_no_exclusion_does() {
        let cases: &[(&[&str], &str, bool)] = &[
            (&[], "a", false),
            (&["*"], "", true),
            (&["*"], "a/b.c", true),
            (&["delete_*", "*"], "read", true),
            (&["*", "!delete_*"], "delete_all", false),
            (&["*", "!delete_*"], "read", true),
            (&["*", "!*"], "read", false),
            (&["!delete_*"], "read", false),
            (&["read"], "read", true),
            (&["read"], "reader", false),
            (&["read_?", "x[ab]", "{get,put}_*"], "xb", true),
            (&["read_?", "x[ab]", "{get,put}_*"], "put_it", true),
            (&["read_?", "x[ab]", "{get,put}_*"], "post_it", false),
            (&["file:*"], "file:///a/b", true),
        ];
        for (patterns, name, expected) in cases {
            assert_eq!(
                globs(patterns).matches(name),
                *expected,
                "{patterns:?} {name:?}"
            );
            let deciding = globs(patterns);
            let deciding = deciding.deciding_pattern(name);
            assert_eq!(
                deciding.is_some_and(|pattern| !pattern.starts_with('!')),
                *expected,
                "{patterns:?} {name:?}"
            );
        }
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_found() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["*"], &[]),
            (&["*", "!*"], &[]),
            (&["*", "!delte_*"], &["!delte_*"]),
            (&["read", "wirte", "delete_?"], &["wirte", "delete_?"]),
            (&["!delete_*", "read*", "{read,x}"], &[]),
        ];
        for (patterns, left) in cases {
            assert_eq!(
                globs(patterns).unmatched(["read", "delete_all"].into_iter()),
                *left,
                "{patterns:?}"
            );
        }
        assert_eq!(globs(&["a"]).unmatched(std::iter::empty()), ["a"]);
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        let error = GlobList::new(&["ok".to_owned(), "![a".to_owned()]).unwrap_err();
        assert!(error.contains("![a"), "{error}");
    }
}
