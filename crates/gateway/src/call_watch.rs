//! Watch over a call: measured at its end, and recorded where the config says so.
//!
//! Owns the name of a call's end in metrics and logs. Does not route (`resolve_call.rs`).
//! Invariant: a call that ends is measured once, a cancelled one is not, and a call that is not
//! recorded formats nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::time::Instant;

use crate::call_route::CallRoute;
use crate::endpoint::Endpoint;
use crate::endpoint_context::EndpointContext;
use crate::permitted::Permitted;
use crate::recent_calls::{CallFacts, CallResult, CallTicket, error_text};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{
    Call, CallState, Caller, Error, ExchangeEvent, McpErrorKind, McpMethod, Outcome, TaskMethod,
};
use moongate_telemetry::{CallEnding, CallRecord, ServerHop};
use moongate_upstream::UpstreamCall;

/// Ending of a tool call whose result has `isError`.
const TOOL_ERROR: CallEnding = CallEnding {
    error: "tool_error",
    code: "",
};

/// Returns the end of a call, as metrics and logs name it.
fn ending(method: &McpMethod, revision: &'static str, end: &Result<Outcome, Error>) -> CallEnding {
    match end {
        Ok(outcome) if is_tool_error(method, &outcome.result) => TOOL_ERROR,
        Ok(_) => CallEnding::FINE,
        Err(error) => moongate_protocol::call_ending(revision, method, error),
    }
}

/// Returns true for a tool error. 2026-07-28/server/tools.mdx, Error Handling: "Tool Execution
/// Errors: Reported in tool results with `isError: true`".
fn is_tool_error(method: &McpMethod, result: &JsonObject) -> bool {
    matches!(
        method,
        McpMethod::CallTool | McpMethod::Task(TaskMethod::Result)
    ) && result
        .get("isError")
        .is_some_and(|is_error| is_error.bytes() == "true")
}

/// Returns a method whose name the protocol defines. A name that a client made up is not kept.
fn known_method(method: &McpMethod) -> McpMethod {
    match method {
        McpMethod::Other(_) => McpMethod::Other(ByteString::literal("_OTHER")),
        known => known.clone(),
    }
}

/// Effort for a call before it was sent, as operators see it.
#[derive(Clone, Copy, Default)]
struct SendEffort {
    wait: Option<Duration>,
    retries: u32,
}

/// Returns the end of a call, as operators see it.
fn call_result(
    ending: CallEnding,
    end: &Result<Outcome, Error>,
    took: Duration,
    hop: ServerHop,
    effort: SendEffort,
) -> CallResult {
    let (state, error) = match end {
        Ok(_) if ending.is_error() => (CallState::ToolError, None),
        Ok(_) => (CallState::Ok, None),
        Err(error) if error.kind == McpErrorKind::Cancelled => (CallState::Cancelled, Some(error)),
        Err(error) => (CallState::Error, Some(error)),
    };
    CallResult {
        state,
        server_revision: hop.revision,
        // A hint and no encoding: the size is for people, and an exact one would cost another pass.
        response_bytes: end.as_ref().map_or(0, |outcome| outcome.result.size_hint()),
        took,
        server_time: hop.time,
        wait: effort.wait,
        retries: effort.retries,
        error: error.map(|error| (ending.error, recorded_text(error))),
    }
}

/// Returns the text of an error that is recorded. A server's own message may repeat arguments, so
/// its code replaces it.
fn recorded_text(error: &Error) -> Box<str> {
    match &error.kind {
        McpErrorKind::ServerError(own) => format!("server error {}", own.code).into(),
        _ => error_text(&error.message),
    }
}

/// Call that may end before it is sent to a server.
pub(super) struct LocalCall {
    method: McpMethod,
    received: Instant,
    /// Name that the client asks for, as it was sent.
    name: Option<RawJson>,
    request_bytes: usize,
}

impl LocalCall {
    pub(super) fn from_call(call: &Call) -> Self {
        // Records name tools and prompts only.
        let named = matches!(call.method, McpMethod::CallTool | McpMethod::GetPrompt);
        let name = if named {
            call.params.get("name").cloned()
        } else {
            None
        };
        let request_bytes = call.params.size_hint();
        LocalCall {
            method: call.method.clone(),
            received: call.received,
            name,
            request_bytes,
        }
    }

    /// Measures the call, and records it if it failed.
    pub(super) fn record(self, endpoint: &Endpoint, caller: &Caller, end: &Result<Outcome, Error>) {
        let LocalCall {
            method,
            received,
            name,
            request_bytes,
        } = self;
        let ending = ending(&method, caller.revision, end);
        let took = received.elapsed();
        endpoint
            .method_meter(&method)
            .record(caller.revision, ending, took, None);
        let item = name.and_then(|name| name.as_text());
        if ending.is_error() {
            let facts = CallFacts {
                method: known_method(&method),
                principal: caller.principal.clone(),
                endpoint: endpoint.name.clone(),
                server: ByteString::literal(""),
                // Copied and cut: the text is the client's, and a span would keep its whole
                // request.
                item: ByteString::from(&*error_text(item.as_deref().unwrap_or_default())),
                client_revision: caller.revision,
                request_bytes,
                received,
            };
            let recent = &endpoint.gateway.context().recent_calls;
            if let Some(ticket) = recent.begin(caller, facts) {
                let hop = ServerHop {
                    revision: "",
                    time: Duration::ZERO,
                };
                recent.end(
                    ticket,
                    call_result(ending, end, took, hop, SendEffort::default()),
                );
            }
        }
        // Lists come from memory, and do not call an item.
        if ending.is_error() && endpoint.gateway.context().call_log.records(ending) {
            CallRecord {
                method: method.label(),
                principal: &caller.principal.name,
                client: caller.client_info.as_ref(),
                revision: caller.revision,
                endpoint: &endpoint.name,
                server: "",
                tool: item.as_deref().unwrap_or_default(),
                outcome: ending.error,
                code: ending.code,
                duration: took,
                request_bytes,
                response_bytes: 0,
            }
            .write();
        }
    }
}

/// Facts about a call that goes to a server.
pub(super) struct CallWatch {
    context: Arc<EndpointContext>,
    caller: Arc<Caller>,
    route: Permitted<CallRoute>,
    method: McpMethod,
    endpoint: ByteString,
    received: Instant,
    sent: Instant,
    request_bytes: usize,
    /// True if the client got an input request.
    asked_for_input: bool,
    finished: bool,
    /// Entry among the recent calls.
    ticket: Option<CallTicket>,
}

impl CallWatch {
    /// Creates the watch of a call that is about to be sent.
    pub(super) fn new(
        endpoint: &Endpoint,
        caller: &Arc<Caller>,
        call: &Call,
        route: Permitted<CallRoute>,
    ) -> Self {
        let context = endpoint.gateway.context();
        let facts = CallFacts {
            method: known_method(&call.method),
            principal: caller.principal.clone(),
            endpoint: endpoint.name.clone(),
            server: route.server.name.clone(),
            item: route.tool.clone(),
            client_revision: caller.revision,
            request_bytes: call.params.size_hint(),
            received: call.received,
        };
        CallWatch {
            ticket: context.recent_calls.begin(caller, facts),
            context: context.clone(),
            caller: caller.clone(),
            route,
            method: call.method.clone(),
            endpoint: endpoint.name.clone(),
            received: call.received,
            sent: Instant::now(),
            request_bytes: call.params.size_hint(),
            asked_for_input: false,
            finished: false,
        }
    }

    /// Returns the target of the call.
    pub(super) fn route(&self) -> &Permitted<CallRoute> {
        &self.route
    }

    fn record_end(&mut self, end: &Result<Outcome, Error>, call: &UpstreamCall) {
        self.finished = true;
        let server_revision = call.revision();
        let now = Instant::now();
        let ending = ending(&self.method, self.caller.revision, end);
        let hop = ServerHop {
            revision: server_revision,
            time: now - self.sent,
        };
        self.route
            .meter
            .record(self.caller.revision, ending, now - self.received, Some(hop));
        // Taken, so that `drop` does not end the entry a second time.
        if let Some(ticket) = self.ticket.take() {
            // A call that never got a connection has waited all the time.
            let wait = call.wait().unwrap_or(hop.time);
            let effort = SendEffort {
                wait: Some(wait),
                retries: call.retries(),
            };
            self.context.recent_calls.end(
                ticket,
                call_result(ending, end, now - self.received, hop, effort),
            );
        }
        if self.context.call_log.records(ending) {
            let size = end.as_ref().map_or(0, |outcome| outcome.result.size_hint());
            let outcome = if ending.is_error() {
                ending.error
            } else {
                "ok"
            };
            self.write_record(outcome, ending.code, now, size);
        }
    }

    /// Returns the end of the call once an operator cancels it. The exchange is dropped then, which
    /// cancels the call at its server.
    fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<ExchangeEvent> {
        match self.ticket {
            Some(ticket) if self.context.recent_calls.poll_cancelled(ticket, cx) => {
                let message = "An operator cancelled this call";
                Poll::Ready(ExchangeEvent::Done(Err(Error::new(
                    McpErrorKind::Cancelled,
                    message,
                ))))
            }
            _ => Poll::Pending,
        }
    }

    fn write_record(&self, outcome: &str, code: &str, now: Instant, response_bytes: usize) {
        CallRecord {
            method: self.method.label(),
            principal: &self.caller.principal.name,
            client: self.caller.client_info.as_ref(),
            revision: self.caller.revision,
            endpoint: &self.endpoint,
            server: &self.route.server.name,
            tool: &self.route.tool,
            outcome,
            code,
            duration: now - self.received,
            request_bytes: self.request_bytes,
            response_bytes,
        }
        .write();
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let state = if self.asked_for_input {
                CallState::InputRequired
            } else {
                CallState::Cancelled
            };
            let took = self.received.elapsed();
            let server_time = self.sent.elapsed();
            let wait = None;
            let retries = 0;
            let result = CallResult {
                state,
                server_revision: "",
                response_bytes: 0,
                took,
                server_time,
                wait,
                retries,
                error: None,
            };
            self.context.recent_calls.end(ticket, result);
        }
        if !self.finished && self.context.call_log.is_for_all() {
            // A stateless client comes back with the input responses in another call, so a dropped
            // exchange isn't a cancellation.
            let outcome = if self.asked_for_input {
                "input_required"
            } else {
                "cancelled"
            };
            self.write_record(outcome, "", Instant::now(), 0);
        }
    }
}

/// Metered exchange. Its events are changed on their way to the client.
pub(super) struct MeteredCall<F> {
    call: UpstreamCall,
    watch: CallWatch,
    map_event: F,
}

impl<F: FnMut(ExchangeEvent, &'static str) -> ExchangeEvent + Unpin> MeteredCall<F> {
    pub(super) fn new(call: UpstreamCall, watch: CallWatch, map_event: F) -> Self {
        MeteredCall {
            call,
            watch,
            map_event,
        }
    }
}

impl<F: FnMut(ExchangeEvent, &'static str) -> ExchangeEvent + Unpin> Stream for MeteredCall<F> {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        let this = self.get_mut();
        let event = match this.call.poll_next_unpin(cx) {
            Poll::Ready(Some(event)) => event,
            Poll::Ready(None) => return Poll::Ready(None),
            // Checked after the call has registered its own wakers.
            Poll::Pending => ready!(this.watch.poll_cancelled(cx)),
        };
        match &event {
            ExchangeEvent::Done(end) => this.watch.record_end(end, &this.call),
            ExchangeEvent::InputRequired(_) => this.watch.asked_for_input = true,
            ExchangeEvent::Notification(_) => {}
        }
        Poll::Ready(Some((this.map_event)(event, this.call.revision())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_jsonrpc::message::RpcError;

    #[test]
    fn a_servers_own_words_are_not_recorded() {
        let own = RpcError {
            code: -32000,
            message: "no such user: s3cr3t".into(),
            data: None,
        };
        let error = Error::new(McpErrorKind::ServerError(own), "no such user: s3cr3t");
        assert_eq!(&*recorded_text(&error), "server error -32000");
        let ours = Error::new(McpErrorKind::ServerDown, "Server \"a\" is not connected");
        assert_eq!(&*recorded_text(&ours), "Server \"a\" is not connected");
    }
}
