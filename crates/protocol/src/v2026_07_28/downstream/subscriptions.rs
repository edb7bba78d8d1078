//! `subscriptions/listen`: a stream of the changes that a client subscribed to
//! (basic/patterns/subscriptions.mdx).
//!
//! Owns the filter, the acknowledgement and the end of the stream. Does not detect changes.
//! Invariant: the acknowledgement is the first message, and no message follows the response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::Response;
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::dialect::DownstreamState;
use crate::v2026_07_28::downstream::encode;
use crate::v2026_07_28::meta_keys::SUBSCRIPTION_ID;
use crate::v2026_07_28::tasks;
use crate::{notifications, respond};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RequestId;
use moongate_jsonrpc::sse;
use moongate_model::{
    Caller, Error, McpErrorKind, McpServer, Notification, NotificationStream, SubscriptionFilter,
};
use moongate_telemetry::{CountGuard, Limit};

/// Limit of tasks that one stream may name. Each is polled as often as its server allows.
const TASKS_MAX: usize = 100;

/// Builds the response that carries the stream.
pub(crate) fn respond(open: ListenStream) -> Response<Body> {
    let chunks = stream::unfold(open, |mut open| async move {
        open.next().await.map(|chunk| (chunk, open))
    });
    let mut response = Response::new(Body::Stream(Box::pin(chunks)));
    respond::set_stream_headers(&mut response);
    response
}

/// Opens a subscription.
pub(crate) fn open_stream(
    id: &RequestId,
    params: &JsonObject,
    caller: &Arc<Caller>,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<ListenStream, Error> {
    if state.metrics.clients.streams.get() >= i64::try_from(state.streams_max).unwrap_or(i64::MAX) {
        state.metrics.calls.refused.inc(Limit::Streams);
        return Err(Error::new(
            McpErrorKind::Overloaded,
            format!(
                "The limit of {} streams is reached (limits.streams)",
                state.streams_max
            ),
        ));
    }
    let filter = read_filter(params, state.subscriptions_max)?;
    if !filter.tasks.is_empty() && !tasks::is_declared(&caller.declared_capabilities) {
        return Err(tasks::missing_capability());
    }
    // The acknowledgement names the granted resources, so it waits for a trial.
    let trial = endpoint.try_subscriptions(caller, &filter.uris);
    let (notifications, opening) = match trial {
        None => (endpoint.subscribe(caller, filter), None),
        Some(trial) => (
            NotificationStream::closed(),
            Some(Opening {
                trial,
                endpoint: endpoint.clone(),
                caller: caller.clone(),
                filter,
            }),
        ),
    };
    Ok(ListenStream {
        id: id.clone(),
        first: opening
            .is_none()
            .then(|| acknowledge(id, &notifications.acknowledged)),
        opening,
        notifications,
        draining: state.draining.clone(),
        keep_alive: state.keep_alive,
        finished: false,
        _count: CountGuard::new(&state.metrics.clients.streams),
    })
}

fn read_filter(params: &JsonObject, most: usize) -> Result<SubscriptionFilter, Error> {
    let asked = params
        .get_object("notifications")
        .ok_or_else(|| Error::invalid_params("notifications must be an object"))?;
    let uris = named_list(&asked, "resourceSubscriptions")?;
    let tasks = named_list(&asked, "taskIds")?;
    if tasks.len() > TASKS_MAX {
        return Err(Error::invalid_params(
            "at most 100 tasks can be named on one stream",
        ));
    }
    if uris.len() > most {
        return Err(Error::invalid_params(&format!(
            "at most {most} resources can be named on one stream (limits.subscriptions)"
        )));
    }
    Ok(SubscriptionFilter {
        // 2026-07-28/basic/patterns/subscriptions.mdx: "The server MUST NOT send notification types
        // the client has not explicitly requested." Anything but `true` is not a request.
        tools: asked.is_true("toolsListChanged"),
        prompts: asked.is_true("promptsListChanged"),
        resources: asked.is_true("resourcesListChanged"),
        uris,
        logs: false,
        // "Remove the `notifications/elicitation/complete` notification" (changelog.mdx).
        elicitations: false,
        tasks,
        all_task_statuses: false,
        // No member of this revision asks for them.
        extensions: false,
        exceeded_limit: None,
        unoffered: None,
    })
}

/// Reads an optional list of strings.
fn named_list(asked: &JsonObject, name: &str) -> Result<Vec<ByteString>, Error> {
    let Some(raw) = asked.get(name) else {
        return Ok(Vec::new());
    };
    let texts = raw.as_array().and_then(|items| {
        items
            .iter()
            .map(RawJson::as_text)
            .collect::<Option<Vec<ByteString>>>()
    });
    texts.ok_or_else(|| {
        Error::invalid_params(&format!("notifications.{name} must be an array of strings"))
    })
}

/// Encodes the acknowledgement.
///
/// "The server MUST send `notifications/subscriptions/acknowledged` as the first message".
fn acknowledge(id: &RequestId, acknowledged: &SubscriptionFilter) -> Bytes {
    let mut agreed = JsonObject::new();
    let flags = [
        ("toolsListChanged", acknowledged.tools),
        ("promptsListChanged", acknowledged.prompts),
        ("resourcesListChanged", acknowledged.resources),
    ];
    for (name, _) in flags.into_iter().filter(|(_, on)| *on) {
        agreed.set(ByteString::literal(name), RawJson::literal("true"));
    }
    if !acknowledged.uris.is_empty() {
        let uris: Vec<&str> = acknowledged.uris.iter().map(ByteString::as_str).collect();
        agreed.set(
            ByteString::literal("resourceSubscriptions"),
            RawJson::from_value(&uris),
        );
    }
    if !acknowledged.tasks.is_empty() {
        let tasks: Vec<&str> = acknowledged.tasks.iter().map(ByteString::as_str).collect();
        agreed.set(ByteString::literal("taskIds"), RawJson::from_value(&tasks));
    }
    let params = tag_subscription(JsonObject::new(), id).with("notifications", agreed.to_raw());
    notifications::encode_notification("notifications/subscriptions/acknowledged", &params)
}

/// Adds the subscription id.
///
/// "All notifications delivered on the stream carry `io.modelcontextprotocol/subscriptionId` in
/// `_meta`".
fn tag_subscription(mut params: JsonObject, id: &RequestId) -> JsonObject {
    let mut meta = params.get_object("_meta").unwrap_or_default();
    meta.set(ByteString::literal(SUBSCRIPTION_ID), id.raw().clone());
    params.set(ByteString::literal("_meta"), meta.to_raw());
    params
}

/// Trial before the acknowledgement: "the subset the server agreed to honor" is not known yet.
struct Opening {
    trial: BoxFuture<'static, Result<(), Error>>,
    endpoint: Arc<dyn McpServer>,
    caller: Arc<Caller>,
    filter: SubscriptionFilter,
}

/// Open stream.
pub(crate) struct ListenStream {
    id: RequestId,
    opening: Option<Opening>,
    first: Option<Bytes>,
    notifications: NotificationStream,
    draining: CancellationToken,
    keep_alive: Duration,
    finished: bool,
    _count: CountGuard,
}

impl ListenStream {
    async fn next(&mut self) -> Option<Bytes> {
        let quiet = tokio::time::sleep(self.keep_alive);
        tokio::select! {
            biased;
            message = self.next_message() => message.map(|message| sse::encode_event(&message)),
            () = quiet => Some(Bytes::from_static(sse::KEEP_ALIVE)),
        }
    }

    /// Returns the next message without its frame. `None` after the last.
    pub(crate) async fn next_message(&mut self) -> Option<Bytes> {
        if let Some(opening) = &mut self.opening {
            // A resource that cannot be subscribed to is left out, for any reason.
            let _ = (&mut opening.trial).await;
            self.notifications = opening
                .endpoint
                .subscribe(&opening.caller, std::mem::take(&mut opening.filter));
            self.first = Some(acknowledge(&self.id, &self.notifications.acknowledged));
            self.opening = None;
        }
        // 2026-07-28/basic/patterns/subscriptions.mdx: the server "MUST NOT send any notification
        // on the subscription before it".
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            if self.finished {
                return None;
            }
            tokio::select! {
                () = self.draining.cancelled() => return Some(self.close()),
                notification = self.notifications.stream.next() => match notification {
                    Some(notification) => if let Some(message) = self.encode(&notification) {
                        return Some(message);
                    },
                    None => return Some(self.close()),
                },
            }
        }
    }

    fn encode(&self, notification: &Notification) -> Option<Bytes> {
        if let Notification::TaskStatus(task) = notification {
            return Some(notifications::encode_notification(
                "notifications/tasks",
                &tag_subscription(tasks::write_detailed(task), &self.id),
            ));
        }
        let (method, params) = notifications::encode(notification)?;
        Some(notifications::encode_notification(
            method,
            &tag_subscription(params, &self.id),
        ))
    }

    /// Encodes the response that ends the stream.
    ///
    /// Graceful Closure: "it SHOULD respond to the original `subscriptions/listen` request with a
    /// completion result before closing the stream".
    fn close(&mut self) -> Bytes {
        self.finished = true;
        encode::encode_result(
            &self.id,
            tag_subscription(JsonObject::new(), &self.id),
            None,
        )
        .concat()
        .into()
    }
}
