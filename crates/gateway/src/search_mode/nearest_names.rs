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
/// Items that are compared.
const COMPARED_MAX: usize = 10_000;

impl Endpoint {
    /// Returns the keys of visible items that are spelled most like this one.
    pub(super) fn nearest_keys(
        &self,
        snapshot: &Snapshot,
        principal: &Principal,
        kind: ItemKind,
        wanted: &str,
    ) -> Vec<ByteString> {
        let wanted = cut(wanted);
        let visible = snapshot.iter(kind).filter(|route| !route.hidden && self.permits(principal, kind, route));
        let mut near: Vec<(f64, &ByteString)> = visible
            .take(COMPARED_MAX)
            .map(|route| {
                let exposed = strsim::normalized_damerau_levenshtein(wanted, cut(&route.exposed));
                // Models often leave the prefix out.
                let own = strsim::normalized_damerau_levenshtein(wanted, cut(&route.local));
                (exposed.max(own), &route.exposed)
            })
            .collect();
        // Equally near names sort by spelling, so that the same mistake gets the same answer.
        near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        near.into_iter().take(NEAREST_MAX).map(|(_, key)| key.clone()).collect()
    }
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(COMPARED_BYTES_MAX)]
}
