//! Overview of the sessions in use, for operators.
//!
//! Owns their short ids. Does not change sessions. Invariant: a session id never leaves by it, nor
//! does a text from which it could be computed.

use std::time::Duration;

use aws_lc_rs::digest;

use crate::{Session, Sessions};
use moongate_jsonrpc::json::ByteString;
use moongate_model::Caller;
use std::sync::Arc;

/// Bytes of a short id. Enough to distinguish a million sessions.
const SHORT_ID_BYTES: usize = 6;

/// Session as operators see it.
pub struct SessionSummary {
    /// Short id. It is derived from the session id by SHA-256, and cannot be used by a client.
    pub id: String,
    /// Caller, with its principal, its client and its revision.
    pub caller: Arc<Caller>,
    /// Endpoint of the session. Empty for the one over all servers.
    pub endpoint: ByteString,
    /// True for a client of HTTP+SSE or stdio, whose messages share one stream.
    pub has_shared_stream: bool,
    /// Beginning, in milliseconds since 1970.
    pub began: u64,
    /// Time since the last use. Zero while a request or a stream is open.
    pub idle: Duration,
    /// Number of open calls.
    pub calls: usize,
    /// Number of open streams, apart from those of calls.
    pub streams: u64,
    /// Number of resources that it is subscribed to.
    pub subscriptions: usize,
}

impl Sessions {
    /// Lists the sessions in use, newest first, at most `max`. Sleeping ones are not among them.
    pub fn overview(&self, max: usize) -> Vec<SessionSummary> {
        let mut sessions: Vec<_> = self.table.lock().values().cloned().collect();
        // Only those that are shown are sorted: a page asks often, and there may be many.
        if sessions.len() > max {
            sessions.select_nth_unstable_by(max, Session::cmp_newest_first);
            sessions.truncate(max);
        }
        sessions.sort_by(Session::cmp_newest_first);
        let now = self.clock.now_ms();
        sessions
            .iter()
            .map(|session| session.summary(now))
            .collect()
    }

    /// Ends a session by its short id. Returns false if there is none.
    pub fn end_by_short_id(&self, id: &str) -> bool {
        let session = self
            .table
            .lock()
            .values()
            .find(|session| short_id(&session.identity.id) == id)
            .cloned();
        session.is_some_and(|session| {
            self.close(&session);
            true
        })
    }
}

impl Session {
    fn cmp_newest_first(one: &Arc<Self>, other: &Arc<Self>) -> std::cmp::Ordering {
        // Two of one millisecond need an order, too: a reader must not see them change places.
        let age = other.lifetime.began().cmp(&one.lifetime.began());
        age.then_with(|| one.identity.id.as_bytes().cmp(other.identity.id.as_bytes()))
    }

    fn summary(&self, now_ms: u64) -> SessionSummary {
        let idle_ms = if self.lifetime.is_idle() {
            now_ms.saturating_sub(self.lifetime.used_ms())
        } else {
            0
        };
        SessionSummary {
            id: short_id(&self.identity.id),
            caller: self.identity.shared_caller(),
            endpoint: self.identity.scope.clone(),
            has_shared_stream: self.shared_stream.is_some(),
            began: self.lifetime.began(),
            idle: Duration::from_millis(idle_ms),
            calls: self.calls.len(),
            streams: self.lifetime.streams(),
            subscriptions: self.subscriptions.uris().len(),
        }
    }
}

fn short_id(id: &ByteString) -> String {
    let digest = digest::digest(&digest::SHA256, id.as_bytes());
    let hex: String = digest
        .as_ref()
        .iter()
        .take(SHORT_ID_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("s-{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_id_does_not_show_the_session_id() {
        let id = ByteString::from("0123456789abcdef");
        let short = short_id(&id);
        assert_eq!(short.len(), 2 + 2 * SHORT_ID_BYTES);
        assert_eq!(short, short_id(&id));
        assert!(
            !id.contains(&short[2..8]) && short != short_id(&ByteString::from("0123456789abcdeg"))
        );
    }
}
