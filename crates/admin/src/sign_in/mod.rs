//! Sign-in of operators: sessions of browsers, tickets, guesses of keys, and the use of keys.
//!
//! Owns who holds a session here: a key of the config, by its hash. Does not know routes or how a
//! session is kept (`moongate_browser`). Invariant: every table here is bounded, lives in memory
//! only, and has keys and tickets only as hashes.

mod key_uses;

pub(crate) use key_uses::KeyUses;

use moongate_access::auth::{AdminAccess, KeyHash};
use moongate_browser::{BrowserSessions, CookieNames, TicketTable, WrongKeyLimit};

/// Names of the page's cookie.
pub(crate) const COOKIE: CookieNames = CookieNames {
    tls: "__Host-moongate",
    plain: "moongate_admin",
};

/// Memory of the listener about those who sign in.
#[derive(Default)]
pub struct SignInState {
    pub(crate) wrong_keys: WrongKeyLimit,
    pub(crate) sessions: BrowserSessions<KeyHash>,
    pub(crate) tickets: TicketTable<KeyHash>,
    pub(crate) key_uses: KeyUses,
}

impl SignInState {
    /// Ends the sessions and tickets of removed keys. Their keys may come back, but they do not.
    pub fn end_removed(&self, access: &AdminAccess) {
        self.sessions.retain(|key| access.find(key).is_some());
        self.tickets.retain(|key| access.find(key).is_some());
        self.key_uses.end_removed(access);
    }
}
