//! Call on a legacy server, from its request to its response.
//!
//! Owns the request of one call and its progress token. Does not own the session; that is
//! `LegacyConnection`. Invariant: a call has one response, and the server hears of a call that is
//! given up.

mod sending;
mod server_requests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use crate::client_headers;
use crate::correlation::{CallEntry, LogInterest};
use crate::input_recipient::CallTarget;
use crate::legacy::tasks;
use crate::legacy::upstream::call_deadline::CallDeadline;
use crate::legacy::upstream::call_task::CallTask;
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::reply_stream::{IncomingItem, ReplyStream};
use crate::legacy::upstream::server_stream::route_again;
use crate::legacy::upstream::session_loss::mentions_lost_session;
use crate::open_inputs::{self, Withdrawal};
use crate::{call_error, notifications};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcMessage, RpcNotification, RpcResponse, echoed_number, encode_with, write_request,
};
use moongate_model::{
    Call, Caller, CancelReason, Error, Exchange, ExchangeEvent, LogFilter, McpMethod, Notification,
    Outcome, Principal, TaskMethod,
};
use moongate_transport::{HeaderList, LinkError};

/// Call in progress.
pub(crate) struct LegacyCall {
    server: Arc<LegacyConnection>,
    caller: Arc<Caller>,
    entry: CallEntry,
    method: McpMethod,
    body: Bytes,
    forwarded: HeaderList,
    reply: ReplyStream,
    deadline: CallDeadline,
    task: CallTask,
    /// Progress token of this call.
    token: u64,
    /// True if the client may use the server's extensions.
    extensions: bool,
    /// Reason of the client's cancellation.
    cancel_reason: Option<CancelReason>,
    phase: SendPhase,
    /// Cancelled if the call is given up. Made by its first input request.
    abandoned: Option<CancellationToken>,
}

enum SendPhase {
    NotSent,
    Sent {
        /// Number of messages that the pipe had delivered before.
        received_before: u64,
    },
    Finished,
}

impl LegacyCall {
    /// Creates the exchange of a call and its progress token. Sends nothing before the first event
    /// is polled.
    pub(crate) fn start(
        server: Arc<LegacyConnection>,
        caller: Arc<Caller>,
        call: Call,
    ) -> (Exchange, u64) {
        let running = LegacyCall::new(server, caller, call);
        let token = running.token;
        (running.into_exchange(), token)
    }

    /// Awaits the result of a task and forwards its progress under `token`.
    pub(crate) fn await_task_result(
        server: Arc<LegacyConnection>,
        caller: Arc<Caller>,
        id: &ByteString,
        token: u64,
    ) -> Exchange {
        let mut running = LegacyCall::new(server, caller, Call::for_task(TaskMethod::Result, id));
        running.token = token;
        running.entry.set_awaited_task(id.clone(), Some(token));
        running.into_exchange()
    }

    fn into_exchange(self) -> Exchange {
        Exchange::new(stream::unfold(self, |mut running| async move {
            running.next().await.map(|event| (event, running))
        }))
    }

    fn new(server: Arc<LegacyConnection>, caller: Arc<Caller>, call: Call) -> Self {
        // A legacy server logs whether a client requested it or not, so a message can be about any
        // client call. It is never about the gateway's own.
        let logs = match caller.log_filter {
            _ if caller.principal.id == Principal::GATEWAY => LogInterest::Never,
            LogFilter::Nothing => LogInterest::Unwanted(caller.principal.id),
            _ => LogInterest::Wanted(caller.principal.id),
        };
        let is_pipe = server.link.is_multiplexed();
        let target = if is_pipe
            && server
                .calls
                .can_be_asked(caller.capabilities, call.extensions)
        {
            CallTarget::from_call(&call)
        } else {
            CallTarget::default()
        };
        let mut entry = server.calls.open(&caller, logs, target);
        if call.extensions {
            entry.accept_extensions();
        }
        let task = CallTask::new(&call);
        if let Some(task) = &task.awaited {
            entry.set_awaited_task(task.clone(), None);
        }
        let Call {
            method,
            params,
            meta,
            progress,
            extensions,
            cancel_reason,
            received,
            ..
        } = call;
        let params = with_meta(params, meta, progress.then_some(entry.id));
        let body = encode_with(params.size_hint(), |out| {
            write_request(out, &RequestId::number(entry.id), method.name(), &params)
        });
        let forwarded = client_headers::header_list(&caller);
        // "It MUST block the response until the task reaches a terminal status": longer than a call
        // may take.
        let wait = if task.awaited.is_some() {
            server.options.timeouts.input_timeout()
        } else {
            Duration::ZERO
        };
        // Time spent in the queue counts towards the call's timeout.
        let deadline = CallDeadline::new(received + server.options.timeouts.call() + wait);
        LegacyCall {
            token: entry.id,
            extensions,
            cancel_reason,
            task,
            entry,
            method,
            body,
            forwarded,
            reply: ReplyStream::default(),
            deadline,
            phase: SendPhase::NotSent,
            abandoned: None,
            server,
            caller,
        }
    }

    async fn next(&mut self) -> Option<ExchangeEvent> {
        if matches!(self.phase, SendPhase::Finished) {
            return None;
        }
        let event = self.next_event().await;
        if matches!(event, ExchangeEvent::Done(_)) {
            self.phase = SendPhase::Finished;
        }
        Some(event)
    }

    async fn next_event(&mut self) -> ExchangeEvent {
        if matches!(self.phase, SendPhase::NotSent) {
            if let Some(event) = self.settle_roots().await {
                return event;
            }
            self.server.ensure_log_level(&self.caller).await;
            self.server.settle_cancellations(&self.caller).await;
            self.phase = SendPhase::Sent {
                received_before: self.server.link.received_count(),
            };
            // Some servers wait for an input response before they send even the status of the
            // call's response. So the side queue is read while the request is still being sent.
            let sending = self.send();
            if self.entry.stray_messages.is_some() && !self.server.link.is_multiplexed() {
                self.reply.send_meanwhile(sending);
            } else {
                match self
                    .server
                    .options
                    .timeouts
                    .timers()
                    .timeout_at(self.deadline.at(), sending)
                    .await
                {
                    Ok(sent) => {
                        if let Err(error) = self.reply.begin(sent) {
                            return ExchangeEvent::Done(Err(error));
                        }
                    }
                    Err(_) => return self.timed_out(),
                }
            }
        }
        loop {
            match self.receive().await {
                IncomingItem::Message(Ok(message)) => {
                    if !matches!(message, RpcMessage::Response(_)) {
                        // 2025-11-25/basic/lifecycle.mdx, Timeouts: "implementations SHOULD always
                        // enforce a maximum timeout, regardless of progress notifications, to limit
                        // the impact of a misbehaving client or server."
                        if !self.deadline.has_time(self.server.options.timeouts.call()) {
                            return self.timed_out();
                        }
                        // A chatty server must not keep other tasks from running.
                        coop::consume_budget().await;
                    }
                    if let Some(event) = self.on_message(message).await {
                        return event;
                    }
                }
                IncomingItem::Withdrawn(notification) => {
                    if let Some(event) = withdrawn_event(&notification) {
                        return event;
                    }
                }
                IncomingItem::NotSent(error) => return ExchangeEvent::Done(Err(error)),
                IncomingItem::Message(Err(error)) => {
                    return ExchangeEvent::Done(Err(self.link_error(&error)));
                }
                IncomingItem::End => {
                    let reason = "the stream ended without an answer";
                    return ExchangeEvent::Done(Err(call_error::protocol_error(
                        &self.server.options.server,
                        reason,
                    )));
                }
                IncomingItem::TimedOut => {
                    if !self.deadline.extend(self.server.options.timeouts.call()) {
                        return self.timed_out();
                    }
                }
            }
        }
    }

    /// Waits for the server's first request for roots, which goes to the client before the call is
    /// sent.
    async fn settle_roots(&mut self) -> Option<ExchangeEvent> {
        // On a shared connection, no client is asked outside of its calls.
        self.server.options.client.as_ref()?;
        while let Some(settled) = self.server.first_roots.pending().cloned() {
            let queue = self.entry.stray_messages.clone()?;
            let message = tokio::select! {
                () = settled.cancelled() => return None,
                message = queue.next() => message,
            };
            let event = match message {
                RpcMessage::Notification(notification) => withdrawn_event(&notification),
                // Boxed, since most calls have no request and all would have its room.
                message => Box::pin(self.on_message(message)).await,
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    async fn receive(&mut self) -> IncomingItem {
        let server = &self.server;
        let task = &self.task.awaited;
        let own = self.reply.next();
        let from_other_streams = async {
            match &self.entry.stray_messages {
                Some(queue) => queue.next().await,
                None => std::future::pending().await,
            }
        };
        // The server may have sent requests of the task before this wait started, or on another
        // stream.
        let held = async {
            match task {
                Some(task) => server.task_inputs.next_held(task).await,
                None => std::future::pending().await,
            }
        };
        let received = server.options.timeouts.timers().timeout_at(self.deadline.at(), async {
            // `biased`: the call's own stream goes first, since a response there makes the other
            // sources irrelevant.
            tokio::select! {
                biased;
                received = own => received,
                message = from_other_streams => match message {
                    // The table of open input requests found out that it is about one of this
                    // call's.
                    RpcMessage::Notification(notification) => IncomingItem::Withdrawn(notification),
                    message => IncomingItem::Message(Ok(message)),
                },
                request = held => IncomingItem::Message(Ok(RpcMessage::Request(request))),
            }
        });
        received.await.unwrap_or(IncomingItem::TimedOut)
    }

    fn timed_out(&mut self) -> ExchangeEvent {
        // Silence on a shared pipe hints that the server hangs. Over HTTP, each call has its own
        // stream.
        if let SendPhase::Sent { received_before } = self.phase
            && self.server.link.is_multiplexed()
            && self.server.link.received_count() == received_before
        {
            self.server.calls.report_silence();
        }
        // 2025-11-25/basic/lifecycle.mdx, Timeouts: "the sender SHOULD issue a cancellation
        // notification for that request and stop waiting for a response."
        self.cancel("the gateway's timeout passed");
        ExchangeEvent::Done(Err(call_error::timeout_error(
            &self.server.options.server,
            self.server.options.timeouts.call(),
        )))
    }

    fn link_error(&self, error: &LinkError) -> Error {
        call_error::from_connection(&self.server.options, error)
    }

    // === receiving ===

    async fn on_message(&mut self, message: RpcMessage) -> Option<ExchangeEvent> {
        match message {
            RpcMessage::Response(response) => {
                self.entry.mark_answered();
                self.deadline.mark_answered();
                Some(ExchangeEvent::Done(self.on_response(response).await))
            }
            RpcMessage::Notification(notification) => self.on_notification(notification),
            RpcMessage::Request(request) => {
                // A server that does not read responses holds up its own call, but only until the
                // call's deadline.
                let timers = self.server.options.timeouts.timers().clone();
                let deadline = self.deadline.at();
                // Boxed, since most calls have no request and all would have its room.
                timers
                    .timeout_at(deadline, Box::pin(self.on_request(request)))
                    .await
                    .unwrap_or(None)
            }
        }
    }

    async fn on_response(&mut self, response: RpcResponse) -> Result<Outcome, Error> {
        match response.outcome {
            Ok(mut result) => {
                // `resultType` belongs to a later revision. A legacy server does not mean it, so it
                // must not reach such a client.
                if result.get("resultType").is_some() {
                    result.remove("resultType");
                }
                self.read_result(result)
            }
            Err(error) => {
                // Some servers report a lost session with status 200. The next call must find a new
                // session.
                if self.server.session.has_id() && mentions_lost_session(&error) {
                    let timers = self.server.options.timeouts.timers();
                    let renewal = Box::pin(self.server.renew_session(self.reply.sent_generation()));
                    let _ = timers.timeout_at(self.deadline.at(), renewal).await;
                }
                Err(Error::from_server(error))
            }
        }
    }

    /// Reads a result, with the task that it is or contains.
    fn read_result(&self, mut result: JsonObject) -> Result<Outcome, Error> {
        let task = self.task.read_result(&self.method, &mut result);
        let task =
            task.map_err(|wrong| call_error::protocol_error(&self.server.options.server, wrong))?;
        Ok(Outcome {
            task: task.map(Box::new),
            ..Outcome::from_result(result)
        })
    }

    fn on_notification(&self, mut notification: RpcNotification) -> Option<ExchangeEvent> {
        if &*notification.method == "notifications/cancelled" {
            // The request may have gone to another call than this one.
            let event = withdrawn_event(&notification);
            let withdrawal = self
                .server
                .withdraw_input(notification, self.entry.stray_messages.as_ref());
            return event.filter(|_| withdrawal == Withdrawal::Own);
        }
        if let Some(task) = tasks::read_status(&notification) {
            self.server
                .publish(Notification::TaskStatus(Box::new(task)));
            return None;
        }
        self.task.untag(&mut notification.params);
        match notifications::decode(notification) {
            Notification::Progress(params) => {
                // The token of another call is a mistake of the server. This client must not see
                // that progress.
                let token = params
                    .get("progressToken")
                    .and_then(|token| echoed_number(token.bytes()));
                let own = token == Some(self.token);
                own.then_some(ExchangeEvent::Notification(Notification::Progress(params)))
            }
            notification @ Notification::Log(..) => Some(ExchangeEvent::Notification(notification)),
            notification @ Notification::Extension(..) if self.extensions => {
                Some(ExchangeEvent::Notification(notification))
            }
            // Other notifications concern all clients, even if they arrive on a call's stream.
            notification => {
                self.server.publish(notification);
                None
            }
        }
    }

    /// Cancels the call at the server, for the reason that the client gave, or else for the
    /// gateway's own.
    fn cancel(&mut self, own_reason: &str) {
        if matches!(
            std::mem::replace(&mut self.phase, SendPhase::Finished),
            SendPhase::Sent { .. }
        ) {
            if self.server.link.is_multiplexed() {
                // 2025-11-25/basic/utilities/cancellation.mdx: "The sender of the cancellation
                // notification SHOULD ignore any response to the request that arrives afterward".
                self.entry.mark_cancelled();
            }
            let reason = self.cancel_reason.as_ref().and_then(CancelReason::get);
            let params = JsonObject::new()
                .with("requestId", RawJson::number(self.entry.id))
                .with(
                    "reason",
                    reason.unwrap_or_else(|| RawJson::string(own_reason)),
                );
            self.server
                .send_notification(ByteString::literal("notifications/cancelled"), params);
            if let Some(abandoned) = &self.abandoned {
                abandoned.cancel();
            }
        }
    }
}

impl Drop for LegacyCall {
    fn drop(&mut self) {
        let unread = match &self.entry.stray_messages {
            Some(queue) => queue.close(),
            None => VecDeque::new(),
        };
        // Most calls have ended and left nothing, so nothing needs a runtime.
        let is_over = matches!(self.phase, SendPhase::Finished) && unread.is_empty();
        if is_over || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        self.cancel("the client no longer waits for it");
        for message in unread {
            // It came while the call ended, and may be for another one, or for the client outside
            // of calls.
            if let RpcMessage::Request(request) = message {
                tokio::spawn(route_again(self.server.clone(), request));
            }
        }
    }
}

/// Returns the event that takes an input request back at the client.
fn withdrawn_event(notification: &RpcNotification) -> Option<ExchangeEvent> {
    let key = open_inputs::key_of(&open_inputs::withdrawn_id(notification)?);
    let reason = notification.params.get("reason").cloned();
    Some(ExchangeEvent::Notification(Notification::InputWithdrawn(
        key, reason,
    )))
}

/// Adds `_meta` as a legacy server expects it: the client's members and the gateway's progress
/// token.
fn with_meta(mut params: JsonObject, mut meta: JsonObject, token: Option<u64>) -> JsonObject {
    if let Some(token) = token {
        meta.set(ByteString::literal("progressToken"), RawJson::number(token));
    }
    if !meta.is_empty() {
        params.set(ByteString::literal("_meta"), meta.to_raw());
    }
    params
}
