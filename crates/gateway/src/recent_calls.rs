//! Recent calls: a ring of the last ones, for operators.
//!
//! Owns the facts of each call, and its cancellation by an operator. Does not keep arguments or
//! results. Invariant: the number of slots is fixed, and a slot with a running call is not reused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;
use std::time::{Duration, SystemTime};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{CallState, Caller, McpMethod, Principal};
use moongate_telemetry::logs;

/// Slots that a new call tries. All in use: the call is not recorded.
// Few, because the search is on the path of each call.
const SLOTS_TRIED: u64 = 8;
/// Longest `clientInfo` that is kept as it came, in bytes. Of a longer one the name and the version
/// are kept.
const CLIENT_INFO_MAX: usize = 256;
/// Longest client text and error, in characters.
const TEXT_MAX: usize = 200;

/// Facts of a call at its start.
#[derive(Clone)]
pub struct CallFacts {
    /// Method of the protocol.
    pub method: McpMethod,
    /// Principal of the client.
    pub principal: Arc<Principal>,
    /// Endpoint of the client. Empty for the one over all servers.
    pub endpoint: ByteString,
    /// Server of the call. Empty if it reached none.
    pub server: ByteString,
    /// Tool or prompt, as clients see it. Empty if there is none.
    pub item: ByteString,
    /// Revision of the client.
    pub client_revision: &'static str,
    /// Size of the params, in bytes.
    pub request_bytes: usize,
    /// Arrival of the call.
    pub received: Instant,
}

/// Facts of a call at its end.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// State that the call ended in.
    pub state: CallState,
    /// Revision of the server. Empty if the call did not get that far.
    pub server_revision: &'static str,
    /// Size of the result, in bytes.
    pub response_bytes: usize,
    /// Time from the arrival to the end.
    pub took: Duration,
    /// Part of `took` that the server used.
    pub server_time: Duration,
    /// Part of `server_time` before the call was sent: in the server's queue, and for a connection.
    /// `None`: not known.
    pub wait: Option<Duration>,
    /// Attempts after the first one.
    pub retries: u32,
    /// Name of the failure as in metrics, and its text: the gateway's own, or the code of a
    /// server's error. Redacted.
    pub error: Option<(&'static str, Box<str>)>,
}

/// Recorded call.
#[derive(Clone)]
pub struct RecentCall {
    /// Number of the call, since the start of the process.
    pub id: u64,
    /// Number of the last change, over all calls.
    pub change: u64,
    /// Time of its arrival.
    pub at: SystemTime,
    /// Facts of its start.
    pub facts: CallFacts,
    /// End of the call. `None` while it runs.
    pub result: Option<CallResult>,
    client_info: Vec<u8>,
}

impl RecentCall {
    /// Returns the client's name and version, as the client states them.
    pub fn client(&self) -> (String, String) {
        let info: serde_json::Value = serde_json::from_slice(&self.client_info).unwrap_or_default();
        let [name, version] =
            ["name", "version"].map(|key| info[key].as_str().map(cut).unwrap_or_default());
        (name, version)
    }

    /// Returns the state now.
    pub fn state(&self) -> CallState {
        self.result
            .as_ref()
            .map_or(CallState::Running, |result| result.state)
    }
}

/// Ring of recorded calls.
pub struct RecentCalls {
    /// Made for the first call, so that an idle gateway holds none.
    slots: OnceLock<Box<[CallSlot]>>,
    max: usize,
    next_id: AtomicU64,
    changes: AtomicU64,
}

#[derive(Default)]
struct CallSlot {
    call: Mutex<Option<RecentCall>>,
    /// Id of the call that an operator cancelled.
    cancelled: AtomicU64,
    waker: AtomicWaker,
}

impl CallSlot {
    /// Returns true if the call with this id runs here.
    fn is_running(&self, id: u64) -> bool {
        self.call
            .lock()
            .as_ref()
            .is_some_and(|call| call.id == id && call.result.is_none())
    }

    fn changed_since(&self, change: u64) -> Option<RecentCall> {
        self.call
            .lock()
            .as_ref()
            .filter(|call| call.change > change)
            .cloned()
    }
}

/// Position of a recorded call in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTicket {
    slot: usize,
    id: u64,
}

impl RecentCalls {
    /// Creates a ring of `max` calls. With 0 no call is recorded.
    pub(super) fn new(max: usize) -> Self {
        RecentCalls {
            slots: OnceLock::new(),
            max,
            next_id: AtomicU64::new(1),
            changes: AtomicU64::new(0),
        }
    }

    fn slots(&self) -> &[CallSlot] {
        self.slots
            .get_or_init(|| (0..self.max).map(|_| CallSlot::default()).collect())
    }

    /// Records the start of a call. Returns `None` if calls are not recorded, or too many are
    /// running.
    pub(super) fn begin(&self, caller: &Caller, facts: CallFacts) -> Option<CallTicket> {
        let max = u64::try_from(self.max).ok().filter(|max| *max > 0)?;
        let at = SystemTime::now();
        // Also where no slot is free: the record may lack the call, and the key was used.
        facts.principal.last_call.record(
            at.duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
        );
        // Relaxed: the number only has to be unique.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        for tried in 0..SLOTS_TRIED.min(max) {
            let slot = usize::try_from(id.wrapping_add(tried) % max).ok()?;
            let mut call = self.slots()[slot].call.lock();
            if call.as_ref().is_some_and(|call| call.result.is_none()) {
                continue;
            }
            // The buffer of the call before is used again: most calls allocate nothing here.
            let mut client_info = call
                .take()
                .map(|before| before.client_info)
                .unwrap_or_default();
            copy_client_info(caller.client_info.as_ref(), &mut client_info);
            let change = self.next_change();
            *call = Some(RecentCall {
                id,
                change,
                at,
                facts,
                result: None,
                client_info,
            });
            return Some(CallTicket { slot, id });
        }
        None
    }

    /// Records the end of a call.
    pub(super) fn end(&self, ticket: CallTicket, result: CallResult) {
        let mut call = self.slots()[ticket.slot].call.lock();
        if let Some(call) = call.as_mut().filter(|call| call.id == ticket.id) {
            call.change = self.next_change();
            call.result = Some(result);
        }
    }

    fn next_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns true if an operator cancelled the call. Otherwise the task is woken when one does.
    pub(super) fn poll_cancelled(&self, ticket: CallTicket, cx: &Context<'_>) -> bool {
        let slot = &self.slots()[ticket.slot];
        // Registered before the check, so that a cancel in between wakes the task.
        slot.waker.register(cx.waker());
        slot.cancelled.load(Ordering::Acquire) == ticket.id
    }

    /// Cancels a running call. Returns false if there is none with this id.
    pub fn cancel(&self, id: u64) -> bool {
        let Some(slots) = self.slots.get() else {
            return false;
        };
        let Some(slot) = slots.iter().find(|slot| slot.is_running(id)) else {
            return false;
        };
        // The id, not a flag: the next call of this slot is not meant. Stored before the wake, so
        // that the woken task sees it.
        slot.cancelled.store(id, Ordering::Release);
        slot.waker.wake();
        true
    }

    /// Returns the number of the last change.
    pub fn last_change(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the id of the last call, which may not be recorded yet. 0 before the first call.
    pub fn last_id(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed) - 1
    }

    /// Returns the last error of each server, with the time of its call.
    pub fn last_errors(&self) -> HashMap<String, (SystemTime, Box<str>)> {
        let mut last: HashMap<String, (u64, SystemTime, Box<str>)> = HashMap::new();
        for slot in self.slots.get().map_or(&[][..], |slots| slots) {
            let call = slot.call.lock();
            let Some(call) = call
                .as_ref()
                .filter(|call| call.state() == CallState::Error)
            else {
                continue;
            };
            let Some((_, text)) = call
                .result
                .as_ref()
                .and_then(|result| result.error.as_ref())
            else {
                continue;
            };
            if last
                .get(&*call.facts.server)
                .is_none_or(|(change, ..)| *change < call.change)
            {
                last.insert(
                    call.facts.server.to_string(),
                    (call.change, call.at, text.clone()),
                );
            }
        }
        last.into_iter()
            .map(|(server, (_, at, text))| (server, (at, text)))
            .collect()
    }

    /// Returns the calls that changed after `change`, newest first.
    pub fn changed_since(&self, change: u64) -> Vec<RecentCall> {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        let changed = slots.iter().filter_map(|slot| slot.changed_since(change));
        let mut calls: Vec<RecentCall> = changed.collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.id));
        calls
    }
}

/// Returns an error's text for operators: one line, redacted and cut.
pub(super) fn error_text(message: &str) -> Box<str> {
    cut(&logs::redact(&logs::one_line(message))).into()
}

fn cut(text: &str) -> String {
    logs::one_line(text).chars().take(TEXT_MAX).collect()
}

fn copy_client_info(info: Option<&RawJson>, buffer: &mut Vec<u8>) {
    buffer.clear();
    let Some(info) = info else { return };
    let bytes = info.bytes();
    if bytes.len() <= CLIENT_INFO_MAX {
        return buffer.extend_from_slice(bytes);
    }
    // Icons and the like are not kept.
    let Some(info) = info.as_object() else { return };
    let [name, version] =
        ["name", "version"].map(|key| info.get_string(key).map(|text| cut(&text)));
    buffer.extend(
        serde_json::json!({ "name": name, "version": version })
            .to_string()
            .into_bytes(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_testing as testing;

    fn facts(item: &str) -> CallFacts {
        CallFacts {
            method: McpMethod::CallTool,
            principal: Arc::new(Principal::anonymous()),
            endpoint: ByteString::literal(""),
            server: ByteString::literal("a"),
            item: ByteString::from(item),
            client_revision: "2025-11-25",
            request_bytes: 7,
            received: Instant::now(),
        }
    }

    fn end(state: CallState) -> CallResult {
        let took = Duration::from_millis(3);
        let server_time = Duration::from_millis(2);
        let wait = Some(Duration::ZERO);
        let server_revision = "2026-07-28";
        CallResult {
            state,
            server_revision,
            response_bytes: 9,
            took,
            server_time,
            wait,
            retries: 0,
            error: None,
        }
    }

    fn running(calls: &RecentCalls) -> Vec<u64> {
        calls
            .changed_since(0)
            .iter()
            .filter(|call| call.state() == CallState::Running)
            .map(|call| call.id)
            .collect()
    }

    #[test]
    fn the_last_calls_are_kept_and_a_running_one_keeps_its_slot() {
        let calls = RecentCalls::new(3);
        let caller = testing::caller(1, None);
        let first = calls.begin(&caller, facts("first")).unwrap();
        for item in ["b", "c", "d", "e", "f"] {
            let ticket = calls.begin(&caller, facts(item)).unwrap();
            calls.end(ticket, end(CallState::Ok));
        }
        let kept = calls.changed_since(0);
        let items: Vec<_> = kept
            .iter()
            .map(|call| call.facts.item.to_string())
            .collect();
        assert_eq!(items, ["f", "e", "first"]);
        assert_eq!(running(&calls), [1]);
        let change = calls.last_change();
        calls.end(first, end(CallState::ToolError));
        let changed = calls.changed_since(change);
        assert_eq!(
            changed
                .iter()
                .map(|call| (call.id, call.state().name()))
                .collect::<Vec<_>>(),
            [(1, "tool_error")]
        );
        assert!(running(&calls).is_empty() && calls.changed_since(calls.last_change()).is_empty());
    }

    #[test]
    fn calls_beyond_the_ring_are_not_recorded_and_a_ring_of_none_holds_none() {
        let caller = testing::caller(1, None);
        let calls = RecentCalls::new(2);
        assert!((0..2).all(|_| calls.begin(&caller, facts("a")).is_some()));
        assert!(calls.begin(&caller, facts("a")).is_none());
        let off = RecentCalls::new(0);
        assert!(
            off.begin(&caller, facts("a")).is_none()
                && off.changed_since(0).is_empty()
                && !off.cancel(1)
        );
    }

    #[test]
    fn a_long_client_info_is_reduced_to_its_name() {
        let info =
            serde_json::json!({ "name": "probe", "version": "1.2", "icons": "x".repeat(1000) })
                .to_string();
        let mut buffer = Vec::new();
        copy_client_info(
            Some(&RawJson::parse(info.into_bytes().into()).unwrap()),
            &mut buffer,
        );
        assert_eq!(buffer, br#"{"name":"probe","version":"1.2"}"#);
    }

    #[test]
    fn a_cancelled_call_is_woken() {
        let calls = RecentCalls::new(3);
        let caller = testing::caller(1, None);
        let ticket = calls.begin(&caller, facts("a")).unwrap();
        let (waker, count) = futures_test_waker();
        let cx = Context::from_waker(&waker);
        assert!(!calls.poll_cancelled(ticket, &cx) && !calls.cancel(7));
        assert!(calls.cancel(1) && calls.poll_cancelled(ticket, &cx));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        calls.end(ticket, end(CallState::Cancelled));
        assert!(!calls.cancel(1), "it has ended");
    }

    struct WakeCount(AtomicU64);

    impl std::task::Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn futures_test_waker() -> (std::task::Waker, Arc<WakeCount>) {
        let count = Arc::new(WakeCount(AtomicU64::new(0)));
        (count.clone().into(), count)
    }
}
