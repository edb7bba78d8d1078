//! Probe reports: how a server answers that is not configured yet.
//!
//! Owns the types. Does not connect (`src/app/`). Invariant: a report contains names and numbers,
//! but no tool definitions.

/// Outcome of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeReport {
    /// The server answered.
    Answered(ProbeAnswer),
    /// The server needs a login: the sentence for it.
    NeedsLogin(String),
    /// The server cannot be used.
    Failed {
        /// Reason.
        message: String,
        /// Way out, for people.
        hint: String,
    },
}

/// Answers of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Transport, as in the status.
    pub transport: &'static str,
    /// Revision that it speaks.
    pub revision: &'static str,
    /// Name that it gives itself.
    pub name: Option<String>,
    /// Version that it gives itself.
    pub version: Option<String>,
    /// Number of tools.
    pub tools: usize,
    /// Size of their definitions, in bytes.
    pub tool_bytes: usize,
    /// Names of the first tools.
    pub tool_names: Vec<String>,
}
