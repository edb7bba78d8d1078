//! Clients that can use the gateway: the answers of `/api/v1/clients` and `/api/v1/connect`.
//!
//! Owns the JSON fields. Does not read clients' files. Invariant: no step has a key.

use serde::{Deserialize, Serialize};

/// Known clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct ClientList {
    pub clients: Vec<ClientRow>,
}

/// Client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientRow {
    /// Id in requests.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Way to connect it.
    pub method: ConnectMethod,
    /// Path of its file, as shown to people.
    pub path: Option<String>,
    /// Longest tool name that it accepts.
    pub name_length: Option<usize>,
    /// Number of tools that it accepts.
    pub tools: Option<usize>,
    /// Latest sign that it uses the gateway.
    pub present: Option<ClientPresence>,
}

/// Way to connect a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConnectMethod {
    /// Entry in its file.
    #[default]
    File,
    /// Text to paste.
    Paste,
    /// Address that the vendor's machines can reach.
    PublicUrl,
    /// None: the client is discontinued.
    Discontinued,
}

/// Sign that a client uses the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientPresence {
    /// Name that it reports.
    pub name: String,
    /// Version that it reports.
    pub version: String,
    /// Age of the sign.
    pub seconds: u64,
}

/// Steps that connect a client to an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConnectSteps {
    /// Id of the client.
    pub client: String,
    /// Name of the endpoint. Empty: all servers.
    pub endpoint: String,
    /// Address of the endpoint.
    pub url: String,
    /// Steps, in order.
    pub steps: Vec<ConnectStep>,
}

/// Step that connects a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ConnectStep {
    /// Kind of the step.
    pub kind: StepKind,
    /// Link, command, part of a file, or sentence.
    pub text: String,
    /// Path of the file.
    pub path: Option<String>,
    /// Language of the text.
    pub language: Option<String>,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Link to open.
    Link,
    /// Command to run.
    Command,
    /// Text of a file.
    File,
    /// Sentence.
    #[default]
    Note,
}
