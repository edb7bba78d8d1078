//! Renewal of a lost session with a legacy server.
//!
//! Owns the handshake in place of the lost session, and what follows from it. Does not detect the
//! loss (`session_loss.rs`). Invariant: callers that lose the same session renew it once.

use std::sync::Arc;
use std::time::Duration;

use crate::connect_error::ConnectError;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::handshake::handshake;
use moongate_transport::LinkError;

/// Time limit for opening a session in place of a lost one.
const RENEW_TIME: Duration = Duration::from_secs(30);

impl LegacyConnection {
    /// Opens a new session, unless another caller did so since generation `seen`.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "When a client receives HTTP 404 in
    /// response to a request containing an `Mcp-Session-Id`, it MUST start a new session by sending
    /// a new `InitializeRequest`".
    pub(crate) async fn renew_session(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        // A separate task, because the call that noticed the loss may be dropped while the renewal
        // must complete. One renewal at a time. A caller waits for the lock within its own
        // deadline.
        let turn = self.session.begin_renewal().await;
        let server = self.clone();
        let renewal = tokio::spawn(async move {
            let _turn = turn;
            let renewed = tokio::time::timeout(RENEW_TIME, server.renew_now(seen)).await;
            renewed.unwrap_or_else(|_| {
                let reason = format!("a new session was not open within {RENEW_TIME:?}");
                Err(LinkError::Timeout(reason).into())
            })
        });
        renewal.await.unwrap_or_else(|_| {
            Err(LinkError::Closed("the session renewal was aborted".to_owned()).into())
        })
    }

    async fn renew_now(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        // Another caller renewed the session while this one waited for the lock.
        if self.session.generation() != seen {
            return Ok(());
        }
        tracing::info!(
            server = self.options.server,
            "session lost at the server; opening a new one"
        );
        let negotiated = handshake(&self.link, &self.calls, &self.options).await?;
        self.session.replace(negotiated);
        self.options
            .metrics
            .servers
            .reconnects
            .inc(&self.options.server);
        self.log_level.reset();
        self.resync_subscriptions();
        // The new session may have other lists.
        self.report_all_changed();
        Ok(())
    }
}
