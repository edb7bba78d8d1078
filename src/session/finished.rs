//! Calls that were to become tasks and were answered at once: their ends, until they are fetched.
//!
//! 2025-11-25/basic/utilities/tasks.mdx, Result Retrieval: "Receivers that accept a task-augmented request MUST return a
//! `CreateTaskResult` as the response", but a server of a later revision decides by itself, and may have none to
//! return. Owns those ends. Invariant: bounded in number, bytes and time; each is its principal's alone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use tokio::time::Instant;

use crate::json::{Object, Text};
use crate::model::Principal;
use crate::telemetry::{CountGuard, Metrics};

/// Ends that are kept; the oldest of the principal that has the most goes first.
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
        // A copy: what is kept would keep the server's whole message alive, of whatever size.
        let result = result.raw().detached().as_object().unwrap_or(result);
        let ended = Ended {
            id: Text::from(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(random)),
            result,
            at: Text::from(jiff::Timestamp::now().to_string()),
            principal: principal.id,
            kept: Instant::now(),
            _counted: Arc::new(CountGuard::new(&self.metrics.tasks.with_label_values(&["finished"]))),
        };
        let mut ends = self.lock();
        ends.sweep();
        ends.bytes += ended.result.size_hint();
        ends.all.push_back(ended.clone());
        while ends.all.len() > 1 && (ends.all.len() > ENDS_MAX || ends.bytes > BYTES_MAX) {
            ends.make_room();
        }
        ended
    }

    /// The end of this task, if it is the principal's.
    pub fn find(&self, principal: &Principal, id: &str) -> Option<Ended> {
        let mut ends = self.lock();
        ends.sweep();
        let is = |ended: &&Ended| ended.principal == principal.id && ended.id.as_str() == id;
        ends.all.iter().find(is).cloned()
    }

    /// Forgets what was kept long enough.
    pub(super) fn sweep(&self) {
        self.lock().sweep();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    fn sweep(&mut self) {
        let now = Instant::now();
        while self.all.front().is_some_and(|ended| now - ended.kept >= Finished::KEEP) {
            self.drop(0);
        }
    }

    /// Drops the oldest end of the principal that has the most, so that nobody's cost another theirs; never the last
    /// one, which somebody is about to be told of.
    fn make_room(&mut self) {
        let mut sizes: HashMap<u32, (usize, usize)> = HashMap::new();
        for ended in &self.all {
            let size = sizes.entry(ended.principal).or_default();
            *size = (size.0 + ended.result.size_hint(), size.1 + 1);
        }
        let (by_bytes, newest) = (self.bytes > BYTES_MAX, self.all.back().map(|ended| ended.principal));
        let size = |(id, (bytes, count)): &(u32, (usize, usize))| {
            (if by_bytes { *bytes } else { *count }, Some(*id) != newest)
        };
        let most = sizes.into_iter().max_by_key(size);
        let others = self.all.len() - 1;
        let theirs = self.all.iter().take(others).position(|ended| most.is_some_and(|(id, _)| id == ended.principal));
        self.drop(theirs.unwrap_or(0));
    }

    fn drop(&mut self, at: usize) {
        if let Some(ended) = self.all.remove(at) {
            self.bytes -= ended.result.size_hint();
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

    #[tokio::test(start_paused = true)]
    async fn nobodys_ends_cost_another_theirs() {
        let finished = Finished::new(Arc::new(Metrics::new()));
        let few = finished.keep(&principal(1), Object::new());
        for _ in 0..ENDS_MAX + 10 {
            finished.keep(&principal(2), Object::new());
        }
        assert!(finished.find(&principal(1), &few.id).is_some());
        let large = Object::new().with("a", Raw::string(&"x".repeat(BYTES_MAX / 2 + 1)));
        let (first, second) = (finished.keep(&principal(3), large.clone()), finished.keep(&principal(4), large));
        assert!(finished.find(&principal(1), &few.id).is_some());
        assert!(finished.find(&principal(4), &second.id).is_some(), "the one that was just made");
        assert!(finished.find(&principal(3), &first.id).is_none());
        assert!(finished.lock().bytes <= BYTES_MAX);
        // Time passes without anybody asking, too.
        tokio::time::advance(Finished::KEEP).await;
        finished.sweep();
        let ends = finished.lock();
        assert_eq!((ends.all.len(), ends.bytes), (0, 0));
    }

    #[tokio::test]
    async fn an_end_does_not_keep_its_message_alive() {
        let message = bytes::Bytes::from(format!(r#"{{"x":"{}","result":{{"a":1}}}}"#, "x".repeat(10_000)));
        let result = Object::parse(message.clone()).unwrap().object("result").unwrap();
        let kept = Finished::new(Arc::new(Metrics::new())).keep(&principal(1), result);
        assert_eq!(kept.result.bytes(), bytes::Bytes::from_static(br#"{"a":1}"#));
        assert!(message.is_unique(), "a span of it is kept");
    }
}
