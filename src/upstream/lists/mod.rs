//! Lists of one server. Owns how items are fetched, aged, cached and listed again, and who subscribed to changes. Does
//! not connect or call. Invariant: a list that fails keeps its last good items.

pub(in crate::upstream) mod cache;
pub(in crate::upstream) mod extra_items;
pub(in crate::upstream) mod fetch;
pub(in crate::upstream) mod freshness;
pub(in crate::upstream) mod relist_on_demand;
pub(in crate::upstream) mod relist_scheduler;
pub(in crate::upstream) mod subscriptions;
