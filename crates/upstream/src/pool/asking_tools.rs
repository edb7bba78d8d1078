//! Tools of one server that ask their client in the middle of a call. Owns their names, by what
//! they ask for. Does not choose a connection (`own_capabilities.rs`). Invariant: bounded in number
//! and bytes.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::lists::cache::AskingToolNames;
use crate::pool::tool_names::ToolNames;
use moongate_model::{Call, ClientCapabilities, InputKind};

/// What a client may be unable to answer.
const KINDS: [InputKind; 5] = [
    InputKind::ElicitForm,
    InputKind::ElicitUrl,
    InputKind::Sample,
    InputKind::SampleWithTools,
    InputKind::Roots,
];

/// Tools that were seen to ask.
#[derive(Default)]
pub(crate) struct AskingTools {
    /// Tools by the kind of their requests, in the order of [`KINDS`].
    tools: [ToolNames; KINDS.len()],
    has_any: AtomicBool,
    changed: Notify,
}

impl AskingTools {
    /// Records what a tool asked for.
    pub(crate) fn record(&self, name: &str, kind: InputKind) {
        for (_, tools) in self.by_kind().filter(|(asked, _)| *asked == kind) {
            if tools.add(name) {
                self.has_any.store(true, Ordering::Relaxed);
                self.changed.notify_one();
            }
        }
    }

    /// Restores the tools that a previous process knew.
    pub(crate) fn restore(&self, names: &AskingToolNames) {
        for (kind, tools) in self.by_kind() {
            for name in names.get(kind.capability()).into_iter().flatten() {
                tools.add(name);
                self.has_any.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Forgets all tools, because the server is another one.
    pub(crate) fn clear(&self) {
        for (_, tools) in self.by_kind() {
            tools.clear();
        }
        self.has_any.store(false, Ordering::Relaxed);
    }

    /// Returns the names. Kinds without tools are left out.
    pub(crate) fn names(&self) -> AskingToolNames {
        self.by_kind()
            .map(|(kind, tools)| (kind.capability().to_owned(), tools.names()))
            .filter(|(_, names)| !names.is_empty())
            .collect()
    }

    /// Waits until a tool was recorded.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns true if a call's tool was seen to ask for what its client cannot answer.
    pub(crate) fn exceeds(&self, capabilities: ClientCapabilities, call: &Call) -> bool {
        // Most servers never ask, and their calls cost one load.
        self.has_any.load(Ordering::Relaxed)
            && self
                .by_kind()
                .any(|(kind, tools)| !capabilities.supports(kind) && tools.includes(call))
    }

    fn by_kind(&self) -> impl Iterator<Item = (InputKind, &ToolNames)> {
        KINDS.into_iter().zip(&self.tools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::McpMethod;

    fn call(name: &str) -> Call {
        let params = JsonObject::new().with("name", RawJson::string(name));
        Call::new(McpMethod::CallTool, params)
    }

    #[test]
    fn the_next_process_knows_what_each_tool_asks_for() {
        let tools = AskingTools::default();
        for (n, kind) in KINDS.into_iter().enumerate() {
            tools.record(&format!("t{n}"), kind);
        }
        tools.record("t9", InputKind::Other);
        let names = tools.names();
        assert_eq!(names.len(), KINDS.len());
        let next = AskingTools::default();
        next.restore(&names);
        let can = ClientCapabilities {
            roots: true,
            ..ClientCapabilities::default()
        };
        assert!(next.exceeds(can, &call("t0")));
        assert!(!next.exceeds(can, &call("t4")) && !next.exceeds(can, &call("t9")));
        assert_eq!(next.names(), names);
        next.clear();
        assert!(!next.exceeds(can, &call("t0")) && next.names().is_empty());
    }
}
