//! What goes wrong, and when.
//!
//! Owns the words for faults and the counting of their turns. Does not own doing them: the engine and the transports
//! do. Invariant: a fault strikes only the requests it names, after those it lets pass, as often as it says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A fault: which requests it strikes, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultRule {
    /// A method, `tools/call:NAME` for one tool, or `*`.
    #[serde(default = "FaultRule::everything")]
    pub on: String,
    /// Lets so many requests pass first.
    #[serde(default)]
    pub after: u64,
    /// Strikes so many times; 0 for always.
    #[serde(default)]
    pub times: u64,
    /// What it does.
    #[serde(flatten)]
    pub act: FaultAction,
}

/// What a fault does. Over stdio the ones about HTTP do nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs, reason = "fields are explained with their variant")]
pub enum FaultAction {
    /// Answers `ms` milliseconds late.
    Delay { ms: u64 },
    /// Never answers.
    Hang,
    /// Exits with `code` (default 3) instead of answering; over HTTP the connection is reset.
    Exit {
        #[serde(default = "FaultAction::three")]
        code: i32,
    },
    /// Answers with this JSON-RPC error.
    Error { code: i64, message: String },
    /// Answers with this result: JSON text, sent as written.
    Result { json: String },
    /// Answers with this HTTP status, and nothing of JSON-RPC unless `body` is.
    Status {
        status: u16,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        body: String,
        #[serde(default)]
        content_type: Option<String>,
    },
    /// Answers with this body as `application/json` over HTTP 200; over stdio, with this line. `{id}` in it is the
    /// request's id as it was written.
    Body { text: String },
    /// Answers correctly, but calls it this content type.
    ContentType { value: String },
    /// Closes the connection instead of answering.
    Close,
    /// Resets the connection instead of answering.
    Reset,
    /// Begins a stream of events and ends it without the answer.
    Cut,
    /// Answers another id than the one asked.
    WrongId,
    /// Answers twice.
    Duplicate,
    /// Adds `bytes` bytes of padding to the result.
    Huge { bytes: usize },
    /// Writes this text (a line of its own) to stdout before the answer; `{id}` in it is the request's id, `{token}` its
    /// progress token.
    Garbage { text: String },
    /// Writes these bytes, each a character up to U+00FF, to stdout before the answer, and no line break after them;
    /// `{id}` in it is the request's id.
    Bytes { text: String },
    /// Writes `bytes` bytes without a line break to stdout, and then one, before the answer.
    Unending { bytes: usize },
    /// Writes this text `count` times, each a message of its own, before the answer; `{id}` in it is the request's id,
    /// `{token}` its progress token and `{n}` the message's number, from 1.
    Flood { text: String, count: u64 },
    /// Forgets every session first.
    DropSessions,
    /// Writes `bytes` bytes to stderr before the answer.
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

    /// A fault that strikes every request of this method (see [`Fault::on`]).
    #[must_use]
    pub fn on(method: &str, act: FaultAction) -> Self {
        Self { on: method.into(), after: 0, times: 0, act }
    }

    /// The same, letting `n` requests pass first.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.after = n;
        self
    }

    /// The same, striking `n` times only.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    fn names(&self, method: &str, tool: Option<&str>) -> bool {
        match self.on.split_once(':') {
            Some((m, t)) => m == method && Some(t) == tool,
            None => self.on == "*" || self.on == method,
        }
    }
}

/// Faults and how often each has been met.
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

    /// The faults that strike this request, in the order of the script.
    pub(super) fn strike(&mut self, method: &str, tool: Option<&str>) -> Vec<FaultAction> {
        let mut acts = Vec::new();
        for (fault, met) in &mut self.0 {
            if !fault.names(method, tool) {
                continue;
            }
            *met += 1;
            if *met > fault.after && (fault.times == 0 || *met <= fault.after + fault.times) {
                acts.push(fault.act.clone());
            }
        }
        acts
    }
}
