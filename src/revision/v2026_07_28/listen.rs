//! `subscriptions/listen`: a stream of the changes that a client asked to hear of (basic/patterns/subscriptions.mdx).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::Response;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::json::{Object, Raw, Text};
use crate::jsonrpc::Id;
use crate::model::{Caller, Error, Filter, Notice, Notices, Reason, Server};
use crate::revision::v2026_07_28::{SUBSCRIPTION_ID, spell, tasks};
use crate::revision::{FrontState, answer, notices};
use crate::sse;
use crate::telemetry::CountGuard;

/// Tasks that one stream may name: each is looked at as often as its server allows.
const TASKS_MAX: usize = 100;

/// The response that is the stream.
pub(super) fn respond(open: Open) -> Response<Body> {
    let chunks = stream::unfold(open, |mut open| async move { open.next().await.map(|chunk| (chunk, open)) });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    answer::stream_headers(&mut response);
    response
}

/// Begins to listen.
pub(super) fn begin(
    id: &Id,
    params: &Object,
    caller: &Arc<Caller>,
    server: &Arc<dyn Server>,
    state: &FrontState,
) -> Result<Open, Error> {
    if state.metrics.streams.get() >= i64::try_from(state.streams_max).unwrap_or(i64::MAX) {
        state.metrics.refused.with_label_values(&["streams"]).inc();
        return Err(Error::new(
            Reason::Overloaded,
            format!("There are {} streams, and no more are allowed (limits.streams)", state.streams_max),
        ));
    }
    let filter = read_filter(params, state.subscriptions)?;
    if !filter.tasks.is_empty() && !tasks::declared(&caller.capabilities) {
        return Err(tasks::missing());
    }
    let trial = server.try_subscriptions(caller, &filter.uris);
    let (notices, opening) = match trial {
        None => (server.listen(caller, filter), None),
        Some(trial) => {
            (Notices::over(), Some(Opening { trial, server: server.clone(), caller: caller.clone(), filter }))
        }
    };
    Ok(Open {
        id: id.clone(),
        first: opening.is_none().then(|| acknowledge(id, &notices.honoured)),
        opening,
        notices,
        draining: state.draining.clone(),
        keep_alive: state.keep_alive,
        over: false,
        _count: CountGuard::new(&state.metrics.streams),
    })
}

fn read_filter(params: &Object, most: usize) -> Result<Filter, Error> {
    let wrong = |what: &str| Error::new(Reason::InvalidParams, format!("Invalid params: {what}"));
    let asked = params.object("notifications").ok_or_else(|| wrong("notifications must be an object"))?;
    let flag = |name: &str| asked.get(name).is_some_and(|v| &v.bytes()[..] == b"true");
    let named = |name: &str| match asked.get(name) {
        None => Ok(Vec::new()),
        Some(raw) => {
            let texts = raw.as_array().and_then(|items| items.iter().map(Raw::as_text).collect::<Option<Vec<Text>>>());
            texts.ok_or_else(|| wrong(&format!("notifications.{name} must be an array of strings")))
        }
    };
    let (uris, tasks) = (named("resourceSubscriptions")?, named("taskIds")?);
    if tasks.len() > TASKS_MAX {
        return Err(wrong("at most 100 tasks can be named on one stream"));
    }
    if uris.len() > most {
        return Err(wrong(&format!("at most {most} resources can be named on one stream (limits.subscriptions)")));
    }
    Ok(Filter {
        tools: flag("toolsListChanged"),
        prompts: flag("promptsListChanged"),
        resources: flag("resourcesListChanged"),
        uris,
        logs: false,
        // "Remove the `notifications/elicitation/complete` notification" (changelog.mdx).
        elicitations: false,
        tasks,
        told_tasks: false,
        full: None,
        unoffered: None,
    })
}

/// "The server MUST send `notifications/subscriptions/acknowledged` as the first message".
fn acknowledge(id: &Id, honoured: &Filter) -> Bytes {
    let mut agreed = Object::new();
    let flags = [
        ("toolsListChanged", honoured.tools),
        ("promptsListChanged", honoured.prompts),
        ("resourcesListChanged", honoured.resources),
    ];
    for (name, _) in flags.into_iter().filter(|(_, on)| *on) {
        agreed.set(Text::literal(name), Raw::literal("true"));
    }
    if !honoured.uris.is_empty() {
        let uris: Vec<&str> = honoured.uris.iter().map(Text::as_str).collect();
        agreed.set(Text::literal("resourceSubscriptions"), Raw::of(&uris));
    }
    if !honoured.tasks.is_empty() {
        let tasks: Vec<&str> = honoured.tasks.iter().map(Text::as_str).collect();
        agreed.set(Text::literal("taskIds"), Raw::of(&tasks));
    }
    let params = tagged(Object::new(), id).with("notifications", agreed.raw());
    notices::notification("notifications/subscriptions/acknowledged", &params)
}

/// "All notifications delivered on the stream carry `io.modelcontextprotocol/subscriptionId` in `_meta`".
fn tagged(mut params: Object, id: &Id) -> Object {
    let mut meta = params.object("_meta").unwrap_or_default();
    meta.set(Text::literal(SUBSCRIPTION_ID), id.raw().clone());
    params.set(Text::literal("_meta"), meta.raw());
    params
}

/// A stream before it is acknowledged: "the subset the server agreed to honor" is not known yet.
struct Opening {
    trial: BoxFuture<'static, Result<(), Error>>,
    server: Arc<dyn Server>,
    caller: Arc<Caller>,
    filter: Filter,
}

/// An open stream.
pub(super) struct Open {
    id: Id,
    opening: Option<Opening>,
    first: Option<Bytes>,
    notices: Notices,
    draining: CancellationToken,
    keep_alive: Duration,
    over: bool,
    _count: CountGuard,
}

impl Open {
    async fn next(&mut self) -> Option<Bytes> {
        let quiet = tokio::time::sleep(self.keep_alive);
        tokio::select! {
            biased;
            message = self.message() => message.map(|message| sse::frame(&message)),
            () = quiet => Some(Bytes::from_static(sse::KEEP_ALIVE)),
        }
    }

    /// The next message itself; none after the last.
    pub(super) async fn message(&mut self) -> Option<Bytes> {
        if let Some(opening) = &mut self.opening {
            // What cannot be subscribed to is left out, whyever.
            let _ = (&mut opening.trial).await;
            self.notices = opening.server.listen(&opening.caller, std::mem::take(&mut opening.filter));
            self.first = Some(acknowledge(&self.id, &self.notices.honoured));
            self.opening = None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if self.over {
                return None;
            }
            tokio::select! {
                () = self.draining.cancelled() => return Some(self.close()),
                notice = self.notices.stream.next() => match notice {
                    Some(notice) => if let Some(message) = self.spell(&notice) {
                        return Some(message);
                    },
                    None => return Some(self.close()),
                },
            }
        }
    }

    fn spell(&self, notice: &Notice) -> Option<Bytes> {
        if let Notice::Task(task) = notice {
            return Some(notices::notification("notifications/tasks", &tagged(tasks::detailed(task), &self.id)));
        }
        let (method, params) = notices::write(notice)?;
        Some(notices::notification(method, &tagged(params, &self.id)))
    }

    /// Graceful Closure: "it SHOULD respond to the original `subscriptions/listen` request with a completion result
    /// before closing the stream".
    fn close(&mut self) -> Bytes {
        self.over = true;
        spell::result(&self.id, tagged(Object::new(), &self.id), None).concat().into()
    }
}
