//! Reason why nothing is known of a server. Formats it as one line that clients may read. Does not decide who reads
//! it (`gateway`). Invariant: the line tells no more than the status does.

use crate::status::UpstreamStatus;
use moongate_telemetry::logs;
use moongate_transport::connect_hints;

/// Explains why a server was never connected.
pub(crate) fn explain_absence(server: &str, status: &UpstreamStatus) -> String {
    let UpstreamStatus { state, reason, .. } = status;
    let mut text = format!("Server \"{server}\" is not connected ({})", state.name());
    if !reason.is_empty() {
        text.push_str(": ");
        text.push_str(&connect_hints::without_container_hint(reason));
    }
    logs::redact(&logs::one_line(&text))
}
