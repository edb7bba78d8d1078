//! Calls that were to become tasks and were answered at once: their ends, until they are fetched.
//!
//! 2025-11-25/basic/utilities/tasks.mdx, Result Retrieval: "Receivers that accept a task-augmented request MUST return a
//! `CreateTaskResult` as the response", but a server of a later revision decides by itself, and may have none to
//! return. Owns those ends. Invariant: bounded in number, bytes and time; each is its principal's alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use tokio::time::Instant;

use crate::json::{Object, Text};
use crate::model::Principal;
use crate::telemetry::{CountGuard, Metrics};

/// Ends that are kept; the oldest goes first.
const ENDS_MAX: usize = 1024;
/// Bytes of all of them together; so much must also be enough for the largest single one (`max_message`).
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// The ends.
pub struct Finished {
    ends: Mutex<Ends>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Ends {
    all: VecDeque<Ended>,
    bytes: usize,
}

/// One end.
#[derive(Clone)]
pub struct Ended {
    /// The task's name, which cannot be guessed.
    pub id: Text,
    /// What the call came to.
    pub result: Object,
    /// When, as a timestamp of RFC 3339.
    pub at: Text,
    principal: u32,
    kept: Instant,
    _counted: Arc<CountGuard>,
}

impl Finished {
    /// How long an end is kept at most.
    pub const KEEP: Duration = Duration::from_secs(600);

    /// None yet.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Finished { ends: Mutex::default(), metrics }
    }

    /// Keeps an end.
    pub fn keep(&self, principal: &Principal, result: Object) -> Ended {
        let random: [u8; 24] = crate::random::bytes();
        let ended = Ended {
            id: Text::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random)),
            result,
            at: Text::from(jiff::Timestamp::now().to_string()),
            principal: principal.id,
            kept: Instant::now(),
            _counted: Arc::new(CountGuard::new(&self.metrics.tasks.with_label_values(&["finished"]))),
        };
        let mut ends = self.lock();
        ends.bytes += ended.result.size_hint();
        ends.all.push_back(ended.clone());
        while ends.all.len() > 1 && (ends.all.len() > ENDS_MAX || ends.bytes > BYTES_MAX) {
            ends.drop_oldest();
        }
        ended
    }

    /// The end of this task, if it is the principal's.
    pub fn find(&self, principal: &Principal, id: &str) -> Option<Ended> {
        let mut ends = self.lock();
        let now = Instant::now();
        while ends.all.front().is_some_and(|ended| now - ended.kept >= Finished::KEEP) {
            ends.drop_oldest();
        }
        let is = |ended: &&Ended| ended.principal == principal.id && ended.id.as_str() == id;
        ends.all.iter().find(is).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.all.pop_front() {
            self.bytes -= oldest.result.size_hint();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Raw;

    fn principal(id: u32) -> Principal {
        Principal { name: String::new(), id }
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_its_principals_and_not_for_ever() {
        let finished = Finished::new(Arc::new(Metrics::new()));
        let kept = finished.keep(&principal(1), Object::new().with("a", Raw::NULL));
        assert_eq!(finished.find(&principal(1), &kept.id).unwrap().result, kept.result);
        assert!(finished.find(&principal(2), &kept.id).is_none());
        tokio::time::advance(Finished::KEEP).await;
        assert!(finished.find(&principal(1), &kept.id).is_none());
        assert_eq!(finished.lock().bytes, 0);
    }

    #[tokio::test]
    async fn ends_are_bounded() {
        let finished = Finished::new(Arc::new(Metrics::new()));
        let large = || Object::new().with("a", Raw::string(&"x".repeat(BYTES_MAX / 3)));
        let first = finished.keep(&principal(1), large());
        for _ in 0..3 {
            finished.keep(&principal(1), large());
        }
        assert!(finished.find(&principal(1), &first.id).is_none());
        assert!(finished.lock().bytes <= BYTES_MAX);
        for _ in 0..ENDS_MAX + 10 {
            finished.keep(&principal(1), Object::new());
        }
        assert_eq!(finished.lock().all.len(), ENDS_MAX);
    }
}
