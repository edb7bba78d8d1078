//! Reserved bytes of one message, from its first byte until nobody holds a part of it.
//!
//! Owns the steps in which a reservation grows. Does not count the budget (`budget.rs`). Invariant:
//! a message has as many bytes reserved as it has, or fewer than [`SMALL_MESSAGE`].

use bytes::Bytes;

use super::budget::MemoryShare;

/// Messages up to this size need no reservation, in bytes: each belongs to a call or a connection,
/// and those are limited.
pub const SMALL_MESSAGE: usize = 16 * 1024;
/// Least growth of a reservation, in bytes. Smaller steps would take the budget's counters for
/// every packet.
const STEP: usize = 64 * 1024;

/// Reserved bytes of one message, given back when it is dropped.
pub struct MemoryReservation {
    share: MemoryShare,
    bytes: usize,
}

/// Refusal of a reservation: other messages fill the memory that the gateway may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway holds too many bytes of messages (limits.memory = {limit} bytes)")]
pub struct MemoryExhausted {
    /// Limit of the gateway's memory, in bytes.
    pub limit: usize,
}

/// Bytes of a message with their reservation.
struct ReservedBytes {
    bytes: Bytes,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl MemoryReservation {
    pub(super) fn new(share: MemoryShare) -> Self {
        MemoryReservation { share, bytes: 0 }
    }

    /// Makes sure that a message of so many bytes is reserved, before it is stored. A message whose
    /// length is unknown grows in steps of at least 64 KiB.
    ///
    /// # Errors
    /// Other messages leave no room for it. What was reserved stays so.
    pub fn cover(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        if bytes <= SMALL_MESSAGE || bytes <= self.bytes {
            return Ok(());
        }
        // The first step is exact, since most messages state their length. An eighth more than
        // doubles no buffer.
        let least = if self.bytes == 0 {
            bytes
        } else {
            self.bytes + (self.bytes / 8).max(STEP)
        };
        let more = bytes.max(least) - self.bytes;
        self.share.take(more)?;
        self.bytes += more;
        Ok(())
    }

    /// Takes what is reserved for a message that is complete, and starts over for the next one.
    #[must_use]
    pub fn take(&mut self) -> MemoryReservation {
        std::mem::replace(self, self.share.begin())
    }

    /// Gives back what is reserved, for the sake of another holder. Returns the error for the
    /// message.
    #[must_use]
    pub fn revoke(&mut self) -> MemoryExhausted {
        drop(self.take());
        self.share.refuse()
    }

    /// Joins the reservation to the message. It is given back with the last part of the message
    /// that somebody holds.
    pub fn attach(mut self, bytes: Bytes) -> Bytes {
        if self.bytes == 0 {
            return bytes;
        }
        let rest = self.bytes.saturating_sub(bytes.len());
        self.share.give_back(rest);
        self.bytes -= rest;
        Bytes::from_owner(ReservedBytes {
            bytes,
            _reservation: self,
        })
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.share.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Metrics;
    use crate::memory::{MemoryBudget, MemoryHolder, MemoryLimit, MemoryWatch};

    const LIMIT: usize = 1 << 40;

    fn budget() -> Arc<MemoryBudget> {
        let metrics = Metrics::new();
        MemoryBudget::new(
            &MemoryWatch::new(MemoryLimit::Bytes(LIMIT), &metrics),
            &metrics,
        )
    }

    #[test]
    fn a_message_is_reserved_until_its_last_part_is_dropped() {
        let budget = budget();
        let mut reservation = budget.share(MemoryHolder::Local).begin();
        reservation.cover(100_000).unwrap();
        reservation.cover(100_001).unwrap();
        assert_eq!(budget.used(), 100_000 + STEP);
        let message = reservation.attach(Bytes::from(vec![7; 120_000]));
        assert_eq!(budget.used(), 120_000);
        let part = message.slice(5..10);
        drop(message);
        assert_eq!(budget.used(), 120_000, "a part keeps the whole");
        assert_eq!(&part[..], [7; 5]);
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn small_messages_need_no_reservation() {
        let budget = budget();
        let mut reservation = budget.share(MemoryHolder::Local).begin();
        reservation.cover(SMALL_MESSAGE).unwrap();
        assert_eq!(budget.used(), 0);
        assert_eq!(reservation.attach(Bytes::from_static(b"{}")), "{}");
    }

    #[test]
    fn a_refusal_names_the_limit() {
        let mut reservation = budget().share(MemoryHolder::Local).begin();
        let refused = reservation.cover(LIMIT).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains(&format!("limits.memory = {LIMIT} bytes")),
            "{refused}"
        );
    }
}
