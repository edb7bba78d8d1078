//! Wait for a server's first request for roots.
//!
//! Owns the time that the first calls of a connection wait. Does not send or answer the request.
//! Invariant: the wait is bounded.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::legacy::upstream::connection::LegacyConnection;
use moongate_model::InputKind;

/// Time in which a server sends the request.
const REQUEST_TIME: Duration = Duration::from_millis(300);
/// Time in which the client answers it.
const RESPONSE_TIME: Duration = Duration::from_secs(5);
/// Time in which the server reads the response.
const READ_TIME: Duration = Duration::from_secs(1);
/// Time for the server's work with the response.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// Request for roots that has no response yet.
pub(crate) struct OpenRootsRequest(Arc<LegacyConnection>);

impl Drop for OpenRootsRequest {
    fn drop(&mut self) {
        self.0.first_roots.responded.notify_one();
    }
}

impl LegacyConnection {
    /// Records a server's request, until the response is sent.
    pub(crate) fn begin_roots_request(
        self: &Arc<Self>,
        kind: InputKind,
    ) -> Option<OpenRootsRequest> {
        self.first_roots.record_request(kind);
        (kind == InputKind::Roots).then(|| OpenRootsRequest(self.clone()))
    }

    /// Ends the wait for the first request for roots, once the server had its time.
    pub(crate) async fn settle_first_roots(self: Arc<Self>) {
        let roots = &self.first_roots;
        let Some(settled) = &roots.settled else {
            return;
        };
        let _ended = settled.clone().drop_guard();
        if timeout(REQUEST_TIME, roots.requested.notified())
            .await
            .is_err()
        {
            return self.calls.record_roots_tried();
        }
        if timeout(RESPONSE_TIME, roots.responded.notified())
            .await
            .is_ok()
        {
            // A server reads its messages in order.
            let _ = timeout(READ_TIME, self.send_ping()).await;
            tokio::time::sleep(SETTLE_TIME).await;
        }
    }
}
