//! Server as it is configured now, with the upstream that serves it.
//!
//! Owns the pair of both. Does not replace either (`reconfigure.rs`). Invariant: the settings hold
//! for what clients see, even while the upstream is still connected with earlier ones.

use std::ops::Deref;
use std::sync::Arc;

use moongate_jsonrpc::json::ByteString;
use moongate_upstream::{ServerSettings, Upstream};

/// Configured server and the upstream that serves it.
pub struct RunningServer {
    /// Settings that hold for what clients see of it.
    pub settings: Arc<ServerSettings>,
    /// Upstream that serves.
    pub upstream: Arc<Upstream>,
}

impl RunningServer {
    /// Returns the name for models, with the title that the config gives it.
    pub(super) fn display_title(&self) -> String {
        let name = &self.settings.name;
        match &self.settings.presentation.title {
            Some(title) if title != name => format!("{name} ({title})"),
            _ => name.clone(),
        }
    }

    /// Returns the config's description of the server, or the server's own instructions.
    pub(super) fn description_or_instructions(&self) -> Option<String> {
        self.settings
            .presentation
            .description
            .clone()
            .or_else(|| self.upstream.description()?.instructions)
    }
}

impl Deref for RunningServer {
    type Target = Upstream;
    fn deref(&self) -> &Upstream {
        &self.upstream
    }
}

pub(super) fn server_name(upstream: &Upstream) -> ByteString {
    upstream.name.clone()
}
