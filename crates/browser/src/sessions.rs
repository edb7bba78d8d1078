//! Sessions of browsers that have signed in.
//!
//! Owns their table and their end. Does not read cookies (`cookie`). Invariant: a session gives what
//! its holder has now, and ends with its holder, at sign-out, or after twelve hours without a
//! request.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::new_secret;
use moongate_access::auth::KeyHash;

/// Time without a request after which a session ends.
const IDLE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of sessions. The one that was idle longest makes room.
const SESSIONS_MAX: usize = 256;

/// Sessions of browsers, by the hash of the secret in their cookie. `H` identifies their holders.
pub struct BrowserSessions<H>(Mutex<HashMap<KeyHash, BrowserSession<H>>>);

struct BrowserSession<H> {
    holder: H,
    last_used: Instant,
}

impl<H> Default for BrowserSessions<H> {
    fn default() -> Self {
        BrowserSessions(Mutex::default())
    }
}

impl<H> BrowserSessions<H> {
    /// Starts a session. Returns the secret for its cookie.
    pub fn start(&self, holder: H) -> String {
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
                holder,
                last_used: now,
            },
        );
        secret
    }

    /// Finds what the holder of a session has, and marks the session as used. A session whose
    /// holder has nothing any more ends.
    // Looked up each time: a reload may have removed the holder or changed its role. Without the
    // lock, because a look-up is the caller's code: it may be slow, or come back to these sessions.
    pub fn find<T>(&self, session: &KeyHash, look_up: impl FnOnce(&H) -> Option<T>) -> Option<T>
    where
        H: Clone,
    {
        let granted = self.mark_used(session).and_then(|holder| look_up(&holder));
        if granted.is_none() {
            self.end(session);
        }
        granted
    }

    /// Marks a session as used. Returns its holder.
    fn mark_used(&self, session: &KeyHash) -> Option<H>
    where
        H: Clone,
    {
        let now = Instant::now();
        let mut sessions = self.0.lock();
        let found = sessions
            .get_mut(session)
            .filter(|session| !session.is_over(now))?;
        found.last_used = now;
        Some(found.holder.clone())
    }

    /// Ends a session.
    pub fn end(&self, session: &KeyHash) {
        self.0.lock().remove(session);
    }

    /// Returns true if there is such a session.
    pub fn is_open(&self, session: &KeyHash) -> bool {
        let now = Instant::now();
        // Not marked as used: an open stream of events would keep an abandoned browser signed in.
        self.0
            .lock()
            .get(session)
            .is_some_and(|session| !session.is_over(now))
    }

    /// Ends the sessions of all other holders.
    pub fn retain(&self, stays: impl Fn(&H) -> bool) {
        self.0.lock().retain(|_, session| stays(&session.holder));
    }
}

impl<H> BrowserSession<H> {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.last_used + IDLE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(sessions: &BrowserSessions<&'static str>) -> KeyHash {
        KeyHash::of(&sessions.start("me"))
    }

    fn find(sessions: &BrowserSessions<&'static str>, session: &KeyHash) -> Option<()> {
        sessions.find(session, |holder| (*holder == "me").then_some(()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_after_twelve_idle_hours_and_with_its_holder() {
        let sessions = BrowserSessions::default();
        let hash = start(&sessions);
        for _ in 0..3 {
            tokio::time::sleep(IDLE_MAX - Duration::from_secs(1)).await;
            assert!(find(&sessions, &hash).is_some(), "it is in use");
        }
        tokio::time::sleep(IDLE_MAX).await;
        assert!(!sessions.is_open(&hash));
        assert!(find(&sessions, &hash).is_none());
        let hash = start(&sessions);
        sessions.retain(|_| false);
        assert!(
            find(&sessions, &hash).is_none(),
            "the holder came back, and the session does not"
        );
        let hash = start(&sessions);
        sessions.end(&hash);
        assert!(find(&sessions, &hash).is_none());
        let hash = start(&sessions);
        assert_eq!(sessions.find(&hash, |_| None::<()>), None);
        assert!(!sessions.is_open(&hash), "its holder has nothing any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_may_use_the_sessions_itself() {
        let sessions = BrowserSessions::default();
        let hash = start(&sessions);
        let other = start(&sessions);
        let found = sessions.find(&hash, |_| {
            sessions.end(&other);
            find(&sessions, &hash)
        });
        assert!(found.is_some());
        assert!(!sessions.is_open(&other));
        let ended = sessions.find(&hash, |_| {
            sessions.end(&hash);
            None::<()>
        });
        assert_eq!(ended, None);
        assert!(!sessions.is_open(&hash));
    }

    #[tokio::test(start_paused = true)]
    async fn the_idlest_session_makes_room() {
        let sessions = BrowserSessions::default();
        let first = start(&sessions);
        let second = start(&sessions);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(find(&sessions, &first).is_some());
        for _ in 0..SESSIONS_MAX - 1 {
            start(&sessions);
        }
        assert!(sessions.is_open(&first));
        assert!(!sessions.is_open(&second));
        assert_eq!(sessions.0.lock().len(), SESSIONS_MAX);
    }
}
