//! Route of one item of the catalogue to its server.
//!
//! Owns the item's keys, its listed form and its meter. Does not find routes (`catalog.rs`). Invariant: a route is
//! never changed after its snapshot was built.

use std::sync::Arc;

use crate::schemas::CombinedSchema;
use crate::server_entry::ServerEntry;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_protocol::{Era, LegacyForm, ToolOutput};
use moongate_telemetry::CallMeter;

/// Route of one item to its server.
pub struct CatalogRoute {
    /// Server of the item.
    pub upstream: Arc<ServerEntry>,
    /// Server's own key: a name, a URI, a template.
    pub local: ByteString,
    /// JSON form of `local`, as calls carry it.
    pub local_raw: RawJson,
    /// Key that clients see through the endpoint over everything.
    pub exposed: ByteString,
    /// Definition from the server, repaired if need be.
    pub definition: Arc<JsonObject>,
    /// Listed form on the endpoint over everything.
    pub listed: RawJson,
    /// Form in lists of legacy clients.
    pub(super) legacy: LegacyForm,
    /// True if lists leave it out.
    pub hidden: bool,
    /// True if no list of its server has it, but a tool names it.
    pub implied: bool,
    /// Combining schema of a tool: the reason why model APIs refuse it, and its compatible form.
    pub(super) combined: Option<CombinedSchema>,
    /// Era of the connection that listed it, if known.
    pub(super) listed_era: Option<Era>,
    /// Structured output of a tool.
    pub(super) output: ToolOutput,
    /// Meter of its calls.
    pub meter: Arc<CallMeter>,
}
