//! Popular servers: the answer of `/api/v1/popular`.
//!
//! Owns the JSON fields. Does not own the table. Invariant: no entry has a secret.

use serde::{Deserialize, Serialize};

/// Popular servers, and which of them the config has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct PopularList {
    pub servers: Vec<ListedPopular>,
}

/// Popular server, and whether the config has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ListedPopular {
    /// Server itself.
    #[serde(flatten)]
    pub server: PopularRow,
    /// True if the config has it.
    pub added: bool,
}

/// Popular server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PopularRow {
    /// Name, which is also the name in the config unless the user gives another.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// End of the sentence "is for ...".
    pub purpose: String,
    /// URL of a remote server.
    pub url: Option<String>,
    /// Program of a local server.
    pub command: Option<String>,
    /// Arguments of the program, with placeholders for those that the user gives.
    pub args: Vec<String>,
    /// Arguments that the user gives, in their order.
    pub arguments: Vec<PopularArgumentRow>,
    /// Name with its arguments, as they are typed.
    pub usage: String,
    /// Key that the server accepts.
    pub key: Option<PopularKeyRow>,
    /// Number of its tools when it was probed.
    pub tools: Option<u32>,
    /// Day of the last successful probe.
    pub probed: Option<String>,
    /// True if that is long ago.
    pub stale: bool,
}

/// Argument that the user gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PopularArgumentRow {
    /// Name, in capitals.
    pub name: String,
    /// Meaning, as "the folder that ...".
    pub purpose: String,
    /// True if it is the path of a folder.
    pub folder: bool,
    /// True if it may be given several times.
    pub repeats: bool,
}

/// Key that a server accepts in a header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PopularKeyRow {
    /// Name of the header.
    pub header: String,
    /// Value of the header, with a reference to the variable.
    pub value: String,
    /// Variable with the key.
    pub variable: String,
    /// True if nothing works without it.
    pub required: bool,
}
