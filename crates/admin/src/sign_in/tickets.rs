//! Tickets: secrets that a browser trades for a session, so that nobody pastes a key into a URL.
//!
//! Owns their table. Does not decide who gets one (`signin_routes.rs`). Invariant: a ticket works
//! once, for a minute.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::new_secret;
use moongate_access::auth::{AdminAccess, KeyHash};

/// Time in which a ticket must be traded.
pub(crate) const TICKET_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of tickets. The oldest makes room.
const TICKETS_MAX: usize = 32;

/// Tickets, the oldest first.
#[derive(Default)]
pub(crate) struct TicketTable(Mutex<VecDeque<SignInTicket>>);

struct SignInTicket {
    hash: KeyHash,
    /// Hash of the key whose holder asked for it.
    key: KeyHash,
    made: Instant,
}

impl TicketTable {
    /// Makes a ticket for the holder of a key.
    pub(crate) fn issue(&self, key: KeyHash) -> String {
        let secret = new_secret();
        let made = Instant::now();
        let mut tickets = self.0.lock();
        if tickets.len() >= TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(SignInTicket {
            hash: KeyHash::of(&secret),
            key,
            made,
        });
        secret
    }

    /// Removes a ticket, and returns the hash of its key if it is still good.
    pub(crate) fn redeem(&self, hash: &KeyHash) -> Option<KeyHash> {
        let now = Instant::now();
        let mut tickets = self.0.lock();
        tickets.retain(|ticket| now < ticket.made + TICKET_LIFETIME);
        let at = tickets
            .iter()
            .position(|ticket| ticket.hash.matches(hash))?;
        // Found and removed under one lock: two requests cannot both trade the same ticket.
        tickets.remove(at).map(|ticket| ticket.key)
    }

    /// Ends the tickets of removed keys.
    pub(crate) fn end_removed(&self, access: &AdminAccess) {
        self.0
            .lock()
            .retain(|ticket| access.find(&ticket.key).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_ticket_works_once_for_a_minute_and_few_wait() {
        let tickets = TicketTable::default();
        let key = KeyHash::of("a");
        let ticket = KeyHash::of(&tickets.issue(key));
        assert_eq!(tickets.redeem(&ticket), Some(key));
        assert_eq!(tickets.redeem(&ticket), None, "it was used");
        let late = KeyHash::of(&tickets.issue(key));
        tokio::time::sleep(TICKET_LIFETIME).await;
        assert_eq!(tickets.redeem(&late), None);
        let first = KeyHash::of(&tickets.issue(key));
        let others: Vec<String> = (0..TICKETS_MAX).map(|_| tickets.issue(key)).collect();
        assert_eq!(tickets.redeem(&first), None, "it made room");
        tickets.end_removed(&AdminAccess::default());
        assert!(
            others
                .iter()
                .all(|ticket| tickets.redeem(&KeyHash::of(ticket)).is_none())
        );
    }
}
