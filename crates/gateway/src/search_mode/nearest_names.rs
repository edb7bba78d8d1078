//! Nearest names: what a caller may have meant by a name that does not exist.
//!
//! Owns the comparison. Does not look at meaning: `find_items.rs` does. Invariant: only what the caller may use is named.

use crate::catalog::Snapshot;
use crate::endpoint::Endpoint;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{ItemKind, Principal};

/// Names that are offered.
const NEAREST_MAX: usize = 3;
/// Longest names that are compared, in bytes.
// A comparison takes the product of both lengths, and the caller chooses one of them.
const COMPARED_BYTES_MAX: usize = 128;
/// Shortest beginning that stands for a whole name.
const BEGINNING_MIN: usize = 3;
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
        let wanted = cut(wanted).to_lowercase();
        let visible = snapshot.iter(kind).filter(|route| !route.hidden && self.permits(principal, kind, route));
        let mut near: Vec<(usize, &ByteString)> = visible
            .take(COMPARED_MAX)
            .filter_map(|route| {
                // Models often leave the prefix out.
                let edits = [&route.exposed, &route.local].into_iter().filter_map(|name| few_edits(&wanted, name));
                Some((edits.min()?, &route.exposed))
            })
            .collect();
        // Equally near names sort by spelling, so that the same mistake gets the same answer.
        near.sort_unstable();
        near.into_iter().take(NEAREST_MAX).map(|(_, key)| key.clone()).collect()
    }
}

/// Returns the number of edits between two names, if it is small.
fn few_edits(wanted: &str, name: &str) -> Option<usize> {
    let name = cut(name).to_lowercase();
    // One mistake in three letters, but never more than three: as for the keys of a config.
    let most = (wanted.len().min(name.len()) / 3).clamp(1, 3);
    if wanted.len() >= BEGINNING_MIN && name.starts_with(wanted) {
        return Some(most);
    }
    Some(strsim::osa_distance(wanted, &name)).filter(|edits| *edits <= most)
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(COMPARED_BYTES_MAX)]
}
