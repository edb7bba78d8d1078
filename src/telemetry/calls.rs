//! The record of calls: one structured line for each.
//!
//! Owns which calls are recorded and how a line looks. Does not follow calls (`gateway`). Invariant: a line has names,
//! sizes and times, never an argument or a result.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::json::RawJson;
use crate::telemetry::{CallEnding, logs};

/// Longest text of a client's in a line, in characters.
const CLIENT_TEXT_MAX: usize = 100;

/// Calls that are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallLog {
    /// None.
    Off,
    /// Those that failed, or whose tool says so.
    #[default]
    Errors,
    /// All.
    All,
}

/// The setting, while it can change.
#[derive(Debug, Default)]
pub struct CallLogSwitch(AtomicU8);

impl CallLogSwitch {
    /// A switch that is set.
    pub fn new(calls: CallLog) -> Self {
        CallLogSwitch(AtomicU8::new(calls as u8))
    }

    /// Changes what is recorded from now on.
    pub fn set(&self, calls: CallLog) {
        self.0.store(calls as u8, Ordering::Relaxed);
    }

    /// Whether any call is recorded.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) != CallLog::Off as u8
    }

    /// Whether calls are recorded that went well, or were given up.
    pub fn is_for_all(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CallLog::All as u8
    }

    /// Whether a call that ended so is recorded.
    pub fn records(&self, ending: CallEnding) -> bool {
        self.is_for_all() || ending.is_error() && self.is_on()
    }
}

/// A call that ended.
pub struct CallRecord<'a> {
    /// The method, if it is one of the protocol's.
    pub method: &'a str,
    /// Who called, by the config's name.
    pub principal: &'a str,
    /// What the client says of itself.
    pub client: Option<&'a RawJson>,
    /// The client's revision.
    pub revision: &'a str,
    /// The endpoint; empty for the one over everything.
    pub endpoint: &'a str,
    /// The server; empty where the call led to none.
    pub server: &'a str,
    /// The tool or prompt; empty where there is none.
    pub tool: &'a str,
    /// The end in a word: `ok`, or what went wrong.
    pub outcome: &'a str,
    /// The JSON-RPC code of the answer, if it was an error.
    pub code: &'a str,
    /// From its arrival to its end.
    pub duration: Duration,
    /// Bytes of its params.
    pub request_bytes: usize,
    /// Bytes of its result.
    pub response_bytes: usize,
}

impl CallRecord<'_> {
    /// Writes the line.
    pub fn write(&self) {
        let cut = |text: &str| logs::one_line(text).chars().take(CLIENT_TEXT_MAX).collect::<String>();
        let client = self.client.and_then(RawJson::as_object).map(|info| {
            let said = |key| info.get_string(key).map(|text| cut(&text)).unwrap_or_default();
            format!("{} {}", said("name"), said("version")).trim().to_owned()
        });
        tracing::info!(
            target: "moongate::calls",
            method = self.method,
            principal = self.principal,
            client = client.unwrap_or_default(),
            revision = self.revision,
            endpoint = if self.endpoint.is_empty() { "/mcp" } else { self.endpoint },
            server = self.server,
            tool = cut(self.tool),
            outcome = self.outcome,
            code = self.code,
            duration_ms = self.duration.as_micros() as f64 / 1000.0,
            request_bytes = self.request_bytes as u64,
            response_bytes = self.response_bytes as u64,
            "call ended"
        );
    }
}
