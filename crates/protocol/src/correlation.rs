//! Table of open calls on one connection.
//!
//! Owns the request ids of one connection and the caller behind each. Leaves to `message_recipient`
//! which call a message belongs to. Invariant: a call is in the table until its handle is dropped.

mod cancelled_call;
mod log_recipient;
mod message_recipient;

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::cancelled_call::CallOwner;
use self::cancelled_call::CancelledCall;
pub(super) use self::log_recipient::LogInterest;
use crate::extension_requests::ExtensionRequests;
use crate::input_recipient::{CallTarget, InteractiveTargets, QuietTargets};
use crate::open_inputs::OpenInputs;
use crate::roots_owner::RootsOwner;
use crate::seen_input_flag::SeenInputFlag;
use crate::stray_messages::StrayMessages;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, ClientCapabilities, InputKind, Principal};
use moongate_session::store::unix_now;

/// Time for which a server may still send messages about a cancelled call.
const CANCELLED_TIME: Duration = Duration::from_secs(60);
/// Limit of clients remembered with cancelled calls. Calls of further clients share one entry
/// without an owner.
const CANCELLED_MAX: usize = 256;

/// The open calls of one connection.
#[derive(Clone, Default)]
pub struct PendingCalls(Arc<PendingTable>);

#[derive(Default)]
struct PendingTable {
    open: Mutex<BTreeMap<u64, CorrelationEntry>>,
    /// Calls cancelled before their response. The server may not have read that yet and still send
    /// requests for them.
    cancelled: Mutex<VecDeque<CancelledCall>>,
    last: AtomicU64,
    /// True once the server has answered a call.
    answered: AtomicBool,
    /// Set by the first input request of this server.
    seen_input: SeenInputFlag,
    /// Targets of calls that received an input request while no other call was open.
    interactive_targets: Mutex<InteractiveTargets>,
    /// Targets of calls that were answered without an input request, of clients that could have
    /// been asked.
    quiet_targets: QuietTargets,
    /// Number of input requests without a response from their users.
    open_inputs: AtomicUsize,
    /// Those that the server may withdraw.
    withdrawable: OpenInputs,
    /// Client whose roots the server got.
    roots_owner: RootsOwner,
    extension_requests: ExtensionRequests,
    /// Notified for each call that timed out while the server was silent.
    silent: Notify,
}

/// Facts about one open call.
struct CorrelationEntry {
    capabilities: ClientCapabilities,
    /// True if the client may use the server's extensions.
    extensions: bool,
    logs: LogInterest,
    target: CallTarget,
    /// Number of input requests that the call received.
    input_count: u32,
    /// Last request id in use when the call received its latest input request.
    id_at_last_input: u64,
    /// Number of input requests that the user has not answered yet.
    open_inputs: u32,
    /// Owner of the call. `None` for the gateway's own calls.
    owner: Option<CallOwner>,
    /// Task whose result the call awaits, and a second progress token for that task.
    task: Option<(ByteString, Option<u64>)>,
    /// Queue for server requests that arrive on another stream than the call's own.
    stray_messages: Option<StrayMessages>,
}

impl CorrelationEntry {
    /// True if the call's client may get a request of this kind.
    fn accepts(&self, kind: InputKind) -> bool {
        match kind {
            InputKind::Extension => self.extensions,
            kind => self.capabilities.supports(kind),
        }
    }

    /// True if the call is another client's.
    fn is_of_other(&self, owner: Option<&CallOwner>) -> bool {
        self.owner.is_some() && self.owner.as_ref() != owner
    }
}

/// Handle of one open call. Dropping it removes the call from the table.
pub(super) struct CallEntry {
    calls: PendingCalls,
    pub(super) id: u64,
    is_answered: AtomicBool,
    /// Queue for server requests that arrived on another stream.
    pub(super) stray_messages: Option<StrayMessages>,
}

/// Guard of an input request that waits for its user.
pub(super) struct InputGuard {
    calls: PendingCalls,
    id: u64,
}

impl Drop for InputGuard {
    fn drop(&mut self) {
        self.calls.0.open_inputs.fetch_sub(1, Ordering::Relaxed);
        if let Some(call) = self.calls.0.open.lock().get_mut(&self.id) {
            call.open_inputs = call.open_inputs.saturating_sub(1);
        }
    }
}

impl PendingCalls {
    /// Creates the table of one connection. Input requests of its server are recorded in
    /// `seen_input`.
    pub fn with_seen_input_flag(seen_input: SeenInputFlag) -> Self {
        PendingCalls(Arc::new(PendingTable {
            seen_input,
            ..PendingTable::default()
        }))
    }

    /// Continues with ids above all that another process may have used in the same session.
    ///
    /// "The request ID **MUST NOT** have been previously used by the requestor within the same
    /// session" (2025-11-25/basic/index.mdx, Requests).
    pub(super) fn continue_ids(&self) {
        // Seconds shifted by 20 bits leave a million ids for each second of the previous process.
        self.0.last.store(unix_now() << 20, Ordering::Relaxed);
    }

    /// Opens a call. Its id is also its progress token.
    pub(super) fn open(&self, caller: &Caller, logs: LogInterest, target: CallTarget) -> CallEntry {
        let id = self.next_id();
        // A call that accepts no input requests needs no side queue.
        let stray_messages =
            (caller.capabilities != ClientCapabilities::default()).then(StrayMessages::default);
        let capabilities = caller.capabilities;
        let owner = owner_of(caller);
        let stray_messages = stray_messages.clone();
        let open = CorrelationEntry {
            capabilities,
            extensions: false,
            logs,
            target,
            input_count: 0,
            id_at_last_input: 0,
            open_inputs: 0,
            owner,
            task: None,
            stray_messages: stray_messages.clone(),
        };
        self.0.open.lock().insert(id, open);
        CallEntry {
            calls: self.clone(),
            id,
            is_answered: AtomicBool::new(false),
            stray_messages,
        }
    }

    /// Opens a subscription, whose messages carry its id.
    pub(super) fn open_subscription(&self) -> CallEntry {
        let id = self.next_id();
        let capabilities = ClientCapabilities::default();
        let logs = LogInterest::Never;
        let target = CallTarget::default();
        let open = CorrelationEntry {
            capabilities,
            extensions: false,
            logs,
            target,
            input_count: 0,
            id_at_last_input: 0,
            open_inputs: 0,
            owner: None,
            task: None,
            stray_messages: None,
        };
        self.0.open.lock().insert(id, open);
        CallEntry {
            calls: self.clone(),
            id,
            is_answered: AtomicBool::new(false),
            stray_messages: None,
        }
    }

    /// Returns the record of what the server asks for.
    pub(super) fn seen_input(&self) -> &SeenInputFlag {
        &self.0.seen_input
    }

    /// Returns what is known of extensions on this connection.
    pub(super) fn extension_requests(&self) -> &ExtensionRequests {
        &self.0.extension_requests
    }

    /// True if the server may ask the client of such a call. `extensions`: true if the client may
    /// use the server's.
    pub fn can_be_asked(&self, capabilities: ClientCapabilities, extensions: bool) -> bool {
        capabilities != ClientCapabilities::default()
            || extensions && self.0.extension_requests.are_expected(&self.0.seen_input)
    }

    /// Returns the client whose roots the server got on this connection.
    pub(super) fn roots_owner(&self) -> &RootsOwner {
        &self.0.roots_owner
    }

    /// Returns the input requests that the server may withdraw.
    pub(super) fn open_inputs(&self) -> &OpenInputs {
        &self.0.withdrawable
    }

    /// Returns an id for one of the gateway's own requests. No notification is about such a
    /// request.
    pub(super) fn next_id(&self) -> u64 {
        self.0.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True if another client has an open call that an input request could be about. Clients are
    /// distinguished by owner. `extensions`: true if the caller may use the server's.
    pub fn has_other_clients(&self, caller: &Caller, extensions: bool) -> bool {
        let owner = owner_of(caller);
        let able = self.can_be_asked(caller.capabilities, extensions);
        // Two calls can be confused only if one of them accepts input requests.
        self.0.open.lock().values().any(|open| {
            open.is_of_other(owner.as_ref())
                && (able || self.can_be_asked(open.capabilities, open.extensions))
        }) || self.any_cancelled(|cancelled| {
            cancelled.may_concern(owner.as_ref()) && (able || cancelled.accepts_input)
        })
    }

    /// True if another client has an open call that may ask for input, as a call about `target`
    /// may. Calls that were answered without an input request before do not count.
    pub fn has_unproven_others(&self, caller: &Caller, target: CallTarget) -> bool {
        let quiet = &self.0.quiet_targets;
        if quiet.contains(target) {
            return false;
        }
        let owner = owner_of(caller);
        self.0.open.lock().values().any(|open| {
            open.is_of_other(owner.as_ref())
                && self.can_be_asked(open.capabilities, open.extensions)
                && !quiet.contains(open.target)
        })
    }

    /// True if another client has an open call, and no call about `target` was answered without an
    /// input request yet. A request of such a call could be about either, whatever the other client
    /// can answer and whatever its call did before.
    pub fn is_unproven_beside_others(&self, caller: &Caller, target: CallTarget) -> bool {
        if self.0.quiet_targets.contains(target) {
            return false;
        }
        let owner = owner_of(caller);
        let open = self.0.open.lock();
        open.values().any(|open| open.is_of_other(owner.as_ref()))
    }

    /// Records that a call was answered without an input request.
    fn record_quiet(&self, call: &CorrelationEntry) {
        if call.owner.is_some() && call.input_count == 0 && !self.0.seen_input.is_set() {
            self.0.quiet_targets.record(call.target);
        }
    }

    /// True if the server has not read all cancellations of this principal's clients. Until then, a
    /// request may be about any of those calls.
    pub(super) fn has_unread_cancellations(&self, caller: &Caller) -> bool {
        let Some(CallOwner { principal, .. }) = owner_of(caller) else {
            return false;
        };
        self.any_cancelled(|cancelled| {
            let owner = cancelled.owner.as_ref();
            !cancelled.is_read && owner.is_some_and(|owner| owner.principal == principal)
        })
    }

    /// Marks cancellations as read: a response to `id` proves that the server has read everything
    /// sent before it.
    pub(super) fn mark_read(&self, id: u64) {
        let mut cancelled = self.0.cancelled.lock();
        // A server reads its pipe in order, so the response covers every earlier message.
        for cancelled in cancelled.iter_mut().filter(|cancelled| cancelled.last < id) {
            cancelled.is_read = true;
        }
    }

    /// True if the server ever answered a call.
    pub fn was_answered(&self) -> bool {
        self.0.answered.load(Ordering::Relaxed)
    }

    /// True if no client call is open.
    pub fn is_idle(&self) -> bool {
        !self.0.open.lock().values().any(|open| open.owner.is_some())
    }

    /// True if the server may be silent for longer than a call timeout: a user is answering, or a
    /// task is awaited.
    pub fn may_be_silent(&self) -> bool {
        self.0.open_inputs.load(Ordering::Relaxed) > 0
            || self.0.open.lock().values().any(|open| open.task.is_some())
    }

    /// Reports a call that timed out while nothing at all arrived from the server.
    pub(super) fn report_silence(&self) {
        self.0.silent.notify_one();
    }

    /// Waits for the next report of a silent server.
    pub async fn wait_for_silence(&self) {
        self.0.silent.notified().await;
    }

    /// Marks a call as waiting for its user until the guard is dropped.
    pub(super) fn begin_input(&self, id: u64) -> InputGuard {
        self.0.open_inputs.fetch_add(1, Ordering::Relaxed);
        if let Some(call) = self.0.open.lock().get_mut(&id) {
            call.open_inputs += 1;
        }
        InputGuard {
            calls: self.clone(),
            id,
        }
    }

    /// True if a matching call was cancelled so recently that the server may still send messages
    /// about it.
    fn any_cancelled(&self, matches: impl Fn(&CancelledCall) -> bool) -> bool {
        let mut any = false;
        self.for_each_cancelled(|cancelled| any |= matches(cancelled));
        any
    }

    fn for_each_cancelled(&self, mut visit: impl FnMut(&CancelledCall)) {
        let mut all = self.0.cancelled.lock();
        let now = Instant::now();
        // Expired entries leave here: every read of the list passes through this function.
        all.retain(|cancelled| cancelled.until > now);
        all.iter().for_each(&mut visit);
    }
}

impl CallEntry {
    /// Records that the call was cancelled before its response.
    pub(super) fn mark_cancelled(&self) {
        let open = self.calls.0.open.lock();
        let Some(call) = open.get(&self.id) else {
            return;
        };
        let Some(owner) = call.owner.clone() else {
            return;
        };
        let able = self.calls.can_be_asked(call.capabilities, call.extensions);
        let last = self.calls.0.last.load(Ordering::Relaxed);
        let until = Instant::now() + CANCELLED_TIME;
        let mut cancelled = self.calls.0.cancelled.lock();
        cancelled.retain(|cancelled| cancelled.until > Instant::now());
        // A client must not push out other entries by cancelling many calls: they would be
        // forgotten too early.
        let known = cancelled
            .iter()
            .any(|cancelled| cancelled.owner.as_ref() == Some(&owner));
        let owner = if known || cancelled.len() < CANCELLED_MAX {
            Some(owner)
        } else {
            None
        };
        match cancelled
            .iter_mut()
            .find(|cancelled| cancelled.owner == owner)
        {
            Some(cancelled) => {
                (
                    cancelled.accepts_input,
                    cancelled.last,
                    cancelled.is_read,
                    cancelled.until,
                ) = (cancelled.accepts_input | able, last, false, until)
            }
            None => cancelled.push_back(CancelledCall {
                owner,
                accepts_input: able,
                last,
                is_read: false,
                until,
            }),
        }
    }

    /// Lets the call get requests of the server's extensions.
    pub(super) fn accept_extensions(&mut self) {
        let queue = self.stray_messages.get_or_insert_default().clone();
        if let Some(open) = self.calls.0.open.lock().get_mut(&self.id) {
            (open.extensions, open.stray_messages) = (true, Some(queue));
        }
    }

    /// Records that the call got its response.
    pub(super) fn mark_answered(&self) {
        // Load before store: the flag changes once, and a store for each call would contend for its
        // cache line.
        if !self.calls.was_answered() {
            self.calls.0.answered.store(true, Ordering::Relaxed);
        }
        self.is_answered.store(true, Ordering::Relaxed);
        self.calls.mark_read(self.id);
    }

    /// Records the task that the call awaits, and a second token for the task's progress.
    pub(super) fn set_awaited_task(&self, task: ByteString, also: Option<u64>) {
        if let Some(open) = self.calls.0.open.lock().get_mut(&self.id) {
            open.task = Some((task, also));
        }
    }
}

pub(super) fn owner_of(caller: &Caller) -> Option<CallOwner> {
    // The gateway's own calls have no owner, so no client's message ever matches them.
    let principal = caller.principal.id;
    (principal != Principal::GATEWAY).then(|| CallOwner {
        principal,
        session: caller.session.clone(),
    })
}

impl Drop for CallEntry {
    fn drop(&mut self) {
        let call = self.calls.0.open.lock().remove(&self.id);
        if let Some(call) = call.filter(|_| self.is_answered.load(Ordering::Relaxed)) {
            self.calls.record_quiet(&call);
        }
        if let Some(queue) = &self.stray_messages {
            self.calls.0.withdrawable.end_call(queue);
        }
    }
}

#[cfg(test)]
mod tests;
