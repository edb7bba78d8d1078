//! Reason why nothing is known of a server. Formats it as one line that clients may read. Does not decide who reads
//! it (`gateway`). Invariant: the line tells no more than the status does.

use crate::link::connect_hints;
use crate::telemetry::logs;
use crate::upstream::{Upstream, UpstreamStatus};

impl Upstream {
    /// Explains why a server was never connected. `None` if it was, perhaps in a previous process.
    pub fn absence(&self) -> Option<String> {
        if self.pool.shared().is_some() || self.pool.last_handshake().is_some() {
            return None;
        }
        let UpstreamStatus { state, reason, .. } = self.status();
        let mut text = format!("Server \"{}\" is not connected ({})", self.settings.name, state.name());
        if !reason.is_empty() {
            text.push_str(": ");
            text.push_str(&connect_hints::without_container_hint(&reason));
        }
        Some(logs::redact(&logs::one_line(&text)))
    }
}
