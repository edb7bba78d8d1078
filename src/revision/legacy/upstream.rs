//! Connection to a legacy server: one session, many calls.
//!
//! Owns the session with one server: its renewal, its log level and its subscriptions. Does not own single calls
//! (`call.rs`) or messages outside of calls (`server_stream.rs`). Invariant: a request is sent again only if the server
//! proved that it never ran it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use tokio::sync::{Mutex as AsyncMutex, Notify, broadcast};
use tokio_util::sync::CancellationToken;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::jsonrpc::{
    RequestId, RpcError, RpcRequest, code, encode_with, write_error, write_notification, write_request, write_result,
};
use crate::link::reply_rate_limit::ReplyMeter;
use crate::link::{ByteBudget, HeaderList, Link, LinkError, LinkReply, OutgoingMessage};
use crate::model::{
    Call, Caller, Error, Exchange, ExchangeEvent, ItemKind, LogFilter, LogLevel, McpMethod, Notification,
    NotificationStream, Outcome, Server, ServerDescription, SubscriptionFilter, TaskMethod, TaskMode,
};
use crate::revision::PendingCalls;
use crate::revision::await_task::{self, TaskHooks};
use crate::revision::legacy::call::LegacyCall;
use crate::revision::legacy::handshake::{LegacyNegotiated, handshake};
use crate::revision::legacy::ping_barrier::PingBarrier;
use crate::revision::legacy::resource_subscriptions::{SubscriptionSync, uri_params};
use crate::revision::legacy::server_stream::read_server_stream;
use crate::revision::legacy::task_inputs::{self, TaskInputs};
use crate::revision::legacy::trial::Trial;
use crate::revision::link_error;
use crate::revision::negotiate::{ConnectError, ConnectOptions};
use crate::revision::side_traffic::ReplyPermit;
use crate::revision::tasks::{TaskSupport, task_support};

/// Limit of notifications queued for each subscriber.
const NOTIFICATIONS_MAX: usize = 256;
/// Time that a call waits for `logging/setLevel` to be sent.
const LEVEL_TIME: Duration = Duration::from_millis(500);
/// Time limit for opening a session in place of a lost one.
const RENEW_TIME: Duration = Duration::from_secs(30);
/// Time limit for a request of the gateway's own (a log level, a subscription).
pub(super) const GATEWAY_REQUEST_TIME: Duration = Duration::from_secs(10);

/// Server after its handshake.
pub(in crate::revision) struct CompletedHandshake(pub(super) LegacyNegotiated);

impl CompletedHandshake {
    /// Returns the negotiated revision.
    pub(in crate::revision) fn revision(&self) -> &'static str {
        self.0.profile.name
    }
}

/// Connection to an open legacy server.
pub(in crate::revision) struct LegacyConnection {
    pub(super) link: Arc<dyn Link>,
    pub(super) calls: PendingCalls,
    pub(super) options: ConnectOptions,
    pub(super) notifications: broadcast::Sender<Notification>,
    negotiated: ArcSwap<LegacyNegotiated>,
    /// Number of renewals. Two calls that fail in the same session renew it once.
    session_generation: AtomicU64,
    /// Notified on each renewal.
    session_renewed: Notify,
    renew_lock: Arc<AsyncMutex<()>>,
    /// Lowest log level sent to the server. A value above the highest level means that none was sent.
    level: AtomicU8,
    /// True once a caller without a log level has called.
    has_undecided: AtomicBool,
    pub(super) subscriptions: SubscriptionSync,
    pub(super) trial: Trial,
    pub(super) ping_barrier: PingBarrier,
    /// Input requests of the server's tasks.
    pub(super) task_inputs: TaskInputs,
    /// Cancelled when no further calls begin. Running calls continue.
    pub(super) closing: CancellationToken,
    /// Cancelled when the running calls have finished, too.
    finished: CancellationToken,
    /// True if the server gets no DELETE: it was sent already, or another process continues the session.
    session_released: AtomicBool,
}

impl LegacyConnection {
    /// Starts to use the server.
    pub(in crate::revision) fn attach(
        link: Arc<dyn Link>,
        calls: PendingCalls,
        hello: ConnectOptions,
        opened: CompletedHandshake,
    ) -> Arc<LegacyHandle> {
        let backlog = ByteBudget::new(hello.max_backlog, &hello.server, &hello.metrics);
        let server = Arc::new(LegacyConnection {
            link,
            calls,
            options: hello,
            notifications: broadcast::Sender::new(NOTIFICATIONS_MAX),
            negotiated: ArcSwap::from_pointee(opened.0),
            session_generation: AtomicU64::new(0),
            session_renewed: Notify::new(),
            renew_lock: Arc::default(),
            level: AtomicU8::new(u8::MAX),
            has_undecided: AtomicBool::new(false),
            subscriptions: SubscriptionSync::default(),
            trial: Trial::default(),
            ping_barrier: PingBarrier::default(),
            task_inputs: TaskInputs::new(backlog),
            closing: CancellationToken::new(),
            finished: CancellationToken::new(),
            session_released: AtomicBool::new(false),
        });
        // The reader gets a weak reference, so it does not keep the connection alive.
        let over = server.finished.clone();
        tokio::spawn(over.run_until_cancelled_owned(read_server_stream(Arc::downgrade(&server))));
        Arc::new(LegacyHandle(server))
    }

    /// Returns the server's description, corrected by what the gateway found out.
    pub(super) fn face(&self) -> ServerDescription {
        let mut face = self.negotiated.load().description.clone();
        self.trial.correct(&mut face);
        face
    }

    pub(super) fn headers(&self) -> HeaderList {
        self.negotiated.load().headers()
    }

    pub(super) fn has_session(&self) -> bool {
        self.negotiated.load().session.is_some()
    }

    pub(super) fn session_generation(&self) -> u64 {
        self.session_generation.load(Ordering::Acquire)
    }

    /// Sends a message of a call, with the session's headers and those that the config forwards.
    pub(super) async fn send(
        &self,
        body: Bytes,
        id: Option<u64>,
        forwarded: &HeaderList,
    ) -> Result<LinkReply, LinkError> {
        let mut headers = self.headers();
        headers.extend(forwarded.iter().cloned());
        // Only a request over HTTP gets its response on a stream that can be resumed.
        if id.is_none() || self.link.is_multiplexed() {
            return self.link.send(OutgoingMessage { body, id, headers }).await;
        }
        let resume = headers.clone();
        self.link.send_resumable(OutgoingMessage { body, id, headers }, resume).await
    }

    /// Opens a new session, unless another caller did so since generation `seen`.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "When a client receives HTTP 404 in response to a request
    /// containing an `Mcp-Session-Id`, it MUST start a new session by sending a new `InitializeRequest`".
    pub(super) async fn renew_session(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        // A task of its own: the call that noticed the loss may be dropped, and the renewal must complete.
        // One renewal at a time. A caller waits for the lock within its own deadline.
        let turn = self.renew_lock.clone().lock_owned().await;
        let server = self.clone();
        let renewal = tokio::spawn(async move {
            let _turn = turn;
            let late = || LinkError::Timeout(format!("a new session was not open within {RENEW_TIME:?}"));
            let renewed = tokio::time::timeout(RENEW_TIME, server.renew_now(seen)).await;
            renewed.unwrap_or_else(|_| Err(late().into()))
        });
        let broken = |_| Err(LinkError::Closed("the renewal of the session broke off".to_owned()).into());
        renewal.await.unwrap_or_else(broken)
    }

    async fn renew_now(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        // Another caller renewed the session while this one waited for the lock.
        if self.session_generation() != seen {
            return Ok(());
        }
        tracing::info!(server = self.options.server, "the server forgot the session; opening a new one");
        let agreed = handshake(&self.link, &self.calls, &self.options).await?;
        self.negotiated.store(Arc::new(agreed));
        self.session_generation.fetch_add(1, Ordering::AcqRel);
        self.session_renewed.notify_one();
        self.options.metrics.server_reconnects.with_label_values(&[&self.options.server]).inc();
        self.level.store(u8::MAX, Ordering::Relaxed);
        self.resync_subscriptions();
        // The new session may have other lists.
        self.report_all_changed();
        Ok(())
    }

    /// Reports all lists as possibly changed, since notifications may have been missed.
    pub(super) fn report_all_changed(&self) {
        for kind in ItemKind::ALL {
            let _ = self.notifications.send(Notification::MaybeChanged(kind));
        }
    }

    /// Lowers the server's log level to the caller's if needed. It is never raised again.
    ///
    /// Other callers may want more messages, and each caller's own filter drops what it did not request. A level set by
    /// one caller replaces the server's default for callers that set none. With both present, the server gets the
    /// default level or a lower one.
    pub(super) async fn ensure_log_level(self: &Arc<Self>, caller: &Caller) {
        let level = match caller.log_filter {
            LogFilter::Nothing => return,
            LogFilter::ServerDecides => {
                if !self.has_undecided.load(Ordering::Relaxed) {
                    self.has_undecided.store(true, Ordering::Relaxed);
                }
                // While no caller sets a level, the server's own default applies.
                if self.level.load(Ordering::Relaxed) == u8::MAX {
                    return;
                }
                LogFilter::BY_DEFAULT
            }
            LogFilter::AtLeast(_) if self.has_undecided.load(Ordering::Relaxed) => LogFilter::BY_DEFAULT,
            LogFilter::AtLeast(level) => level,
        };
        if !self.negotiated.load().description.features.logging
            || self.level.fetch_min(level as u8, Ordering::Relaxed) <= level as u8
        {
            return;
        }
        // On a pipe the order of messages is enough. Elsewhere the level may apply a moment late, which is better than
        // a call that waits for it.
        let server = self.clone();
        let params = JsonObject::new().with("level", RawJson::string(LogLevel::name(level)));
        let told = tokio::spawn(async move {
            if server.gateway_request("logging/setLevel", &params).await.is_err() {
                // Unknown again, so that the next call sends the level once more.
                server.level.store(u8::MAX, Ordering::Relaxed);
            }
        });
        let _ = tokio::time::timeout(LEVEL_TIME, told).await;
    }

    /// Sends a request of the gateway's own and returns its result.
    pub(super) async fn gateway_request(&self, method: &str, params: &JsonObject) -> Result<JsonObject, ConnectError> {
        let id = self.calls.next_id();
        let body = encode_with(params.size_hint(), |out| write_request(out, &RequestId::number(id), method, params));
        let sent = tokio::time::timeout(GATEWAY_REQUEST_TIME, async {
            let reply = self.send(body, Some(id), &HeaderList::new()).await?;
            super::handshake::first_response(reply.messages).await
        });
        let late = |_| Err(LinkError::Timeout(format!("not answered within {GATEWAY_REQUEST_TIME:?}")).into());
        let answer = sent.await.unwrap_or_else(late);
        if let Err(e) = &answer {
            tracing::debug!(server = self.options.server, method, "refused: {e}");
        }
        answer
    }

    /// Sends a notification in the background.
    pub(super) fn send_notification(self: &Arc<Self>, method: &'static str, params: JsonObject) {
        let server = self.clone();
        let dropped = self.options.metrics.dropped.with_label_values(&["message_to_server"]);
        let sending = async move {
            let body = encode_with(params.size_hint(), |out| write_notification(out, method, &params));
            let _ = server.send(body, None, &HeaderList::new()).await;
        };
        self.options.timeouts.side_traffic().send(sending, &dropped);
    }

    /// Sends a response in the name of a client, within that client's own time.
    pub(super) async fn send_response(&self, id: &RequestId, outcome: Result<JsonObject, RpcError>) {
        let sent = tokio::time::timeout(
            GATEWAY_REQUEST_TIME,
            self.send(encode_response(id, &outcome), None, &HeaderList::new()),
        )
        .await;
        if let Ok(Err(e)) = sent {
            tracing::debug!(server = self.options.server, "an answer could not be delivered: {e}");
        }
    }

    /// Sends a response in the gateway's own name.
    ///
    /// The reader of the request waits here for a permit and reads nothing meanwhile. So a server that sends requests
    /// faster than it reads responses is slowed down, too.
    pub(super) async fn send_reply(self: &Arc<Self>, id: &RequestId, outcome: Result<JsonObject, RpcError>) {
        let place = if self.link.is_multiplexed() {
            None
        } else {
            Some(self.options.timeouts.side_traffic().acquire_reply().await)
        };
        self.send_reply_with(place, id, outcome).await;
    }

    /// Sends a response under an acquired permit. A pipe has its own bound and needs none.
    pub(super) async fn send_reply_with(
        self: &Arc<Self>,
        place: Option<ReplyPermit>,
        id: &RequestId,
        outcome: Result<JsonObject, RpcError>,
    ) {
        let Some(place) = place else { return self.link.reply(encode_response(id, &outcome)).await };
        ReplyMeter::new(&self.options.server, &self.options.metrics).answered(place.was_delayed);
        // Not inline: the server may read the response only after it has sent more on the stream of the request.
        let (server, id) = (self.clone(), id.clone());
        tokio::spawn(async move {
            server.send_response(&id, outcome).await;
            drop(place);
        });
    }

    /// Handles a task's request that arrived on another stream than the task's.
    ///
    /// "clients SHOULD expect messages to be delivered on any SSE stream"
    /// (2025-11-25/basic/utilities/tasks.mdx, Input Required Status).
    pub(super) async fn on_task_request(self: &Arc<Self>, task: ByteString, request: RpcRequest) {
        let Err(request) = self.calls.deliver_task_request(&task, request) else { return };
        for request in self.task_inputs.hold(ByteString::from(task.as_str()), request) {
            self.options.metrics.asks.with_label_values(&["any", "unattributed"]).inc();
            let message = "Nobody waits for the task that asks";
            let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
            self.send_reply(&request.id, Err(error)).await;
        }
    }

    /// Publishes a notification to the subscribers of the whole server.
    pub(super) fn publish(&self, notice: Notification) {
        // Progress belongs to one call, and unknown notifications have no known receiver.
        let told = matches!(
            notice,
            Notification::ListChanged(_)
                | Notification::ResourceUpdated(..)
                | Notification::Log(..)
                | Notification::ElicitationComplete(..)
                | Notification::TaskStatus(_)
        );
        if told {
            let _ = self.notifications.send(notice);
        }
    }

    /// Ends the session at the server.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "Clients that no longer need a particular session SHOULD send
    /// an HTTP DELETE". A server may end what runs in it then.
    fn end_session(&self) {
        // `close` and `drop` may both come here, and the server gets one DELETE.
        let settled = self.session_released.swap(true, Ordering::Relaxed);
        if settled || !self.has_session() || self.link.is_multiplexed() {
            return;
        }
        let (link, headers) = (self.link.clone(), self.headers());
        // Tracked by `closing`, so that a shutdown can wait for the DELETE.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.options.closing.spawn_on(async move { link.close(headers).await }, &runtime);
        }
    }
}

/// Shared handle of a connection. It implements `Server`, since calls outlive a borrow.
pub(in crate::revision) struct LegacyHandle(pub(super) Arc<LegacyConnection>);

impl Server for LegacyHandle {
    fn describe(&self, _: &Caller) -> ServerDescription {
        self.0.face()
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let (server, caller) = (self.0.clone(), caller.clone());
        match call.method {
            McpMethod::CallTool => call_tool(server, caller, call),
            McpMethod::Task(method) => call_task_method(method, server, caller, call),
            _ => LegacyCall::start(server, caller, call).0,
        }
    }

    fn subscribe(&self, _: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream {
        let features = self.0.face().features;
        let mut honoured = filter;
        // Subscriptions that were not tried yet count as offered: the first subscriber tries them.
        if !features.subscribe && !features.subscribe_untried {
            honoured.uris.clear();
        }
        let receiver = self.0.notifications.subscribe();
        self.0.sync_subscriptions(&honoured.uris);
        NotificationStream {
            stream: filter_notifications(receiver, honoured.clone()),
            acknowledged: honoured,
            established: None,
        }
    }

    fn try_subscriptions(&self, _: &Arc<Caller>, uris: &[ByteString]) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.0.try_subscription(uris.first()?)
    }

    fn notify(&self, _: &Arc<Caller>, notice: Notification) {
        if let Notification::RootsChanged = notice {
            self.0.send_notification("notifications/roots/list_changed", JsonObject::new());
        }
    }

    fn export_session(&self) -> Option<RawJson> {
        if self.0.link.is_multiplexed() { None } else { self.0.negotiated.load().export_session() }
    }

    fn session_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.session_renewed.notified())
    }

    fn detach(&self) {
        self.0.session_released.store(true, Ordering::Relaxed);
    }

    fn close(&self) {
        self.0.end_session();
    }

    /// Pings the server. Any response proves that it is alive.
    ///
    /// 2025-11-25/basic/utilities/ping.mdx: "The receiver MUST respond promptly with an empty response".
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let server = self.0.clone();
        // Over HTTP without a session there is no connection or session that a ping could test.
        if !server.link.is_multiplexed() && !server.has_session() {
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

/// Calls a tool in the mode that client and tool share.
///
/// The call becomes a task if the client allows tasks and the tool supports them. If the tool runs only as a task, the
/// gateway awaits the task for the client.
fn call_tool(server: Arc<LegacyConnection>, caller: Arc<Caller>, mut call: Call) -> Exchange {
    // The client's opt-in is a `TaskMode` by now. A `task` member that is left does not belong to its revision.
    if call.params.get("task").is_some() {
        call.params.remove("task");
    }
    if server.negotiated.load().description.features.tasks.is_none() {
        call.task_mode = TaskMode::Never;
        return LegacyCall::start(server, caller, call).0;
    }
    let wish = match (&call.task_mode, task_support(call.definition.as_deref())) {
        (TaskMode::Required(wish), _) => wish.clone(),
        (TaskMode::Allowed, TaskSupport::Optional | TaskSupport::Required) => JsonObject::new(),
        (TaskMode::Never, TaskSupport::Required) => {
            call.params.set(ByteString::literal("task"), RawJson::literal("{}"));
            call.task_mode = TaskMode::Allowed;
            return run_as_task(server, caller, call);
        }
        _ => {
            call.task_mode = TaskMode::Never;
            return LegacyCall::start(server, caller, call).0;
        }
    };
    call.params.set(ByteString::literal("task"), wish.to_raw());
    LegacyCall::start(server, caller, call).0
}

/// Runs a tool as a task for a client that has no tasks.
///
/// "If `execution.taskSupport` is `"required"`, clients MUST invoke the tool as a task"
/// (2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation).
fn run_as_task(server: Arc<LegacyConnection>, caller: Arc<Caller>, call: Call) -> Exchange {
    let (created, token) = LegacyCall::start(server.clone(), caller.clone(), call);
    let steps = TaskHooks {
        wait: Box::new({
            let (server, caller) = (server.clone(), caller.clone());
            // "The `progressToken` provided in the initial request remains valid throughout the task lifetime."
            move |id| LegacyCall::await_task_result(server, caller, id, token)
        }),
        cancel: Box::new({
            let (server, caller) = (server.clone(), caller.clone());
            move |id| {
                // Without a permit the cancellation is dropped: it is advisory, and must not pile up.
                let Some(place) = server.options.timeouts.side_traffic().try_acquire() else { return };
                let cancelling = LegacyCall::start(server, caller, Call::for_task(TaskMethod::Cancel, id)).0.outcome();
                tokio::spawn(async move { drop((cancelling.await, place)) });
            }
        }),
        timeout: server.options.timeouts.call(),
        timeout_error: link_error::timeout_error(&server.options.server, server.options.timeouts.call()),
    };
    await_task::await_task(created, steps)
}

fn call_task_method(method: TaskMethod, server: Arc<LegacyConnection>, caller: Arc<Caller>, call: Call) -> Exchange {
    let once = |end: futures_util::future::BoxFuture<'static, Result<Outcome, Error>>| {
        Exchange::new(stream::once(async move { ExchangeEvent::Done(end.await) }))
    };
    match method {
        TaskMethod::Get if call.detailed => {
            let id = call.target().unwrap_or(ByteString::literal(""));
            once(Box::pin(task_inputs::read_detailed(server, caller, id)))
        }
        TaskMethod::Update => once(Box::pin(task_inputs::deliver_responses(server, caller, call))),
        TaskMethod::Cancel => once(Box::pin(task_inputs::cancel_task(server, caller, call))),
        _ => LegacyCall::start(server, caller, call).0,
    }
}

impl Drop for LegacyHandle {
    fn drop(&mut self) {
        self.0.closing.cancel();
    }
}

// Runs with the last reference: after the last call, however the connection was closed.
impl Drop for LegacyConnection {
    fn drop(&mut self) {
        self.finished.cancel();
        self.end_session();
    }
}

fn filter_notifications(
    receiver: broadcast::Receiver<Notification>,
    filter: SubscriptionFilter,
) -> std::pin::Pin<Box<dyn futures_util::Stream<Item = Notification> + Send>> {
    // Catch-up after falling behind the broadcast channel: anything may have changed.
    let owed: Vec<Notification> = Vec::new();
    let events = stream::unfold((receiver, filter, owed), |(mut receiver, filter, mut owed)| async move {
        loop {
            if let Some(notice) = owed.pop() {
                return Some((notice, (receiver, filter, owed)));
            }
            match receiver.recv().await {
                Ok(notice) if filter.matches(&notice) => return Some((notice, (receiver, filter, owed))),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    let updated = |uri: &ByteString| Notification::ResourceUpdated(uri.clone(), uri_params(uri));
                    owed.extend(ItemKind::ALL.map(Notification::ListChanged));
                    owed.extend(filter.uris.iter().map(updated));
                    owed.retain(|notice| filter.matches(notice));
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    });
    events.boxed()
}

fn encode_response(id: &RequestId, outcome: &Result<JsonObject, RpcError>) -> Bytes {
    match outcome {
        Ok(result) => encode_with(result.size_hint(), |out| write_result(out, id, result)),
        Err(error) => encode_with(128, |out| write_error(out, Some(id), error)),
    }
}

/// Reference held by the stream reader and by running calls.
pub(super) type WeakConnection = Weak<LegacyConnection>;
