//! Sign-in of operators: guesses of keys, sessions of browsers, and tickets.
//!
//! Owns what the listener remembers of them. Does not know routes. Invariant: every table here is
//! bounded, lives in memory only, and holds hashes only.

mod browser_session;
mod key_uses;
mod tickets;
mod wrong_keys;

pub(crate) use browser_session::BrowserSessions;
pub(crate) use key_uses::KeyUses;
pub(crate) use tickets::{TICKET_LIFETIME, TicketTable};
pub(crate) use wrong_keys::{KeyAttempt, WrongKeyLimit};

use base64::Engine as _;
use moongate_access::auth::AdminAccess;

/// Memory of the listener about those who sign in.
#[derive(Default)]
pub struct SignInState {
    pub(crate) wrong_keys: WrongKeyLimit,
    pub(crate) sessions: BrowserSessions,
    pub(crate) tickets: TicketTable,
    pub(crate) key_uses: KeyUses,
}

impl SignInState {
    /// Ends the sessions and tickets of removed keys. Their keys may come back, but they do not.
    pub fn end_removed(&self, access: &AdminAccess) {
        self.sessions.end_removed(access);
        self.tickets.end_removed(access);
        self.key_uses.end_removed(access);
    }
}

/// Generates 256 random bits, as text for a cookie or a URL.
fn new_secret() -> String {
    let bytes: [u8; 32] = moongate_random::random_bytes();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}
