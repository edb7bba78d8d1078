//! Ranked items: those that fit some words best, among those that somebody may see.
//!
//! Owns the step from the index to the catalogue. Does not rank (`moongate_search`), and writes no
//! text. Invariant: what the filter hides changes nothing in the answer.

use std::cell::Cell;
use std::sync::Arc;

use crate::catalog::Snapshot;
use crate::catalog_route::CatalogRoute;
use crate::search_mode::item_index::{ItemGroup, ItemIndexes};
use moongate_model::ItemKind;

/// Items that fit, best first.
pub(super) struct RankedItems {
    pub(super) items: Vec<RankedItem>,
    /// Items that were searched.
    pub(super) total: usize,
    /// True if others fit as well.
    pub(super) has_more: bool,
}

/// Item that fits.
pub(super) struct RankedItem {
    pub(super) kind: ItemKind,
    pub(super) route: Arc<CatalogRoute>,
    /// Share of the best possible score.
    pub(super) score: f32,
    /// Words that it has.
    pub(super) matched_words: Vec<String>,
}

impl ItemIndexes {
    /// Finds the items that fit some words, among those that `is_visible` lets through. Takes long
    /// after a change.
    pub(super) fn rank(
        &self,
        snapshot: &Arc<Snapshot>,
        group: ItemGroup,
        text: &str,
        limit: usize,
        is_visible: impl Fn(ItemKind, &CatalogRoute) -> bool,
    ) -> RankedItems {
        let index = self.load(group, snapshot);
        // Counted in the filter, which sees each item once. A second walk would look up every route
        // again.
        let total = Cell::new(0);
        let mut hits = index.search(
            text,
            |(kind, key)| {
                let route = snapshot.find_exposed(*kind, key);
                let is_searched =
                    route.is_some_and(|route| !route.hidden && is_visible(*kind, route));
                total.set(total.get() + usize::from(is_searched));
                is_searched
            },
            // One over the limit shows whether there are more.
            limit + 1,
        );
        let has_more = hits.len() > limit;
        hits.truncate(limit);
        let items = hits.into_iter().filter_map(|hit| {
            let (kind, key) = hit.id;
            let route = snapshot.find_exposed(kind, &key)?.clone();
            Some(RankedItem {
                kind,
                route,
                score: hit.score,
                matched_words: hit.matched_words,
            })
        });
        RankedItems {
            items: items.collect(),
            total: total.get(),
            has_more,
        }
    }
}
