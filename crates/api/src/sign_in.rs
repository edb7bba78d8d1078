//! Sign-in: the body of `/api/v1/signin`, and the answers of `/api/v1/signin`, `/api/v1/signout`,
//! `/api/v1/tickets` and `/api/v1/me`.
//!
//! Owns the JSON fields. Does not check keys. Invariant: the only answer with a secret is the one
//! that contains a ticket.

use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/signin`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SignInRequest {
    /// Key of `admin.keys`.
    Key(String),
    /// Ticket of `POST /api/v1/tickets`.
    Ticket(String),
}

/// Operator that sent the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SignedInOperator {
    /// Name of the key. `None` without keys.
    pub name: Option<String>,
    /// Role: `view` or `operate`.
    pub role: String,
    /// Proof that the request came with: `loopback`, `key` or `session`.
    pub by: String,
    /// True if operators need keys.
    pub keys: bool,
}

/// Report of a sign-out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
#[allow(missing_docs)]
pub struct SignOutReport {
    pub outcome: String,
}

/// Ticket that signs a browser in once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SignInTicket {
    /// Ticket itself.
    pub ticket: String,
    /// Path of the page that accepts it.
    pub path: String,
    /// Seconds until it expires.
    pub expires_seconds: u64,
}
