//! People's logins at the gateway: the responses of `/api/v1/people`.
//!
//! Owns the JSON fields. Does not end logins. Invariant: they contain no token, and nothing from
//! which one could be made.

use serde::{Deserialize, Serialize};

use crate::api_error::ApiError;

/// People's logins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeopleList {
    /// Logins, the last one used first.
    pub logins: Vec<PersonItem>,
    /// Problems with the company's login, in words for people.
    pub findings: Vec<String>,
}

/// Person's login with one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PersonItem {
    /// Id of the login, which no client can use.
    pub id: String,
    /// Name of the person: the email address if it is verified.
    pub name: String,
    /// Roles of the person.
    pub roles: Vec<String>,
    /// Name that the client chose.
    pub client: String,
    /// Path of the endpoint.
    pub endpoint: String,
    /// Time of the login.
    pub since: String,
    /// Time of its last use.
    pub last_used: String,
    /// Time when the company's login last confirmed the person.
    pub checked: String,
    /// Number of refresh tokens that were sent again.
    pub replays: u32,
}

/// Report of ended logins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RevokeReport {
    /// Number of logins that ended.
    pub ended: usize,
    /// False if a login ended only in memory, so that a restart would restore it.
    pub on_disk: bool,
    /// Text for people, if a login ended only in memory.
    pub message: Option<String>,
}

/// Refusal to end logins, because several people have the name.
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
