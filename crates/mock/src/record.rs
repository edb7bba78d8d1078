//! Record of what a mock server received.
//!
//! Owns the counters and the last requests. Does not decide anything. Invariant: it is bounded, and
//! the oldest entries make room.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::Write as _,
};

use serde::{Deserialize, Serialize};

/// Limit of recorded requests and cancellations.
const RECORDED_MAX: usize = 64;
/// Bytes of a body that are recorded.
const RECORDED_BODY_MAX: usize = 1 << 20;
/// Methods counted by name.
const METHODS_MAX: usize = 256;

/// HTTP request or line, as received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// HTTP method, or `LINE` over stdio.
    pub http_method: String,
    /// Path and query.
    pub path: String,
    /// Headers in order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body. A longer one is cut after the first MiB.
    pub body: String,
}

impl RecordedRequest {
    /// First header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }
}

/// Counters at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordCounters {
    /// Requests and notifications received, by method.
    pub methods: BTreeMap<String, u64>,
    /// TCP connections accepted.
    pub connections: u64,
    /// Sessions opened by `initialize`.
    pub sessions: u64,
    /// Sessions ended by DELETE.
    pub deleted: u64,
    /// Ids of cancelled requests (JSON text). Clients cancel by notification, or by closing the
    /// response (modern HTTP).
    pub cancelled: VecDeque<String>,
    /// Responses to no request of ours, and messages that are not JSON-RPC.
    pub stray: u64,
}

impl RecordCounters {
    /// Number of requests and notifications of this method.
    #[must_use]
    pub fn of(&self, method: &str) -> u64 {
        self.methods.get(method).copied().unwrap_or(0)
    }

    /// Number of all requests and notifications.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.methods.values().sum()
    }
}

#[derive(Default)]
pub(super) struct RequestRecord {
    counters: Mutex<RecordCounters>,
    requests: Mutex<VecDeque<RecordedRequest>>,
    file: Option<Mutex<File>>,
}

impl RequestRecord {
    pub(super) fn to_file(file: Option<File>) -> Self {
        Self {
            file: file.map(Mutex::new),
            ..Self::default()
        }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut RecordCounters)) {
        change(&mut self.counters.lock());
    }

    pub(super) fn method(&self, method: &str) {
        self.count(|c| {
            // Clients choose the names, so their number is bounded.
            let known = c.methods.contains_key(method) || c.methods.len() < METHODS_MAX;
            *c.methods
                .entry(if known { method } else { "(others)" }.to_owned())
                .or_default() += 1;
        });
    }

    pub(super) fn cancelled(&self, id: &str) {
        self.count(|c| {
            c.cancelled.push_back(id.to_owned());
            if c.cancelled.len() > RECORDED_MAX {
                c.cancelled.pop_front();
            }
        });
    }

    pub(super) fn add_request(&self, mut request: RecordedRequest) {
        // A POST of HTTP+SSE is seen again as a line, and written then.
        let is_repeated = request.path.starts_with(super::http_sse_sessions::SEND);
        if let Some(file) = self.file.as_ref().filter(|_| !is_repeated) {
            // Noticing a record that cannot be written is up to the test, so the server continues.
            // One write for each line: several processes may append to one file.
            let _ = file
                .lock()
                .write_all(format!("{}\n", request.body).as_bytes());
        }
        if request.body.len() > RECORDED_BODY_MAX {
            // Cut for the memory alone. The file above has the whole body.
            let end = request.body.floor_char_boundary(RECORDED_BODY_MAX);
            request.body.truncate(end);
        }
        let mut all = self.requests.lock();
        all.push_back(request);
        if all.len() > RECORDED_MAX {
            all.pop_front();
        }
    }

    pub(super) fn counters(&self) -> RecordCounters {
        self.counters.lock().clone()
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().iter().cloned().collect()
    }

    pub(super) fn clear(&self) {
        *self.counters.lock() = RecordCounters::default();
        self.requests.lock().clear();
    }
}
