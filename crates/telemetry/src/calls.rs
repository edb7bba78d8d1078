//! Call log: one structured line for each call. Owns which calls are logged and the fields of a
//! line.
//!
//! Does not follow calls (`gateway`). Invariant: a line has names, sizes and times, never an
//! argument or a result.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::{CallEnding, logs};
use moongate_jsonrpc::json::RawJson;

/// Maximum length of a client's text in a line, in characters.
const CLIENT_TEXT_MAX: usize = 100;

/// Selection of the calls that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallLog {
    /// No calls.
    Off,
    /// Calls that failed, and tools that returned an error.
    #[default]
    Errors,
    /// Every call.
    All,
}

/// Selection that can change at run time.
#[derive(Debug, Default)]
pub struct CallLogSwitch(AtomicU8);

impl CallLogSwitch {
    /// Creates a switch with its first selection.
    pub fn new(calls: CallLog) -> Self {
        CallLogSwitch(AtomicU8::new(calls as u8))
    }

    /// Changes the selection for calls that end from now on.
    pub fn set(&self, calls: CallLog) {
        // Relaxed: a call that ends at the same moment may use either selection.
        self.0.store(calls as u8, Ordering::Relaxed);
    }

    /// True if any call is logged.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) != CallLog::Off as u8
    }

    /// True if successful and cancelled calls are logged as well.
    pub fn is_for_all(&self) -> bool {
        self.0.load(Ordering::Relaxed) == CallLog::All as u8
    }

    /// True if a call with this ending is logged.
    pub fn records(&self, ending: CallEnding) -> bool {
        // Most calls succeed, and then one load of the switch decides.
        self.is_for_all() || ending.is_error() && self.is_on()
    }
}

/// Facts about a finished call.
pub struct CallRecord<'a> {
    /// Method, if the protocol defines it.
    pub method: &'a str,
    /// Name of the principal in the config.
    pub principal: &'a str,
    /// Client's own description, from `clientInfo`.
    pub client: Option<&'a RawJson>,
    /// Revision that the client speaks.
    pub revision: &'a str,
    /// Endpoint of the client. Empty for the one of all servers.
    pub endpoint: &'a str,
    /// Server of the call. Empty if it reached none.
    pub server: &'a str,
    /// Tool or prompt. Empty if there is none.
    pub tool: &'a str,
    /// Outcome in a word: `ok`, or the kind of failure.
    pub outcome: &'a str,
    /// JSON-RPC code of an error response.
    pub code: &'a str,
    /// Time from the call's arrival to its end.
    pub duration: Duration,
    /// Size of the params, in bytes.
    pub request_bytes: usize,
    /// Size of the result, in bytes.
    pub response_bytes: usize,
}

/// Returns the path of an endpoint by its name: that of a server or a view, or empty for all
/// servers.
fn endpoint_path(name: &str) -> Cow<'static, str> {
    match name {
        "" => Cow::Borrowed("/mcp"),
        name => Cow::Owned(format!("/mcp/{name}")),
    }
}

impl CallRecord<'_> {
    /// Writes the log line.
    pub fn write(&self) {
        tracing::info!(
            target: "moongate::calls",
            method = self.method,
            principal = self.principal,
            client = self.client.and_then(client_name).unwrap_or_default(),
            revision = self.revision,
            endpoint = &*endpoint_path(self.endpoint),
            server = self.server,
            tool = cut_text(self.tool),
            outcome = self.outcome,
            code = self.code,
            // From microseconds, since many calls take less than a millisecond.
            duration_ms = self.duration.as_micros() as f64 / 1000.0,
            request_bytes = self.request_bytes as u64,
            response_bytes = self.response_bytes as u64,
            "call ended"
        );
    }
}

/// Returns the name and the version that a client gives in `clientInfo`.
fn client_name(info: &RawJson) -> Option<String> {
    let info = info.as_object()?;
    let [name, version] =
        ["name", "version"].map(|key| info.get_string(key).map(|text| cut_text(&text)));
    let name = format!(
        "{} {}",
        name.unwrap_or_default(),
        version.unwrap_or_default()
    );
    Some(name.trim().to_owned())
}

/// Cuts a text that a client or a server chose, and keeps it within one line.
fn cut_text(text: &str) -> String {
    logs::one_line(text).chars().take(CLIENT_TEXT_MAX).collect()
}
