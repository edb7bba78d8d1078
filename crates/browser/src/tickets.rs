//! Tickets: secrets that a browser trades for a session, so that nobody pastes a key into a URL.
//!
//! Owns their table. Does not decide who gets one. Invariant: a ticket works once, for a minute.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::new_secret;
use moongate_access::auth::KeyHash;

/// Time in which a ticket must be traded.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of tickets. The oldest makes room.
const TICKETS_MAX: usize = 32;

/// Tickets, the oldest first. `H` identifies their holders.
pub struct TicketTable<H>(Mutex<VecDeque<SignInTicket<H>>>);

struct SignInTicket<H> {
    hash: KeyHash,
    holder: H,
    made: Instant,
}

impl<H> Default for TicketTable<H> {
    fn default() -> Self {
        TicketTable(Mutex::default())
    }
}

impl<H> TicketTable<H> {
    /// Makes a ticket.
    pub fn issue(&self, holder: H) -> String {
        let secret = new_secret();
        let made = Instant::now();
        let mut tickets = self.0.lock();
        if tickets.len() >= TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(SignInTicket {
            hash: KeyHash::of(&secret),
            holder,
            made,
        });
        secret
    }

    /// Removes a ticket, and returns its holder if it is still good.
    pub fn redeem(&self, hash: &KeyHash) -> Option<H> {
        let now = Instant::now();
        let mut tickets = self.0.lock();
        tickets.retain(|ticket| now < ticket.made + TICKET_LIFETIME);
        let at = tickets
            .iter()
            .position(|ticket| ticket.hash.matches(hash))?;
        // Found and removed under one lock: two requests cannot both trade the same ticket.
        tickets.remove(at).map(|ticket| ticket.holder)
    }

    /// Ends the tickets of all other holders.
    pub fn retain(&self, stays: impl Fn(&H) -> bool) {
        self.0.lock().retain(|ticket| stays(&ticket.holder));
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
        tickets.retain(|_| false);
        assert!(
            others
                .iter()
                .all(|ticket| tickets.redeem(&KeyHash::of(ticket)).is_none())
        );
    }
}
