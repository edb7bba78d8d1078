//! Relist on demand: requests for a list because a call named an unknown item. Owns the rate and
//! the waiting calls. Does not fetch lists (`supervisor/refresh.rs`). Invariant: unknown names
//! cause at most one fetch of a list in [`RELIST_INTERVAL`], and another for each call that ended
//! meanwhile.

use parking_lot::Mutex;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use moongate_model::ItemKind;

/// Shortest interval between fetches of one list for unknown names.
// Models invent names, and each invented one would otherwise cost the server a list.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest interval where a call ended since the last fetch: it may have added the item.
const CALLED_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time that a call waits for the fetch.
// A list that takes longer than this helps the next call.
pub(crate) const RELIST_WAIT: Duration = Duration::from_secs(5);

/// Requests to fetch lists of one server again.
pub(crate) struct RelistRequests {
    requests: Mutex<[RelistRequest; ItemKind::ALL.len()]>,
    has_request: Notify,
    completions: watch::Sender<()>,
}

#[derive(Clone, Copy, Default)]
struct RelistRequest {
    /// Start of the last fetch.
    last_started: Option<Instant>,
    stage: RelistStage,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum RelistStage {
    #[default]
    Finished,
    Requested,
    InProgress,
}

impl Default for RelistRequests {
    fn default() -> Self {
        RelistRequests {
            requests: Mutex::default(),
            has_request: Notify::new(),
            completions: watch::Sender::new(()),
        }
    }
}

impl RelistRequests {
    /// Requests a fetch, or joins one. `None`: the last one was a moment ago. `called`: whether a
    /// call ended since.
    fn begin(&self, kind: ItemKind, called: bool) -> Option<watch::Receiver<()>> {
        let mut requests = self.requests.lock();
        let request = &mut requests[kind as usize];
        // Subscribed before the request, so that its completion cannot be missed.
        let done = self.completions.subscribe();
        let interval = if called {
            CALLED_INTERVAL
        } else {
            RELIST_INTERVAL
        };
        if request
            .last_started
            .is_none_or(|last| last.elapsed() >= interval)
        {
            *request = RelistRequest {
                last_started: Some(Instant::now()),
                stage: RelistStage::Requested,
            };
            // `notify_one` keeps a permit if nobody waits: a request during a fetch is not lost.
            self.has_request.notify_one();
        }
        (request.stage != RelistStage::Finished).then_some(done)
    }

    /// Requests a fetch of one list and waits for it. Skipped shortly after the last one, unless a
    /// call ended since.
    pub(crate) async fn request(&self, kind: ItemKind, called: bool) {
        let last = self.requests.lock()[kind as usize]
            .last_started
            .filter(|_| called);
        if let Some(last) = last {
            // Passed already, mostly.
            sleep_until(last + CALLED_INTERVAL).await;
        }
        let Some(mut done) = self.begin(kind, called) else {
            return;
        };
        let finished =
            done.wait_for(|()| self.requests.lock()[kind as usize].stage == RelistStage::Finished);
        // After the time the call goes on with the lists as they are.
        let _ = timeout(RELIST_WAIT, finished).await;
    }

    /// Waits for requested lists and marks them as in progress.
    pub(crate) async fn wait_requested(&self) -> Vec<ItemKind> {
        loop {
            let kinds = self.transition(RelistStage::Requested, RelistStage::InProgress);
            if !kinds.is_empty() {
                return kinds;
            }
            self.has_request.notified().await;
        }
    }

    /// Records that the lists in progress were fetched, and wakes the waiting calls.
    pub(crate) fn completed(&self) {
        if !self
            .transition(RelistStage::InProgress, RelistStage::Finished)
            .is_empty()
        {
            self.completions.send_replace(());
        }
    }

    /// Wakes the waiting calls, because the connection that would list for them has ended.
    pub(crate) fn abandon(&self) {
        self.requests
            .lock()
            .iter_mut()
            .for_each(|request| request.stage = RelistStage::Finished);
        self.completions.send_replace(());
    }

    fn transition(&self, from: RelistStage, to: RelistStage) -> Vec<ItemKind> {
        let mut requests = self.requests.lock();
        let kinds: Vec<ItemKind> = ItemKind::ALL
            .into_iter()
            .filter(|kind| requests[*kind as usize].stage == from)
            .collect();
        kinds
            .iter()
            .for_each(|kind| requests[*kind as usize].stage = to);
        kinds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::{dialing, settings};
    use crate::{NoSink, Upstream};
    use moongate_model::UpstreamState;

    #[tokio::test(start_paused = true)]
    async fn unknown_names_have_a_list_taken_once_in_a_while() {
        let listed = Arc::new(AtomicUsize::new(0));
        let counts = listed.clone();
        let shared = dialing(move |talk, message| {
            if message["method"] == "tools/list" {
                counts.fetch_add(1, Ordering::Relaxed);
            }
            talk.serve_legacy(message);
        });
        let mut legacy = settings();
        legacy.protocol = Some("2025-11-25".to_owned());
        let upstream = Upstream::new(legacy, shared, Arc::new(NoSink));
        upstream.relist_now(ItemKind::Tools).await;
        assert_eq!(listed.load(Ordering::Relaxed), 0, "it is not ready");
        tokio::spawn(upstream.clone().run());
        upstream
            .watch()
            .wait_for(|status| status.state == UpstreamState::Ready)
            .await
            .unwrap();
        for seconds in [0, 1, 5, 10, 11] {
            let before = listed.load(Ordering::Relaxed);
            let calls = (0..100).map(|_| upstream.relist_now(ItemKind::Tools));
            futures_util::future::join_all(calls).await;
            let more = usize::from(matches!(seconds, 0 | 10));
            assert_eq!(
                listed.load(Ordering::Relaxed) - before,
                more,
                "after {seconds} s"
            );
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
