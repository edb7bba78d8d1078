//! Connection to a stateless server: nothing is negotiated, every request says everything.
//!
//! Owns discovery and the listen stream. Does not own single calls (`call.rs`). Invariant: a server sees the
//! capabilities of the client whose call it is, never the gateway's.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::{RequestId, RpcMessage, encode_with, write_notification, write_request};
use crate::link::{HeaderList, Link, LinkError, MessageStream, OutgoingMessage};
use crate::model::{
    Call, Caller, Error, Exchange, ExchangeEvent, McpErrorKind, McpMethod, Notification, NotificationStream, Server,
    ServerCapabilities, ServerDescription, SubscriptionFilter, TaskMethod, TaskMode,
};
use crate::revision::legacy::first_response;
use crate::revision::negotiate::{ConnectError, ConnectOptions};
use crate::revision::v2026_07_28::call::ModernCall;
use crate::revision::v2026_07_28::list_changes::ListChanges;
use crate::revision::v2026_07_28::poll_task;
use crate::revision::v2026_07_28::tasks;
use crate::revision::v2026_07_28::{
    CLIENT_CAPABILITIES, CLIENT_INFO, NAME, PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID, headers,
};
use crate::revision::{PendingCalls, notifications};

/// Handle of an open stateless server.
pub(in crate::revision) struct ModernHandle(pub(super) Arc<ModernConnection>);

pub(super) struct ModernConnection {
    pub(super) link: Arc<dyn Link>,
    pub(super) calls: PendingCalls,
    pub(super) options: ConnectOptions,
    description: ServerDescription,
    /// List changes that arrived outside of a subscription.
    pub(super) list_changes: ListChanges,
}

impl ModernHandle {
    /// Starts to use the server.
    pub(in crate::revision) fn attach(
        link: Arc<dyn Link>,
        calls: PendingCalls,
        hello: ConnectOptions,
        face: ServerDescription,
    ) -> Arc<Self> {
        let changes = ListChanges::default();
        if link.is_multiplexed()
            && let Some(Ok(messages)) = link.open_server_stream(HeaderList::new()).now_or_never()
        {
            // Messages without a request, such as progress of a finished one, have no receiver here. They must be read
            // all the same, or they would take the room of messages about calls. One task for each connection.
            tokio::spawn(changes.clone().read_stream(messages));
        }
        Arc::new(ModernHandle(Arc::new(ModernConnection {
            link,
            calls,
            options: hello,
            description: face,
            list_changes: changes,
        })))
    }
}

impl ModernConnection {
    /// Sends a notification in the background. Only pipes need one.
    pub(super) fn send_notification(self: &Arc<Self>, method: &'static str, params: JsonObject) {
        let inner = self.clone();
        let dropped = self.options.metrics.dropped.with_label_values(&["message_to_server"]);
        let sending = async move {
            let body = encode_with(params.size_hint(), |out| write_notification(out, method, &params));
            let _ = inner.link.send(OutgoingMessage { body, id: None, headers: HeaderList::new() }).await;
        };
        self.options.timeouts.side_traffic().send(sending, &dropped);
    }
}

/// Builds the `_meta` of a request of the gateway's own.
fn gateway_meta(hello: &ConnectOptions) -> JsonObject {
    let version = hello.revision.unwrap_or(NAME);
    JsonObject::new()
        .with(PROTOCOL_VERSION, RawJson::string(version))
        .with(CLIENT_INFO, hello.client_info.clone())
        .with(CLIENT_CAPABILITIES, hello.capabilities.clone())
}

/// Discovers the server's description (`server/discover`).
pub(in crate::revision) async fn discover(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<ServerDescription, ConnectError> {
    let result = send_discover(link, calls, hello).await?;
    let versions = result.get("supportedVersions").and_then(RawJson::as_array).ok_or_else(|| {
        ConnectError::Link(LinkError::Protocol("the answer to server/discover has no supportedVersions".to_owned()))
    })?;
    if !versions.iter().any(|v| v.as_text().is_some_and(|v| v.as_str() == NAME)) {
        let spoken: Vec<String> = versions.iter().filter_map(|v| v.as_text().map(|t| t.to_string())).collect();
        return Err(ConnectError::NoCommonRevision(format!(
            "it speaks only {}, none of which is known here",
            spoken.join(", ")
        )));
    }
    let info = result.get_object("_meta").and_then(|meta| meta.get(SERVER_INFO).cloned()).filter(RawJson::is_object);
    Ok(ServerDescription {
        info: info.unwrap_or_else(|| RawJson::literal("{}")),
        instructions: result.get_string("instructions").as_ref().map(ByteString::to_string),
        features: read_capabilities(&result.get_object("capabilities").unwrap_or_default(), hello),
    })
}

async fn send_discover(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<JsonObject, ConnectError> {
    let id = calls.next_id();
    let params = JsonObject::new().with("_meta", gateway_meta(hello).to_raw());
    let body = encode_with(512, |out| write_request(out, &RequestId::number(id), "server/discover", &params));
    let headers = headers::write_headers("server/discover", None, None, None);
    let reply = link.send(OutgoingMessage { body, id: Some(id), headers }).await?;
    first_response(reply.messages).await
}

fn read_capabilities(capabilities: &JsonObject, hello: &ConnectOptions) -> ServerCapabilities {
    ServerCapabilities {
        tasks: tasks::read_capability(capabilities),
        ..notifications::read_capabilities(capabilities, hello)
    }
}

impl Server for ModernHandle {
    fn describe(&self, _: &Caller) -> ServerDescription {
        self.0.description.clone()
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let (server, caller) = (self.0.clone(), caller.clone());
        // Clients of this revision handle tasks themselves.
        let foreign = caller.revision != NAME;
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
                if foreign && call.task_mode == TaskMode::Never && server.description.features.tasks.is_some() =>
            {
                poll_task::call_without_tasks(server, caller, call)
            }
            _ => ModernCall::start(server, caller, call),
        }
    }

    fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        let features = &self.0.description.features;
        let mut honoured = SubscriptionFilter {
            tools: filter.tools && features.tools_changes,
            prompts: filter.prompts && features.prompts_changes,
            resources: filter.resources && features.resources_changes,
            uris: filter.uris.clone(),
            // Log messages belong to a request in this revision.
            logs: false,
            elicitations: false,
            // Clients of this revision poll the status of their tasks.
            tasks: Vec::new(),
            all_task_statuses: false,
            exceeded_limit: None,
            unoffered: None,
        };
        if !features.subscribe {
            honoured.uris.clear();
        }
        let told = self.0.list_changes.subscribe(&filter);
        if honoured == SubscriptionFilter::default() {
            // An empty subscription is no sign of a lost server, so the stream must not end.
            return NotificationStream { acknowledged: honoured, stream: told.boxed(), established: None };
        }
        let opened = CancellationToken::new();
        let listening = open_listen_stream(self.0.clone(), honoured.clone(), opened.clone().drop_guard());
        let heard = stream::once(listening).filter_map(std::future::ready).flatten();
        // The merged stream ends with the subscription.
        let heard = stream::select(heard.map(Some).chain(stream::once(std::future::ready(None))), told.map(Some));
        let heard = heard.take_while(|heard| std::future::ready(heard.is_some())).filter_map(std::future::ready);
        NotificationStream { acknowledged: honoured, stream: heard.boxed(), established: Some(opened) }
    }

    fn notify(&self, _: &Arc<Caller>, _: Notification) {
        // This revision has no notifications from clients.
    }

    /// Pings the server with `server/discover`, since this revision has no ping. Any response proves that it is alive.
    ///
    /// "Servers **MUST** implement `server/discover`" (2026-07-28/basic/versioning.mdx), and this one did when it was
    /// opened. Over HTTP there is no connection that could hang.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let inner = self.0.clone();
        if !inner.link.is_multiplexed() {
            return None;
        }
        Some(Box::pin(async move {
            let asked = send_discover(&inner.link, &inner.calls, &inner.options).await;
            matches!(asked, Ok(_) | Err(ConnectError::Answered(_)))
        }))
    }
}

async fn open_listen_stream(
    inner: Arc<ModernConnection>,
    filter: SubscriptionFilter,
    opening: DropGuard,
) -> Option<impl futures_util::Stream<Item = Notification> + Send> {
    let entry = inner.calls.open_subscription();
    let mut asked = JsonObject::new();
    for (name, on) in [
        ("toolsListChanged", filter.tools),
        ("promptsListChanged", filter.prompts),
        ("resourcesListChanged", filter.resources),
    ] {
        if on {
            asked.set(ByteString::literal(name), RawJson::literal("true"));
        }
    }
    if !filter.uris.is_empty() {
        let uris: Vec<&str> = filter.uris.iter().map(ByteString::as_str).collect();
        asked.set(ByteString::literal("resourceSubscriptions"), RawJson::from_value(&uris));
    }
    let params =
        JsonObject::new().with("notifications", asked.to_raw()).with("_meta", gateway_meta(&inner.options).to_raw());
    let id = entry.id;
    let body: Bytes =
        encode_with(512, |out| write_request(out, &RequestId::number(id), "subscriptions/listen", &params));
    let headers = headers::write_headers("subscriptions/listen", None, None, None);
    let sent = inner.link.send(OutgoingMessage { body, id: Some(id), headers }).await;
    let messages: MessageStream = match sent {
        Ok(reply) => reply.messages,
        Err(e) => {
            tracing::debug!(server = inner.options.server, "changes cannot be listened to: {e}");
            return None;
        }
    };
    let open = ListenReader { messages, _entry: entry, inner, opening: Some(opening) };
    Some(stream::unfold(open, |mut open| async move { open.next().await.map(|notice| (notice, open)) }))
}

struct ListenReader {
    messages: MessageStream,
    _entry: crate::revision::correlation::CallEntry,
    inner: Arc<ModernConnection>,
    /// Guard whose drop reports that the subscription is established.
    opening: Option<DropGuard>,
}

impl ListenReader {
    async fn next(&mut self) -> Option<Notification> {
        loop {
            match self.messages.next().await? {
                Ok(RpcMessage::Notification(n)) if &*n.method == "notifications/subscriptions/acknowledged" => {
                    self.opening = None;
                }
                Ok(RpcMessage::Notification(mut n)) => {
                    untag_subscription(&mut n.params);
                    // A notification is kept until the slowest subscriber has it, so large ones are dropped.
                    if n.params.size_hint() > notifications::NOTIFICATION_BYTES_MAX {
                        continue;
                    }
                    if let notice @ (Notification::ListChanged(_) | Notification::ResourceUpdated(..)) =
                        notifications::decode(n)
                    {
                        return Some(notice);
                    }
                }
                // The response is the graceful end of the stream; an error ends it, too.
                Ok(RpcMessage::Response(_)) | Err(_) => return None,
                Ok(RpcMessage::Request(_)) => {}
            }
        }
    }
}

impl Drop for ListenReader {
    fn drop(&mut self) {
        // basic/patterns/subscriptions.mdx, Cancellation: on a pipe the client sends `notifications/cancelled`.
        if self.inner.link.is_multiplexed() && tokio::runtime::Handle::try_current().is_ok() {
            self.inner.send_notification(
                "notifications/cancelled",
                JsonObject::new().with("requestId", RawJson::number(self._entry.id)),
            );
        }
    }
}

/// Removes the subscription id, which is local to this hop.
fn untag_subscription(params: &mut JsonObject) {
    if let Some(mut meta) = params.get_object("_meta") {
        meta.remove(SUBSCRIPTION_ID);
        if meta.is_empty() {
            params.remove("_meta");
        } else {
            params.set(ByteString::literal("_meta"), meta.to_raw());
        }
    }
}
