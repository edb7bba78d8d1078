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

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{
    Id, Request, RpcError, code, to_bytes, write_error, write_notification, write_request, write_result,
};
use crate::link::reply_pace::ReplyMeter;
use crate::link::{Backlog, Headers, Link, LinkError, Outgoing, Reply};
use crate::model::{
    Call, Caller, Error, Event, Exchange, Face, Filter, Kind, Level, LogWish, Method, Notice, Notices, Outcome, Server,
    TaskMethod, TaskWish,
};
use crate::revision::Calls;
use crate::revision::connect::{ConnectError, Hello};
use crate::revision::driven::{self, Steps};
use crate::revision::fault;
use crate::revision::legacy::attend::{self, Attended};
use crate::revision::legacy::open::{Agreed, handshake};
use crate::revision::legacy::pump::pump;
use crate::revision::legacy::running::Running;
use crate::revision::legacy::settled::Settling;
use crate::revision::legacy::subscribed::{Subscribed, uri_params};
use crate::revision::legacy::trial::Trial;
use crate::revision::side_traffic::ReplyPlace;
use crate::revision::tasks::{Support, support};

/// News that may wait for the listener.
const NEWS: usize = 256;
/// How long a call waits for its log level to be told.
const LEVEL_TIME: Duration = Duration::from_millis(500);
/// Longest time to open a new session in place of a forgotten one.
const RENEW_TIME: Duration = Duration::from_secs(30);
/// Longest time for a message of the gateway's own (a level, a subscription).
pub(super) const OWN_TIME: Duration = Duration::from_secs(10);

/// A server after its handshake.
pub(in crate::revision) struct Opened(pub(super) Agreed);

impl Opened {
    /// The revision that was agreed on.
    pub(in crate::revision) fn revision(&self) -> &'static str {
        self.0.profile.name
    }
}

/// An open legacy server.
pub(in crate::revision) struct LegacyServer {
    pub(super) link: Arc<dyn Link>,
    pub(super) calls: Calls,
    pub(super) hello: Hello,
    pub(super) news: broadcast::Sender<Notice>,
    agreed: ArcSwap<Agreed>,
    /// How often the session was renewed: two calls that fail on the same session renew it once.
    generation: AtomicU64,
    /// Told of each renewal.
    renewed: Notify,
    renewing: Arc<AsyncMutex<()>>,
    /// The lowest level that the server was told; above the highest one: none.
    level: AtomicU8,
    /// Whether a caller that set no level has called.
    has_undecided: AtomicBool,
    pub(super) subscribed: Subscribed,
    pub(super) trial: Trial,
    pub(super) settling: Settling,
    /// What its tasks ask.
    pub(super) attended: Attended,
    /// Cancelled when no more calls begin; those that run go on.
    pub(super) gone: CancellationToken,
    /// Cancelled when they are over, too.
    over: CancellationToken,
    /// Whether the server is not to hear that the session ends: it did, or another process goes on with it.
    settled: AtomicBool,
}

impl LegacyServer {
    /// Takes the server into use.
    pub(in crate::revision) fn attach(link: Arc<dyn Link>, calls: Calls, hello: Hello, opened: Opened) -> Arc<Shared> {
        let backlog = Backlog::new(hello.max_backlog, &hello.server, &hello.metrics);
        let server = Arc::new(LegacyServer {
            link,
            calls,
            hello,
            news: broadcast::Sender::new(NEWS),
            agreed: ArcSwap::from_pointee(opened.0),
            generation: AtomicU64::new(0),
            renewed: Notify::new(),
            renewing: Arc::default(),
            level: AtomicU8::new(u8::MAX),
            has_undecided: AtomicBool::new(false),
            subscribed: Subscribed::default(),
            trial: Trial::default(),
            settling: Settling::default(),
            attended: Attended::new(backlog),
            gone: CancellationToken::new(),
            over: CancellationToken::new(),
            settled: AtomicBool::new(false),
        });
        let over = server.over.clone();
        tokio::spawn(over.run_until_cancelled_owned(pump(Arc::downgrade(&server))));
        Arc::new(Shared(server))
    }

    /// Describes the server as it does itself, corrected by what is known better.
    pub(super) fn face(&self) -> Face {
        let mut face = self.agreed.load().face.clone();
        self.trial.correct(&mut face);
        face
    }

    pub(super) fn headers(&self) -> Headers {
        self.agreed.load().headers()
    }

    pub(super) fn has_session(&self) -> bool {
        self.agreed.load().session.is_some()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Sends a message of a call; its headers are those of the session and what the config forwards.
    pub(super) async fn send(&self, body: Bytes, id: Option<u64>, forwarded: &Headers) -> Result<Reply, LinkError> {
        let mut headers = self.headers();
        headers.extend(forwarded.iter().cloned());
        if id.is_none() || self.link.is_pipe() {
            return self.link.send(Outgoing { body, id, headers }).await;
        }
        let resume = headers.clone();
        self.link.send_resumable(Outgoing { body, id, headers }, resume).await
    }

    /// Opens a new session, unless somebody did since `seen`.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "When a client receives HTTP 404 in response to a request
    /// containing an `Mcp-Session-Id`, it MUST start a new session by sending a new `InitializeRequest`".
    pub(super) async fn renew(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        // A task of its own: the call that found out may be dropped meanwhile, and the renewal must be whole.
        // Only one at a time: whoever waits for a turn does so in the time of its own call.
        let turn = self.renewing.clone().lock_owned().await;
        let server = self.clone();
        let renewal = tokio::spawn(async move {
            let _turn = turn;
            let late = || LinkError::Timeout(format!("a new session was not open within {RENEW_TIME:?}"));
            let renewed = tokio::time::timeout(RENEW_TIME, server.renew_now(seen)).await;
            renewed.unwrap_or_else(|_| Err(late().into()))
        });
        let broken = |_| Err(LinkError::Gone("the renewal of the session broke off".to_owned()).into());
        renewal.await.unwrap_or_else(broken)
    }

    async fn renew_now(self: &Arc<Self>, seen: u64) -> Result<(), ConnectError> {
        if self.generation() != seen {
            return Ok(());
        }
        tracing::info!(server = self.hello.server, "the server forgot the session; opening a new one");
        let agreed = handshake(&self.link, &self.calls, &self.hello).await?;
        self.agreed.store(Arc::new(agreed));
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.renewed.notify_one();
        self.hello.metrics.server_reconnects.with_label_values(&[&self.hello.server]).inc();
        self.level.store(u8::MAX, Ordering::Relaxed);
        self.subscribe_anew();
        // The new session may have other lists.
        self.everything_changed();
        Ok(())
    }

    /// Has all lists taken again: changes may have been missed.
    pub(super) fn everything_changed(&self) {
        for kind in Kind::ALL {
            let _ = self.news.send(Notice::Missed(kind));
        }
    }

    /// Lets the server log at least at the caller's level. It is never raised again: others may want more, and what
    /// a caller did not ask for is left out at its own edge. A level that one caller sets takes the server's default from
    /// those that set none: where there are both, the server is told the lowest.
    pub(super) async fn lower_level(self: &Arc<Self>, caller: &Caller) {
        let level = match caller.log {
            LogWish::Nothing => return,
            LogWish::ServerDecides => {
                if !self.has_undecided.load(Ordering::Relaxed) {
                    self.has_undecided.store(true, Ordering::Relaxed);
                }
                // As long as nobody sets a level, the server's own default holds.
                if self.level.load(Ordering::Relaxed) == u8::MAX {
                    return;
                }
                LogWish::BY_DEFAULT
            }
            LogWish::AtLeast(_) if self.has_undecided.load(Ordering::Relaxed) => LogWish::BY_DEFAULT,
            LogWish::AtLeast(level) => level,
        };
        if !self.agreed.load().face.features.logging
            || self.level.fetch_min(level as u8, Ordering::Relaxed) <= level as u8
        {
            return;
        }
        // On a pipe the order of the messages is enough; elsewhere the level may come into force a moment late, which
        // is better than a call that waits for it.
        let server = self.clone();
        let params = Object::new().with("level", Raw::string(Level::name(level)));
        let told = tokio::spawn(async move {
            if server.own_request("logging/setLevel", &params).await.is_err() {
                server.level.store(u8::MAX, Ordering::Relaxed);
            }
        });
        let _ = tokio::time::timeout(LEVEL_TIME, told).await;
    }

    /// A request of the gateway's own.
    pub(super) async fn own_request(&self, method: &str, params: &Object) -> Result<Object, ConnectError> {
        let id = self.calls.next_id();
        let body = to_bytes(params.size_hint(), |out| write_request(out, &Id::number(id), method, params));
        let sent = tokio::time::timeout(OWN_TIME, async {
            let reply = self.send(body, Some(id), &Headers::new()).await?;
            super::open::first_answer(reply.messages).await
        });
        let late = |_| Err(LinkError::Timeout(format!("not answered within {OWN_TIME:?}")).into());
        let answer = sent.await.unwrap_or_else(late);
        if let Err(e) = &answer {
            tracing::debug!(server = self.hello.server, method, "refused: {e}");
        }
        answer
    }

    /// Sends a notification aside.
    pub(super) fn notify(self: &Arc<Self>, method: &'static str, params: Object) {
        let server = self.clone();
        let dropped = self.hello.metrics.dropped.with_label_values(&["message_to_server"]);
        let sending = async move {
            let body = to_bytes(params.size_hint(), |out| write_notification(out, method, &params));
            let _ = server.send(body, None, &Headers::new()).await;
        };
        self.hello.times.side().send(sending, &dropped);
    }

    /// Answers a request of the server's in the name of a client, in that one's own time.
    pub(super) async fn answer(&self, id: &Id, outcome: Result<Object, RpcError>) {
        let sent = tokio::time::timeout(OWN_TIME, self.send(written(id, &outcome), None, &Headers::new())).await;
        if let Ok(Err(e)) = sent {
            tracing::debug!(server = self.hello.server, "an answer could not be delivered: {e}");
        }
    }

    /// Answers a request of the server's in our own name. Whoever read the request waits until there is a place for the
    /// answer, and meanwhile reads nothing more: a server that asks faster than it takes answers waits, too.
    pub(super) async fn reply(self: &Arc<Self>, id: &Id, outcome: Result<Object, RpcError>) {
        let place = if self.link.is_pipe() { None } else { Some(self.hello.times.side().reply_place().await) };
        self.reply_in(place, id, outcome).await;
    }

    /// Answers in a place that was waited for; a pipe has its own.
    pub(super) async fn reply_in(
        self: &Arc<Self>,
        place: Option<ReplyPlace>,
        id: &Id,
        outcome: Result<Object, RpcError>,
    ) {
        let Some(place) = place else { return self.link.reply(written(id, &outcome)).await };
        ReplyMeter::new(&self.hello.server, &self.hello.metrics).answered(place.is_late);
        // Not inline: a server may take it only after it has said more on the stream that this came on.
        let (server, id) = (self.clone(), id.clone());
        tokio::spawn(async move {
            server.answer(&id, outcome).await;
            drop(place);
        });
    }

    /// A request that a task makes, on a stream that is not the task's: "clients SHOULD expect messages to be delivered
    /// on any SSE stream" (2025-11-25/basic/utilities/tasks.mdx, Input Required Status).
    pub(super) async fn asked_by_task(self: &Arc<Self>, task: Text, request: Request) {
        let Err(request) = self.calls.inject_for_task(&task, request) else { return };
        for request in self.attended.keep(Text::from(task.as_str()), request) {
            self.hello.metrics.asks.with_label_values(&["any", "unattributed"]).inc();
            let message = "Nobody waits for the task that asks";
            let error = RpcError { code: code::METHOD_NOT_FOUND, message: message.into(), data: None };
            self.reply(&request.id, Err(error)).await;
        }
    }

    /// A notice for whoever listens to the server as a whole.
    pub(super) fn publish(&self, notice: Notice) {
        let told = matches!(
            notice,
            Notice::Changed(_) | Notice::Updated(..) | Notice::Log(..) | Notice::Elicited(..) | Notice::Task(_)
        );
        if told {
            let _ = self.news.send(notice);
        }
    }

    /// Tells the server that the session ends.
    ///
    /// 2025-11-25/basic/transports.mdx, Session Management: "Clients that no longer need a particular session SHOULD send
    /// an HTTP DELETE". A server may end what runs in it then.
    fn end(&self) {
        let settled = self.settled.swap(true, Ordering::Relaxed);
        if settled || !self.has_session() || self.link.is_pipe() {
            return;
        }
        let (link, headers) = (self.link.clone(), self.headers());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.hello.closing.spawn_on(async move { link.close(headers).await }, &runtime);
        }
    }
}

/// The trait is implemented for the shared form, since calls outlive the borrow.
pub(in crate::revision) struct Shared(pub(super) Arc<LegacyServer>);

impl Server for Shared {
    fn describe(&self, _: &Caller) -> Face {
        self.0.face()
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let (server, caller) = (self.0.clone(), caller.clone());
        match call.method {
            Method::CallTool => call_tool(server, caller, call),
            Method::Task(method) => about_task(method, server, caller, call),
            _ => Running::start(server, caller, call).0,
        }
    }

    fn listen(&self, _: &Arc<Caller>, filter: Filter) -> Notices {
        let features = self.0.face().features;
        let mut honoured = filter;
        // One that was not tried is, by the first of these.
        if !features.subscribe && !features.subscribe_untried {
            honoured.uris.clear();
        }
        let receiver = self.0.news.subscribe();
        self.0.subscribe(&honoured.uris);
        Notices { stream: heard(receiver, honoured.clone()), honoured, opened: None }
    }

    fn try_subscriptions(&self, _: &Arc<Caller>, uris: &[Text]) -> Option<BoxFuture<'static, Result<(), Error>>> {
        self.0.try_subscription(uris.first()?)
    }

    fn tell(&self, _: &Arc<Caller>, notice: Notice) {
        if let Notice::RootsChanged = notice {
            self.0.notify("notifications/roots/list_changed", Object::new());
        }
    }

    fn hand_over(&self) -> Option<Raw> {
        if self.0.link.is_pipe() { None } else { self.0.agreed.load().hand_over() }
    }

    fn renewed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.renewed.notified())
    }

    fn let_go(&self) {
        self.0.settled.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.end();
    }

    /// 2025-11-25/basic/utilities/ping.mdx: "The receiver MUST respond promptly with an empty response". Whatever it
    /// answers, it is there.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let server = self.0.clone();
        if !server.link.is_pipe() && !server.has_session() {
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
fn call_tool(server: Arc<LegacyServer>, caller: Arc<Caller>, mut call: Call) -> Exchange {
    // A client's opt-in is a `TaskWish` by now; what stands here still is no word of its revision.
    if call.params.get("task").is_some() {
        call.params.remove("task");
    }
    if server.agreed.load().face.features.tasks.is_none() {
        call.task = TaskWish::Never;
        return Running::start(server, caller, call).0;
    }
    let wish = match (&call.task, support(call.definition.as_deref())) {
        (TaskWish::Must(wish), _) => wish.clone(),
        (TaskWish::May, Support::Optional | Support::Required) => Object::new(),
        (TaskWish::Never, Support::Required) => {
            call.params.set(Text::literal("task"), Raw::literal("{}"));
            call.task = TaskWish::May;
            return drive(server, caller, call);
        }
        _ => {
            call.task = TaskWish::Never;
            return Running::start(server, caller, call).0;
        }
    };
    call.params.set(Text::literal("task"), wish.raw());
    Running::start(server, caller, call).0
}

/// "If `execution.taskSupport` is `"required"`, clients MUST invoke the tool as a task"
/// (2025-11-25/basic/utilities/tasks.mdx, Tool-Level Negotiation): the gateway does, for clients that cannot.
fn drive(server: Arc<LegacyServer>, caller: Arc<Caller>, call: Call) -> Exchange {
    let (created, token) = Running::start(server.clone(), caller.clone(), call);
    let steps = Steps {
        end: Box::new({
            let (server, caller) = (server.clone(), caller.clone());
            // "The `progressToken` provided in the initial request remains valid throughout the task lifetime."
            move |id| Running::end_of(server, caller, id, token)
        }),
        cancel: Box::new({
            let (server, caller) = (server.clone(), caller.clone());
            move |id| {
                let Some(place) = server.hello.times.side().place() else { return };
                let cancelling = Running::start(server, caller, Call::of_task(TaskMethod::Cancel, id)).0.outcome();
                tokio::spawn(async move { drop((cancelling.await, place)) });
            }
        }),
        limit: server.hello.times.call(),
        late: fault::timeout(&server.hello.server, server.hello.times.call()),
    };
    driven::drive(created, steps)
}

fn about_task(method: TaskMethod, server: Arc<LegacyServer>, caller: Arc<Caller>, call: Call) -> Exchange {
    let once = |end: futures_util::future::BoxFuture<'static, Result<Outcome, Error>>| {
        Exchange::new(stream::once(async move { Event::Done(end.await) }))
    };
    match method {
        TaskMethod::State if call.whole => {
            let id = call.target().unwrap_or(Text::literal(""));
            once(Box::pin(attend::whole(server, caller, id)))
        }
        TaskMethod::Answer => once(Box::pin(attend::answer(server, caller, call))),
        TaskMethod::Cancel => once(Box::pin(attend::cancel(server, caller, call))),
        _ => Running::start(server, caller, call).0,
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.0.gone.cancel();
    }
}

/// With the last of its calls, however the connection was given up.
impl Drop for LegacyServer {
    fn drop(&mut self) {
        self.over.cancel();
        self.end();
    }
}

fn heard(
    receiver: broadcast::Receiver<Notice>,
    filter: Filter,
) -> std::pin::Pin<Box<dyn futures_util::Stream<Item = Notice> + Send>> {
    // What is owed after falling behind: anything may have changed.
    let owed: Vec<Notice> = Vec::new();
    let events = stream::unfold((receiver, filter, owed), |(mut receiver, filter, mut owed)| async move {
        loop {
            if let Some(notice) = owed.pop() {
                return Some((notice, (receiver, filter, owed)));
            }
            match receiver.recv().await {
                Ok(notice) if filter.wants(&notice) => return Some((notice, (receiver, filter, owed))),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    let updated = |uri: &Text| Notice::Updated(uri.clone(), uri_params(uri));
                    owed.extend(Kind::ALL.map(Notice::Changed));
                    owed.extend(filter.uris.iter().map(updated));
                    owed.retain(|notice| filter.wants(notice));
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    });
    events.boxed()
}

fn written(id: &Id, outcome: &Result<Object, RpcError>) -> Bytes {
    match outcome {
        Ok(result) => to_bytes(result.size_hint(), |out| write_result(out, id, result)),
        Err(error) => to_bytes(128, |out| write_error(out, Some(id), error)),
    }
}

/// What the pump and running calls hold on to.
pub(super) type WeakServer = Weak<LegacyServer>;
