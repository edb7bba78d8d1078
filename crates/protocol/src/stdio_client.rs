//! Client on a pipe: both eras, as each of its messages says.
//!
//! Owns the dispatch of messages to the eras, and the end of the client. Does not read or write the
//! pipe. Invariant: an immediate response reserves its permit before any work starts. So a client
//! that does not read gets no further responses.

use moongate_telemetry::{DroppedItem, Limit, MemoryHolder};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::admitted::{Admitted, ClientPayload};
use crate::dialect::DownstreamState;
use crate::request_checks::malformed_error;
use crate::{legacy, v2026_07_28};
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{
    MalformedMessage, RequestId, RpcMessage, RpcNotification, RpcPayload, RpcRequest, encode_line,
};
use moongate_model::{Error, McpErrorKind, McpServer, Principal};

/// Client on a pipe.
pub struct StdioClient {
    endpoint: Arc<dyn McpServer>,
    principal: Arc<Principal>,
    holder: MemoryHolder,
    scope: ByteString,
    state: Arc<DownstreamState>,
    out: mpsc::Sender<Bytes>,
    /// 2026-07-28/basic/versioning.mdx: "An `initialize` request selects legacy semantics, scoped
    /// to the stdio process".
    // One session for each process, so an option is enough.
    session: Option<legacy::StdioSession>,
    requests: v2026_07_28::OpenRequests,
    tasks: TaskTracker,
}

/// Returns true if a line opens a legacy session.
pub fn opens_session(line: &[u8]) -> bool {
    let message = RpcMessage::parse_from_client(&Bytes::copy_from_slice(line.trim_ascii()));
    matches!(message, Ok(RpcMessage::Request(request))
        if request.method.as_str() == "initialize" && !v2026_07_28::OpenRequests::is_modern(&request))
}

/// Error of a client that reads no more.
#[derive(Debug)]
pub struct ClientDisconnected;

type OutboxPermit = mpsc::OwnedPermit<Bytes>;

impl StdioClient {
    /// Creates a client without a session. Messages for it go to `out`, one line each, and take the
    /// memory of `holder`.
    pub fn new(
        endpoint: Arc<dyn McpServer>,
        (principal, holder): (Arc<Principal>, MemoryHolder),
        scope: ByteString,
        state: Arc<DownstreamState>,
        out: mpsc::Sender<Bytes>,
    ) -> Self {
        let requests = v2026_07_28::OpenRequests::default();
        let tasks = TaskTracker::new();
        StdioClient {
            endpoint,
            principal,
            holder,
            scope,
            state,
            out,
            session: None,
            requests,
            tasks,
        }
    }

    /// Replaces the server for all later requests.
    pub fn replace_endpoint(&mut self, endpoint: Arc<dyn McpServer>) {
        if let Some(session) = &mut self.session {
            session.replace_endpoint(endpoint.clone());
        }
        self.endpoint = endpoint;
    }

    /// Handles one admitted line of input. Waits while the client does not read.
    pub async fn handle_line(
        &mut self,
        payload: Admitted<ClientPayload>,
    ) -> Result<(), ClientDisconnected> {
        match payload.into_inner() {
            Ok(RpcPayload::One(RpcMessage::Notification(notification))) => {
                self.on_notification(notification)
            }
            Ok(RpcPayload::One(RpcMessage::Response(response))) => match &self.session {
                Some(session) => session.accept(RpcMessage::Response(response)),
                // 2026-07-28/basic/patterns/index.mdx: "clients do not send JSON-RPC responses".
                // Only a session has asked for one.
                None => self
                    .state
                    .metrics
                    .calls
                    .dropped
                    .inc(DroppedItem::ClientResponse),
            },
            Ok(RpcPayload::One(RpcMessage::Request(request))) => {
                let permit = self.reserve().await?;
                self.start_request(request, permit);
            }
            Ok(RpcPayload::Batch(items)) => {
                let permit = self.reserve().await?;
                self.start_batch(items, permit);
            }
            Err(e) => {
                let (id, error) = malformed_error(&e);
                self.send_error(id.as_ref(), &error).await?;
            }
        }
        Ok(())
    }

    /// Sends an error for input that wasn't a message.
    pub async fn send_error(
        &self,
        id: Option<&RequestId>,
        error: &Error,
    ) -> Result<(), ClientDisconnected> {
        write_parts(self.reserve().await?, &[legacy::encode_refusal(id, error)]);
        Ok(())
    }

    /// Counts a message that was refused for its size.
    pub fn count_too_large(&self) {
        self.state.metrics.calls.refused.inc(Limit::Body);
    }

    /// Closes the client's subscription streams: it sends nothing more and will not read.
    pub fn close_subscriptions(&self) {
        self.requests.close_subscriptions();
    }

    /// Waits until all requests have their responses.
    pub async fn wait_idle(&self) {
        // A tracker that is not closed never completes, even with no task left.
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn reserve(&self) -> Result<OutboxPermit, ClientDisconnected> {
        self.out
            .clone()
            .reserve_owned()
            .await
            .map_err(|_| ClientDisconnected)
    }

    fn sender(&self) -> (Arc<Principal>, ByteString) {
        (self.principal.clone(), self.scope.clone())
    }

    fn start_request(&mut self, request: RpcRequest, permit: OutboxPermit) {
        // Each request decides its era, so both eras can share a pipe.
        let answer = if v2026_07_28::OpenRequests::is_modern(&request) {
            let (principal, scope) = self.sender();
            let sender = v2026_07_28::RequestSender {
                principal,
                holder: self.holder.clone(),
                scope,
            };
            self.requests.start(
                request,
                sender,
                &self.endpoint,
                &self.state,
                (&self.out, &self.tasks),
            )
        } else {
            match &self.session {
                Some(session) => session.request(request, &self.tasks),
                None if &*request.method == "initialize" => {
                    return self.initialize(&request, permit);
                }
                None => Some(legacy::answer_before_initialize(&request)),
            }
        };
        if let Some(parts) = answer {
            write_parts(permit, &parts);
        }
    }

    fn initialize(&mut self, request: &RpcRequest, permit: OutboxPermit) {
        let sender = self.sender();
        match legacy::StdioSession::open(request, sender, &self.endpoint, &self.state, &self.out) {
            Ok((session, response)) => {
                write_parts(permit, &response);
                // After the response: a client may not expect notifications before it.
                session.start_stream();
                self.session = Some(session);
            }
            Err(error) => write_parts(permit, &[legacy::encode_refusal(Some(&request.id), &error)]),
        }
    }

    fn on_notification(&self, notification: RpcNotification) {
        if &*notification.method == "notifications/cancelled" {
            // 2025-11-25/basic/utilities/cancellation.mdx, Error Handling: "Invalid cancellation
            // notifications SHOULD be ignored".
            let id = notification
                .params
                .get("requestId")
                .and_then(|raw| RequestId::from_raw(raw.clone()));
            if id.is_some_and(|id| self.requests.cancel(&id, notification.params.get("reason"))) {
                return self.state.metrics.calls.cancelled.inc();
            }
        }
        match &self.session {
            Some(session) => session.accept(RpcMessage::Notification(notification)),
            // Of a stateless client, only an extension's notification has a receiver.
            None => v2026_07_28::notify_extension(
                notification,
                self.principal.clone(),
                &self.endpoint,
                &self.state,
            ),
        }
    }

    fn start_batch(&self, items: Vec<Result<RpcMessage, MalformedMessage>>, permit: OutboxPermit) {
        // Only a session knows if its revision has batches. 2025-06-18/changelog.mdx: "Remove
        // support for JSON-RPC batching".
        let begun = match &self.session {
            Some(session) => session.batch(items, &self.tasks),
            None => Err(Error::new(
                McpErrorKind::InvalidRequest,
                "Invalid request: a client starts with a single initialize",
            )),
        };
        if let Err(error) = begun {
            write_parts(permit, &[legacy::encode_refusal(None, &error)]);
        }
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        // The legacy session ends with its own part of this value.
        self.requests.cancel_all();
    }
}

/// Writes a finished response.
fn write_parts(permit: OutboxPermit, parts: &[Bytes]) {
    permit.send(encode_line(&parts.concat()));
}
