//! Logins of people at the gateway: the answers of `/api/v1/people`.
//!
//! Owns the JSON fields. Does not end logins. Invariant: no token, and nothing that a token could
//! be made of, is among them.

use serde::{Deserialize, Serialize};

use crate::api_error::ApiError;

/// Logins of people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeopleList {
    /// Logins, the last one used first.
    pub logins: Vec<PersonItem>,
    /// Problems of the company's login, for people.
    pub findings: Vec<String>,
}

/// Login of a person with one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PersonItem {
    /// Id of the login, which no client can use.
    pub id: String,
    /// Name of the person: an email address if it is a verified one.
    pub name: String,
    /// Roles of the person.
    pub roles: Vec<String>,
    /// Client, as it calls itself.
    pub client: String,
    /// Path of the endpoint.
    pub endpoint: String,
    /// Time of the login.
    pub since: String,
    /// Time of its last use.
    pub last_used: String,
    /// Time when the company's login last confirmed the person.
    pub checked: String,
    /// Number of refresh tokens that came again.
    pub replays: u32,
}

/// Report of ended logins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RevokeReport {
    /// Number of logins that ended.
    pub ended: usize,
    /// False if an end is only in memory, so that a restart would bring the login back.
    pub on_disk: bool,
    /// Text for people, if an end is only in memory.
    pub message: Option<String>,
}

/// Refusal to end logins, since a name belongs to several people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SeveralPeople {
    /// Error itself.
    #[serde(flatten)]
    pub error: ApiError,
    /// Their logins, whose ids can be used instead.
    pub logins: Vec<PersonItem>,
}
