//! Logins whose answer arrived recently, for browsers that open the answer's page again.
//!
//! Owns how many are kept, and for how long. Does not finish logins. Invariant: only a hash of a
//! state is kept, and only a state that a login waited for takes up room.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::callback_page::CallbackPage;

/// Maximum number of logins. The oldest makes room.
const LOGINS_MAX: usize = 100;
/// Time for which a login is kept.
const LOGIN_LIFE: Duration = Duration::from_secs(600);

/// Logins whose answer arrived recently.
#[derive(Default)]
pub(super) struct RecentLogins {
    hasher: RandomState,
    logins: Mutex<VecDeque<RecentLogin>>,
}

/// Hash of a login's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateHash(u64);

struct RecentLogin {
    state: StateHash,
    since: Instant,
    /// Page on which it ended. `None`: it is still in progress.
    page: Option<CallbackPage>,
}

impl RecentLogins {
    /// Hashes a state.
    pub(super) fn hash(&self, state: &str) -> StateHash {
        StateHash(self.hasher.hash_one(state))
    }

    /// Records an answer. Returns the page if its login had one before. `is_waiting`: a login waits
    /// for it.
    pub(super) fn begin(&self, state: StateHash, is_waiting: bool) -> Option<CallbackPage> {
        let mut logins = self.logins.lock();
        logins.retain(|login| login.since.elapsed() < LOGIN_LIFE);
        if let Some(login) = logins.iter().find(|login| login.state == state) {
            let page = login.page.clone();
            return Some(page.unwrap_or_else(CallbackPage::unfinished));
        }
        if is_waiting {
            if logins.len() >= LOGINS_MAX {
                logins.pop_front();
            }
            logins.push_back(RecentLogin {
                state,
                since: Instant::now(),
                page: None,
            });
        }
        None
    }

    /// Records the page on which a login ended.
    pub(super) fn end(&self, state: StateHash, page: &CallbackPage) {
        let mut logins = self.logins.lock();
        if let Some(login) = logins.iter_mut().find(|login| login.state == state) {
            login.page = Some(page.clone());
        }
    }

    /// Forgets a login whose answer may come again.
    pub(super) fn forget(&self, state: StateHash) {
        self.logins.lock().retain(|login| login.state != state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_login_has_its_page_for_ten_minutes() {
        let logins = RecentLogins::default();
        let state = logins.hash("state");
        assert_eq!(logins.begin(state, true), None);
        assert_eq!(logins.begin(state, true), Some(CallbackPage::unfinished()));
        let page = CallbackPage::failure("a reason");
        logins.end(state, &page);
        assert_eq!(logins.begin(state, false), Some(page));
        let another = logins.hash("another");
        assert_eq!(logins.begin(another, true), None);
        logins.forget(another);
        assert_eq!(logins.begin(another, false), None);
        tokio::time::advance(LOGIN_LIFE).await;
        assert_eq!(logins.begin(state, false), None);
    }

    #[test]
    fn the_oldest_login_makes_room_and_unknown_states_take_none() {
        let logins = RecentLogins::default();
        let hashes: Vec<StateHash> = (0..=LOGINS_MAX)
            .map(|number| logins.hash(&number.to_string()))
            .collect();
        for &state in &hashes[..LOGINS_MAX] {
            logins.begin(state, true);
        }
        logins.begin(hashes[LOGINS_MAX], false);
        assert!(logins.begin(hashes[0], false).is_some());
        logins.begin(hashes[LOGINS_MAX], true);
        assert_eq!(logins.begin(hashes[0], false), None);
        assert!(logins.begin(hashes[1], false).is_some());
    }
}
