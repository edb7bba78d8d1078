//! Sessions of browsers whose operator has signed in.
//!
//! Owns their table and their end. Does not read cookies (`cookie.rs`). Invariant: a session gives
//! what its key gives now, and ends with its key, at sign-out, or after twelve hours without a
//! request.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::new_secret;
use moongate_access::auth::{AdminAccess, AdminKey, KeyHash};

/// Time without a request after which a session ends.
const IDLE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of sessions. The one that was idle longest makes room.
const SESSIONS_MAX: usize = 256;

/// Sessions of browsers, by the hash of the secret in their cookie.
#[derive(Default)]
pub(crate) struct BrowserSessions(Mutex<HashMap<KeyHash, BrowserSession>>);

struct BrowserSession {
    /// Hash of the operator's key.
    key: KeyHash,
    last_used: Instant,
}

impl BrowserSessions {
    /// Begins a session for the holder of a key. Returns the secret for its cookie.
    pub(crate) fn begin(&self, key: KeyHash) -> String {
        let secret = new_secret();
        let now = Instant::now();
        let mut sessions = self.0.lock();
        // Ended sessions go first, so that they cost nobody a slot.
        sessions.retain(|_, session| !session.is_over(now));
        let idlest = sessions
            .iter()
            .min_by_key(|(_, session)| session.last_used)
            .map(|(hash, _)| *hash);
        if let Some(idlest) = idlest.filter(|_| sessions.len() >= SESSIONS_MAX) {
            sessions.remove(&idlest);
        }
        sessions.insert(
            KeyHash::of(&secret),
            BrowserSession {
                key,
                last_used: now,
            },
        );
        secret
    }

    /// Finds the key of a session, and marks the session as used.
    pub(crate) fn find<'a>(
        &self,
        session: &KeyHash,
        access: &'a AdminAccess,
    ) -> Option<&'a AdminKey> {
        let now = Instant::now();
        let mut sessions = self.0.lock();
        let found = sessions
            .get_mut(session)
            .filter(|session| !session.is_over(now));
        let key = found.and_then(|found| {
            found.last_used = now;
            // Looked up each time: a reload may have removed the key or changed its role.
            access.find(&found.key)
        });
        if key.is_none() {
            sessions.remove(session);
        }
        key
    }

    /// Ends a session.
    pub(crate) fn end(&self, session: &KeyHash) {
        self.0.lock().remove(session);
    }

    /// Returns true if there is such a session.
    pub(crate) fn is_open(&self, session: &KeyHash) -> bool {
        let now = Instant::now();
        // Not marked as used: an open stream of events would keep an abandoned browser signed in.
        self.0
            .lock()
            .get(session)
            .is_some_and(|session| !session.is_over(now))
    }

    /// Ends the sessions of removed keys.
    pub(crate) fn end_removed(&self, access: &AdminAccess) {
        self.0
            .lock()
            .retain(|_, session| access.find(&session.key).is_some());
    }
}

impl BrowserSession {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.last_used + IDLE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_access::auth::{AdminRole, MetricsAccess};

    fn access(key: &str) -> AdminAccess {
        let key = AdminKey {
            name: "me".to_owned(),
            hash: KeyHash::of(key),
            role: AdminRole::View,
        };
        AdminAccess {
            keys: vec![key],
            metrics: MetricsAccess::Open,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_after_twelve_idle_hours_and_with_its_key() {
        let sessions = BrowserSessions::default();
        let access = access("a");
        let hash = KeyHash::of(&sessions.begin(KeyHash::of("a")));
        for _ in 0..3 {
            tokio::time::sleep(IDLE_MAX - Duration::from_secs(1)).await;
            assert!(sessions.find(&hash, &access).is_some(), "it is in use");
        }
        tokio::time::sleep(IDLE_MAX).await;
        assert!(!sessions.is_open(&hash) && sessions.find(&hash, &access).is_none());
        let hash = KeyHash::of(&sessions.begin(KeyHash::of("a")));
        sessions.end_removed(&AdminAccess::default());
        assert!(
            sessions.find(&hash, &access).is_none(),
            "the key came back, and the session does not"
        );
        let hash = KeyHash::of(&sessions.begin(KeyHash::of("a")));
        sessions.end(&hash);
        assert!(sessions.find(&hash, &access).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_session_makes_room() {
        let sessions = BrowserSessions::default();
        let access = access("a");
        let first = KeyHash::of(&sessions.begin(KeyHash::of("a")));
        let second = KeyHash::of(&sessions.begin(KeyHash::of("a")));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(sessions.find(&first, &access).is_some());
        for _ in 0..SESSIONS_MAX - 1 {
            sessions.begin(KeyHash::of("a"));
        }
        assert!(sessions.is_open(&first) && !sessions.is_open(&second));
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX);
    }
}
