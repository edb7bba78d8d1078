//! Findings of the checks: the answer of `/api/v1/doctor`.
//!
//! Owns the JSON fields. Does not look for problems. Invariant: a finding names its fix.

use serde::{Deserialize, Serialize};

/// Findings, the worst first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct FindingList {
    pub findings: Vec<Finding>,
}

/// Problem that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Finding {
    /// Code to search for.
    pub code: String,
    /// Weight of the finding.
    pub severity: FindingSeverity,
    /// Title of the code.
    pub title: String,
    /// Server that it is about.
    pub server: Option<String>,
    /// Description of the problem.
    pub message: String,
    /// Place in a file, if there is one.
    pub place: Option<String>,
    /// Reason why it matters.
    pub why: String,
    /// Command or line that fixes it.
    pub fix: String,
    /// General remedy of the code.
    pub remedy: String,
    /// True if `moongate doctor --fix` can fix it.
    pub can_fix: bool,
}

/// Weight of a finding. The worst comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// Something does not work.
    Broken,
    /// Something works, but probably not as intended.
    #[default]
    Warning,
}

impl FindingSeverity {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            FindingSeverity::Broken => "broken",
            FindingSeverity::Warning => "warning",
        }
    }
}
