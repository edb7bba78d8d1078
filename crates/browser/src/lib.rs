//! Sign-in of browsers: cookies, sessions, tickets, and the limit of wrong keys.
//!
//! Owns what a listener with pages remembers of those who sign in. Does not know who may sign in,
//! or routes: a holder is whatever the caller identifies people by. Invariant: every table here is
//! bounded, lives in memory only, and holds secrets as hashes only.

mod cookie;
mod sessions;
mod tickets;
mod wrong_keys;

pub use cookie::{BrowserPath, CookieNames};
pub use sessions::BrowserSessions;
pub use tickets::{TICKET_LIFETIME, TicketTable};
pub use wrong_keys::{KeyAttempt, WrongKeyLimit};

use base64::Engine as _;

/// Generates 256 random bits, as text for a cookie or a URL.
fn new_secret() -> String {
    let bytes: [u8; 32] = moongate_random::random_bytes();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}
