//! Whatever can be called: an upstream server of any revision, the gateway, a view of it.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::select;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;

use crate::json::{Object, Raw, Text};
use crate::model::{Call, Caller, Error, Exchange, Kind, Level, Task, TaskFeatures};

/// So much of what waits at a listener is told by the one that takes its place. Backs let fewer wait.
const WAITING: usize = 1024;

/// An MCP server, seen without its revision.
pub trait Server: Send + Sync {
    /// What it is and what it can do, for this caller. Answered from memory.
    fn describe(&self, caller: &Caller) -> Face;

    /// Starts a call. Never blocks; everything that takes time happens in the exchange.
    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange;

    /// Starts to listen for changes. The stream ends when the server can no longer tell of them.
    fn listen(&self, caller: &Arc<Caller>, filter: Filter) -> Notices;

    /// Finds out whether resources can be subscribed to where a server denies that and was not tried. `None`: there is
    /// nothing to find out, and [`Server::listen`] knows. An error is about these resources alone.
    fn try_subscriptions(&self, _: &Arc<Caller>, _: &[Text]) -> Option<BoxFuture<'static, Result<(), Error>>> {
        None
    }

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

    /// Tells the server now that the connection ends, whatever still runs on it. Else the end of the last call does.
    fn end(&self) {}

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
    /// Whether it denies that, in words that some servers say of themselves wrongly, and was not tried.
    pub subscribe_untried: bool,
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
    /// Of what is left out: the server that offers no subscriptions.
    pub unoffered: Option<Text>,
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
    /// A list may have changed: nobody listened for a while.
    Missed(Kind),
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

impl Notice {
    /// About how many bytes it has.
    pub fn size_hint(&self) -> usize {
        match self {
            Notice::Progress(params)
            | Notice::Log(_, params)
            | Notice::Updated(_, params)
            | Notice::Elicited(_, params)
            | Notice::Other(_, params) => params.size_hint(),
            Notice::Changed(_) | Notice::Missed(_) | Notice::RootsChanged | Notice::Task(_) => 128,
        }
    }
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

    /// It is not waited for any longer: taken for listened to, so that what it takes the place of ends.
    pub fn assume_opened(&mut self) {
        if let Some(opened) = self.opened.take() {
            opened.cancel();
        }
    }

    /// Takes the place of a listener, which is heard until this one is listened to: nothing is missed in between. What
    /// happens just then may be heard on both.
    pub fn in_place_of(self, before: Notices) -> Self {
        let Some(opened) = self.opened.clone() else {
            // What had come by now came to the other one.
            return Notices { stream: stream::iter(waiting(before)).chain(self.stream).boxed(), ..self };
        };
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

/// What has come to a listener and was not asked for yet.
fn waiting(mut before: Notices) -> Vec<Notice> {
    let mut notices = Vec::new();
    while notices.len() < WAITING {
        // Unconstrained: what this task did before says nothing of what is there.
        match unconstrained(before.stream.next()).now_or_never() {
            Some(Some(notice)) => notices.push(notice),
            _ => return notices,
        }
    }
    notices.extend(before.honoured.missed());
    notices
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
            unoffered: None,
        }
    }

    /// What stands for news that nobody heard: any list may have changed, and so may each resource.
    pub fn missed(&self) -> impl Iterator<Item = Notice> {
        // Templates have no news of their own.
        let lists = [Kind::Tools, Kind::Prompts, Kind::Resources].map(Notice::Missed);
        lists.into_iter().filter(|notice| self.wants(notice)).chain(self.updates())
    }

    /// That each of the resources changed, as a server would say it.
    fn updates(&self) -> impl Iterator<Item = Notice> {
        let updated = |uri: &Text| Notice::Updated(uri.clone(), Object::new().with("uri", Raw::string(uri)));
        self.uris.iter().map(updated)
    }

    /// Whether the listener wants to hear this.
    pub fn wants(&self, notice: &Notice) -> bool {
        match notice {
            Notice::Changed(kind) | Notice::Missed(kind) => match kind {
                Kind::Tools => self.tools,
                Kind::Prompts => self.prompts,
                Kind::Resources | Kind::Templates => self.resources,
            },
            Notice::Updated(uri, _) => self.uris.contains(uri),
            Notice::Log(..) => self.logs,
            Notice::Elicited(..) => self.elicitations,
            Notice::Task(_) => self.told_tasks,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    fn uri(n: usize) -> Text {
        Text::from(format!("x:{n}"))
    }

    fn told(notices: &mut Notices) -> Vec<Notice> {
        std::iter::from_fn(|| unconstrained(notices.stream.next()).now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn what_waits_at_a_listener_is_told_by_the_one_that_takes_its_place() {
        let (news, receiver) = broadcast::channel(256);
        let open = |stream| Notices { honoured: Filter::everything(), stream, opened: None };
        let heard = |receiver: broadcast::Receiver<Notice>| {
            let next =
                |mut receiver: broadcast::Receiver<Notice>| async { Some((receiver.recv().await.ok()?, receiver)) };
            open(stream::unfold(receiver, next).boxed())
        };
        let before = heard(receiver);
        // More than a task may take at once.
        for n in 0..200 {
            news.send(Notice::Updated(uri(n), Object::new())).unwrap();
        }
        let mut after = heard(news.subscribe()).in_place_of(before);
        news.send(Notice::Changed(Kind::Tools)).unwrap();
        let told: Vec<Text> = told(&mut after)
            .into_iter()
            .map(|notice| match notice {
                Notice::Updated(uri, _) => uri,
                other => Text::from(format!("{other:?}")),
            })
            .collect();
        let expected: Vec<Text> = (0..200).map(uri).chain([Text::literal("Changed(Tools)")]).collect();
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn what_is_too_much_to_be_told_counts_as_missed() {
        let honoured = Filter { tools: true, uris: vec![uri(1)], ..Filter::default() };
        let endless = stream::repeat_with(|| Notice::RootsChanged).boxed();
        let before = Notices { honoured: honoured.clone(), stream: endless, opened: None };
        let silent = Notices { honoured, stream: stream::pending().boxed(), opened: None };
        let told = told(&mut silent.in_place_of(before));
        assert_eq!(told.len(), WAITING + 2);
        assert!(matches!(&told[WAITING], Notice::Missed(Kind::Tools)));
        assert!(matches!(&told[WAITING + 1], Notice::Updated(changed, _) if *changed == uri(1)));
    }
}
