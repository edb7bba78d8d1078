//! Globs over names, and what a server's config does to its items.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// An ordered list of globs: a name matches if a plain one matches and no `!` one does.
#[derive(Clone, Debug)]
pub struct Globs {
    allow: GlobSet,
    deny: GlobSet,
    spelling: Vec<String>,
}

/// What a server's config does to its tools, resources or prompts. Patterns are over the server's own names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ItemRules {
    /// Only these exist.
    pub allow: Globs,
    /// These do not exist.
    pub deny: Globs,
    /// These are not listed, but can be called.
    pub hide: Globs,
    /// Own name to the name that is exposed instead (before the prefix).
    pub rename: BTreeMap<String, String>,
    /// Own name to the description that is shown instead.
    pub describe: BTreeMap<String, String>,
}

impl Globs {
    /// Compiles patterns. `*` matches any characters, `?` one, `[ab]` a set, `{a,b}` alternatives; a leading `!`
    /// excludes.
    ///
    /// Fails with the pattern and what is wrong with it.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let (mut allow, mut deny) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            let (set, text) = match pattern.strip_prefix('!') {
                Some(rest) => (&mut deny, rest),
                None => (&mut allow, pattern.as_str()),
            };
            let glob = GlobBuilder::new(text).literal_separator(false).build();
            set.add(glob.map_err(|e| format!("{pattern:?} is not a pattern: {e}"))?);
        }
        let build = |set: GlobSetBuilder| set.build().map_err(|e| e.to_string());
        Ok(Globs { allow: build(allow)?, deny: build(deny)?, spelling: patterns.to_vec() })
    }

    /// Matches nothing.
    pub fn none() -> Self {
        Globs { allow: GlobSet::empty(), deny: GlobSet::empty(), spelling: Vec::new() }
    }

    /// Matches everything.
    pub fn all() -> Self {
        Globs::new(&["*".to_owned()]).expect("a lone star is a pattern")
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.allow.is_match(name) && !self.deny.is_match(name)
    }
}

impl Default for Globs {
    fn default() -> Self {
        Globs::none()
    }
}

impl PartialEq for Globs {
    fn eq(&self, other: &Self) -> bool {
        self.spelling == other.spelling
    }
}

impl ItemRules {
    /// Everything exists, as it is.
    pub fn everything() -> Self {
        ItemRules { allow: Globs::all(), ..ItemRules::default() }
    }

    /// Whether the item exists, by its own name.
    pub fn exists(&self, name: &str) -> bool {
        self.allow.matches(name) && !self.deny.matches(name)
    }
}
