//! Events of one operator's call, from its start to its end.
//!
//! Owns their bytes and bounds. Does not know routes or callers. Invariant: the last event is
//! `done`. A stream that is dropped cancels its call.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::stream::{self, Stream};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::running::TryEntry;
use crate::admin_state::AdminState;
use crate::calls::call_row;
use crate::key_check::AccessGrant;
use crate::time_format::milliseconds;
use moongate_access::auth::AdminAccess;
use moongate_api::{TryDone, TryNotice, TryQuestion, TryStarted};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{
    Error, Exchange, ExchangeEvent, InputKind, InputRequired, McpErrorKind, Notification, Outcome,
    Principal,
};

/// Longest time of a call.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Interval of the check whether the permission still holds. A comment is sent then, too.
const PERMISSION_INTERVAL: Duration = Duration::from_millis(500);
/// Progress and log messages that are passed on. Later ones are left out.
const NOTIFICATIONS_MAX: usize = 2000;
/// Longest notification, in bytes.
const NOTIFICATION_MAX: usize = 64 * 1024;
/// Longest result, in bytes.
const RESULT_MAX: usize = 8 << 20;

/// Call and what was not sent of its events.
struct TryStream {
    admin: Arc<AdminState>,
    grant: AccessGrant,
    access: Arc<AdminAccess>,
    entry: TryEntry,
    /// Events of the call. `None` once it ended.
    exchange: Option<Exchange>,
    queue: VecDeque<Bytes>,
    notifications: usize,
    received: Instant,
    /// Time of the next check whether the permission still holds.
    check_at: Instant,
}

/// Returns the events of a call as the body of a response.
pub(super) fn event_stream(
    (admin, grant): (Arc<AdminState>, AccessGrant),
    entry: TryEntry,
    exchange: Exchange,
    received: Instant,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let started = encode(
        "started",
        &TryStarted {
            id: entry.id.clone(),
        },
    );
    let access = admin.access.load_full();
    let queue = VecDeque::from([started]);
    let exchange = Some(exchange);
    let check_at = Instant::now() + PERMISSION_INTERVAL;
    let stream = TryStream {
        admin,
        grant,
        access,
        entry,
        exchange,
        queue,
        notifications: 0,
        received,
        check_at,
    };
    stream::unfold(stream, |mut stream| async {
        let bytes = stream.next_bytes().await?;
        Some((Ok(bytes), stream))
    })
}

impl TryStream {
    /// Waits for the next bytes. Returns `None` at the end.
    async fn next_bytes(&mut self) -> Option<Bytes> {
        let cancelled = self.entry.cancelled.clone();
        loop {
            if let Some(bytes) = self.queue.pop_front() {
                return Some(bytes);
            }
            let exchange = self.exchange.as_mut()?;
            tokio::select! {
                // `biased`: a server that never stops reporting can still be stopped.
                biased;
                () = cancelled.cancelled() => self.break_off("The call was stopped"),
                () = tokio::time::sleep_until(self.received + TIME_MAX) => {
                    self.break_off("The call took longer than 15 minutes");
                }
                // A time, and before the events: a server that reports often must not put the check
                // off.
                () = tokio::time::sleep_until(self.check_at) => {
                    self.check_at = Instant::now() + PERMISSION_INTERVAL;
                    // A reload replaces the keys as a whole.
                    match Arc::ptr_eq(&self.access, &self.admin.access.load()) {
                        true if self.grant.is_open(&self.admin) => {
                            self.queue.push_back(Bytes::from_static(b": \n\n"));
                        }
                        true => self.break_off("The operator's session ended"),
                        false => self.break_off("The operator keys changed"),
                    }
                }
                event = exchange.next_event() => self.on_event(event),
            }
        }
    }

    fn on_event(&mut self, event: ExchangeEvent) {
        match event {
            ExchangeEvent::Notification(Notification::Progress(params)) => {
                self.notify("progress", &params)
            }
            ExchangeEvent::Notification(Notification::Log(_, params)) => {
                self.notify("log", &params)
            }
            ExchangeEvent::Notification(_) => {}
            ExchangeEvent::InputRequired(asked) => self.ask(asked),
            ExchangeEvent::Done(end) => self.finish(&end),
        }
    }

    fn notify(&mut self, kind: &str, params: &JsonObject) {
        self.notifications += 1;
        // Left out, and no end of the call: its result is what people wait for.
        if self.notifications > NOTIFICATIONS_MAX || params.size_hint() > NOTIFICATION_MAX {
            return;
        }
        self.queue.push_back(encode(kind, &as_value(params)));
    }

    fn ask(&mut self, asked: InputRequired) {
        let (open, refused) = self.entry.open_round(asked);
        for (id, request) in open {
            let kind = if request.kind == InputKind::ElicitUrl {
                "url"
            } else {
                "form"
            };
            let data = TryQuestion {
                ask: id,
                kind: kind.to_owned(),
                params: as_value(&request.params),
            };
            self.queue.push_back(encode("ask", &data));
        }
        // Shown to people, or a tool that needs a model would fail without a visible reason.
        for method in refused {
            let text = format!("The server sent {method}, which is not supported here");
            let notice = TryNotice {
                level: "notice".to_owned(),
                logger: "moongate".to_owned(),
                data: text,
            };
            self.queue.push_back(encode("log", &notice));
        }
    }

    fn break_off(&mut self, why: &'static str) {
        // Dropping the exchange cancels the call at its server, and records that.
        self.exchange = None;
        self.finish(&Err(Error::new(McpErrorKind::Cancelled, why)));
    }

    fn finish(&mut self, end: &Result<Outcome, Error>) {
        self.exchange = None;
        let mut done = TryDone {
            id: self.entry.id.clone(),
            ms: milliseconds(self.received.elapsed()),
            own_ms: self.own_time(),
            ..TryDone::default()
        };
        let outcome = match end {
            Ok(outcome) => {
                let bytes = outcome.result.bytes();
                done.bytes = Some(bytes.len());
                match std::str::from_utf8(&bytes) {
                    // A text within the JSON: a browser that parsed the result would round its
                    // large numbers.
                    Ok(text) if text.len() <= RESULT_MAX => done.result = Some(text.to_owned()),
                    _ => done.error = Some(format!("The result has more than {RESULT_MAX} bytes")),
                }
                match outcome.is_tool_error() {
                    true => "tool_error",
                    false => "ok",
                }
            }
            Err(error) => {
                done.error = Some(reason(error));
                if error.kind == McpErrorKind::Cancelled {
                    "cancelled"
                } else {
                    "error"
                }
            }
        };
        done.outcome = outcome.to_owned();
        self.queue.push_back(encode("done", &done));
    }

    /// Returns the gateway's own part of the time, from the record of the call.
    fn own_time(&self) -> Option<f64> {
        let recent = self.admin.gateway.recent_calls().changed_since(0);
        // The table of recent calls is bounded and may have lost this one. Then the time is
        // unknown.
        let own = recent.iter().find(|call| {
            call.facts.principal.id == Principal::OPERATOR && call.facts.received == self.received
        })?;
        call_row(own).own_ms
    }
}

/// Returns why a call failed. A server that misses a capability names what the page cannot have.
fn reason(error: &Error) -> String {
    let why = if moongate_protocol::lacks_capability(error) {
        ": not supported here, because the page has no model (sampling) and no roots"
    } else {
        ""
    };
    format!("{}{why}", error.message)
}

fn as_value(object: &JsonObject) -> Value {
    serde_json::from_slice(&object.bytes()).unwrap_or_default()
}

fn encode(event: &str, data: &impl Serialize) -> Bytes {
    // JSON that was written here has no line breaks. Fails only for maps whose keys are not
    // strings, and there are none.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {event}\ndata: {data}\n\n").into()
}
