//! Checks of the shared connection that failed calls trigger. Owns which failures trigger one. Does
//! not check the connection (`supervisor`). Invariant: a refusal of a client's own credentials
//! triggers none.

use tokio::sync::Notify;

use moongate_model::{Error, McpErrorKind, Retryable};

/// Triggers for checks of one server's shared connection.
#[derive(Default)]
pub(crate) struct LivenessTriggers {
    /// Signalled when a call found the server disconnected.
    down: Notify,
    /// Signalled when the server's host refuses a call.
    refused: Notify,
}

impl LivenessTriggers {
    /// Records the failure of a call. `own_credentials`: the client brought its own.
    pub(crate) fn record_failure(&self, error: &Error, own_credentials: bool) {
        if error.kind == McpErrorKind::ServerDown {
            self.down.notify_one();
        } else if is_refused(error) && !own_credentials {
            // The cause may be this call alone, or credentials of the gateway that expired.
            self.refused.notify_one();
        }
    }

    /// Waits until a call found the server disconnected.
    pub(crate) async fn wait_down(&self) {
        self.down.notified().await;
    }

    /// Waits until the server's host refused a call.
    pub(crate) async fn wait_refused(&self) {
        self.refused.notified().await;
    }
}

/// Returns true if the host refused for good: for its credentials, its path or its method.
pub(crate) fn is_refused(error: &Error) -> bool {
    error.kind == McpErrorKind::ServerRefused && error.retryable == Retryable::No
}
