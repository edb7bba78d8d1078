//! Login of a person, as operators see it.
//!
//! Owns the members alone. Does not keep logins (`login_store.rs`). Invariant: nothing here is a
//! secret.

use jiff::Timestamp;
use moongate_model::PrincipalKey;

use crate::login_id::LoginId;

/// Login of a person with one client.
#[derive(Clone, Debug)]
pub struct PersonLogin {
    /// Id, by which an operator ends it.
    pub id: LoginId,
    /// Identity of the person. Several logins of one person have the same.
    pub mark: PrincipalKey,
    /// Name for logs and lists.
    pub name: String,
    /// Roles that the person has now.
    pub roles: Vec<String>,
    /// Name of the client, as the client itself has it.
    pub client: String,
    /// Endpoint that its tokens open. Empty for the endpoint over everything.
    pub endpoint: String,
    /// Time at which the person logged in.
    pub since: Timestamp,
    /// Time of the last use, to a minute.
    pub last_used: Timestamp,
    /// Time at which the company's login last confirmed the person.
    pub checked: Timestamp,
    /// Number of refresh tokens that came a second time and got the same successor.
    pub replays: u32,
}
