//! Notifications, and the filters that select them.
//!
//! Owns the match of the two. Does not deliver notifications (`notification_stream.rs`). Invariant:
//! a filter selects only what its subscriber asked for.

use crate::{ItemKind, LogLevel, TaskState};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

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
    /// Withdrawal of an input request by its server: the key of the request, and the reason.
    InputWithdrawn(ByteString, Option<RawJson>),
    /// Status of a task. Holds the full state if the subscriber named the task.
    TaskStatus(Box<TaskState>),
    /// Notification of an extension: method and params.
    Extension(ByteString, JsonObject),
    /// Notification that nobody can use: method and params.
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
            | Notification::Extension(_, params)
            | Notification::Other(_, params) => params.size_hint(),
            Notification::ListChanged(_)
            | Notification::MaybeChanged(_)
            | Notification::RootsChanged
            | Notification::InputWithdrawn(..)
            | Notification::TaskStatus(_) => 128,
        }
    }
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
    /// Notifications of extensions.
    pub extensions: bool,
    /// In an acknowledged filter: the setting of the limit that left something out.
    pub exceeded_limit: Option<ByteString>,
    /// For entries left out: the server that offers no subscriptions.
    pub unoffered: Option<ByteString>,
}

impl Notification {
    /// Creates the update of a resource, as a server would send it.
    pub fn updated(uri: &ByteString) -> Self {
        // The params have the members that the specification requires, and no others.
        Notification::ResourceUpdated(
            uri.clone(),
            JsonObject::new().with("uri", RawJson::string(uri)),
        )
    }
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
            extensions: true,
            exceeded_limit: None,
            unoffered: None,
        }
    }

    /// Returns notifications in place of missed ones: any list, and each resource, may have
    /// changed.
    pub fn maybe_changed(&self) -> impl Iterator<Item = Notification> {
        // Templates have no separate notification.
        let lists = [ItemKind::Tools, ItemKind::Prompts, ItemKind::Resources]
            .map(Notification::MaybeChanged);
        lists
            .into_iter()
            .filter(|notification| self.matches(notification))
            .chain(self.uris.iter().map(Notification::updated))
    }

    /// True if the filter selects the notification.
    pub fn matches(&self, notification: &Notification) -> bool {
        match notification {
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
            Notification::Extension(..) => self.extensions,
            _ => false,
        }
    }
}
