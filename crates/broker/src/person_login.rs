//! Person's login, as operators see it.
//!
//! Owns only the members. Does not keep logins (`login_store.rs`). Invariant: nothing here is
//! secret.

use jiff::Timestamp;
use moongate_model::PrincipalKey;

use crate::login_id::LoginId;

/// Person's login with one client.
#[derive(Clone, Debug)]
pub struct PersonLogin {
    /// Id, with which an operator ends it.
    pub id: LoginId,
    /// Identity of the person. All logins of one person share it.
    pub mark: PrincipalKey,
    /// Name for logs and lists.
    pub name: String,
    /// Current roles of the person.
    pub roles: Vec<String>,
    /// Name that the client chose.
    pub client: String,
    /// Endpoint that its tokens open. Empty: all servers.
    pub endpoint: String,
    /// Time at which the person logged in.
    pub since: Timestamp,
    /// Time of the last use, to a minute.
    pub last_used: Timestamp,
    /// Time at which the company's login last confirmed the person.
    pub checked: Timestamp,
    /// Number of refresh tokens that were sent again and got the same successor.
    pub replays: u32,
}
