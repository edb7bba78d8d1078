//! Synonyms: groups of words that ask for one thing.
//!
//! Owns the groups. Does not weigh them (`weights.rs`). Invariant: groups are small and about
//! tools, since each member costs a look-up for each query.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::stem::stem;

const GROUPS: [&str; 28] = [
    "create add new make insert post file open report",
    "delete remove erase clear",
    "get fetch read retrieve obtain",
    "send post submit publish",
    "list show display view",
    "search find query lookup",
    "update edit modify change set",
    "run execute invoke launch",
    "stop end terminate cancel",
    "calculate compute",
    "convert transform",
    "image picture photo",
    "file document",
    "folder directory",
    "repository repo",
    "email mail",
    "price cost quote",
    "movie film",
    "weather forecast",
    "location place",
    "book reserve reservation",
    "buy purchase order",
    "website webpage page url",
    "car vehicle",
    "song music track",
    "chart graph plot diagram",
    "info information detail",
    "issue ticket bug",
];

/// Stems of each group, and the groups of each stem.
struct SynonymTable {
    members: Vec<Vec<String>>,
    groups: HashMap<String, Vec<usize>>,
}

static TABLE: LazyLock<SynonymTable> = LazyLock::new(|| {
    let members: Vec<Vec<String>> = GROUPS
        .iter()
        .map(|group| group.split(' ').map(stem).collect())
        .collect();
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (n, stems) in members.iter().enumerate() {
        for stem in stems {
            groups.entry(stem.clone()).or_default().push(n);
        }
    }
    SynonymTable { members, groups }
});

/// Stems that mean nearly what this one means.
pub(crate) fn synonyms(stem: &str) -> impl Iterator<Item = &'static str> {
    let groups = TABLE.groups.get(stem).map_or(&[][..], Vec::as_slice);
    let own = stem.to_owned();
    groups
        .iter()
        .flat_map(|n| &TABLE.members[*n])
        .map(String::as_str)
        .filter(move |other| *other != own)
}
