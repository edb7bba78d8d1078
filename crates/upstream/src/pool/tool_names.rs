//! Bounded set of tool names, shared between calls. Owns the names. Does not know what is special
//! about the tools (`legacy_tools.rs`, `asking_tools.rs`). Invariant: bounded in number and bytes.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, McpMethod};

/// Maximum number of tools. The oldest goes first, and has to fail again.
const TOOLS_MAX: usize = 256;
/// Longest name that is kept, in bytes.
const NAME_MAX: usize = 512;

/// Names of tools of one server.
#[derive(Default)]
pub(crate) struct ToolNames {
    names: Mutex<VecDeque<ByteString>>,
    has_any: AtomicBool,
}

impl ToolNames {
    /// Returns true if a call is of one of the tools.
    pub(crate) fn includes(&self, call: &Call) -> bool {
        // Most servers have none, and their calls cost one load.
        if !self.has_any.load(Ordering::Relaxed) || call.method != McpMethod::CallTool {
            return false;
        }
        call.target()
            .is_some_and(|name| self.names.lock().contains(&name))
    }

    /// Adds a tool. Returns false if it is known, or its name is too long to be kept.
    pub(crate) fn add(&self, name: &str) -> bool {
        let mut names = self.names.lock();
        if name.len() > NAME_MAX || names.iter().any(|known| known.as_str() == name) {
            return false;
        }
        if names.len() >= TOOLS_MAX {
            names.pop_front();
        }
        // Copied: the name is a span that would keep a whole request alive.
        names.push_back(ByteString::from(name));
        self.has_any.store(true, Ordering::Relaxed);
        true
    }

    /// Forgets all tools.
    pub(crate) fn clear(&self) {
        self.names.lock().clear();
        self.has_any.store(false, Ordering::Relaxed);
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names
            .lock()
            .iter()
            .map(ByteString::to_string)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::{JsonObject, RawJson};

    fn call(name: &str) -> Call {
        let params = JsonObject::new().with("name", RawJson::string(name));
        Call::new(McpMethod::CallTool, params)
    }

    #[test]
    fn names_are_bounded_and_the_newest_stay() {
        let tools = ToolNames::default();
        for n in 0..TOOLS_MAX + 10 {
            assert!(tools.add(&format!("t{n}")));
        }
        assert!(!tools.add("t100"), "it is known");
        assert!(!tools.add(&"x".repeat(NAME_MAX + 1)));
        assert!(tools.includes(&call("t100")) && !tools.includes(&call("t0")));
        assert_eq!(tools.names().len(), TOOLS_MAX);
        tools.clear();
        assert!(!tools.includes(&call("t100")));
    }
}
