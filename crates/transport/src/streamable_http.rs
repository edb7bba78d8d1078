//! Streamable HTTP towards a server: requests, and responses as JSON or as an event stream.
//!
//! Owns the choice of how a response is read: `read_body` and `event_stream` read it. Does not know
//! sessions or revisions, whose headers come with each message. Invariant: no answer is read past
//! `max_message`, and no redirect leaves the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, Method};
use tokio::sync::Semaphore;

use crate::event_stream::{EventStream, EventStreamOptions, is_for};
use crate::foreign_text::describe_foreign;
use crate::http_client::{HttpClient, HttpEndpoint, HttpRequest};
use crate::http_settings::{HttpSettings, OnMended, OnResume};
use crate::media_type::{is_event_stream, media_type};
use crate::read_body::{collect_body, drain_body};
use crate::response_body::ResponseBody;
use crate::rpc_pipe::OnGarbage;
use crate::server_text::MessageLimits;
use crate::sse_reconnect::{SseReconnect, with_reconnects};
use crate::status_error::{PathAdvice, read_status_error};
use crate::{ActivityFlag, HeaderList, Link, LinkError, LinkReply, MessageStream, OutgoingMessage};
use moongate_jsonrpc::message::{RpcMessage, RpcPayload};

/// Limit of finished event streams drained at once. Further ones are closed with their connections.
const DRAINS_MAX: usize = 64;
/// `Accept` header of a POST.
// 2025-11-25/basic/transports.mdx: "The client MUST include an `Accept` header, listing both
// `application/json` and `text/event-stream` as supported content types."
const ACCEPT_JSON_OR_EVENTS: &str = "application/json, text/event-stream";

/// Connection to a server over HTTP.
pub struct HttpLink {
    target: HttpEndpoint,
    limits: MessageLimits,
    on_garbage: OnGarbage,
    on_mended: OnMended,
    /// True once the server answered, now or before this connection.
    was_reached: AtomicBool,
    on_resume: OnResume,
    activity: Arc<ActivityFlag>,
    drains: Arc<Semaphore>,
}

impl HttpLink {
    /// Creates a link; the first message opens the connection.
    ///
    /// Fails if the URL cannot be used.
    pub fn new(settings: HttpSettings, tls: Arc<rustls::ClientConfig>) -> Result<Self, LinkError> {
        let client = HttpClient::for_origin(&settings, &tls)?;
        let HttpSettings {
            url,
            headers,
            max_message,
            memory,
            on_garbage,
            on_mended,
            was_reached,
            on_resume,
            ..
        } = settings;
        let was_reached = AtomicBool::new(was_reached);
        let target = client.endpoint(&url, headers)?;
        let drains = Arc::new(Semaphore::new(DRAINS_MAX));
        Ok(HttpLink {
            target,
            limits: MessageLimits {
                max_message,
                memory,
            },
            on_garbage,
            on_mended,
            was_reached,
            on_resume,
            activity: Arc::default(),
            drains,
        })
    }

    /// Returns the request that resumes a stream.
    fn reconnect_plan(&self, headers: HeaderList, id: Option<u64>) -> SseReconnect {
        let request = HttpRequest::bare(Method::GET, "text/event-stream", headers);
        let options = self.stream_options(id);
        SseReconnect {
            target: self.target.clone(),
            request,
            options,
            on_resume: self.on_resume.clone(),
        }
    }

    /// Returns the options for a stream that ends with the answer to this request.
    fn stream_options(&self, id: Option<u64>) -> EventStreamOptions {
        EventStreamOptions {
            id,
            limits: self.limits.clone(),
            on_garbage: self.on_garbage.clone(),
            on_mended: self.on_mended.clone(),
            activity: self.activity.clone(),
            drains: self.drains.clone(),
        }
    }

    async fn exchange(
        &self,
        request: HttpRequest,
        id: Option<u64>,
    ) -> Result<http::Response<ResponseBody>, LinkError> {
        let response = self.target.request(request).await?;
        self.activity.mark();
        if response.status().is_success() {
            self.was_reached.store(true, Ordering::Relaxed);
            return Ok(response);
        }
        let advice = if self.was_reached.load(Ordering::Relaxed) {
            PathAdvice::Known
        } else {
            PathAdvice::Unproven
        };
        Err(read_status_error(response, self.target.forward_proxy(), id, advice).await)
    }

    async fn post(
        &self,
        outgoing: OutgoingMessage,
        resume: Option<HeaderList>,
    ) -> Result<LinkReply, LinkError> {
        let response = self
            .exchange(
                HttpRequest::post(ACCEPT_JSON_OR_EVENTS, outgoing.headers, outgoing.body),
                outgoing.id,
            )
            .await?;
        self.read_reply(outgoing.id, response, resume).await
    }

    async fn read_reply(
        &self,
        id: Option<u64>,
        response: http::Response<ResponseBody>,
        resume: Option<HeaderList>,
    ) -> Result<LinkReply, LinkError> {
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        let media = ResponseMedia::of(&head.headers);
        let Some(id) = id else {
            // 202 for a notification: the body means nothing, but reading it frees the connection.
            // It is read inline: a server that does not end it gets no further notifications
            // meanwhile.
            if !body.is_finished() {
                drain_body(body).await;
            }
            return Ok(LinkReply {
                headers: head.headers,
                status,
                messages: stream::empty().boxed(),
            });
        };
        let messages = match media {
            ResponseMedia::Json => {
                let bytes =
                    collect_body(body, self.limits.max_message, Some(&self.limits.memory)).await?;
                let message = self.json_answer(&bytes, id)?;
                if matches!(&message, RpcMessage::Response(response) if !is_for(response, id)) {
                    // A cache or proxy in between may mix up responses; the wrong one must not
                    // reach the caller.
                    return Err(LinkError::Protocol(
                        "the answer is to another request".to_owned(),
                    ));
                }
                stream::once(std::future::ready(Ok(message))).boxed()
            }
            ResponseMedia::Events => {
                let events = EventStream::new(body, self.stream_options(Some(id)));
                match resume {
                    Some(headers) => {
                        with_reconnects(events, self.reconnect_plan(headers, Some(id)))
                    }
                    None => events.boxed(),
                }
            }
            ResponseMedia::Other(kind) => {
                let kind = kind.map_or("no content type".to_owned(), |t| {
                    format!("the content type {t}")
                });
                return Err(LinkError::Protocol(format!(
                    "the answer has status {status} and {kind}, not JSON or events"
                )));
            }
        };
        Ok(LinkReply {
            headers: head.headers,
            status,
            messages,
        })
    }
}

impl HttpLink {
    /// Returns the answer in a JSON body. Revision 2025-03-26 allows it in a batch.
    fn json_answer(&self, bytes: &Bytes, id: u64) -> Result<RpcMessage, LinkError> {
        let read = self
            .limits
            .read(bytes)
            .map_err(|unread| match describe_foreign(bytes) {
                Some(mistake) => {
                    LinkError::Protocol(format!("the answer is not a message: {mistake}"))
                }
                None => unread.into_link_error(),
            })?;
        if read.is_mended {
            (self.on_mended)();
        }
        match read.payload {
            RpcPayload::One(message) => Ok(message),
            RpcPayload::Batch(messages) => {
                let mut messages = messages.into_iter().filter_map(Result::ok);
                let answer = messages.find(|message| {
                    matches!(message,
                        RpcMessage::Response(r) if r.id.is_some() && is_for(r, id))
                });
                answer.ok_or_else(|| {
                    LinkError::Protocol(
                        "the answer is a batch without the request's answer".to_owned(),
                    )
                })
            }
        }
    }
}

impl Link for HttpLink {
    fn send(&self, outgoing: OutgoingMessage) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        self.post(outgoing, None).boxed()
    }

    fn send_resumable(
        &self,
        outgoing: OutgoingMessage,
        resume: HeaderList,
    ) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        self.post(outgoing, Some(resume)).boxed()
    }

    fn open_server_stream(
        &self,
        headers: HeaderList,
    ) -> BoxFuture<'_, Result<MessageStream, LinkError>> {
        async move {
            let request = HttpRequest::bare(Method::GET, "text/event-stream", headers.clone());
            let response = self.exchange(request, None).await?;
            if !is_event_stream(response.headers()) {
                return Err(LinkError::Protocol(
                    "the answer to GET is not an event stream".to_owned(),
                ));
            }
            let events = EventStream::new(response.into_body(), self.stream_options(None));
            Ok(with_reconnects(events, self.reconnect_plan(headers, None)))
        }
        .boxed()
    }

    fn close(&self, headers: HeaderList) -> BoxFuture<'_, ()> {
        async move {
            if headers.is_empty() {
                return;
            }
            let request = HttpRequest::bare(Method::DELETE, "application/json", headers);
            // Bounded: a session that cannot be deleted must not delay shutdown.
            let _ =
                tokio::time::timeout(Duration::from_secs(2), self.target.request(request)).await;
        }
        .boxed()
    }

    fn closed(&self) -> BoxFuture<'_, LinkError> {
        std::future::pending().boxed()
    }

    fn take_activity(&self) -> bool {
        self.activity.take()
    }

    fn is_multiplexed(&self) -> bool {
        false
    }
}

/// Media type of a response.
enum ResponseMedia {
    Json,
    Events,
    Other(Option<String>),
}

impl ResponseMedia {
    fn of(headers: &HeaderMap) -> Self {
        match media_type(headers).as_deref() {
            Some("application/json") => ResponseMedia::Json,
            Some("text/event-stream") => ResponseMedia::Events,
            other => ResponseMedia::Other(other.map(str::to_owned)),
        }
    }
}
