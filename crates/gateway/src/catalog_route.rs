//! Route of one item of the catalogue to its server.
//!
//! Owns the item's keys, its listed form and its meter. Does not find routes (`catalog.rs`).
//! Invariant: a route is never changed after its snapshot was built.

use std::sync::Arc;

use crate::running_server::RunningServer;
use crate::schemas::CombinedSchema;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_protocol::{Era, LegacyForm, ListedOutput, ToolOutput};
use moongate_telemetry::CallMeter;

/// Form of an item, as one face of its server lists it.
pub struct ItemForm {
    /// Definition from the server, repaired if need be.
    pub definition: Arc<JsonObject>,
    /// Listed form on the endpoint over everything.
    pub listed: RawJson,
    /// Combining schema of a tool: the reason why model APIs refuse it, and its compatible form.
    pub(super) combined: Option<CombinedSchema>,
    /// Form in lists of legacy clients.
    pub(super) legacy: LegacyForm,
    /// Structured output of a tool.
    pub(super) output: ToolOutput,
    /// Era of the connection that listed it. `None`: unknown, or both eras list the same.
    pub(super) listed_era: Option<Era>,
}

/// Form of an item in the other era.
pub(super) struct OtherForm {
    pub(super) era: Era,
    /// `None`: the server does not list it in that era.
    pub(super) form: Option<ItemForm>,
}

/// Route of one item to its server.
pub struct CatalogRoute {
    /// Server of the item.
    pub upstream: Arc<RunningServer>,
    /// Server's own key: a name, a URI, a template.
    pub local: ByteString,
    /// JSON form of `local`, as calls carry it.
    pub local_raw: RawJson,
    /// Key that clients see through the endpoint over everything.
    pub exposed: ByteString,
    /// Form that the server's shared connection lists, or the only one.
    pub form: ItemForm,
    /// Form for clients of the other era, where that differs.
    pub(super) other: Option<OtherForm>,
    /// True if lists leave it out.
    pub hidden: bool,
    /// True if no list of its server has it, but a tool names it.
    pub implied: bool,
    /// Meter of its calls.
    pub meter: Arc<CallMeter>,
}

impl CatalogRoute {
    /// Returns the form for clients of an era. `None`: the server lists it only in the other one.
    pub(super) fn form_for(&self, era: Era) -> Option<&ItemForm> {
        match &self.other {
            Some(other) if other.era == era => other.form.as_ref(),
            _ => Some(&self.form),
        }
    }

    /// Returns the form for clients of an era, or the other one.
    pub(super) fn form_or_main(&self, era: Era) -> &ItemForm {
        self.form_for(era).unwrap_or(&self.form)
    }

    /// Returns the definition that a call in an era is made by.
    pub(super) fn definition_for(&self, era: Era) -> &Arc<JsonObject> {
        &self.form_or_main(era).definition
    }

    /// Returns the output that a client of an era was listed.
    pub(super) fn output_for(&self, era: Era) -> ListedOutput {
        let form = self.form_or_main(era);
        ListedOutput {
            shape: form.output.shape,
            era: form.listed_era,
        }
    }

    /// Returns true if clients of the eras may see different forms.
    pub(super) fn differs_by_era(&self) -> bool {
        self.other.is_some()
            || self.form.output.is_wrapped()
            || self.form.legacy != LegacyForm::Same
    }

    /// Returns true if lists show the same in both, for clients of either era.
    pub(super) fn is_listed_like(&self, other: &CatalogRoute) -> bool {
        self.hidden == other.hidden
            && self.listed_parts(Era::Legacy) == other.listed_parts(Era::Legacy)
            && self.listed_parts(Era::Modern) == other.listed_parts(Era::Modern)
    }

    /// Returns what lists show to clients of an era.
    fn listed_parts(&self, era: Era) -> Option<(&RawJson, &LegacyForm)> {
        self.form_for(era).map(|form| (&form.listed, &form.legacy))
    }
}
