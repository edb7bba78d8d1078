//! Connection to a legacy server: its session and the messages that go out in it.
//!
//! Owns the link and the state of everything that runs on it. Does not renew the session
//! (`session_renewal.rs`) or run calls (`call.rs`). Invariant: the session ends with the last call,
//! and the server gets at most one DELETE.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use crate::PendingCalls;
use crate::connect_options::ConnectOptions;
use crate::legacy::upstream::cancellation_barrier::CancellationBarrier;
use crate::legacy::upstream::first_roots::FirstRoots;
use crate::legacy::upstream::handshake::LegacyNegotiated;
use crate::legacy::upstream::log_level::ServerLogLevel;
use crate::legacy::upstream::server_session::ServerSession;
use crate::legacy::upstream::subscription_diff::SubscriptionSync;
use crate::legacy::upstream::subscription_support::SubscriptionSupport;
use crate::legacy::upstream::task_inputs::TaskInputs;
use crate::open_inputs::{self, Withdrawal};
use crate::stray_messages::StrayMessages;
use moongate_jsonrpc::message::RpcNotification;
use moongate_model::{ItemKind, Notification, ServerDescription};
use moongate_transport::{ByteBudget, HeaderList, Link, LinkError, LinkReply, OutgoingMessage};

/// Limit of notifications queued for each subscriber.
const NOTIFICATIONS_MAX: usize = 256;

/// Limit of requests outside of calls that wait for the connection's client.
pub(crate) const OWNER_REQUESTS_MAX: usize = 64;

/// Connection to an open legacy server.
pub(crate) struct LegacyConnection {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) calls: PendingCalls,
    pub(crate) options: ConnectOptions,
    pub(crate) notifications: broadcast::Sender<Notification>,
    pub(crate) session: ServerSession,
    pub(crate) log_level: ServerLogLevel,
    pub(crate) subscriptions: SubscriptionSync,
    pub(crate) subscription_support: SubscriptionSupport,
    pub(crate) cancellation_barrier: CancellationBarrier,
    pub(crate) first_roots: FirstRoots,
    /// Permits for requests that belong to no call.
    pub(crate) owner_requests: Arc<Semaphore>,
    /// Input requests of the server's tasks.
    pub(crate) task_inputs: TaskInputs,
    /// Cancelled when no further calls start. Running calls continue.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the running calls have finished, too.
    pub(crate) finished: CancellationToken,
}

/// Reference held by the stream reader and by running calls.
pub(crate) type WeakConnection = Weak<LegacyConnection>;

impl LegacyConnection {
    /// Creates the connection. Nothing is read from its server stream yet.
    pub(crate) fn new(
        link: Arc<dyn Link>,
        calls: PendingCalls,
        hello: ConnectOptions,
        negotiated: LegacyNegotiated,
    ) -> Arc<Self> {
        calls
            .extension_requests()
            .record(&negotiated.description.capabilities, hello.client.is_some());
        let roots = hello
            .capabilities
            .as_object()
            .is_some_and(|declared| declared.get("roots").is_some());
        let first_roots = FirstRoots::new(roots && calls.may_ask_roots());
        let backlog = ByteBudget::new(hello.max_backlog, &hello.server, &hello.metrics);
        Arc::new(LegacyConnection {
            link,
            calls,
            options: hello,
            notifications: broadcast::Sender::new(NOTIFICATIONS_MAX),
            session: ServerSession::new(negotiated),
            log_level: ServerLogLevel::default(),
            subscriptions: SubscriptionSync::default(),
            subscription_support: SubscriptionSupport::default(),
            cancellation_barrier: CancellationBarrier::default(),
            first_roots,
            owner_requests: Arc::new(Semaphore::new(OWNER_REQUESTS_MAX)),
            task_inputs: TaskInputs::new(backlog),
            closing: CancellationToken::new(),
            finished: CancellationToken::new(),
        })
    }

    /// Returns the server's description, corrected by what the gateway found out.
    pub(crate) fn description(&self) -> ServerDescription {
        let mut description = self.session.negotiated().description.clone();
        self.subscription_support.correct(&mut description);
        description
    }

    /// Sends a message of a call, with the session's headers and those that the config forwards.
    pub(crate) async fn send(
        &self,
        body: Bytes,
        id: Option<u64>,
        forwarded: &HeaderList,
    ) -> Result<LinkReply, LinkError> {
        let mut headers = self.session.headers();
        headers.extend(forwarded.iter().cloned());
        // Only a request over HTTP gets its response on a stream that can be resumed.
        if id.is_none() || self.link.is_multiplexed() {
            return self.link.send(OutgoingMessage { body, id, headers }).await;
        }
        let resume = headers.clone();
        self.link
            .send_resumable(OutgoingMessage { body, id, headers }, resume)
            .await
    }

    /// Reports all lists as possibly changed, since notifications may have been missed.
    pub(crate) fn report_all_changed(&self) {
        for kind in ItemKind::ALL {
            let _ = self.notifications.send(Notification::MaybeChanged(kind));
        }
    }

    /// Publishes a notification to the subscribers of the whole server.
    pub(crate) fn publish(&self, notification: Notification) {
        // Progress belongs to one call, and unknown notifications have no known receiver.
        let is_published = matches!(
            notification,
            Notification::ListChanged(_)
                | Notification::ResourceUpdated(..)
                | Notification::Log(..)
                | Notification::ElicitationComplete(..)
                | Notification::TaskStatus(_)
                | Notification::Extension(..)
        );
        if is_published {
            let _ = self.notifications.send(notification);
        }
    }

    /// Takes an input request of the server back, wherever it is.
    ///
    /// `reader`: the queue of the call that read the notification.
    pub(crate) fn withdraw_input(
        &self,
        notification: RpcNotification,
        reader: Option<&StrayMessages>,
    ) -> Withdrawal {
        let id = open_inputs::withdrawn_id(&notification);
        let withdrawal = self.calls.open_inputs().withdraw(notification, reader);
        if let Some(id) = id.filter(|_| withdrawal == Withdrawal::NotOpen) {
            self.task_inputs.withdraw(&id);
        }
        withdrawal
    }

    /// Ends the session at the server.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "Clients that no longer need a
    /// particular session SHOULD send an HTTP DELETE". A server may end what runs in it then.
    pub(crate) fn end_session(&self) {
        // `close` and `drop` may both come here, and the server gets one DELETE.
        if !self.session.claim_end() || self.link.is_multiplexed() {
            return;
        }
        let link = self.link.clone();
        let headers = self.session.headers();
        // Tracked by `closing`, so that a shutdown can wait for the DELETE.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.options
                .closing
                .spawn_on(async move { link.close(headers).await }, &runtime);
        }
    }
}

// Runs with the last reference: after the last call, however the connection was closed.
impl Drop for LegacyConnection {
    fn drop(&mut self) {
        self.finished.cancel();
        self.end_session();
    }
}
