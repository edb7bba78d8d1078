//! A call as the gateway sees it: measured, and recorded where the config says so.
//!
//! Owns what a call's end is called in metrics and logs. Does not route (`view`). Invariant: a call is measured once, and
//! nothing is formatted for one that is not recorded.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt};
use tokio::time::Instant;

use crate::gateway::view::View;
use crate::gateway::{Gateway, unrouted_label};
use crate::json::{Object, Raw, Text};
use crate::model::{Call, Caller, Error, Event, Method, Outcome, TaskMethod};
use crate::revision;
use crate::telemetry::{CallRecord, Ending, Meter, ServerHop};
use crate::upstream::ServerCall;

/// A tool that says of itself that it failed.
const TOOL_ERROR: Ending = Ending { error: "tool_error", code: "" };

/// The end of a call, as metrics and logs name it.
fn ending(method: &Method, revision: &'static str, end: &Result<Outcome, Error>) -> Ending {
    match end {
        Ok(outcome) if is_tool_error(method, &outcome.result) => TOOL_ERROR,
        Ok(_) => Ending::FINE,
        Err(error) => revision::ending(revision, method, error),
    }
}

/// 2026-07-28/server/tools.mdx, Error Handling: "Tool Execution Errors: Reported in tool results with `isError: true`".
fn is_tool_error(method: &Method, result: &Object) -> bool {
    matches!(method, Method::CallTool | Method::Task(TaskMethod::End))
        && result.get("isError").is_some_and(|is_error| is_error.bytes() == "true")
}

/// A call that may end before it is sent to a server.
pub(super) struct Asked {
    method: Method,
    received: Instant,
    /// What the client asks for by name, as it spelled it.
    name: Option<Raw>,
    request_bytes: usize,
}

impl Asked {
    pub(super) fn of(call: &Call) -> Self {
        let named = matches!(call.method, Method::CallTool | Method::GetPrompt);
        let name = if named { call.params.get("name").cloned() } else { None };
        let request_bytes = call.params.size_hint();
        Asked { method: call.method.clone(), received: call.received, name, request_bytes }
    }

    /// Measures the call, and records it if it failed.
    pub(super) fn record(self, view: &View, caller: &Caller, end: &Result<Outcome, Error>) {
        let Asked { method, received, name, request_bytes } = self;
        let (ending, took) = (ending(&method, caller.revision, end), received.elapsed());
        view.unrouted(&method).record(caller.revision, ending, took, None);
        // A list comes from memory, and is no call of anything.
        if ending.is_error() && view.gateway.calls.takes(ending) {
            CallRecord {
                method: unrouted_label(&method),
                principal: &caller.principal.name,
                client: caller.info.as_ref(),
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
    meter: Arc<Meter>,
    method: Method,
    endpoint: Text,
    server: Text,
    tool: Text,
    received: Instant,
    sent: Instant,
    request_bytes: usize,
    /// Whether its client was asked something since.
    asked: bool,
    over: bool,
}

impl CallWatch {
    /// For a call that is about to be sent: its meter, its server, and its tool as clients see it.
    pub(super) fn new(
        view: &View,
        caller: &Arc<Caller>,
        call: &Call,
        (meter, server, tool): (Arc<Meter>, Text, Text),
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
            asked: false,
            over: false,
        }
    }

    fn end(&mut self, end: &Result<Outcome, Error>, server_revision: &'static str) {
        self.over = true;
        let now = Instant::now();
        let ending = ending(&self.method, self.caller.revision, end);
        let hop = ServerHop { revision: server_revision, time: now - self.sent };
        self.meter.record(self.caller.revision, ending, now - self.received, Some(hop));
        if self.gateway.calls.takes(ending) {
            let size = end.as_ref().map_or(0, |outcome| outcome.result.size_hint());
            let outcome = if ending.is_error() { ending.error } else { "ok" };
            self.write(outcome, ending.code, now, size);
        }
    }

    fn write(&self, outcome: &str, code: &str, now: Instant, response_bytes: usize) {
        CallRecord {
            method: self.method.label(),
            principal: &self.caller.principal.name,
            client: self.caller.info.as_ref(),
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
        if !self.over && self.gateway.calls.is_for_all() {
            // A stateless client comes back with the answers, in another call.
            let outcome = if self.asked { "input_required" } else { "cancelled" };
            self.write(outcome, "", Instant::now(), 0);
        }
    }
}

/// A call at a server that is watched until its end, whose events are changed on their way.
pub(super) struct WatchedCall<F> {
    call: ServerCall,
    watch: CallWatch,
    change: F,
}

impl<F: FnMut(Event) -> Event + Unpin> WatchedCall<F> {
    pub(super) fn new(call: ServerCall, watch: CallWatch, change: F) -> Self {
        WatchedCall { call, watch, change }
    }
}

impl<F: FnMut(Event) -> Event + Unpin> Stream for WatchedCall<F> {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self.get_mut();
        let Some(event) = ready!(this.call.poll_next_unpin(cx)) else { return Poll::Ready(None) };
        match &event {
            Event::Done(end) => this.watch.end(end, this.call.revision()),
            Event::Ask(_) => this.watch.asked = true,
            Event::Notify(_) => {}
        }
        Poll::Ready(Some((this.change)(event)))
    }
}
