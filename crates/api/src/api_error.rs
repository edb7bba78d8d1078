//! Errors of the admin API.
//!
//! Owns the JSON fields. Does not choose a status. Invariant: each has a code for programs and a
//! message for people. Only `UnreadableText` may lack the message.

use serde::{Deserialize, Serialize};

use crate::config_change::ConfigProblemRow;
use crate::server_preview::TextProblem;
use crate::server_status::ServerStatus;

/// Error of any route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ApiError {
    /// Code for programs.
    pub error: String,
    /// Text for people.
    pub message: String,
}

/// Refusal of an edit. Nothing was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EditRefusal {
    /// Error itself.
    #[serde(flatten)]
    pub error: ApiError,
    /// Setting that decides.
    pub setting: Option<String>,
    /// Lines to paste into the file instead.
    pub snippet: Option<String>,
    /// Problems that the new config would have.
    pub problems: Vec<ConfigProblemRow>,
    /// Current contents, if the client did not know them. `None` for other reasons.
    #[serde(flatten)]
    pub current: Option<CurrentFile>,
}

/// Contents of a file that are not the expected ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CurrentFile {
    /// Tag of the contents.
    pub etag: String,
    /// Servers as they are.
    pub servers: Vec<ServerStatus>,
}

/// Refusal of a text that has no servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct UnreadableText {
    /// Code for programs.
    pub error: String,
    /// First problem.
    pub message: Option<String>,
    /// All problems.
    pub problems: Vec<TextProblem>,
}
