//! Choice of the call that a message of the server belongs to.
//!
//! Owns the ways to find it: by token, task or subscription, or as the only call that fits. Does
//! not keep the table of calls (`correlation`). Invariant: a message that could belong to two
//! callers goes to neither.

use std::sync::atomic::Ordering;

use super::{CorrelationEntry, PendingCalls, owner_of};
use crate::input_recipient::CallCandidate;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::{RpcMessage, RpcRequest, echoed_number};
use moongate_model::{Caller, InputKind};

impl PendingCalls {
    /// Delivers a server request that arrived on no call's stream to the only call that it can be
    /// about.
    ///
    /// Returns the request if no call matches, or several do.
    pub(crate) fn deliver_request(&self, request: RpcRequest) -> Result<(), RpcRequest> {
        let kind = InputKind::classify(&request.method, &request.params);
        self.record_kind(kind);
        let candidate = self.sole_candidate(kind, |_, open| {
            open.stray_messages.is_some() && open.accepts(kind)
        });
        match candidate.filter(|id| self.may_ask(*id, kind)) {
            Some(id) => self.push(id, request),
            None => Err(request),
        }
    }

    /// Delivers an input request that went to the wrong call of a client to another call of that
    /// client.
    pub(crate) fn redeliver_request(
        &self,
        (from, caller): (u64, &Caller),
        request: RpcRequest,
    ) -> Result<(), RpcRequest> {
        let kind = InputKind::classify(&request.method, &request.params);
        let owner = owner_of(caller);
        let candidate = self.sole_candidate(kind, |id, open| {
            id != from && open.stray_messages.is_some() && open.accepts(kind) && open.owner == owner
        });
        match candidate {
            Some(id) => self.push(id, request),
            None => Err(request),
        }
    }

    /// Delivers a task's request to the call that awaits the task. Returns the request if there is
    /// none.
    pub(crate) fn deliver_task_request(
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

    /// Finds the open call that a message is about. `is_awaited` returns true if the pipe awaits
    /// the response to a request.
    pub(crate) fn find_call(
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
        if let Some(task) = crate::legacy::task_of(&r.params) {
            return self.find_by_task(&task);
        }
        let kind = InputKind::classify(&r.method, &r.params);
        self.record_kind(kind);
        // A call is open before it is sent, and for a moment after its response: neither is asked.
        // If no client supports the request, the only open call must fail with the name of the
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
        if owner.is_none() || open.values().any(|call| call.is_of_other(owner.as_ref())) {
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
        let candidates: Vec<CallCandidate> = open
            .iter()
            .filter(|(id, call)| fits(**id, call) && **id <= unread)
            .map(|(id, call)| call.candidate(*id))
            .collect();
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

    /// Finds the call that awaits a task.
    fn find_by_task(&self, task: &str) -> Option<u64> {
        self.0
            .open
            .lock()
            .iter()
            .find(|(_, open)| open.awaits_task(task))
            .map(|(id, _)| *id)
    }

    /// Finds the call that this progress token belongs to.
    fn find_by_token(&self, token: u64) -> Option<u64> {
        let open = self.0.open.lock();
        // A call's own token is its id. Only the second token of a task needs the search.
        if open.contains_key(&token) {
            return Some(token);
        }
        open.iter()
            .find(|(_, call)| call.has_task_token(token))
            .map(|(id, _)| *id)
    }

    /// Returns the only call that fits.
    pub(super) fn sole_match(&self, fits: impl Fn(&CorrelationEntry) -> bool) -> Option<u64> {
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

impl CorrelationEntry {
    fn candidate(&self, id: u64) -> CallCandidate {
        CallCandidate {
            id,
            target: self.target,
            input_count: self.input_count,
            waits_since_id: (self.open_inputs > 0).then_some(self.id_at_last_input),
        }
    }

    fn awaits_task(&self, task: &str) -> bool {
        self.task
            .as_ref()
            .is_some_and(|(id, _)| id.as_str() == task)
    }

    fn has_task_token(&self, token: u64) -> bool {
        self.task
            .as_ref()
            .is_some_and(|(_, also)| *also == Some(token))
    }
}

fn subscription_of(params: &JsonObject) -> Option<u64> {
    let meta = params.get_object("_meta")?;
    echoed_number(meta.get(crate::v2026_07_28::SUBSCRIPTION_ID)?.bytes())
}
