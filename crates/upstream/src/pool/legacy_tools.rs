//! Tools of one server that can ask only in the legacy era. Owns their names. Does not know how a
//! server says so (`protocol`) or whether it speaks that era (`era_selection.rs`). Invariant:
//! bounded in number and bytes.

use tokio::sync::Notify;

use crate::pool::tool_names::ToolNames;
use moongate_jsonrpc::json::ByteString;
use moongate_model::Call;

/// Tools that are called in the legacy era, whatever their client speaks.
#[derive(Default)]
pub(crate) struct LegacyTools {
    tools: ToolNames,
    changed: Notify,
}

impl LegacyTools {
    /// Returns true if a call is of such a tool.
    pub(crate) fn includes(&self, call: &Call) -> bool {
        self.tools.includes(call)
    }

    /// Records a tool. Returns false if it is known, or its name is too long to be kept.
    pub(crate) fn record(&self, name: &ByteString) -> bool {
        let is_new = self.tools.add(name.as_str());
        if is_new {
            self.changed.notify_one();
        }
        is_new
    }

    /// Restores the tools that a previous process knew.
    pub(crate) fn restore(&self, names: &[String]) {
        for name in names {
            self.tools.add(name);
        }
    }

    /// Forgets all tools, because the server is another one.
    pub(crate) fn clear(&self) {
        self.tools.clear();
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.tools.names()
    }

    /// Waits until a tool was recorded.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
