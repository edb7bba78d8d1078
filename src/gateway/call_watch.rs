//! A call as the gateway sees it: measured, and recorded where the config says so.
//!
//! Owns what a call's end is called in metrics and logs. Does not route (`view`). Invariant: a call is measured once, and
//! nothing is formatted for one that is not recorded.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt};
use tokio::time::Instant;

use crate::gateway::endpoint::Endpoint;
use crate::gateway::{Gateway, method_label};
use crate::json::{ByteString, JsonObject, RawJson};
use crate::model::{Call, Caller, Error, ExchangeEvent, McpMethod, Outcome, TaskMethod};
use crate::revision;
use crate::telemetry::{CallEnding, CallMeter, CallRecord, ServerHop};
use crate::upstream::ServerCall;

/// A tool that says of itself that it failed.
const TOOL_ERROR: CallEnding = CallEnding { error: "tool_error", code: "" };

/// The end of a call, as metrics and logs name it.
fn ending(method: &McpMethod, revision: &'static str, end: &Result<Outcome, Error>) -> CallEnding {
    match end {
        Ok(outcome) if is_tool_error(method, &outcome.result) => TOOL_ERROR,
        Ok(_) => CallEnding::FINE,
        Err(error) => revision::call_ending(revision, method, error),
    }
}

/// 2026-07-28/server/tools.mdx, Error Handling: "Tool Execution Errors: Reported in tool results with `isError: true`".
fn is_tool_error(method: &McpMethod, result: &JsonObject) -> bool {
    matches!(method, McpMethod::CallTool | McpMethod::Task(TaskMethod::Result))
        && result.get("isError").is_some_and(|is_error| is_error.bytes() == "true")
}

/// A call that may end before it is sent to a server.
pub(super) struct UnsentCall {
    method: McpMethod,
    received: Instant,
    /// What the client asks for by name, as it spelled it.
    name: Option<RawJson>,
    request_bytes: usize,
}

impl UnsentCall {
    pub(super) fn from_call(call: &Call) -> Self {
        let named = matches!(call.method, McpMethod::CallTool | McpMethod::GetPrompt);
        let name = if named { call.params.get("name").cloned() } else { None };
        let request_bytes = call.params.size_hint();
        UnsentCall { method: call.method.clone(), received: call.received, name, request_bytes }
    }

    /// Measures the call, and records it if it failed.
    pub(super) fn record(self, view: &Endpoint, caller: &Caller, end: &Result<Outcome, Error>) {
        let UnsentCall { method, received, name, request_bytes } = self;
        let (ending, took) = (ending(&method, caller.revision, end), received.elapsed());
        view.method_meter(&method).record(caller.revision, ending, took, None);
        // A list comes from memory, and is no call of anything.
        if ending.is_error() && view.gateway.call_log.records(ending) {
            CallRecord {
                method: method_label(&method),
                principal: &caller.principal.name,
                client: caller.client_info.as_ref(),
                revision: caller.revision,
                endpoint: &view.name,
                server: "",
                tool: name.and_then(|name| name.as_text()).as_deref().unwrap_or_default(),
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

/// What is known of a call that goes to a server.
pub(super) struct CallWatch {
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    meter: Arc<CallMeter>,
    method: McpMethod,
    endpoint: ByteString,
    server: ByteString,
    tool: ByteString,
    received: Instant,
    sent: Instant,
    request_bytes: usize,
    /// Whether its client was asked something since.
    asked_for_input: bool,
    finished: bool,
}

impl CallWatch {
    /// For a call that is about to be sent: its meter, its server, and its tool as clients see it.
    pub(super) fn new(
        view: &Endpoint,
        caller: &Arc<Caller>,
        call: &Call,
        (meter, server, tool): (Arc<CallMeter>, ByteString, ByteString),
    ) -> Self {
        CallWatch {
            gateway: view.gateway.clone(),
            caller: caller.clone(),
            meter,
            method: call.method.clone(),
            endpoint: view.name.clone(),
            server,
            tool,
            received: call.received,
            sent: Instant::now(),
            request_bytes: call.params.size_hint(),
            asked_for_input: false,
            finished: false,
        }
    }

    fn record_end(&mut self, end: &Result<Outcome, Error>, server_revision: &'static str) {
        self.finished = true;
        let now = Instant::now();
        let ending = ending(&self.method, self.caller.revision, end);
        let hop = ServerHop { revision: server_revision, time: now - self.sent };
        self.meter.record(self.caller.revision, ending, now - self.received, Some(hop));
        if self.gateway.call_log.records(ending) {
            let size = end.as_ref().map_or(0, |outcome| outcome.result.size_hint());
            let outcome = if ending.is_error() { ending.error } else { "ok" };
            self.write_record(outcome, ending.code, now, size);
        }
    }

    fn write_record(&self, outcome: &str, code: &str, now: Instant, response_bytes: usize) {
        CallRecord {
            method: self.method.label(),
            principal: &self.caller.principal.name,
            client: self.caller.client_info.as_ref(),
            revision: self.caller.revision,
            endpoint: &self.endpoint,
            server: &self.server,
            tool: &self.tool,
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
        if !self.finished && self.gateway.call_log.is_for_all() {
            // A stateless client comes back with the answers, in another call.
            let outcome = if self.asked_for_input { "input_required" } else { "cancelled" };
            self.write_record(outcome, "", Instant::now(), 0);
        }
    }
}

/// A call at a server that is watched until its end, whose events are changed on their way.
pub(super) struct WatchedCall<F> {
    call: ServerCall,
    watch: CallWatch,
    map_event: F,
}

impl<F: FnMut(ExchangeEvent) -> ExchangeEvent + Unpin> WatchedCall<F> {
    pub(super) fn new(call: ServerCall, watch: CallWatch, map_event: F) -> Self {
        WatchedCall { call, watch, map_event }
    }
}

impl<F: FnMut(ExchangeEvent) -> ExchangeEvent + Unpin> Stream for WatchedCall<F> {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        let this = self.get_mut();
        let Some(event) = ready!(this.call.poll_next_unpin(cx)) else { return Poll::Ready(None) };
        match &event {
            ExchangeEvent::Done(end) => this.watch.record_end(end, this.call.revision()),
            ExchangeEvent::InputRequired(_) => this.watch.asked_for_input = true,
            ExchangeEvent::Notification(_) => {}
        }
        Poll::Ready(Some((this.map_event)(event)))
    }
}
