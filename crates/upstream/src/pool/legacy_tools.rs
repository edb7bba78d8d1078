//! Tools of one server that can ask only in the legacy era. Owns their names. Does not know how a server says so
//! (`protocol`) or whether it speaks that era (`era_selection.rs`). Invariant: bounded in number and bytes.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, McpMethod};

/// Maximum number of tools. The oldest goes first, and has to fail once more.
const TOOLS_MAX: usize = 256;
/// Longest name that is kept, in bytes.
const NAME_MAX: usize = 512;

/// Tools that are called in the legacy era, whatever their client speaks.
#[derive(Default)]
pub(crate) struct LegacyTools {
    names: Mutex<VecDeque<ByteString>>,
    has_any: AtomicBool,
    changed: Notify,
}

impl LegacyTools {
    /// Returns true if a call is of such a tool.
    pub(crate) fn includes(&self, call: &Call) -> bool {
        // Most servers have none, and their calls cost one load.
        if !self.has_any.load(Ordering::Relaxed) || call.method != McpMethod::CallTool {
            return false;
        }
        call.target().is_some_and(|name| self.names.lock().contains(&name))
    }

    /// Records a tool. Returns false if it is known, or its name is too long to be kept.
    pub(crate) fn record(&self, name: &ByteString) -> bool {
        let is_new = self.add(name.as_str());
        if is_new {
            self.changed.notify_one();
        }
        is_new
    }

    /// Restores the tools that a previous process knew.
    pub(crate) fn restore(&self, names: &[String]) {
        for name in names {
            self.add(name);
        }
    }

    /// Forgets all tools, because the server is another one.
    pub(crate) fn clear(&self) {
        self.names.lock().clear();
        self.has_any.store(false, Ordering::Relaxed);
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.lock().iter().map(ByteString::to_string).collect()
    }

    /// Waits until a tool was recorded.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn add(&self, name: &str) -> bool {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::json::{JsonObject, RawJson};

    #[test]
    fn names_are_bounded_and_the_newest_stay() {
        let tools = LegacyTools::default();
        for n in 0..TOOLS_MAX + 10 {
            assert!(tools.record(&ByteString::from(format!("t{n}"))));
        }
        assert!(!tools.record(&ByteString::from("t100")), "it is known");
        assert!(!tools.record(&ByteString::from("x".repeat(NAME_MAX + 1))));
        let call = |name: &str| Call::new(McpMethod::CallTool, JsonObject::new().with("name", RawJson::string(name)));
        assert!(tools.includes(&call("t100")) && !tools.includes(&call("t0")));
        assert_eq!(tools.names().len(), TOOLS_MAX);
        tools.clear();
        assert!(!tools.includes(&call("t100")));
    }
}
