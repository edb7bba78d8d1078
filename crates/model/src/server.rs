//! Anything that can be called: an upstream server of any revision, the gateway, or a view of it.
//!
//! Owns the trait and its notifications. Does not know transports or revisions. Invariant: no method blocks.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::select;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::{Call, Caller, Error, Exchange, ItemKind, LogLevel, TaskCapabilities, TaskState};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Limit of pending notifications that a new stream takes over. Connections queue fewer.
const DRAIN_MAX: usize = 1024;

/// MCP server of any revision.
pub trait Server: Send + Sync {
    /// Returns the identity and capabilities of the server for this caller. Answered from memory.
    fn describe(&self, caller: &Caller) -> ServerDescription;

    /// Starts a call. Never blocks: all waiting happens in the exchange.
    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange;

    /// Subscribes to changes. The stream ends when the server can no longer report them.
    fn subscribe(&self, caller: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream;

    /// Tests subscriptions to resources on a server that denies support and was not tried yet. `None`: there is nothing
    /// to test, and [`Server::subscribe`] knows the answer. An error concerns only these resources.
    fn try_subscriptions(&self, _: &Arc<Caller>, _: &[ByteString]) -> Option<BoxFuture<'static, Result<(), Error>>> {
        None
    }

    /// Sends a notification to the server.
    fn notify(&self, caller: &Arc<Caller>, notice: Notification);

    /// Returns the state with which another process can continue this connection, if any. It may be a secret.
    fn export_session(&self) -> Option<RawJson> {
        None
    }

    /// Waits until the exported state has changed. Supports one waiter.
    fn session_changed(&self) -> BoxFuture<'_, ()> {
        // Servers without sessions never change them.
        Box::pin(std::future::pending())
    }

    /// Detaches the connection: its end is no longer reported to the server, because another process continues it.
    fn detach(&self) {}

    /// Closes the connection now, whatever still runs on it. Without this call it closes with its last call.
    fn close(&self) {}

    /// Pings the server; true if any response came. `None` if the server has no ping, or no connection that could be
    /// lost.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        None
    }
}

/// Self-description of a server.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServerDescription {
    /// Name, version and title: an `Implementation` object.
    pub info: RawJson,
    /// Instructions for a model.
    pub instructions: Option<String>,
    /// Capabilities.
    pub features: ServerCapabilities,
}

/// Capabilities of a server.
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
    /// True if single resources can be subscribed to.
    pub subscribe: bool,
    /// True if the server denies subscriptions in terms that some servers use wrongly, and was not tried.
    pub subscribe_untried: bool,
    pub completions: bool,
    pub logging: bool,
    /// Task capabilities; `None` without any.
    pub tasks: Option<TaskCapabilities>,
    /// Extensions that the gateway does not interpret: settings by identifier.
    pub extensions: JsonObject,
    /// Experimental capabilities that the gateway does not interpret.
    pub experimental: JsonObject,
}

/// Selection of notifications.
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
    /// Completed URL elicitations.
    pub elicitations: bool,
    /// Status of these tasks.
    pub tasks: Vec<ByteString>,
    /// Status of all tasks that servers report unasked. The subscriber knows the owners.
    pub all_task_statuses: bool,
    /// In an acknowledged filter: the setting of the limit that left something out.
    pub exceeded_limit: Option<ByteString>,
    /// For entries left out: the server that offers no subscriptions.
    pub unoffered: Option<ByteString>,
}

/// Notification from a server or a client.
#[derive(Clone, Debug)]
pub enum Notification {
    /// Progress of a call: the params of the notification. The token is arbitrary.
    Progress(JsonObject),
    /// Log message: the level, if readable, and the params.
    Log(Option<LogLevel>, JsonObject),
    /// Change of a list.
    ListChanged(ItemKind),
    /// Possible change of a list, after a time without a subscription.
    MaybeChanged(ItemKind),
    /// Change of a resource: URI and params.
    ResourceUpdated(ByteString, JsonObject),
    /// Completed URL elicitation: id and params.
    ElicitationComplete(ByteString, JsonObject),
    /// Change of the client's roots.
    RootsChanged,
    /// Status of a task. Holds the full state if the subscriber named the task.
    TaskStatus(Box<TaskState>),
    /// Any other notification: method and params.
    Other(ByteString, JsonObject),
}

impl Notification {
    /// Returns the approximate size in bytes.
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

/// Notifications of one subscription, with the acknowledged part of its filter.
pub struct NotificationStream {
    /// Part of the filter that the server acknowledged.
    pub acknowledged: SubscriptionFilter,
    /// Notifications of the subscription.
    pub stream: Pin<Box<dyn Stream<Item = Notification> + Send>>,
    /// Cancelled once the subscription is established or has failed; the stream must be read meanwhile. `None`: at
    /// once.
    pub established: Option<CancellationToken>,
}

impl NotificationStream {
    /// Creates a stream that ends at once.
    pub fn closed() -> Self {
        NotificationStream {
            acknowledged: SubscriptionFilter::default(),
            stream: stream::empty().boxed(),
            established: None,
        }
    }

    /// True if the subscription is not established yet.
    pub fn is_pending(&self) -> bool {
        self.established.as_ref().is_some_and(|opened| !opened.is_cancelled())
    }

    /// Treats the subscription as established, so that the one that it replaces ends.
    pub fn assume_established(&mut self) {
        if let Some(opened) = self.established.take() {
            opened.cancel();
        }
    }

    /// Replaces another subscription, which is read until this one is established. No notification is lost; some may
    /// come twice.
    pub fn take_over_from(self, before: NotificationStream) -> Self {
        let Some(opened) = self.established.clone() else {
            // Notifications queued so far went to the old subscription.
            return NotificationStream { stream: stream::iter(drain_ready(before)).chain(self.stream).boxed(), ..self };
        };
        let old = stream::unfold((before.stream, opened), |(mut before, opened)| async move {
            tokio::select! {
                // The old stream first: what it has queued came earlier.
                biased;
                notice = before.next() => notice.map(|notice| (notice, (before, opened))),
                () = opened.cancelled() => None,
            }
        });
        NotificationStream { stream: select(Box::pin(old), self.stream).boxed(), ..self }
    }
}

/// Takes the queued notifications without waiting.
fn drain_ready(mut before: NotificationStream) -> Vec<Notification> {
    let mut notices = Vec::new();
    while notices.len() < DRAIN_MAX {
        // Unconstrained: an exhausted task budget would make a full queue look empty.
        match unconstrained(before.stream.next()).now_or_never() {
            Some(Some(notice)) => notices.push(notice),
            _ => return notices,
        }
    }
    // The limit is reached: the rest is replaced by notifications that anything may have changed.
    notices.extend(before.acknowledged.maybe_changed());
    notices
}

impl SubscriptionFilter {
    /// Creates a filter for everything but single resources.
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

    /// Returns notifications that stand for missed ones: any list, and each resource, may have changed.
    pub fn maybe_changed(&self) -> impl Iterator<Item = Notification> {
        // Templates have no notification of their own.
        let lists = [ItemKind::Tools, ItemKind::Prompts, ItemKind::Resources].map(Notification::MaybeChanged);
        lists.into_iter().filter(|notice| self.matches(notice)).chain(self.resource_updates())
    }

    /// Returns an update of each resource, as a server would send it.
    fn resource_updates(&self) -> impl Iterator<Item = Notification> {
        // The params have the members that the specification requires, and no others.
        let updated = |uri: &ByteString| {
            Notification::ResourceUpdated(uri.clone(), JsonObject::new().with("uri", RawJson::string(uri)))
        };
        self.uris.iter().map(updated)
    }

    /// True if the filter selects the notification.
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
            // Subscriptions to single tasks are matched by the subscriber, which knows their ids.
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
    async fn queued_notifications_move_to_the_replacement_subscription() {
        let (news, receiver) = broadcast::channel(256);
        let open = |stream| NotificationStream { acknowledged: SubscriptionFilter::all(), stream, established: None };
        let heard = |receiver: broadcast::Receiver<Notification>| {
            let next = |mut receiver: broadcast::Receiver<Notification>| async {
                Some((receiver.recv().await.ok()?, receiver))
            };
            open(stream::unfold(receiver, next).boxed())
        };
        let before = heard(receiver);
        // More items than a task may take in one poll.
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
    async fn notifications_over_the_drain_limit_count_as_missed() {
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
