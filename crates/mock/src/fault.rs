//! Faults: what goes wrong, and when.
//!
//! Owns the names of faults and their counters. Does not carry them out: the engine and the
//! transports do. Invariant: a fault strikes only the requests it names, after those it lets pass,
//! as often as it says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Fault: the requests that it strikes, and its action.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultRule {
    /// Method, `tools/call:NAME` for one tool, or `*`.
    #[serde(default = "FaultRule::everything")]
    pub on: String,
    /// Requests that pass before the first strike.
    #[serde(default)]
    pub after: u64,
    /// Number of strikes. 0 means always.
    #[serde(default)]
    pub times: u64,
    /// Action on a strike.
    #[serde(flatten)]
    pub act: FaultAction,
}

/// Action of a fault. Those about HTTP do nothing over stdio.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are explained with their variant")]
pub enum FaultAction {
    /// Delays the response by `ms` milliseconds.
    Delay { ms: u64 },
    /// Sends no response, ever.
    Hang,
    /// Exits with `code` (default 3) instead of answering. Over HTTP it resets the connection.
    Exit {
        #[serde(default = "FaultAction::three")]
        code: i32,
    },
    /// Answers with this JSON-RPC error.
    Error { code: i64, message: String },
    /// Answers with this result, JSON text sent as written.
    Result { json: String },
    /// Answers with this HTTP status. Without `body`, the response has no JSON-RPC.
    Status {
        status: u16,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        body: String,
        #[serde(default)]
        content_type: Option<String>,
    },
    /// Answers with this body as `application/json` over HTTP 200, or with this line over stdio.
    /// `{id}` stands for the request's id as written.
    Body { text: String },
    /// Answers correctly under this content type.
    ContentType { value: String },
    /// Closes the connection instead of answering.
    Close,
    /// Resets the connection instead of answering.
    Reset,
    /// Begins an event stream and ends it without the response.
    Cut,
    /// Answers with another id than the request's.
    WrongId,
    /// Answers twice.
    Duplicate,
    /// Adds `bytes` bytes of padding to the result.
    Huge { bytes: usize },
    /// Writes this text as one line to stdout before the response. `{id}` stands for the request's
    /// id, `{token}` for its progress token.
    Garbage { text: String },
    /// Writes these bytes to stdout before the response, without a line break after them. Each
    /// character up to U+00FF is one byte. `{id}` stands for the request's id.
    Bytes { text: String },
    /// Writes `bytes` bytes without a line break to stdout, then a line break, before the response.
    Unending { bytes: usize },
    /// Writes this text `count` times before the response, each time as a message. `{id}` stands
    /// for the request's id, `{token}` for its progress token, `{n}` for the message's number from
    /// 1.
    Flood { text: String, count: u64 },
    /// Forgets every session first.
    DropSessions,
    /// Writes `bytes` bytes to stderr before the response.
    Stderr { bytes: usize },
}

impl FaultAction {
    fn three() -> i32 {
        3
    }
}

impl FaultRule {
    fn everything() -> String {
        "*".into()
    }

    /// Creates a fault that strikes every request of this method (see [`FaultRule::on`]).
    #[must_use]
    pub fn on(method: &str, act: FaultAction) -> Self {
        Self {
            on: method.into(),
            after: 0,
            times: 0,
            act,
        }
    }

    /// Lets `n` requests pass first.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.after = n;
        self
    }

    /// Strikes `n` times only.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    fn names(&self, method: &str, tool: Option<&str>) -> bool {
        // Only `tools/call` has targets. No method name has a colon in it.
        match self.on.split_once(':') {
            Some((m, t)) => m == method && Some(t) == tool,
            None => self.on == "*" || self.on == method,
        }
    }
}

/// Faults, each with the number of requests that matched it.
#[derive(Debug, Default)]
pub(super) struct ArmedFaults(Vec<(FaultRule, u64)>);

impl ArmedFaults {
    pub(super) fn new(faults: &[FaultRule]) -> Self {
        Self(faults.iter().map(|f| (f.clone(), 0)).collect())
    }

    pub(super) fn add(&mut self, fault: FaultRule) {
        self.0.push((fault, 0));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts this request, and returns the faults that strike it in the order of the script.
    pub(super) fn strike(&mut self, method: &str, tool: Option<&str>) -> Vec<FaultAction> {
        let mut acts = Vec::new();
        for (fault, met) in &mut self.0 {
            if !fault.names(method, tool) {
                continue;
            }
            // Counted for each fault alone: one that lets requests pass must not depend on the
            // others.
            *met += 1;
            if *met > fault.after && (fault.times == 0 || *met <= fault.after + fault.times) {
                // Several may strike at once, such as a delay before a broken body.
                acts.push(fault.act.clone());
            }
        }
        acts
    }
}
