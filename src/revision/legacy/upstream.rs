//! A legacy server: one session, many calls.
//!
//! Owns the session towards one server: its renewal, its log level, its subscriptions. One call is in `running`, what
//! belongs to no call in `pump`. Invariant: a request is sent again only if the server proved that it never ran it.

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

/// News that may wait for the listener.
const NOTIFICATIONS_MAX: usize = 256;
/// How long a call waits for its log level to be told.
const LEVEL_TIME: Duration = Duration::from_millis(500);
/// Longest time to open a new session in place of a forgotten one.
const RENEW_TIME: Duration = Duration::from_secs(30);
/// Longest time for a message of the gateway's own (a level, a subscription).
pub(super) const GATEWAY_REQUEST_TIME: Duration = Duration::from_secs(10);

/// A server after its handshake.
pub(in crate::revision) struct CompletedHandshake(pub(super) LegacyNegotiated);

impl CompletedHandshake {
    /// The revision that was agreed on.
    pub(in crate::revision) fn revision(&self) -> &'static str {
        self.0.profile.name
    }
}

/// An open legacy server.
pub(in crate::revision) struct LegacyConnection {
    pub(super) link: Arc<dyn Link>,
    pub(super) calls: PendingCalls,
    pub(super) options: ConnectOptions,
    pub(super) notifications: broadcast::Sender<Notification>,
    negotiated: ArcSwap<LegacyNegotiated>,
    /// How often the session was renewed: two calls that fail on the same session renew it once.
    session_generation: AtomicU64,
    /// Told of each renewal.
    session_renewed: Notify,
    renew_lock: Arc<AsyncMutex<()>>,
    /// The lowest level that the server was told; above the highest one: none.
    level: AtomicU8,
    /// Whether a caller that set no level has called.
    has_undecided: AtomicBool,
    pub(super) subscriptions: SubscriptionSync,
    pub(super) trial: Trial,
    pub(super) ping_barrier: PingBarrier,
    /// What its tasks ask.
    pub(super) task_inputs: TaskInputs,
    /// Cancelled when no more calls begin; those that run go on.
    pub(super) closing: CancellationToken,
    /// Cancelled when they are over, too.
    finished: CancellationToken,
    /// Whether the server is not to hear that the session ends: it did, or another process goes on with it.
    session_released: AtomicBool,
}

impl LegacyConnection {
    /// Takes the server into use.
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
        let over = server.finished.clone();
        tokio::spawn(over.run_until_cancelled_owned(read_server_stream(Arc::downgrade(&server))));
        Arc::new(LegacyHandle(server))
    }

    /// Describes the server as it does itself, corrected by what is known better.
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

    /// Sends a message of a call; its headers are those of the session and what the config forwards.
    pub(super) async fn send(
        &self,
        body: Bytes,
        id: Option<u64>,
        forwarded: &HeaderList,
    ) -> Result<LinkReply, LinkError> {
        let mut headers = self.headers();
        headers.extend(forwarded.iter().cloned());
        if id.is_none() || self.link.is_multiplexed() {
            return self.link.send(OutgoingMessage { body, id, headers }).await;
        }
        let resume = headers.clone();
        self.link.send_resumable(OutgoingMessage { body, id, headers }, resume).await
    }

    /// Opens a new session, unless somebody did since `seen`.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "When a client receives HTTP 404 in response to a request
    /// containing an `Mcp-Session-Id`, it MUST start a new session by sending a new `InitializeRequest`".
    pub(super) async fn renew_session(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        // A task of its own: the call that found out may be dropped meanwhile, and the renewal must be whole.
        // Only one at a time: whoever waits for a turn does so in the time of its own call.
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

    /// Has all lists taken again: changes may have been missed.
    pub(super) fn report_all_changed(&self) {
        for kind in ItemKind::ALL {
            let _ = self.notifications.send(Notification::MaybeChanged(kind));
        }
    }

    /// Lets the server log at least at the caller's level. It is never raised again: others may want more, and what
    /// a caller did not ask for is left out at its own edge. A level that one caller sets takes the server's default from
    /// those that set none: where there are both, the server is told the lowest.
    pub(super) async fn ensure_log_level(self: &Arc<Self>, caller: &Caller) {
        let level = match caller.log_filter {
            LogFilter::Nothing => return,
            LogFilter::ServerDecides => {
                if !self.has_undecided.load(Ordering::Relaxed) {
                    self.has_undecided.store(true, Ordering::Relaxed);
                }
                // As long as nobody sets a level, the server's own default holds.
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
        // On a pipe the order of the messages is enough; elsewhere the level may come into force a moment late, which
        // is better than a call that waits for it.
        let server = self.clone();
        let params = JsonObject::new().with("level", RawJson::string(LogLevel::name(level)));
        let told = tokio::spawn(async move {
            if server.gateway_request("logging/setLevel", &params).await.is_err() {
                server.level.store(u8::MAX, Ordering::Relaxed);
            }
        });
        let _ = tokio::time::timeout(LEVEL_TIME, told).await;
    }

    /// A request of the gateway's own.
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

    /// Sends a notification aside.
    pub(super) fn send_notification(self: &Arc<Self>, method: &'static str, params: JsonObject) {
        let server = self.clone();
        let dropped = self.options.metrics.dropped.with_label_values(&["message_to_server"]);
        let sending = async move {
            let body = encode_with(params.size_hint(), |out| write_notification(out, method, &params));
            let _ = server.send(body, None, &HeaderList::new()).await;
        };
        self.options.timeouts.side_traffic().send(sending, &dropped);
    }

    /// Answers a request of the server's in the name of a client, in that one's own time.
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

    /// Answers a request of the server's in our own name. Whoever read the request waits until there is a place for the
    /// answer, and meanwhile reads nothing more: a server that asks faster than it takes answers waits, too.
    pub(super) async fn send_reply(self: &Arc<Self>, id: &RequestId, outcome: Result<JsonObject, RpcError>) {
        let place = if self.link.is_multiplexed() {
            None
        } else {
            Some(self.options.timeouts.side_traffic().acquire_reply().await)
        };
        self.send_reply_with(place, id, outcome).await;
    }

    /// Answers in a place that was waited for; a pipe has its own.
    pub(super) async fn send_reply_with(
        self: &Arc<Self>,
        place: Option<ReplyPermit>,
        id: &RequestId,
        outcome: Result<JsonObject, RpcError>,
    ) {
        let Some(place) = place else { return self.link.reply(encode_response(id, &outcome)).await };
        ReplyMeter::new(&self.options.server, &self.options.metrics).answered(place.was_delayed);
        // Not inline: a server may take it only after it has said more on the stream that this came on.
        let (server, id) = (self.clone(), id.clone());
        tokio::spawn(async move {
            server.send_response(&id, outcome).await;
            drop(place);
        });
    }

    /// A request that a task makes, on a stream that is not the task's: "clients SHOULD expect messages to be delivered
    /// on any SSE stream" (2025-11-25/basic/utilities/tasks.mdx, Input Required Status).
    pub(super) async fn on_task_request(self: &Arc<Self>, task: ByteString, request: RpcRequest) {
        let Err(request) = self.calls.deliver_task_request(&task, request) else { return };
        for request in self.task_inputs.hold(ByteString::from(task.as_str()), request) {
            self.options.metrics.asks.with_label_values(&["any", "unattributed"]).inc();
            let message = "Nobody waits for the task that asks";
            let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
            self.send_reply(&request.id, Err(error)).await;
        }
    }

    /// A notice for whoever listens to the server as a whole.
    pub(super) fn publish(&self, notice: Notification) {
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

    /// Tells the server that the session ends.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "Clients that no longer need a particular session SHOULD send
    /// an HTTP DELETE". A server may end what runs in it then.
    fn end_session(&self) {
        let settled = self.session_released.swap(true, Ordering::Relaxed);
        if settled || !self.has_session() || self.link.is_multiplexed() {
            return;
        }
        let (link, headers) = (self.link.clone(), self.headers());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.options.closing.spawn_on(async move { link.close(headers).await }, &runtime);
        }
    }
}

/// The trait is implemented for the shared form, since calls outlive the borrow.
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
        // One that was not tried is, by the first of these.
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

    /// 2025-11-25/basic/utilities/ping.mdx: "The receiver MUST respond promptly with an empty response". Whatever it
    /// answers, it is there.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let server = self.0.clone();
        if !server.link.is_multiplexed() && !server.has_session() {
            return None;
        }
        Some(Box::pin(async move {
            match server.send_ping().await.1 {
                Ok(_) | Err(ConnectError::Answered(_)) => true,
                // A session that is gone is renewed by the next call; its host is there.
                Err(ConnectError::Link(LinkError::Status { .. })) => true,
                Err(_) => false,
            }
        }))
    }
}

/// A call of a tool: as a task where the client can take one and the tool runs as one; driven to its end where the tool
/// runs in no other way.
fn call_tool(server: Arc<LegacyConnection>, caller: Arc<Caller>, mut call: Call) -> Exchange {
    // A client's opt-in is a `TaskWish` by now; what stands here still is no word of its revision.
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

/// "If `execution.taskSupport` is `"required"`, clients MUST invoke the tool as a task"
/// (2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation): the gateway does, for clients that cannot.
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

/// With the last of its calls, however the connection was given up.
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
    // What is owed after falling behind: anything may have changed.
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

/// What the pump and running calls hold on to.
pub(super) type WeakConnection = Weak<LegacyConnection>;
