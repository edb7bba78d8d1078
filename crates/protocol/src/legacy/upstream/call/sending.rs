//! Sending of a call's request to a legacy server.
//!
//! Owns the second attempt after a lost session. Does not renew sessions (`session_renewal.rs`).
//! Invariant: a call that may have run and may change something is not sent twice.

use std::sync::Arc;

use bytes::Bytes;

use super::LegacyCall;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::reply_stream::SendResult;
use crate::legacy::upstream::session_loss::{
    SessionLoss, classify_loss, renewal_error, without_message,
};
use crate::{call_error, connect_error};
use moongate_model::McpMethod;
use moongate_transport::{HeaderList, LinkError};

impl LegacyCall {
    /// Sends the request, and sends it again if the session turns out to be lost.
    pub(super) fn send(&self) -> impl Future<Output = SendResult> + Send + 'static {
        let server = self.server.clone();
        let body = self.body.clone();
        let id = self.entry.id;
        let forwarded = self.forwarded.clone();
        let changes = matches!(self.method, McpMethod::CallTool);
        async move {
            // Read before the request: of two calls that lose one session, only the first one
            // renews it.
            let sent_in = server.session.generation();
            match server.send(body.clone(), Some(id), &forwarded).await {
                Ok(reply) => (Ok(reply.messages), sent_in),
                // Boxed: no call that succeeds has room for this.
                Err(error) => {
                    Box::pin(send_again(
                        server,
                        (body, id, forwarded),
                        changes,
                        (sent_in, error),
                    ))
                    .await
                }
            }
        }
    }
}

/// Sends a request again if its session was lost. `changes`: the request may change something.
async fn send_again(
    server: Arc<LegacyConnection>,
    (body, id, forwarded): (Bytes, u64, HeaderList),
    changes: bool,
    (sent_in, error): (u64, LinkError),
) -> SendResult {
    let options = &server.options;
    let proof = classify_loss(&error, server.session.has_id());
    if proof == SessionLoss::No {
        return (Err(call_error::from_connection(options, &error)), sent_in);
    }
    // The error is about the session, which doesn't concern the caller. Its words are in the hint.
    let error = without_message(error);
    if let Err(e) = server.renew_session(sent_in).await {
        let failed = match e {
            connect_error::ConnectError::Link(e) => call_error::from_connection(options, &e),
            e => call_error::server_down(&options.server, &e.to_string()),
        };
        return (Err(renewal_error(failed, &proof, changes)), sent_in);
    }
    // Only a 404 proves that the call never ran. After other errors, only calls that change nothing
    // are sent again.
    if proof == SessionLoss::Maybe && changes {
        return (Err(call_error::from_connection(options, &error)), sent_in);
    }
    let sent_in = server.session.generation();
    let again = server.send(body, Some(id), &forwarded).await;
    (
        again
            .map(|reply| reply.messages)
            .map_err(|e| call_error::from_connection(options, &e)),
        sent_in,
    )
}
