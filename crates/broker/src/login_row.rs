//! Row of a person's login with one client.
//!
//! Owns when a login expires. Does not keep rows (`login_store.rs`). Invariant: a row contains no
//! token, because tokens only refer to it.

use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use moongate_model::PrincipalKey;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::login_id::LoginId;

/// Time without use after which a login expires.
const IDLE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Client identity, a digest as for people.
pub(crate) type ClientMark = [u8; 16];

/// Returns the identity of a client.
pub(crate) fn client_mark(id: &str) -> ClientMark {
    let digest = digest(&SHA256, id.as_bytes());
    *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Person's login with one client, at one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoginRow {
    /// Identity of the person.
    pub(crate) mark: PrincipalKey,
    /// Identity of the client.
    pub(crate) client: ClientMark,
    /// Name that the client chose, without invisible characters.
    pub(crate) client_name: String,
    /// Endpoint that the login opens. Empty: all servers.
    pub(crate) endpoint: String,
    /// Start of the login.
    pub(crate) since: Timestamp,
    /// Time at which it expires regardless of use.
    pub(crate) ends: Timestamp,
    /// Last use, to the minute.
    pub(crate) last_used: Timestamp,
    /// Number of the newest refresh token.
    pub(crate) generation: u32,
    /// Time at which that token was first issued.
    pub(crate) advanced: Timestamp,
    /// True if that token or an access token with the same number was used.
    pub(crate) is_used: bool,
    /// Number of replays of the refresh token before it.
    pub(crate) replays: u32,
}

impl LoginRow {
    /// Returns the time at which the login expires, unless it is used first.
    pub(crate) fn over_at(&self) -> Timestamp {
        let idle = self.last_used.checked_add(IDLE);
        self.ends.min(idle.unwrap_or(Timestamp::MAX))
    }
}

/// Login that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct LiveLogin {
    /// Id.
    pub(crate) id: LoginId,
    /// Row at the time of the lookup.
    pub(crate) row: LoginRow,
    /// Cancelled when the login ends, or when what it has open does.
    pub(crate) ended: CancellationToken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_over_at_its_end_or_thirty_days_after_its_last_use() {
        let day = |day: i64| Timestamp::from_second(day * 24 * 60 * 60).unwrap();
        let row = |ends: i64, last_used: i64| LoginRow {
            mark: [1; 16],
            client: client_mark("mgc_1"),
            client_name: String::new(),
            endpoint: String::new(),
            since: day(0),
            ends: day(ends),
            last_used: day(last_used),
            generation: 0,
            advanced: day(0),
            is_used: false,
            replays: 0,
        };
        assert_eq!(row(180, 0).over_at(), day(30));
        assert_eq!(row(180, 100).over_at(), day(130));
        assert_eq!(row(180, 170).over_at(), day(180));
    }

    #[test]
    fn other_clients_have_other_identities() {
        assert_eq!(client_mark("mgc_1"), client_mark("mgc_1"));
        assert_ne!(client_mark("mgc_1"), client_mark("mgc_2"));
    }
}
