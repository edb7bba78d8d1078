//! Polls of the lists of servers that announce no changes, while clients use them. Owns the record
//! of that use, and the time of a poll. Does not fetch (`supervisor/connected.rs`,
//! `dedicated/face_lister.rs`). Invariant: a server that nobody uses is not polled, and no list of
//! clients waits for a poll.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::lists::fetch::unannounced_lists;
use crate::server_context::ServerContext;
use moongate_model::{ItemKind, ServerCapabilities};

/// Interval between polls of one server.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Time after its last use in which a server is polled. What a call starts may change the lists a
/// little later.
const USE_TIME: Duration = Duration::from_secs(60);

/// Record of what clients did with a server since it was last asked.
#[derive(Default)]
pub(crate) struct ListUse {
    /// True if clients used the server since the last look at its shared connection's timer.
    shared: AtomicBool,
    /// The same for the face in the other era.
    other: AtomicBool,
    /// True if a call ended since a list was last fetched for an unknown name.
    called: AtomicBool,
}

impl ListUse {
    /// Records that a client read a list, or started a call.
    pub(crate) fn record_use(&self) {
        for flag in [&self.shared, &self.other] {
            set(flag);
        }
    }

    /// Records that a call ended, which may have changed the lists.
    pub(crate) fn record_call(&self) {
        self.record_use();
        set(&self.called);
    }

    /// Returns true if clients used the server since the shared connection's timer asked last.
    pub(crate) fn take_shared(&self) -> bool {
        self.shared.swap(false, Ordering::Relaxed)
    }

    /// Returns true if clients used the server since the timer of the other era asked last.
    pub(crate) fn take_other(&self) -> bool {
        self.other.swap(false, Ordering::Relaxed)
    }

    /// Returns true if a call ended since the last time that this was asked.
    pub(crate) fn take_called(&self) -> bool {
        self.called.swap(false, Ordering::Relaxed)
    }
}

/// Sets a flag that is mostly set already.
fn set(flag: &AtomicBool) {
    // Read first: many calls at once would take the line of the cache from each other.
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Timer of one connection's polls.
pub(crate) struct PollTimer {
    at: Instant,
    /// True if a turn among all servers was reserved for this time.
    has_turn: bool,
    last_use: Option<Instant>,
}

impl PollTimer {
    /// Creates the timer of a connection whose lists are fetched now.
    pub(crate) fn new() -> Self {
        PollTimer {
            at: Instant::now() + POLL_INTERVAL,
            has_turn: false,
            last_use: None,
        }
    }

    /// Returns the time of the next poll.
    pub(crate) fn next_poll_at(&self) -> Instant {
        self.at
    }

    /// Records that all lists were fetched.
    pub(crate) fn restart(&mut self) {
        (self.at, self.has_turn) = (Instant::now() + POLL_INTERVAL, false);
    }

    /// Returns the lists to fetch now, or sets the time of the next look. `is_used`: true if
    /// clients used the connection since the last one.
    pub(crate) fn take_due(
        &mut self,
        server: &ServerContext,
        is_used: bool,
        capabilities: &ServerCapabilities,
    ) -> Vec<ItemKind> {
        let now = Instant::now();
        if is_used {
            self.last_use = Some(now);
        }
        let kinds = unannounced_lists(capabilities);
        // "Never" is never.
        let is_wanted = !kinds.is_empty() && !server.peek_live_settings().live.relist.0.is_zero();
        if !is_wanted || self.last_use.is_none_or(|last| now - last > USE_TIME) {
            self.restart();
            return Vec::new();
        }
        if !std::mem::replace(&mut self.has_turn, true) {
            self.at = server.common.poll_turns.reserve(kinds.len());
            if self.at > now {
                return Vec::new();
            }
        }
        self.restart();
        kinds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;

    use super::*;
    use crate::testing::{dialing, settings};
    use crate::{NoSink, ServerSettings, Upstream};
    use moongate_jsonrpc::json::{JsonObject, RawJson};
    use moongate_model::UpstreamState;
    use moongate_model::{Call, McpMethod};
    use moongate_testing as testing;

    const SECOND: Duration = Duration::from_secs(1);

    /// Starts a server that announces changes or not. Returns it with the number of times that its
    /// tools were listed.
    async fn listed(
        announces: bool,
        change: impl Fn(&mut ServerSettings),
    ) -> (Arc<Upstream>, Arc<AtomicUsize>) {
        let listed = Arc::new(AtomicUsize::new(0));
        let counts = listed.clone();
        let shared = dialing(move |talk, message| match message["method"].as_str() {
            Some("initialize") => {
                let capabilities = json!({"tools": {"listChanged": announces}});
                let info = json!({"name": "a", "version": "1"});
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                    "serverInfo": info});
                talk.answer(message, &result);
            }
            Some("tools/list") => {
                counts.fetch_add(1, Ordering::Relaxed);
                talk.serve_legacy(message);
            }
            Some("tools/call") => talk.answer(message, &json!({"content": []})),
            _ => _ = talk.serve_legacy(message),
        });
        let mut legacy = settings();
        legacy.protocol = Some("2025-11-25".to_owned());
        change(&mut legacy);
        let upstream = Upstream::new(legacy, shared, Arc::new(NoSink));
        tokio::spawn(upstream.clone().run());
        upstream
            .watch()
            .wait_for(|status| status.state == UpstreamState::Ready)
            .await
            .unwrap();
        (upstream, listed)
    }

    async fn call(upstream: &Arc<Upstream>) {
        let params = JsonObject::new().with("name", RawJson::string("t"));
        let caller = testing::caller(1, Some("s"));
        upstream
            .call(&caller, Call::new(McpMethod::CallTool, params))
            .outcome()
            .await
            .unwrap();
    }

    /// Returns how often the tools are listed in this time.
    async fn lists_within(listed: &AtomicUsize, time: Duration) -> usize {
        let before = listed.load(Ordering::Relaxed);
        tokio::time::sleep(time).await;
        listed.load(Ordering::Relaxed) - before
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_announces_nothing_is_polled_while_it_is_used() {
        let (upstream, listed) = listed(false, |_| {}).await;
        assert_eq!(
            lists_within(&listed, SECOND * 100).await,
            0,
            "nobody uses it"
        );
        call(&upstream).await;
        assert_eq!(lists_within(&listed, POLL_INTERVAL + SECOND).await, 1);
        // For a while after a use, and no longer.
        let more = lists_within(&listed, SECOND * 200).await;
        assert!((5..=7).contains(&more), "{more}");
        // Whoever reads the list uses it, and gets it from memory.
        for _ in 0..100 {
            upstream.list_ttl(ItemKind::Tools);
            tokio::time::sleep(SECOND / 5).await;
        }
        assert!((1..=2).contains(&lists_within(&listed, POLL_INTERVAL).await));
        upstream.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn servers_that_announce_changes_are_not_polled() {
        for (announces, relist) in [(true, SECOND * 300), (false, Duration::ZERO)] {
            let (upstream, listed) =
                listed(announces, |settings| settings.live.relist.0 = relist).await;
            call(&upstream).await;
            assert_eq!(
                lists_within(&listed, SECOND * 60).await,
                0,
                "{announces} {relist:?}"
            );
            upstream.stop().await;
        }
    }
}
