//! Keys of clients and of operators: the answer of `/api/v1/keys`, the body that makes one, and
//! both reports (new, removed).
//!
//! Owns the JSON fields. Does not make keys. Invariant: a key is only in the report of a new one;
//! no list has more than the first digits of its hash.

use serde::{Deserialize, Serialize};

use crate::config_change::ChangeReport;

/// Keys that are in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct KeyLists {
    pub clients: Vec<ClientKey>,
    pub operators: Vec<OperatorKey>,
}

/// Key of a client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientKey {
    /// Name of the key.
    pub name: String,
    /// First digits of its hash.
    pub hash_prefix: String,
    /// Views and servers that it gives access to. `None`: all.
    pub views: Option<Vec<String>>,
    /// Patterns of tools that it may call. `None`: all.
    pub tools: Option<Vec<String>>,
    /// Call rate, such as `100/1m`. `None`: the general rate.
    pub rate: Option<String>,
    /// Time of its end.
    pub expires: Option<String>,
    /// True if it has ended.
    pub expired: bool,
    /// Time of its last call since startup.
    pub last_used: Option<String>,
    /// Place of its entry.
    #[serde(flatten)]
    pub place: KeyPlace,
}

/// Key of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct OperatorKey {
    /// Name of the key.
    pub name: String,
    /// Role: `view` or `operate`.
    pub role: String,
    /// First digits of its hash.
    pub hash_prefix: String,
    /// Time of its last request since startup.
    pub last_used: Option<String>,
    /// Place of its entry.
    #[serde(flatten)]
    pub place: KeyPlace,
}

/// Place of a key's entry in the config, and whether it can be edited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct KeyPlace {
    /// File with the entry.
    pub file: Option<String>,
    /// Line in the file.
    pub line: Option<usize>,
    /// True if the API can edit the entry.
    pub editable: bool,
    /// Reason why it cannot.
    pub why_not: Option<String>,
}

/// List of keys, as a request names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum KeyListName {
    #[default]
    Clients,
    Operators,
}

impl KeyListName {
    /// Returns the name as requests have it.
    pub fn name(self) -> &'static str {
        match self {
            KeyListName::Clients => "clients",
            KeyListName::Operators => "operators",
        }
    }
}

/// Body of `POST /api/v1/keys`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// Name of the key.
    pub name: String,
    /// List to add it to.
    #[serde(default)]
    pub list: KeyListName,
    /// Role, for operators.
    pub role: Option<String>,
    /// Views and servers that it gives access to.
    pub views: Option<Vec<String>>,
    /// Patterns of tools that it may call.
    pub tools: Option<Vec<String>>,
    /// Call rate, such as `100/1m`.
    pub rate: Option<String>,
    /// Time of its end.
    pub expires: Option<String>,
}

/// Answer with a new key. No other answer contains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NewKeyReport {
    /// Change of the config.
    #[serde(flatten)]
    pub change: ChangeReport,
    /// True if nobody needed a key before.
    pub first_key: bool,
    /// Name of the key.
    pub name: String,
    /// Key itself.
    pub key: String,
}

/// Answer to the removal of a key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct KeyRemovalReport {
    /// Change of the config.
    #[serde(flatten)]
    pub change: ChangeReport,
    /// True if its list is empty now.
    pub last_key: bool,
    /// True if clients need no key now.
    pub open: bool,
}
