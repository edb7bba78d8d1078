//! One legacy session, of the parts that its client can use and grow.
//!
//! Owns what concerns several parts at once: the end, and the changes that are persisted. The table
//! of sessions is elsewhere. Invariant: everything that a client can grow has a limit, and ends
//! with the session.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::calls::SessionCalls;
use crate::client_requests::ClientRequests;
use crate::get_stream::GetStreamState;
use crate::identity::SessionIdentity;
use crate::lifetime::SessionLifetime;
use crate::missed_events::MissedEvents;
use crate::resumption::ResumptionBuffer;
use crate::session_row::SessionRowHandle;
use crate::session_tasks::SessionTasks;
use crate::subscription::{SessionSubscription, SessionSubscriptions, SubscribeOutcome};
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::RequestId;
use moongate_model::{CancelReason, ExtensionCheck, LogFilter, NotificationStream};

/// Session of one client.
pub struct Session {
    /// Id, owner, endpoint and caller.
    pub identity: SessionIdentity,
    /// Open calls.
    pub calls: SessionCalls,
    /// Servers' requests to the client.
    pub client_requests: ClientRequests,
    /// Check whether the client may get requests of a server's extensions. Set by the session's
    /// first call.
    pub extension_check: OnceLock<ExtensionCheck>,
    /// GET stream.
    pub get_stream: GetStreamState,
    /// Events sent on its streams.
    pub resumption: Arc<ResumptionBuffer>,
    /// Stream for every message to the client, where the transport has only one.
    pub shared_stream: Option<SharedStream>,
    /// Resource subscriptions.
    pub subscriptions: SessionSubscriptions,
    /// Tasks that the session made.
    pub tasks: SessionTasks,
    /// Events that the client could not get.
    pub missed: MissedEvents,
    pub(super) lifetime: SessionLifetime,
    /// Persisted row of the session, if it has one.
    pub(super) row: Option<SessionRowHandle>,
}

/// Single stream for all messages to a client.
#[derive(Clone)]
pub struct SharedStream {
    /// Queue for framed messages.
    pub out: mpsc::Sender<Bytes>,
    /// Frames one message.
    pub frame: fn(&[u8]) -> Bytes,
}

impl Session {
    pub(super) fn end(&self) {
        if let Some(row) = &self.row {
            row.remove();
        }
        // Cancelled before the tables are cleared. A call that is added meanwhile sees the end by
        // itself.
        self.lifetime.ended.cancel();
        self.client_requests.clear();
        self.subscriptions.clear();
        // Dropped, so that the subscriptions at servers end with the session.
        self.get_stream.take_retained();
        self.calls.cancel_all();
    }

    /// Returns true if the session has ended.
    pub fn is_ended(&self) -> bool {
        self.lifetime.ended.is_cancelled()
    }

    /// Keeps the session from expiring while the guard lives.
    pub fn begin_activity(self: &Arc<Self>) -> SessionActivityGuard {
        self.lifetime.begin_activity();
        SessionActivityGuard(self.clone())
    }

    /// Keeps the session from expiring, and counts another open stream, while the guard lives.
    pub fn begin_stream(self: &Arc<Self>) -> SessionStreamGuard {
        self.lifetime.begin_stream();
        SessionStreamGuard(self.begin_activity())
    }

    /// Registers an open call, so that it can be cancelled by the client's id.
    ///
    /// Returns `None` if the session has too many.
    pub fn begin_call(self: &Arc<Self>, id: &RequestId) -> Option<SessionCallGuard> {
        let (number, token, reason) = self.calls.add(id, &self.lifetime.ended)?;
        let _activity = self.begin_activity();
        Some(SessionCallGuard {
            session: self.clone(),
            number,
            token,
            reason,
            ended: OnceLock::new(),
            _activity,
        })
    }

    /// Changes the client's log level.
    pub fn set_log_filter(&self, filter: LogFilter) {
        self.identity.set_log_filter(filter);
        self.persist();
    }

    /// Adds a subscription.
    pub fn subscribe(&self, uri: &ByteString) -> SubscribeOutcome {
        let outcome = self.subscriptions.add(uri, &self.lifetime.ended);
        // The row lists the subscriptions, so that the next process can make them again.
        if let SubscribeOutcome::New(_) = outcome {
            self.persist();
        }
        outcome
    }

    /// Ends a subscription, if there is one. From here on no message about the resource leaves, not
    /// even a queued one.
    pub fn unsubscribe(&self, uri: &ByteString) {
        if self.subscriptions.remove(uri, &self.get_stream.outbox) {
            self.persist();
        }
    }

    /// Queues a message about a subscribed resource in the outbox. Returns false if the
    /// subscription has ended.
    pub fn update(
        &self,
        uri: &ByteString,
        subscription: &SessionSubscription,
        message: Bytes,
    ) -> bool {
        self.subscriptions
            .queue_update(&self.get_stream.outbox, (uri, subscription), message)
    }

    /// Records a task that the session made.
    pub fn record_task(&self, id: &str) {
        for status in self.tasks.add(id) {
            self.get_stream.outbox.push(status, None);
        }
        self.persist();
    }

    /// Retains the notifications of a stream that broke off.
    pub fn retain_notifications(&self, notifications: NotificationStream) {
        // An ended session would hold the subscription for ever.
        if !self.is_ended() {
            self.get_stream.retain(notifications);
        }
    }

    /// Starts the session's GET stream and ends the one before. Returns the token that is cancelled
    /// with it.
    pub fn open_stream(&self) -> CancellationToken {
        // A child of the session's end, so that the stream cannot outlive the session.
        let token = self.lifetime.ended.child_token();
        self.get_stream.open(token.clone());
        token
    }
}

/// Keeps a session from expiring.
pub struct SessionActivityGuard(Arc<Session>);

impl Drop for SessionActivityGuard {
    fn drop(&mut self) {
        self.0.lifetime.end_activity();
    }
}

/// Counts an open stream of a session, and keeps the session from expiring.
pub struct SessionStreamGuard(SessionActivityGuard);

impl Drop for SessionStreamGuard {
    fn drop(&mut self) {
        self.0.0.lifetime.end_stream();
    }
}

/// Guard of a call of a session. Dropping it ends the call.
pub struct SessionCallGuard {
    /// Activity guard: a session with an open call is in use, however long the call takes.
    _activity: SessionActivityGuard,
    session: Arc<Session>,
    number: u64,
    token: CancellationToken,
    reason: CancelReason,
    /// Made on first use, since few calls have anybody who waits for their end.
    ended: OnceLock<CancellationToken>,
}

impl SessionCallGuard {
    /// Returns the session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns the token that is cancelled when the client cancels the call, or its session ends.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Returns the token that is cancelled when the call ends, in whatever way.
    pub fn ended(&self) -> &CancellationToken {
        self.ended.get_or_init(CancellationToken::new)
    }

    /// Returns the reason of the client's cancellation: a slot that is filled when the client
    /// cancels the call.
    pub fn cancel_reason(&self) -> &CancelReason {
        &self.reason
    }
}

impl Drop for SessionCallGuard {
    fn drop(&mut self) {
        let was_last = self.session.calls.remove(self.number);
        if let Some(ended) = self.ended.get() {
            ended.cancel();
        }
        if was_last {
            self.session.tasks.forget_early();
        }
    }
}
