//! Handle of a legacy server: one session, many calls.
//!
//! Owns the start and the end of its use. Does not own the session (`connection.rs`), single calls
//! (`call.rs`) or messages outside of calls (`server_stream.rs`). Invariant: dropping the handle
//! ends no call that runs.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::sync::broadcast;

use crate::PendingCalls;
use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::legacy::upstream::call::LegacyCall;
use crate::legacy::upstream::call_modes::{call_task_method, call_tool};
use crate::legacy::upstream::connection::LegacyConnection;
use crate::legacy::upstream::handshake::CompletedHandshake;
use crate::legacy::upstream::resource_subscriptions::uri_params;
use crate::legacy::upstream::server_stream::read_server_stream;
use crate::legacy::upstream::subscription_trial::SubscriptionTrial;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{
    Call, Caller, Connection, Error, Exchange, ItemKind, McpMethod, McpServer, Notification,
    NotificationStream, ServerDescription, SubscriptionFilter,
};
use moongate_transport::{Link, LinkError};

/// Shared handle of a connection. It is the server to be called, since calls outlive a borrow.
pub(crate) struct LegacyHandle {
    pub(crate) connection: Arc<LegacyConnection>,
    trial: Arc<SubscriptionTrial>,
}

impl LegacyHandle {
    /// Starts to use the server.
    pub(crate) fn attach(
        link: Arc<dyn Link>,
        calls: PendingCalls,
        options: ConnectOptions,
        opened: CompletedHandshake,
    ) -> Arc<Self> {
        let connection = LegacyConnection::new(link, calls, options, opened.0);
        // The reader gets a weak reference, so it does not keep the connection alive.
        let finished = connection.finished.clone();
        tokio::spawn(
            finished.run_until_cancelled_owned(read_server_stream(Arc::downgrade(&connection))),
        );
        if connection.first_roots.pending().is_some() {
            let closing = connection.closing.clone();
            tokio::spawn(
                closing.run_until_cancelled_owned(connection.clone().settle_first_roots()),
            );
        }
        Arc::new(LegacyHandle {
            connection,
            trial: Arc::default(),
        })
    }
}

impl McpServer for LegacyHandle {
    fn describe(&self, _: &Caller) -> ServerDescription {
        self.connection.description()
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let server = self.connection.clone();
        let caller = caller.clone();
        match call.method {
            McpMethod::CallTool => call_tool(server, caller, call),
            McpMethod::Task(method) => call_task_method(method, server, caller, call),
            _ => LegacyCall::start(server, caller, call).0,
        }
    }

    fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        let capabilities = self.connection.description().capabilities;
        let mut acknowledged = filter;
        // Subscriptions that were not tried yet count as offered: the first subscriber tries them.
        if !capabilities.subscribe && !capabilities.subscribe_untried {
            acknowledged.uris.clear();
        }
        // Before the server is asked, or a first update could come before anybody listens.
        let receiver = self.connection.notifications.subscribe();
        self.connection.sync_subscriptions(&acknowledged.uris);
        NotificationStream {
            stream: filter_notifications(receiver, acknowledged.clone()),
            acknowledged,
            established: None,
        }
    }

    fn try_subscriptions(
        &self,
        _: &Arc<Caller>,
        uris: &[ByteString],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.trial.try_subscription(&self.connection, uris.first()?)
    }

    fn confirm_subscription(
        &self,
        _: &Arc<Caller>,
        uri: &ByteString,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        let capabilities = self.connection.description().capabilities;
        let is_asked = capabilities.subscribe || capabilities.subscribe_untried;
        is_asked.then(|| {
            Box::pin(self.connection.clone().confirm_subscription(uri.clone()))
                as BoxFuture<'static, _>
        })
    }

    fn notify(&self, _: &Arc<Caller>, notification: Notification) {
        let (method, params) = match notification {
            Notification::RootsChanged => (
                ByteString::literal("notifications/roots/list_changed"),
                JsonObject::new(),
            ),
            Notification::Extension(method, params) => (method, params),
            _ => return,
        };
        self.connection.send_notification(method, params);
    }
}

impl Connection for LegacyHandle {
    fn export_session(&self) -> Option<RawJson> {
        if self.connection.link.is_multiplexed() {
            None
        } else {
            self.connection.session.negotiated().export_session()
        }
    }

    fn session_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.connection.session.until_renewed())
    }

    fn detach(&self) {
        self.connection.session.release();
    }

    fn close(&self) {
        self.connection.end_session();
    }

    /// Pings the server. Any response proves that it is alive.
    ///
    /// 2025-11-25/basic/utilities/ping.mdx: "The receiver MUST respond promptly with an empty
    /// response".
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let server = self.connection.clone();
        // Over HTTP without a session, a ping would have no connection or session to test.
        if !server.link.is_multiplexed() && !server.session.has_id() {
            return None;
        }
        Some(Box::pin(async move {
            match server.send_ping().await.1 {
                Ok(_) | Err(ConnectError::Answered(_)) => true,
                // The next call renews a lost session. The status proves that the host is alive.
                Err(ConnectError::Link(LinkError::Status { .. })) => true,
                Err(_) => false,
            }
        }))
    }
}

impl Drop for LegacyHandle {
    fn drop(&mut self) {
        self.connection.closing.cancel();
    }
}

fn filter_notifications(
    receiver: broadcast::Receiver<Notification>,
    filter: SubscriptionFilter,
) -> std::pin::Pin<Box<dyn futures_util::Stream<Item = Notification> + Send>> {
    // Catch-up after falling behind the broadcast channel: anything may have changed.
    let pending: Vec<Notification> = Vec::new();
    let events = stream::unfold(
        (receiver, filter, pending),
        |(mut receiver, filter, mut pending)| async move {
            loop {
                if let Some(notification) = pending.pop() {
                    return Some((notification, (receiver, filter, pending)));
                }
                match receiver.recv().await {
                    Ok(notification) if filter.matches(&notification) => {
                        return Some((notification, (receiver, filter, pending)));
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        pending.extend(ItemKind::ALL.map(Notification::ListChanged));
                        pending.extend(filter.uris.iter().map(|uri| {
                            Notification::ResourceUpdated(uri.clone(), uri_params(uri))
                        }));
                        // The catch-up obeys the filter, too: a client gets nothing that it did
                        // not ask for.
                        pending.retain(|notification| filter.matches(notification));
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        },
    );
    events.boxed()
}
