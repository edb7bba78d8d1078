//! Whatever can be called: an upstream server of any revision, the gateway, a view of it.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::select;
use futures_util::{Stream, StreamExt, stream};
use tokio_util::sync::CancellationToken;

use crate::json::{Object, Raw, Text};
use crate::model::{Call, Caller, Exchange, Kind, Level, Task, TaskFeatures};

/// An MCP server, seen without its revision.
pub trait Server: Send + Sync {
    /// What it is and what it can do, for this caller. Answered from memory.
    fn describe(&self, caller: &Caller) -> Face;

    /// Starts a call. Never blocks; everything that takes time happens in the exchange.
    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange;

    /// Starts to listen for changes. The stream ends when the server can no longer tell of them.
    fn listen(&self, caller: &Arc<Caller>, filter: Filter) -> Notices;

    /// Tells the server something that wants no answer.
    fn tell(&self, caller: &Arc<Caller>, notice: Notice);

    /// What another process needs to go on with this connection, where there is such a thing; it may be a secret.
    fn hand_over(&self) -> Option<Raw> {
        None
    }

    /// Waits until that is no longer what it was. For one who waits.
    fn renewed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// From now on its end is not told to the server: somebody else goes on with it.
    fn let_go(&self) {}

    /// Asks whether it is still there: whether anything at all came back. `None`: it has no such question, or nothing that
    /// could be lost.
    fn ping(&self) -> Option<BoxFuture<'static, bool>> {
        None
    }
}

/// What a server says of itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Face {
    /// Name, version, title: an `Implementation` object.
    pub info: Raw,
    /// How to use it, for a model.
    pub instructions: Option<String>,
    /// What it can do.
    pub features: Features,
}

/// What a server can do.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Features {
    pub tools: bool,
    pub tools_changes: bool,
    pub prompts: bool,
    pub prompts_changes: bool,
    pub resources: bool,
    pub resources_changes: bool,
    /// Whether single resources can be subscribed to.
    pub subscribe: bool,
    pub completions: bool,
    pub logging: bool,
    /// What it can do with tasks; `None`: nothing.
    pub tasks: Option<TaskFeatures>,
    /// Extensions that nobody here reads: their settings by identifier.
    pub extensions: Object,
    /// The same, of what is not standard.
    pub experimental: Object,
}

/// What a listener wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the lists of resources and templates.
    pub resources: bool,
    /// Changes of these resources.
    pub uris: Vec<Text>,
    /// Log messages that belong to no call.
    pub logs: bool,
    /// That a user is done with a page.
    pub elicitations: bool,
    /// The states of these tasks.
    pub tasks: Vec<Text>,
    /// Whatever servers tell of tasks by themselves; whoever listens knows which are whose.
    pub told_tasks: bool,
    /// Of what is honoured: the setting for want of whose room something was left out.
    pub full: Option<Text>,
}

/// News from a server.
#[derive(Clone, Debug)]
pub enum Notice {
    /// How far a call is: the params of the notification; the token is whatever stood there.
    Progress(Object),
    /// A log message: its level as far as we can read it, and the params.
    Log(Option<Level>, Object),
    /// A list changed.
    Changed(Kind),
    /// A resource changed: its URI and the params.
    Updated(Text, Object),
    /// A user is done with the page of an elicitation: its id and the params.
    Elicited(Text, Object),
    /// The client's roots changed.
    RootsChanged,
    /// The state of a task that changed: the whole of it where the listener named the task.
    Task(Box<Task>),
    /// Anything else: method and params.
    Other(Text, Object),
}

/// What a listener hears: first that it is listened to, then the news.
pub struct Notices {
    /// The part of the filter that will be honoured.
    pub honoured: Filter,
    /// The news.
    pub stream: Pin<Box<dyn Stream<Item = Notice> + Send>>,
    /// Cancelled once it is listened to, or cannot be; the stream must be read meanwhile. `None`: it is already.
    pub opened: Option<CancellationToken>,
}

impl Notices {
    /// Nothing to hear, and the end at once.
    pub fn over() -> Self {
        Notices { honoured: Filter::default(), stream: stream::empty().boxed(), opened: None }
    }

    /// Whether it is not listened to yet.
    pub fn is_opening(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| !opened.is_cancelled())
    }

    /// Takes the place of a listener, which is heard until this one is listened to: nothing is missed in between. What
    /// happens just then may be heard on both.
    pub fn in_place_of(self, before: Notices) -> Self {
        let Some(opened) = self.opened.clone() else { return self };
        let old = stream::unfold((before.stream, opened), |(mut before, opened)| async move {
            tokio::select! {
                biased;
                notice = before.next() => notice.map(|notice| (notice, (before, opened))),
                () = opened.cancelled() => None,
            }
        });
        Notices { stream: select(Box::pin(old), self.stream).boxed(), ..self }
    }
}

impl Filter {
    /// Everything but single resources.
    pub fn everything() -> Self {
        Filter {
            tools: true,
            prompts: true,
            resources: true,
            uris: Vec::new(),
            logs: true,
            elicitations: true,
            tasks: Vec::new(),
            told_tasks: true,
            full: None,
        }
    }

    /// Whether the listener wants to hear this.
    pub fn wants(&self, notice: &Notice) -> bool {
        match notice {
            Notice::Changed(Kind::Tools) => self.tools,
            Notice::Changed(Kind::Prompts) => self.prompts,
            Notice::Changed(Kind::Resources | Kind::Templates) => self.resources,
            Notice::Updated(uri, _) => self.uris.contains(uri),
            Notice::Log(..) => self.logs,
            Notice::Elicited(..) => self.elicitations,
            Notice::Task(_) => self.told_tasks,
            _ => false,
        }
    }
}
