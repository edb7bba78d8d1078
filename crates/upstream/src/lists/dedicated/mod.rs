//! Changes that dedicated connections make to the lists of their server. Joins the fetches that
//! they cause and the items that they add. Does not fetch (`supervisor/refresh.rs`). Invariant: no
//! dedicated connection removes or hides an item of the shared lists.

pub(crate) mod extra_items;
pub(crate) mod face_lister;
pub(crate) mod relists;

use std::sync::Arc;

use crate::lists::dedicated::extra_items::ExtraItems;
use crate::lists::dedicated::relists::DedicatedRelists;

/// Changes that dedicated connections make to the lists.
#[derive(Clone, Default)]
pub(crate) struct DedicatedChanges {
    pub(crate) relists: Arc<DedicatedRelists>,
    pub(crate) extra_items: Arc<ExtraItems>,
}
