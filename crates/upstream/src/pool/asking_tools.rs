//! Tools of one server that ask their client in the middle of a call. Owns their names, by what
//! they ask for. Does not choose a connection (`own_capabilities.rs`). Invariant: bounded in number
//! and bytes.

use std::sync::atomic::{AtomicBool, Ordering};

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
}

impl AskingTools {
    /// Records what a tool asked for.
    pub(crate) fn record(&self, name: &str, kind: InputKind) {
        for (_, tools) in self.by_kind().filter(|(asked, _)| *asked == kind) {
            tools.add(name);
            self.has_any.store(true, Ordering::Relaxed);
        }
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
