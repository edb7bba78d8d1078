//! Nearest names: what a caller may have meant by a name that does not exist.
//!
//! Owns the choice. Does not compare spellings (`moongate-search`), and does not look at meaning:
//! `find_items.rs` does. Invariant: only what the caller may use is named.

use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Principal};
use moongate_search::few_edits_or_beginning;

/// Names that are offered.
const NEAREST_MAX: usize = 3;
/// Items that are compared.
const COMPARED_MAX: usize = 10_000;

impl Endpoint {
    /// Returns the keys of visible items that are spelled nearly like this one, the nearest first.
    pub(super) fn nearest_keys(
        &self,
        snapshot: &Snapshot,
        principal: &Principal,
        kind: ItemKind,
        wanted: &str,
    ) -> Vec<ByteString> {
        let visible = snapshot
            .iter(kind)
            .filter(|route| !route.hidden && self.permits(principal, kind, route));
        let mut near: Vec<(usize, &ByteString)> = visible
            .take(COMPARED_MAX)
            .filter_map(|route| {
                // Models often leave the prefix out.
                let names = [&route.exposed, &route.local];
                let edits = names
                    .into_iter()
                    .filter_map(|name| few_edits_or_beginning(wanted, name));
                Some((edits.min()?, &route.exposed))
            })
            .collect();
        // Equally near names sort by spelling, so that the same mistake gets the same answer.
        near.sort_unstable();
        near.into_iter()
            .take(NEAREST_MAX)
            .map(|(_, key)| key.clone())
            .collect()
    }
}
