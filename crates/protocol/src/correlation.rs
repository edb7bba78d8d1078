//! Table of open calls on one connection, and the choice of the call that a message belongs to.
//!
//! Owns the request ids of one connection and the caller behind each. Does not move messages.
//! Invariant: a message that could belong to two callers goes to neither.

mod cancelled_call;
mod log_recipient;

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
use crate::input_recipient::{CallCandidate, CallTarget, InteractiveTargets, QuietTargets};
use crate::open_inputs::OpenInputs;
use crate::roots_owner::RootsOwner;
use crate::seen_input_flag::SeenInputFlag;
use crate::stray_messages::StrayMessages;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::{RpcMessage, RpcRequest, echoed_number};
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

    /// Delivers a server request that arrived on no call's stream to the only call that it can be
    /// about.
    ///
    /// Returns the request if there is no such call, or several.
    pub(super) fn deliver_request(&self, request: RpcRequest) -> Result<(), RpcRequest> {
        let kind = InputKind::classify(&request.method, &request.params);
        self.record_kind(kind);
        let fits = |_, open: &CorrelationEntry| open.stray_messages.is_some() && open.accepts(kind);
        match self
            .sole_candidate(kind, fits)
            .filter(|id| self.may_ask(*id, kind))
        {
            Some(id) => self.push(id, request),
            None => Err(request),
        }
    }

    /// Delivers an input request that went to the wrong call of a client to another call of that
    /// client.
    pub(super) fn redeliver_request(
        &self,
        (from, caller): (u64, &Caller),
        request: RpcRequest,
    ) -> Result<(), RpcRequest> {
        let kind = InputKind::classify(&request.method, &request.params);
        let owner = owner_of(caller);
        let fits = |id, open: &CorrelationEntry| {
            id != from && open.stray_messages.is_some() && open.accepts(kind) && open.owner == owner
        };
        match self.sole_candidate(kind, fits) {
            Some(id) => self.push(id, request),
            None => Err(request),
        }
    }

    /// Delivers a task's request to the call that awaits the task. Returns the request if there is
    /// none.
    pub(super) fn deliver_task_request(
        &self,
        task: &str,
        request: RpcRequest,
    ) -> Result<(), RpcRequest> {
        match self.find_by_task(task) {
            Some(id) => self.push(id, request),
            None => Err(request),
        }
    }

    fn push(&self, id: u64, request: RpcRequest) -> Result<(), RpcRequest> {
        let stray_messages = self
            .0
            .open
            .lock()
            .get(&id)
            .and_then(|open| open.stray_messages.clone());
        // The queue may be full, or the call may have ended since it was picked.
        match stray_messages {
            Some(stray_messages) if stray_messages.push(RpcMessage::Request(request.clone())) => {
                self.0
                    .withdrawable
                    .add_routed(&request.id, (id, &stray_messages));
                Ok(())
            }
            _ => Err(request),
        }
    }

    /// Records a request that names no call.
    fn record_kind(&self, kind: InputKind) {
        self.record_roots(kind);
        if kind == InputKind::Extension && self.0.open.lock().values().any(|open| open.extensions) {
            self.0.seen_input.set_extensions();
        }
        if !matches!(kind, InputKind::Extension | InputKind::Other) && !self.is_idle() {
            self.0.seen_input.set();
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

    /// Returns true if a call's client may get a request of this kind here. Roots are those of one
    /// client.
    fn may_ask(&self, id: u64, kind: InputKind) -> bool {
        if kind != InputKind::Roots {
            return true;
        }
        let open = self.0.open.lock();
        let Some(call) = open.get(&id).filter(|call| call.capabilities.roots) else {
            return true;
        };
        call.owner
            .as_ref()
            .is_none_or(|owner| self.0.roots_owner.is_free_for(owner))
    }

    /// Returns the input requests that the server may withdraw.
    pub(super) fn open_inputs(&self) -> &OpenInputs {
        &self.0.withdrawable
    }

    /// Finds the call that awaits a task.
    fn find_by_task(&self, task: &str) -> Option<u64> {
        let waits = |open: &CorrelationEntry| {
            open.task
                .as_ref()
                .is_some_and(|(id, _)| id.as_str() == task)
        };
        self.0
            .open
            .lock()
            .iter()
            .find(|(_, open)| waits(open))
            .map(|(id, _)| *id)
    }

    /// Finds the call that this progress token belongs to.
    fn find_by_token(&self, token: u64) -> Option<u64> {
        let open = self.0.open.lock();
        let named = |call: &CorrelationEntry| {
            call.task
                .as_ref()
                .is_some_and(|(_, also)| *also == Some(token))
        };
        // A call's own token is its id. Only the second token of a task needs the search.
        if open.contains_key(&token) {
            return Some(token);
        }
        open.iter().find(|(_, call)| named(call)).map(|(id, _)| *id)
    }

    /// Returns an id for a request of the gateway's own. No notification is about such a request.
    pub(super) fn next_id(&self) -> u64 {
        self.0.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True if another client has an open call that an input request could be about. Clients are
    /// told apart by owner. `extensions`: true if the caller may use the server's.
    pub fn has_other_clients(&self, caller: &Caller, extensions: bool) -> bool {
        let owner = owner_of(caller);
        let able = self.can_be_asked(caller.capabilities, extensions);
        // Two calls can be confused only if one of them accepts input requests.
        let other = |open: &CorrelationEntry| {
            open.owner.is_some()
                && open.owner != owner
                && (able || self.can_be_asked(open.capabilities, open.extensions))
        };
        self.0.open.lock().values().any(other)
            || self.any_cancelled(|cancelled| {
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
        let is_able =
            |open: &CorrelationEntry| self.can_be_asked(open.capabilities, open.extensions);
        let is_other =
            |open: &&CorrelationEntry| open.owner.is_some() && open.owner != owner && is_able(open);
        self.0
            .open
            .lock()
            .values()
            .filter(is_other)
            .any(|open| !quiet.contains(open.target))
    }

    /// Records that a call was answered without an input request.
    fn record_quiet(&self, call: &CorrelationEntry) {
        if call.owner.is_some() && call.input_count == 0 && !self.0.seen_input.is_set() {
            self.0.quiet_targets.record(call.target);
        }
    }

    /// True if the server may still send messages about calls that this client cancelled.
    pub(super) fn has_unread_cancellations(&self, caller: &Caller) -> bool {
        let owner = owner_of(caller);
        self.any_cancelled(|cancelled| cancelled.owner == owner && !cancelled.is_read)
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

    /// Finds the open call that a message is about. `is_awaited` tells whether the pipe awaits the
    /// response to a request.
    pub(super) fn find_call(
        &self,
        message: &RpcMessage,
        is_awaited: &dyn Fn(u64) -> bool,
    ) -> Option<u64> {
        match message {
            // The link finds the calls of responses by their ids.
            RpcMessage::Response(_) => None,
            RpcMessage::Notification(n) if &*n.method == "notifications/progress" => {
                self.find_by_token(echoed_number(n.params.get("progressToken")?.bytes())?)
            }
            RpcMessage::Notification(n) if &*n.method == "notifications/message" => {
                self.sole_log_recipient()
            }
            // In order with the rest of the call. A call that has ended has nobody to read it.
            RpcMessage::Notification(n) if &*n.method == "notifications/cancelled" => self
                .0
                .withdrawable
                .call_of(n)
                .filter(|id| self.0.open.lock().contains_key(id))
                .or_else(|| subscription_of(&n.params)),
            // Subscriptions of 2026-07-28 carry the id of their request in `_meta`.
            RpcMessage::Notification(n) => subscription_of(&n.params),
            RpcMessage::Request(r) => {
                let id = self.find_call_of_request(r, is_awaited)?;
                if let Some(queue) = self
                    .0
                    .open
                    .lock()
                    .get(&id)
                    .and_then(|open| open.stray_messages.clone())
                {
                    // Before the call reads it: the server may withdraw it at once.
                    self.0.withdrawable.add_routed(&r.id, (id, &queue));
                }
                Some(id)
            }
        }
    }

    fn find_call_of_request(
        &self,
        r: &RpcRequest,
        is_awaited: &dyn Fn(u64) -> bool,
    ) -> Option<u64> {
        if let Some(task) = super::legacy::task_of(&r.params) {
            return self.find_by_task(&task);
        }
        let kind = InputKind::classify(&r.method, &r.params);
        self.record_kind(kind);
        // A call is open before it is sent, and for a moment after its response: neither is asked.
        // If no client supports the request, the only open call shall fail with the name of the
        // missing capability.
        self.sole_candidate(kind, |id, open| open.accepts(kind) && is_awaited(id))
            .or_else(|| self.sole_call(|open| !open.accepts(kind)))
            .filter(|id| self.may_ask(*id, kind))
    }

    /// Picks the call that a server request without a call id belongs to.
    ///
    /// Returns `None` if another client has a call open that the request could come from. Among
    /// several calls of one client the likeliest call gets it, since the client is the same.
    fn sole_candidate(
        &self,
        kind: InputKind,
        fits: impl Fn(u64, &CorrelationEntry) -> bool,
    ) -> Option<u64> {
        let mut open = self.0.open.lock();
        let owner = open
            .iter()
            .find(|(id, call)| fits(**id, call))?
            .1
            .owner
            .clone();
        if owner.is_none()
            || open
                .values()
                .any(|call| call.owner.is_some() && call.owner != owner)
        {
            return None;
        }
        // Until the server has read a cancellation, it sends no request for calls that were sent
        // after it.
        let mut is_ambiguous = false;
        let mut unread = u64::MAX;
        self.for_each_cancelled(|cancelled| {
            is_ambiguous |= cancelled.may_concern(owner.as_ref());
            if cancelled.owner == owner && !cancelled.is_read {
                unread = unread.min(cancelled.last);
            }
        });
        if is_ambiguous {
            return None;
        }
        let fitting = open
            .iter()
            .filter(|(id, call)| fits(**id, call) && **id <= unread);
        let candidate = |(id, call): (&u64, &CorrelationEntry)| CallCandidate {
            id: *id,
            target: call.target,
            input_count: call.input_count,
            waits_since_id: (call.open_inputs > 0).then_some(call.id_at_last_input),
        };
        let candidates: Vec<CallCandidate> = fitting.map(candidate).collect();
        let mut targets = self.0.interactive_targets.lock();
        let id = targets.pick_recipient(&candidates)?;
        // A server asks for roots on its own account, which says nothing of the call that is open
        // then.
        if kind == InputKind::Roots {
            return Some(id);
        }
        let alone =
            unread == u64::MAX && open.values().filter(|call| call.owner.is_some()).count() == 1;
        let picked = open.get_mut(&id)?;
        picked.input_count = picked.input_count.saturating_add(1);
        picked.id_at_last_input = self.0.last.load(Ordering::Relaxed);
        // Only an unambiguous case is recorded for later choices.
        if alone {
            targets.record(picked.target);
        }
        Some(id)
    }

    /// Returns the only client call if it matches.
    fn sole_call(&self, matches: impl Fn(&CorrelationEntry) -> bool) -> Option<u64> {
        let id = self.sole_match(|open| open.owner.is_some())?;
        let owner = self
            .0
            .open
            .lock()
            .get(&id)
            .filter(|open| matches(open))?
            .owner
            .clone();
        (!self.any_cancelled(|cancelled| cancelled.may_concern(owner.as_ref()))).then_some(id)
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

    fn sole_match(&self, fits: impl Fn(&CorrelationEntry) -> bool) -> Option<u64> {
        let open = self.0.open.lock();
        let mut fitting = open
            .iter()
            .filter(|(_, call)| fits(call))
            .map(|(id, _)| *id);
        match (fitting.next(), fitting.next()) {
            (Some(id), None) => Some(id),
            _ => None,
        }
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

fn subscription_of(params: &moongate_jsonrpc::json::JsonObject) -> Option<u64> {
    let meta = params.get_object("_meta")?;
    echoed_number(meta.get(super::v2026_07_28::SUBSCRIPTION_ID)?.bytes())
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
