//! Whatever can be called: an upstream server of any revision, the gateway, a view of it.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::select;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::json::{ByteString, JsonObject, RawJson};
use crate::model::{Call, Caller, Error, Exchange, ItemKind, LogLevel, TaskCapabilities, TaskState};

/// So much of what waits at a listener is told by the one that takes its place. Backs let fewer wait.
const DRAIN_MAX: usize = 1024;

/// An MCP server, seen without its revision.
pub trait Server: Send + Sync {
    /// What it is and what it can do, for this caller. Answered from memory.
    fn describe(&self, caller: &Caller) -> ServerDescription;

    /// Starts a call. Never blocks; everything that takes time happens in the exchange.
    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange;

    /// Starts to listen for changes. The stream ends when the server can no longer tell of them.
    fn subscribe(&self, caller: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream;

    /// Finds out whether resources can be subscribed to where a server denies that and was not tried. `None`: there is
    /// nothing to find out, and [`Server::listen`] knows. An error is about these resources alone.
    fn try_subscriptions(&self, _: &Arc<Caller>, _: &[ByteString]) -> Option<BoxFuture<'static, Result<(), Error>>> {
        None
    }

    /// Tells the server something that wants no answer.
    fn notify(&self, caller: &Arc<Caller>, notice: Notification);

    /// What another process needs to go on with this connection, where there is such a thing; it may be a secret.
    fn export_session(&self) -> Option<RawJson> {
        None
    }

    /// Waits until that is no longer what it was. For one who waits.
    fn session_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// From now on its end is not told to the server: somebody else goes on with it.
    fn detach(&self) {}

    /// Tells the server now that the connection ends, whatever still runs on it. Else the end of the last call does.
    fn close(&self) {}

    /// Asks whether it is still there: whether anything at all came back. `None`: it has no such question, or nothing that
    /// could be lost.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        None
    }
}

/// What a server says of itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServerDescription {
    /// Name, version, title: an `Implementation` object.
    pub info: RawJson,
    /// How to use it, for a model.
    pub instructions: Option<String>,
    /// What it can do.
    pub features: ServerCapabilities,
}

/// What a server can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ServerCapabilities {
    pub tools: bool,
    pub tools_changes: bool,
    pub prompts: bool,
    pub prompts_changes: bool,
    pub resources: bool,
    pub resources_changes: bool,
    /// Whether single resources can be subscribed to.
    pub subscribe: bool,
    /// Whether it denies that, in words that some servers say of themselves wrongly, and was not tried.
    pub subscribe_untried: bool,
    pub completions: bool,
    pub logging: bool,
    /// What it can do with tasks; `None`: nothing.
    pub tasks: Option<TaskCapabilities>,
    /// Extensions that nobody here reads: their settings by identifier.
    pub extensions: JsonObject,
    /// The same, of what is not standard.
    pub experimental: JsonObject,
}

/// What a listener wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionFilter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the lists of resources and templates.
    pub resources: bool,
    /// Changes of these resources.
    pub uris: Vec<ByteString>,
    /// Log messages that belong to no call.
    pub logs: bool,
    /// That a user is done with a page.
    pub elicitations: bool,
    /// The states of these tasks.
    pub tasks: Vec<ByteString>,
    /// Whatever servers tell of tasks by themselves; whoever listens knows which are whose.
    pub all_task_statuses: bool,
    /// Of what is honoured: the setting for want of whose room something was left out.
    pub exceeded_limit: Option<ByteString>,
    /// Of what is left out: the server that offers no subscriptions.
    pub unoffered: Option<ByteString>,
}

/// News from a server.
#[derive(Clone, Debug)]
pub enum Notification {
    /// How far a call is: the params of the notification; the token is whatever stood there.
    Progress(JsonObject),
    /// A log message: its level as far as we can read it, and the params.
    Log(Option<LogLevel>, JsonObject),
    /// A list changed.
    ListChanged(ItemKind),
    /// A list may have changed: nobody listened for a while.
    MaybeChanged(ItemKind),
    /// A resource changed: its URI and the params.
    ResourceUpdated(ByteString, JsonObject),
    /// A user is done with the page of an elicitation: its id and the params.
    ElicitationComplete(ByteString, JsonObject),
    /// The client's roots changed.
    RootsChanged,
    /// The state of a task that changed: the whole of it where the listener named the task.
    TaskStatus(Box<TaskState>),
    /// Anything else: method and params.
    Other(ByteString, JsonObject),
}

impl Notification {
    /// About how many bytes it has.
    pub fn size_hint(&self) -> usize {
        match self {
            Notification::Progress(params)
            | Notification::Log(_, params)
            | Notification::ResourceUpdated(_, params)
            | Notification::ElicitationComplete(_, params)
            | Notification::Other(_, params) => params.size_hint(),
            Notification::ListChanged(_)
            | Notification::MaybeChanged(_)
            | Notification::RootsChanged
            | Notification::TaskStatus(_) => 128,
        }
    }
}

/// What a listener hears: first that it is listened to, then the news.
pub struct NotificationStream {
    /// The part of the filter that will be honoured.
    pub acknowledged: SubscriptionFilter,
    /// The news.
    pub stream: Pin<Box<dyn Stream<Item = Notification> + Send>>,
    /// Cancelled once it is listened to, or cannot be; the stream must be read meanwhile. `None`: it is already.
    pub established: Option<CancellationToken>,
}

impl NotificationStream {
    /// Nothing to hear, and the end at once.
    pub fn closed() -> Self {
        NotificationStream {
            acknowledged: SubscriptionFilter::default(),
            stream: stream::empty().boxed(),
            established: None,
        }
    }

    /// Whether it is not listened to yet.
    pub fn is_pending(&self) -> bool {
        self.established.as_ref().is_some_and(|opened| !opened.is_cancelled())
    }

    /// It is not waited for any longer: taken for listened to, so that what it takes the place of ends.
    pub fn assume_established(&mut self) {
        if let Some(opened) = self.established.take() {
            opened.cancel();
        }
    }

    /// Takes the place of a listener, which is heard until this one is listened to: nothing is missed in between. What
    /// happens just then may be heard on both.
    pub fn take_over_from(self, before: NotificationStream) -> Self {
        let Some(opened) = self.established.clone() else {
            // What had come by now came to the other one.
            return NotificationStream { stream: stream::iter(drain_ready(before)).chain(self.stream).boxed(), ..self };
        };
        let old = stream::unfold((before.stream, opened), |(mut before, opened)| async move {
            tokio::select! {
                biased;
                notice = before.next() => notice.map(|notice| (notice, (before, opened))),
                () = opened.cancelled() => None,
            }
        });
        NotificationStream { stream: select(Box::pin(old), self.stream).boxed(), ..self }
    }
}

/// What has come to a listener and was not asked for yet.
fn drain_ready(mut before: NotificationStream) -> Vec<Notification> {
    let mut notices = Vec::new();
    while notices.len() < DRAIN_MAX {
        // Unconstrained: what this task did before says nothing of what is there.
        match unconstrained(before.stream.next()).now_or_never() {
            Some(Some(notice)) => notices.push(notice),
            _ => return notices,
        }
    }
    notices.extend(before.acknowledged.maybe_changed());
    notices
}

impl SubscriptionFilter {
    /// Everything but single resources.
    pub fn all() -> Self {
        SubscriptionFilter {
            tools: true,
            prompts: true,
            resources: true,
            uris: Vec::new(),
            logs: true,
            elicitations: true,
            tasks: Vec::new(),
            all_task_statuses: true,
            exceeded_limit: None,
            unoffered: None,
        }
    }

    /// What stands for news that nobody heard: any list may have changed, and so may each resource.
    pub fn maybe_changed(&self) -> impl Iterator<Item = Notification> {
        // Templates have no news of their own.
        let lists = [ItemKind::Tools, ItemKind::Prompts, ItemKind::Resources].map(Notification::MaybeChanged);
        lists.into_iter().filter(|notice| self.matches(notice)).chain(self.resource_updates())
    }

    /// That each of the resources changed, as a server would say it.
    fn resource_updates(&self) -> impl Iterator<Item = Notification> {
        let updated = |uri: &ByteString| {
            Notification::ResourceUpdated(uri.clone(), JsonObject::new().with("uri", RawJson::string(uri)))
        };
        self.uris.iter().map(updated)
    }

    /// Whether the listener wants to hear this.
    pub fn matches(&self, notice: &Notification) -> bool {
        match notice {
            Notification::ListChanged(kind) | Notification::MaybeChanged(kind) => match kind {
                ItemKind::Tools => self.tools,
                ItemKind::Prompts => self.prompts,
                ItemKind::Resources | ItemKind::Templates => self.resources,
            },
            Notification::ResourceUpdated(uri, _) => self.uris.contains(uri),
            Notification::Log(..) => self.logs,
            Notification::ElicitationComplete(..) => self.elicitations,
            Notification::TaskStatus(_) => self.all_task_statuses,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    fn uri(n: usize) -> ByteString {
        ByteString::from(format!("x:{n}"))
    }

    fn told(notices: &mut NotificationStream) -> Vec<Notification> {
        std::iter::from_fn(|| unconstrained(notices.stream.next()).now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn what_waits_at_a_listener_is_told_by_the_one_that_takes_its_place() {
        let (news, receiver) = broadcast::channel(256);
        let open = |stream| NotificationStream { acknowledged: SubscriptionFilter::all(), stream, established: None };
        let heard = |receiver: broadcast::Receiver<Notification>| {
            let next = |mut receiver: broadcast::Receiver<Notification>| async {
                Some((receiver.recv().await.ok()?, receiver))
            };
            open(stream::unfold(receiver, next).boxed())
        };
        let before = heard(receiver);
        // More than a task may take at once.
        for n in 0..200 {
            news.send(Notification::ResourceUpdated(uri(n), JsonObject::new())).unwrap();
        }
        let mut after = heard(news.subscribe()).take_over_from(before);
        news.send(Notification::ListChanged(ItemKind::Tools)).unwrap();
        let told: Vec<ByteString> = told(&mut after)
            .into_iter()
            .map(|notice| match notice {
                Notification::ResourceUpdated(uri, _) => uri,
                other => ByteString::from(format!("{other:?}")),
            })
            .collect();
        let expected: Vec<ByteString> = (0..200).map(uri).chain([ByteString::literal("ListChanged(Tools)")]).collect();
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn what_is_too_much_to_be_told_counts_as_missed() {
        let honoured = SubscriptionFilter { tools: true, uris: vec![uri(1)], ..SubscriptionFilter::default() };
        let endless = stream::repeat_with(|| Notification::RootsChanged).boxed();
        let before = NotificationStream { acknowledged: honoured.clone(), stream: endless, established: None };
        let silent =
            NotificationStream { acknowledged: honoured, stream: stream::pending().boxed(), established: None };
        let told = told(&mut silent.take_over_from(before));
        assert_eq!(told.len(), DRAIN_MAX + 2);
        assert!(matches!(&told[DRAIN_MAX], Notification::MaybeChanged(ItemKind::Tools)));
        assert!(matches!(&told[DRAIN_MAX + 1], Notification::ResourceUpdated(changed, _) if *changed == uri(1)));
    }
}
