//! A stateless server: nothing is agreed on, every request says everything.
//!
//! Owns discovery and the listening stream. One call is in `running`. Invariant: a server is told the capabilities of
//! the client whose call it is, never ours.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, Message, to_bytes, write_notification, write_request};
use crate::link::{Headers, Link, LinkError, Messages, Outgoing};
use crate::model::{
    Call, Caller, Error, Event, Exchange, Face, Features, Filter, Method, Notice, Notices, Reason, Server, TaskMethod,
    TaskWish,
};
use crate::revision::connect::{ConnectError, Hello};
use crate::revision::legacy::first_answer;
use crate::revision::v2026_07_28::awaited;
use crate::revision::v2026_07_28::changes::Changes;
use crate::revision::v2026_07_28::running::Running;
use crate::revision::v2026_07_28::tasks;
use crate::revision::v2026_07_28::{
    CLIENT_CAPABILITIES, CLIENT_INFO, NAME, PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID, headers,
};
use crate::revision::{Calls, notices};

/// An open stateless server.
pub(in crate::revision) struct ModernServer(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) link: Arc<dyn Link>,
    pub(super) calls: Calls,
    pub(super) hello: Hello,
    face: Face,
    /// Changes of lists that were told outside of a subscription.
    pub(super) changes: Changes,
}

impl ModernServer {
    /// Takes the server into use.
    pub(in crate::revision) fn attach(link: Arc<dyn Link>, calls: Calls, hello: Hello, face: Face) -> Arc<Self> {
        let changes = Changes::default();
        if link.is_pipe()
            && let Some(Ok(messages)) = link.listen(Headers::new()).now_or_never()
        {
            // What belongs to no request is nobody's here, such as the progress of one that is over: it must not wait, and
            // take the room of what is about a call. One task for each connection.
            tokio::spawn(changes.clone().read(messages));
        }
        Arc::new(ModernServer(Arc::new(Inner { link, calls, hello, face, changes })))
    }
}

impl Inner {
    /// Sends a notification aside; only pipes have a use for one.
    pub(super) fn notify(self: &Arc<Self>, method: &'static str, params: Object) {
        let inner = self.clone();
        let dropped = self.hello.metrics.dropped.with_label_values(&["message_to_server"]);
        let sending = async move {
            let body = to_bytes(params.size_hint(), |out| write_notification(out, method, &params));
            let _ = inner.link.send(Outgoing { body, id: None, headers: Headers::new() }).await;
        };
        self.hello.times.side().send(sending, &dropped);
    }
}

/// `_meta` of a request of the gateway's own.
fn own_meta(hello: &Hello) -> Object {
    let version = hello.revision.unwrap_or(NAME);
    Object::new()
        .with(PROTOCOL_VERSION, Raw::string(version))
        .with(CLIENT_INFO, hello.info.clone())
        .with(CLIENT_CAPABILITIES, hello.capabilities.clone())
}

/// Asks what the server is: `server/discover`.
pub(in crate::revision) async fn discover(
    link: &Arc<dyn Link>,
    calls: &Calls,
    hello: &Hello,
) -> Result<Face, ConnectError> {
    let result = ask(link, calls, hello).await?;
    let versions = result.get("supportedVersions").and_then(Raw::as_array).ok_or_else(|| {
        ConnectError::Link(LinkError::Protocol("the answer to server/discover has no supportedVersions".to_owned()))
    })?;
    if !versions.iter().any(|v| v.as_text().is_some_and(|v| v.as_str() == NAME)) {
        let spoken: Vec<String> = versions.iter().filter_map(|v| v.as_text().map(|t| t.to_string())).collect();
        return Err(ConnectError::NoCommonRevision(format!(
            "it speaks only {}, none of which is known here",
            spoken.join(", ")
        )));
    }
    let info = result.object("_meta").and_then(|meta| meta.get(SERVER_INFO).cloned()).filter(Raw::is_object);
    Ok(Face {
        info: info.unwrap_or_else(|| Raw::literal("{}")),
        instructions: result.text("instructions").as_ref().map(Text::to_string),
        features: features(&result.object("capabilities").unwrap_or_default(), hello),
    })
}

async fn ask(link: &Arc<dyn Link>, calls: &Calls, hello: &Hello) -> Result<Object, ConnectError> {
    let id = calls.next_id();
    let params = Object::new().with("_meta", own_meta(hello).raw());
    let body = to_bytes(512, |out| write_request(out, &Id::number(id), "server/discover", &params));
    let headers = headers::write("server/discover", None, None, None);
    let reply = link.send(Outgoing { body, id: Some(id), headers }).await?;
    first_answer(reply.messages).await
}

fn features(capabilities: &Object, hello: &Hello) -> Features {
    Features { tasks: tasks::features(capabilities), ..notices::features(capabilities, hello) }
}

impl Server for ModernServer {
    fn describe(&self, _: &Caller) -> Face {
        self.0.face.clone()
    }

    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange {
        let (server, caller) = (self.0.clone(), caller.clone());
        let foreign = caller.revision != NAME;
        match call.method {
            Method::Task(TaskMethod::List) => {
                // SEP-2663, Motivation: "`tasks/list` scoping cannot be defined".
                let message = format!("Server \"{}\" cannot list tasks", server.hello.server);
                Exchange::done(Err(Error::new(Reason::UnknownMethod, message)))
            }
            Method::Task(TaskMethod::End) => {
                let id = call.target().unwrap_or(Text::literal(""));
                awaited::end(server, caller, id)
            }
            Method::Task(TaskMethod::Cancel) if call.whole => {
                let id = call.target().unwrap_or(Text::literal(""));
                Exchange::new(stream::once(async move { Event::Done(awaited::cancel(server, caller, id).await) }))
            }
            Method::CallTool if foreign && call.task == TaskWish::Never && server.face.features.tasks.is_some() => {
                awaited::undeclared(server, caller, call)
            }
            _ => Running::start(server, caller, call),
        }
    }

    fn listen(&self, _: &Arc<Caller>, filter: Filter) -> Notices {
        let features = &self.0.face.features;
        let mut honoured = Filter {
            tools: filter.tools && features.tools_changes,
            prompts: filter.prompts && features.prompts_changes,
            resources: filter.resources && features.resources_changes,
            uris: filter.uris.clone(),
            // Log messages belong to a request in this revision.
            logs: false,
            elicitations: false,
            // The states of tasks are looked for by whoever has the tasks.
            tasks: Vec::new(),
            told_tasks: false,
            full: None,
            unoffered: None,
        };
        if !features.subscribe {
            honoured.uris.clear();
        }
        let told = self.0.changes.listen(&filter);
        if honoured == Filter::default() {
            // Nothing to subscribe to, which is no reason to think that the server is gone.
            return Notices { honoured, stream: told.boxed(), opened: None };
        }
        let opened = CancellationToken::new();
        let listening = listen(self.0.clone(), honoured.clone(), opened.clone().drop_guard());
        let heard = stream::once(listening).filter_map(std::future::ready).flatten();
        // It ends with the subscription.
        let heard = stream::select(heard.map(Some).chain(stream::once(std::future::ready(None))), told.map(Some));
        let heard = heard.take_while(|heard| std::future::ready(heard.is_some())).filter_map(std::future::ready);
        Notices { honoured, stream: heard.boxed(), opened: Some(opened) }
    }

    fn tell(&self, _: &Arc<Caller>, _: Notice) {
        // This revision has no notifications from clients.
    }

    /// This revision has no ping, but a question that is answered from memory: "Servers **MUST** implement
    /// `server/discover`" (2026-07-28/basic/versioning.mdx), and this one did when it was opened. Whatever it answers, it is
    /// there. Over HTTP there is no connection that could lead nowhere.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        let inner = self.0.clone();
        if !inner.link.is_pipe() {
            return None;
        }
        Some(Box::pin(async move {
            let asked = ask(&inner.link, &inner.calls, &inner.hello).await;
            matches!(asked, Ok(_) | Err(ConnectError::Answered(_)))
        }))
    }
}

async fn listen(
    inner: Arc<Inner>,
    filter: Filter,
    opening: DropGuard,
) -> Option<impl futures_util::Stream<Item = Notice> + Send> {
    let entry = inner.calls.open_subscription();
    let mut asked = Object::new();
    for (name, on) in [
        ("toolsListChanged", filter.tools),
        ("promptsListChanged", filter.prompts),
        ("resourcesListChanged", filter.resources),
    ] {
        if on {
            asked.set(Text::literal(name), Raw::literal("true"));
        }
    }
    if !filter.uris.is_empty() {
        let uris: Vec<&str> = filter.uris.iter().map(Text::as_str).collect();
        asked.set(Text::literal("resourceSubscriptions"), Raw::of(&uris));
    }
    let params = Object::new().with("notifications", asked.raw()).with("_meta", own_meta(&inner.hello).raw());
    let id = entry.id;
    let body: Bytes = to_bytes(512, |out| write_request(out, &Id::number(id), "subscriptions/listen", &params));
    let headers = headers::write("subscriptions/listen", None, None, None);
    let sent = inner.link.send(Outgoing { body, id: Some(id), headers }).await;
    let messages: Messages = match sent {
        Ok(reply) => reply.messages,
        Err(e) => {
            tracing::debug!(server = inner.hello.server, "changes cannot be listened to: {e}");
            return None;
        }
    };
    let open = Listening { messages, _entry: entry, inner, opening: Some(opening) };
    Some(stream::unfold(open, |mut open| async move { open.next().await.map(|notice| (notice, open)) }))
}

struct Listening {
    messages: Messages,
    _entry: crate::revision::calls::CallEntry,
    inner: Arc<Inner>,
    /// Says that it is listened to by being dropped.
    opening: Option<DropGuard>,
}

impl Listening {
    async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.messages.next().await? {
                Ok(Message::Notification(n)) if &*n.method == "notifications/subscriptions/acknowledged" => {
                    self.opening = None;
                }
                Ok(Message::Notification(mut n)) => {
                    untag(&mut n.params);
                    // It is kept until the slowest listener has it, with many others.
                    if n.params.size_hint() > notices::NOTICE_MAX {
                        continue;
                    }
                    if let notice @ (Notice::Changed(_) | Notice::Updated(..)) = notices::read(n) {
                        return Some(notice);
                    }
                }
                // The answer ends the stream, gracefully; anything else ends it too.
                Ok(Message::Response(_)) | Err(_) => return None,
                Ok(Message::Request(_)) => {}
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // basic/patterns/subscriptions.mdx, Cancellation: on a pipe the client sends `notifications/cancelled`.
        if self.inner.link.is_pipe() && tokio::runtime::Handle::try_current().is_ok() {
            self.inner.notify("notifications/cancelled", Object::new().with("requestId", Raw::number(self._entry.id)));
        }
    }
}

/// Takes the subscription's id out: it is local to this hop.
fn untag(params: &mut Object) {
    if let Some(mut meta) = params.object("_meta") {
        meta.remove(SUBSCRIPTION_ID);
        if meta.is_empty() {
            params.remove("_meta");
        } else {
            params.set(Text::literal("_meta"), meta.raw());
        }
    }
}
