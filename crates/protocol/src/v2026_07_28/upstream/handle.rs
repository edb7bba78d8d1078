//! Handle of a stateless server. Nothing is negotiated: each request carries everything.
//!
//! Owns the choice of the mode for each call, and its subscriptions. Does not run calls
//! (`call.rs`). Invariant: a call carries the capabilities of its client, never the gateway's.

use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::PendingCalls;
use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::notifications;
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::upstream::call::ModernCall;
use crate::v2026_07_28::upstream::connection::{ModernConnection, OpenedSubscription};
use crate::v2026_07_28::upstream::discover::send_discover;
use crate::v2026_07_28::upstream::listen_stream::open_listen_stream;
use crate::v2026_07_28::upstream::poll_task;
use crate::v2026_07_28::upstream::stray_list_changes::StrayListChanges;
use moongate_jsonrpc::json::ByteString;
use moongate_jsonrpc::message::RpcMessage;
use moongate_model::{
    Call, Caller, Connection, Error, Exchange, ExchangeEvent, McpErrorKind, McpMethod, McpServer,
    Notification, NotificationStream, ServerDescription, SubscriptionFilter, TaskMethod, TaskMode,
};
use moongate_transport::{HeaderList, Link, MessageStream};

/// Handle of an open stateless server.
pub(crate) struct ModernHandle(pub(crate) Arc<ModernConnection>);

impl ModernHandle {
    /// Starts to use the server.
    pub(crate) fn attach(
        link: Arc<dyn Link>,
        calls: PendingCalls,
        options: ConnectOptions,
        description: ServerDescription,
    ) -> Arc<Self> {
        let connection = Arc::new(ModernConnection {
            link,
            calls,
            options,
            description,
            stray_list_changes: StrayListChanges::default(),
            opened_subscription: watch::Sender::default(),
        });
        let link = &connection.link;
        if link.is_multiplexed()
            && let Some(Ok(messages)) = link.open_server_stream(HeaderList::new()).now_or_never()
        {
            // Messages without a request, such as progress of a finished one, have no receiver
            // here. They must be read anyway, or they would take the room of messages about calls.
            // One task for each connection.
            tokio::spawn(read_stray_messages(Arc::downgrade(&connection), messages));
        }
        Arc::new(ModernHandle(connection))
    }
}

/// Reads the messages that belong to no request until the end of the connection.
async fn read_stray_messages(connection: Weak<ModernConnection>, mut messages: MessageStream) {
    while let Some(Ok(message)) = messages.next().await {
        let Some(connection) = connection.upgrade() else {
            return;
        };
        match message {
            RpcMessage::Notification(notification) => {
                if let Notification::ListChanged(kind) = notifications::decode(notification) {
                    connection.stray_list_changes.report(kind);
                }
            }
            RpcMessage::Request(request) => connection.refuse_request(&request).await,
            RpcMessage::Response(_) => {}
        }
    }
}

impl McpServer for ModernHandle {
    fn describe(&self, _: &Caller) -> ServerDescription {
        self.0.description.clone()
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let server = self.0.clone();
        let caller = caller.clone();
        // Clients of this revision handle tasks themselves.
        let foreign = caller.revision != REVISION;
        match call.method {
            McpMethod::Task(TaskMethod::List) => {
                // SEP-2663, Motivation: "`tasks/list` scoping cannot be defined".
                let message = format!("Server \"{}\" cannot list tasks", server.options.server);
                Exchange::ready(Err(Error::new(McpErrorKind::UnknownMethod, message)))
            }
            McpMethod::Task(TaskMethod::Result) => {
                let id = call.target().unwrap_or(ByteString::literal(""));
                poll_task::poll_to_end(server, caller, id)
            }
            McpMethod::Task(TaskMethod::Cancel) if call.detailed => {
                let id = call.target().unwrap_or(ByteString::literal(""));
                Exchange::new(stream::once(async move {
                    ExchangeEvent::Done(poll_task::cancel_task(server, caller, id).await)
                }))
            }
            McpMethod::CallTool
                if foreign
                    && call.task_mode == TaskMode::Never
                    && server.description.capabilities.tasks.is_some() =>
            {
                poll_task::call_without_tasks(server, caller, call)
            }
            _ => ModernCall::start(server, caller, call),
        }
    }

    fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        let capabilities = &self.0.description.capabilities;
        let mut acknowledged = SubscriptionFilter {
            tools: filter.tools && capabilities.tools_changes,
            prompts: filter.prompts && capabilities.prompts_changes,
            resources: filter.resources && capabilities.resources_changes,
            uris: filter.uris.clone(),
            // Log messages belong to a request in this revision.
            logs: false,
            elicitations: false,
            // Clients of this revision poll the status of their tasks.
            tasks: Vec::new(),
            all_task_statuses: false,
            extensions: false,
            exceeded_limit: None,
            unoffered: None,
        };
        if !capabilities.subscribe {
            acknowledged.uris.clear();
        }
        let stray_changes = self.0.stray_list_changes.subscribe(&filter);
        if acknowledged == SubscriptionFilter::default() {
            // An empty subscription is not a sign of a lost server, so the stream must not end.
            return NotificationStream {
                acknowledged,
                stream: stray_changes.boxed(),
                established: None,
            };
        }
        let established = CancellationToken::new();
        let opened = OpenedSubscription {
            uris: acknowledged.uris.clone(),
            established: established.clone(),
        };
        self.0.opened_subscription.send_replace(opened);
        let opening = open_listen_stream(
            self.0.clone(),
            acknowledged.clone(),
            established.clone().drop_guard(),
        );
        let notifications = stream::once(opening)
            .filter_map(std::future::ready)
            .flatten();
        // The merged stream ends with the subscription.
        let notifications = stream::select(
            notifications
                .map(Some)
                .chain(stream::once(std::future::ready(None))),
            stray_changes.map(Some),
        );
        let notifications = notifications
            .take_while(|next| std::future::ready(next.is_some()))
            .filter_map(std::future::ready);
        NotificationStream {
            acknowledged,
            stream: notifications.boxed(),
            established: Some(established),
        }
    }

    fn confirm_subscription(
        &self,
        _: &Arc<Caller>,
        uri: &ByteString,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        if !self.0.description.capabilities.subscribe {
            return None;
        }
        let mut opened = self.0.opened_subscription.subscribe();
        let uri = uri.clone();
        Some(Box::pin(async move {
            // The connection is gone, or the stream that has it is.
            let Ok(established) = opened
                .wait_for(|opened| opened.uris.contains(&uri))
                .await
                .map(|opened| opened.established.clone())
            else {
                return Ok(());
            };
            established.cancelled().await;
            Ok(())
        }))
    }

    fn notify(&self, _: &Arc<Caller>, notification: Notification) {
        // Of all notifications from clients, this revision has only those of extensions.
        if let Notification::Extension(method, params) = notification {
            self.0.send_notification(method, params);
        }
    }
}

impl Connection for ModernHandle {
    /// Pings the server with `server/discover`, since this revision has no ping. Any response
    /// proves that it is alive.
    ///
    /// "Servers **MUST** implement `server/discover`" (2026-07-28/basic/versioning.mdx), and this
    /// one did when it was opened. Over HTTP, no connection can hang.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let connection = self.0.clone();
        if !connection.link.is_multiplexed() {
            return None;
        }
        Some(Box::pin(async move {
            let answer =
                send_discover(&connection.link, &connection.calls, &connection.options).await;
            matches!(answer, Ok(_) | Err(ConnectError::Answered(_)))
        }))
    }
}
