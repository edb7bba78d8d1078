//! One legacy session: its calls, requests to its client, subscriptions and streams.
//!
//! Owns what a request does to its session. The table of sessions is elsewhere. Invariant: everything that a client can
//! grow has a limit, and ends with the session.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    CALLS_MAX, ELICITATIONS_MAX, PENDING_MAX, Session, SessionSubscription, SubscribeOutcome, TASKS_MAX, lock,
};
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_jsonrpc::message::{RequestId, RpcError};
use moongate_model::NotificationStream;

impl Session {
    pub(super) fn is_idle(&self) -> bool {
        self.activities.load(Ordering::Relaxed) == 0
    }

    pub(super) fn end(&self) {
        if let Some(row) = &self.row {
            row.remove();
        }
        self.ended.cancel();
        lock(&self.pending).clear();
        lock(&self.subscriptions).clear();
        // Dropped, so that the subscriptions at servers end with the session.
        lock(&self.retained_notifications).take();
        for (_, token) in lock(&self.calls).iter() {
            token.cancel();
        }
    }

    /// Marks the session as used now.
    pub(super) fn mark_active(&self) {
        let now = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used_ms.store(now, Ordering::Relaxed);
    }

    /// Keeps the session from expiring while the guard lives.
    pub fn begin_activity(self: &Arc<Self>) -> SessionActivityGuard {
        self.activities.fetch_add(1, Ordering::Relaxed);
        SessionActivityGuard(self.clone())
    }

    /// Registers a server's request. Returns the id that it goes to the client under.
    ///
    /// Returns `None` if too many wait already.
    pub fn expect_response(&self) -> Option<(RequestId, oneshot::Receiver<Result<JsonObject, RpcError>>)> {
        let mut pending = lock(&self.pending);
        // Requests whose sender stopped waiting free their places.
        pending.retain(|_, sender| !sender.is_closed());
        if pending.len() >= PENDING_MAX {
            return None;
        }
        let n = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        pending.insert(n, sender);
        Some((server_request_id(n), receiver))
    }

    /// Delivers the client's response to a server's request. Returns false if nobody waits for it.
    pub fn deliver_response(&self, id: &RequestId, outcome: Result<JsonObject, RpcError>) -> bool {
        let number = id.raw().as_text().and_then(|t| t.strip_prefix(REQUEST_ID_PREFIX).and_then(|n| n.parse().ok()));
        let sender = number.and_then(|n: u64| lock(&self.pending).remove(&n));
        sender.is_some_and(|sender| sender.send(outcome).is_ok())
    }

    /// Registers an open call, so that it can be cancelled by the client's id.
    ///
    /// Returns `None` if the session has too many.
    pub fn begin_call(self: &Arc<Self>, id: &RequestId) -> Option<OpenCall> {
        let mut calls = lock(&self.calls);
        if calls.len() >= CALLS_MAX {
            return None;
        }
        let token = CancellationToken::new();
        calls.push((id.clone(), token.clone()));
        // The session may have ended before the call was added: `end` cancels only the calls in the list.
        if self.ended.is_cancelled() {
            token.cancel();
        }
        Some(OpenCall { session: self.clone(), token, _activity: self.begin_activity() })
    }

    /// Cancels the open call with the client's `id`. Returns false if there is none, or several. Some clients use one
    /// id for everything at once, so the call that is meant is unknown.
    pub fn cancel_call(&self, id: &RequestId) -> bool {
        let calls = lock(&self.calls);
        let mut named = calls.iter().filter(|(open, _)| open == id);
        match (named.next(), named.next()) {
            (Some((_, token)), None) => {
                token.cancel();
                true
            }
            _ => false,
        }
    }

    /// Adds a subscription.
    pub fn subscribe(&self, uri: &ByteString) -> SubscribeOutcome {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.get(uri) {
            return SubscribeOutcome::Already(subscription.clone());
        }
        if subscriptions.len() >= self.subscriptions_max {
            return SubscribeOutcome::TooMany;
        }
        let subscription = SessionSubscription::new(self.ended.child_token());
        subscriptions.insert(uri.clone(), subscription.clone());
        drop(subscriptions);
        self.persist();
        SubscribeOutcome::New(subscription)
    }

    /// Ends a subscription, if there is one. From here on no message about the resource leaves, not even a queued one.
    pub fn unsubscribe(&self, uri: &ByteString) {
        let mut subscriptions = lock(&self.subscriptions);
        if let Some(subscription) = subscriptions.remove(uri) {
            // Cancelled and removed under one lock, so that `update` queues nothing afterwards.
            subscription.ended.cancel();
            self.outbox.remove_about(uri);
            drop(subscriptions);
            self.persist();
        }
    }

    /// Queues a message about a subscribed resource in the outbox. Returns false if the subscription has ended.
    pub fn update(&self, uri: &ByteString, subscription: &SessionSubscription, message: Bytes) -> bool {
        // `unsubscribe` takes this lock too: a message is either queued before it and removed, or never queued.
        let _held = lock(&self.subscriptions);
        let live = !subscription.ended.is_cancelled();
        if live {
            self.outbox.push(message, Some(uri.clone()));
        }
        live
    }

    /// Records a task that the session made.
    pub fn record_task(&self, id: &str) {
        let mut tasks = lock(&self.tasks);
        if tasks.len() >= TASKS_MAX {
            tasks.pop_front();
        }
        tasks.push_back(ByteString::from(id));
        drop(tasks);
        self.persist();
    }

    /// Returns true if the session is known to have made this task.
    pub fn has_task(&self, id: &ByteString) -> bool {
        lock(&self.tasks).contains(id)
    }

    /// Returns the resources that the session is subscribed to.
    pub fn subscriptions(&self) -> HashSet<ByteString> {
        lock(&self.subscriptions).keys().cloned().collect()
    }

    /// Records that a URL elicitation was opened, by its id.
    pub fn elicitation_opened(&self, id: &str) {
        let mut pages = lock(&self.elicitations);
        if pages.len() >= ELICITATIONS_MAX {
            pages.pop_front();
        }
        // Copied: the id is a span that would keep a whole message alive.
        pages.push_back(ByteString::from(id));
    }

    /// Removes a URL elicitation. Returns true if this session's user had it open.
    pub fn elicitation_completed(&self, id: &ByteString) -> bool {
        let mut pages = lock(&self.elicitations);
        let at = pages.iter().position(|page| page == id);
        at.and_then(|at| pages.remove(at)).is_some()
    }

    /// Returns true if any call is open.
    pub fn is_calling(&self) -> bool {
        !lock(&self.calls).is_empty()
    }

    /// Retains the notifications of a stream that broke off.
    pub fn retain_notifications(&self, notices: NotificationStream) {
        // An ended session would hold the subscription for ever.
        if !self.ended.is_cancelled() {
            let mut listener = lock(&self.retained_notifications);
            self.has_unread_changes.store(false, Ordering::Relaxed);
            *listener = Some(notices);
        }
    }

    /// Takes the retained notifications, if there are any.
    pub fn take_retained_notifications(&self) -> Option<NotificationStream> {
        lock(&self.retained_notifications).take()
    }

    /// Starts the session's GET stream and ends the one before. A client that opens a second stream has lost the first.
    pub fn open_stream(&self) -> CancellationToken {
        let token = self.ended.child_token();
        std::mem::replace(&mut *lock(&self.stream), token.clone()).cancel();
        token
    }
}

/// Prefix of our request ids to clients. String ids cannot be confused with the client's own numbers.
const REQUEST_ID_PREFIX: &str = "ask-";

fn server_request_id(n: u64) -> RequestId {
    RequestId::string(&format!("{REQUEST_ID_PREFIX}{n}"))
}

/// Keeps a session from expiring.
pub struct SessionActivityGuard(Arc<Session>);

impl Drop for SessionActivityGuard {
    fn drop(&mut self) {
        // Idle time starts here, not at the last request.
        self.0.mark_active();
        self.0.activities.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Open call of a session.
pub struct OpenCall {
    /// Activity guard: a session with an open call is in use, however long the call takes.
    _activity: SessionActivityGuard,
    session: Arc<Session>,
    token: CancellationToken,
}

impl OpenCall {
    /// Returns the session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns the token that is cancelled when the client cancels the call, or its session ends.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut calls = lock(&self.session.calls);
        // Two calls can have the same id, so the token identifies this one: it is the cancelled one of the list.
        self.token.cancel();
        if let Some(at) = calls.iter().position(|(_, token)| token.is_cancelled()) {
            calls.swap_remove(at);
        }
    }
}
