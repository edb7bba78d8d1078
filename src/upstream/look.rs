//! Lists that are taken once more because a call named what is in none of them.
//!
//! Owns how often that is done, and who waits for it. Takes no list itself (`follow`). Invariant: whatever names are called,
//! a list is taken for them at most once in [`PAUSE`].

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::model::Kind;
use crate::upstream::{State, Upstream};

/// A list is not taken more often than this for names that nobody knows.
const PAUSE: Duration = Duration::from_secs(10);
/// Longest time for a call to wait for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The looks of one server.
pub(super) struct Looks {
    looks: Mutex<[Look; Kind::ALL.len()]>,
    wanted: Notify,
    done: watch::Sender<()>,
}

#[derive(Clone, Copy, Default)]
struct Look {
    /// When the last one began.
    last: Option<Instant>,
    stage: Stage,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Stage {
    #[default]
    Over,
    Wanted,
    Taken,
}

impl Default for Looks {
    fn default() -> Self {
        Looks { looks: Mutex::default(), wanted: Notify::new(), done: watch::Sender::new(()) }
    }
}

impl Looks {
    /// Begins a look, or finds one that has begun; `None`: the last one was a moment ago.
    fn begin(&self, kind: Kind) -> Option<watch::Receiver<()>> {
        let mut looks = self.lock();
        let look = &mut looks[kind as usize];
        let done = self.done.subscribe();
        if look.last.is_none_or(|last| last.elapsed() >= PAUSE) {
            *look = Look { last: Some(Instant::now()), stage: Stage::Wanted };
            self.wanted.notify_one();
        }
        (look.stage != Stage::Over).then_some(done)
    }

    /// Waits for lists that are to be taken.
    pub(super) async fn wanted(&self) -> Vec<Kind> {
        loop {
            let kinds = self.each(Stage::Wanted, Stage::Taken);
            if !kinds.is_empty() {
                return kinds;
            }
            self.wanted.notified().await;
        }
    }

    /// Lists were taken.
    pub(super) fn taken(&self) {
        if !self.each(Stage::Taken, Stage::Over).is_empty() {
            self.done.send_replace(());
        }
    }

    fn each(&self, from: Stage, to: Stage) -> Vec<Kind> {
        let mut looks = self.lock();
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| looks[*kind as usize].stage == from).collect();
        kinds.iter().for_each(|kind| looks[*kind as usize].stage = to);
        kinds
    }

    fn lock(&self) -> MutexGuard<'_, [Look; Kind::ALL.len()]> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// Has a list taken once more, where the server is ready and that was not done a moment ago, and waits for it.
    pub async fn look_again(&self, kind: Kind) {
        if self.status.borrow().state != State::Ready {
            return;
        }
        let Some(mut done) = self.looks.begin(kind) else { return };
        let over = done.wait_for(|()| self.looks.lock()[kind as usize].stage == Stage::Over);
        let _ = timeout(PATIENCE, over).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::upstream::testing::{dialing, settings};

    #[tokio::test(start_paused = true)]
    async fn unknown_names_have_a_list_taken_once_in_a_while() {
        let listed = Arc::new(AtomicUsize::new(0));
        let counts = listed.clone();
        let shared = dialing(move |talk, message| {
            if message["method"] == "tools/list" {
                counts.fetch_add(1, Ordering::Relaxed);
            }
            talk.legacy(message);
        });
        let mut legacy = settings();
        legacy.protocol = Some("2025-11-25".to_owned());
        let upstream = Upstream::new(legacy, shared, Arc::new(|_, _| {}));
        upstream.look_again(Kind::Tools).await;
        assert_eq!(listed.load(Ordering::Relaxed), 0, "it is not ready");
        tokio::spawn(upstream.clone().run());
        upstream.watch().wait_for(|status| status.state == State::Ready).await.unwrap();
        for seconds in [0, 1, 5, 10, 11] {
            let before = listed.load(Ordering::Relaxed);
            let calls = (0..100).map(|_| upstream.look_again(Kind::Tools));
            futures_util::future::join_all(calls).await;
            let more = usize::from(matches!(seconds, 0 | 10));
            assert_eq!(listed.load(Ordering::Relaxed) - before, more, "after {seconds} s");
            tokio::time::sleep(Duration::from_secs(match seconds {
                0 => 1,
                1 => 4,
                5 => 5,
                _ => 1,
            }))
            .await;
        }
        upstream.stop().await;
    }
}
