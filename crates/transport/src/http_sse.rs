//! HTTP+SSE, the HTTP transport before Streamable HTTP: one event stream from the server, one POST
//! for each message.
//!
//! Owns the stream and the endpoint that the server names for messages. Does not match answers to
//! calls (`rpc_pipe`). Invariant: messages and credentials go only to the origin of the configured
//! URL. The end of the stream ends the link.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::{HeaderMap, Method};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::http_client::{HttpClient, HttpEndpoint, HttpRequest};
use crate::http_error::connection_error;
use crate::http_settings::HttpSettings;
use crate::media_type::is_event_stream;
use crate::pipe_link::PipeLink;
use crate::read_body::drain_body;
use crate::response_body::ResponseBody;
use crate::rpc_pipe::{RpcPipe, RpcPipeSettings};
use crate::status_error::{PathAdvice, read_status_error};
use crate::{
    ByteBudget, CorrelateFn, HeaderList, LinkError, LinkReply, MessageStream, OutgoingMessage,
};
use moongate_jsonrpc::sse::{SseDecoder, SseEvent};
use moongate_telemetry::MemoryReservation;

/// Longest wait for the server to name its endpoint.
const ENDPOINT_TIME: Duration = Duration::from_secs(10);
/// Limit of an endpoint's address, in bytes.
const ENDPOINT_MAX: usize = 8 * 1024;
/// Time that a POST may stay open after the end of its call.
const POST_GRACE: Duration = Duration::from_secs(5);
/// Limit of a POST that isn't a request.
const POST_TIME: Duration = Duration::from_secs(30);
/// Limit of a reply to a server request.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Limit of the bytes read without an event before the task yields.
const SILENT_BYTES: usize = 256 * 1024;
/// Limit of concurrent replies to server requests.
// A server may send more requests before it has read the replies, so that one slow POST must not
// block the others.
const ANSWERS_AT_ONCE: usize = 8;
/// Limit of POSTs left open after the end of their calls.
// A server that never ends its POSTs would hold one connection for each call.
const LINGERING_MAX: usize = 64;

/// Connection to a server over HTTP+SSE.
pub struct SseLink {
    pipe: Arc<RpcPipe>,
    poster: Arc<MessagePoster>,
    lingering: Arc<Semaphore>,
}

/// Sender of messages by POST.
struct MessagePoster(HttpEndpoint);

impl SseLink {
    /// Opens the stream and waits for the server to name its endpoint.
    ///
    /// Fails if the server offers no such stream or names an endpoint at another origin.
    pub async fn open(
        settings: HttpSettings,
        tls: Arc<rustls::ClientConfig>,
        correlate: CorrelateFn,
        backlog: Arc<ByteBudget>,
    ) -> Result<Self, LinkError> {
        let client = HttpClient::for_origin(&settings, &tls)?;
        let stream = client.endpoint(&settings.url, settings.headers.clone())?;
        // One limit for all steps: a server may accept the connection and then say nothing.
        let opening = async {
            let response = stream
                .request(HttpRequest::bare(
                    Method::GET,
                    "text/event-stream",
                    HeaderList::new(),
                ))
                .await?;
            if !response.status().is_success() {
                return Err(read_status_error(
                    response,
                    stream.forward_proxy(),
                    None,
                    PathAdvice::Unproven,
                )
                .await);
            }
            if !is_event_stream(response.headers()) {
                return Err(LinkError::Protocol(
                    "the answer to GET is not an event stream".to_owned(),
                ));
            }
            let mut events = SseEventReader {
                body: response.into_body(),
                reader: SseDecoder::new(settings.max_message),
                reservation: backlog.memory.begin(),
            };
            let endpoint = endpoint(&settings.url, events.next().await)?;
            Ok((events, client.endpoint(&endpoint, settings.headers)?))
        };
        let (events, target) = tokio::time::timeout(ENDPOINT_TIME, opening)
            .await
            .map_err(|_| {
                LinkError::Timeout(format!(
                    "the server named no endpoint within {ENDPOINT_TIME:?}"
                ))
            })??;
        let settings = RpcPipeSettings {
            max_message: settings.max_message,
            backlog,
            correlate,
            on_garbage: settings.on_garbage,
            closed: "the server ended its event stream",
            explain: None,
        };
        // The pipe only reads: messages are sent by POST.
        let (pipe, outbox) = RpcPipe::framed(events.messages(), settings);
        let poster = Arc::new(MessagePoster(target));
        tokio::spawn(post_answers(outbox.into_replies(), poster.clone()));
        Ok(SseLink {
            pipe: Arc::new(pipe),
            poster,
            lingering: Arc::new(Semaphore::new(LINGERING_MAX)),
        })
    }
}

/// 2024-11-05/basic/transports.mdx, HTTP with SSE: "the server MUST send an `endpoint` event
/// containing a URI for the client to use for sending messages".
fn endpoint(
    base: &url::Url,
    first: Option<Result<SseEvent, LinkError>>,
) -> Result<url::Url, LinkError> {
    let event = first.ok_or_else(|| {
        LinkError::Protocol("the event stream ended before its first event".to_owned())
    })??;
    if event.kind.as_deref() != Some("endpoint") {
        return Err(LinkError::Protocol(
            "the first event does not say where messages go".to_owned(),
        ));
    }
    let named = std::str::from_utf8(&event.data)
        .ok()
        .filter(|named| named.len() <= ENDPOINT_MAX);
    // Most servers name a path, relative to the stream's URL.
    let named = named.and_then(|named| base.join(named.trim()).ok());
    let named = named.ok_or_else(|| {
        LinkError::Protocol("the server names an endpoint that is not a URL".to_owned())
    })?;
    // Messages carry the configured credentials and the input of clients, so another origin must
    // not get them.
    let same_user = named.username() == base.username() && named.password() == base.password();
    if named.origin() != base.origin() || !same_user {
        let theirs = named.origin().ascii_serialization();
        let ours = base.origin().ascii_serialization();
        return Err(LinkError::Protocol(format!(
            "the server names an endpoint at another origin, {theirs} instead of {ours}"
        )));
    }
    Ok(named)
}

impl PipeLink for SseLink {
    fn pipe(&self) -> &RpcPipe {
        &self.pipe
    }

    fn send_message(
        &self,
        outgoing: OutgoingMessage,
    ) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        async move {
            let OutgoingMessage { body, id, headers } = outgoing;
            let Some(id) = id else {
                let posted = tokio::time::timeout(POST_TIME, self.poster.post(body, headers))
                    .await
                    .map_err(|_| {
                        LinkError::Timeout(format!(
                            "a message was not accepted within {POST_TIME:?}"
                        ))
                    })?;
                self.close_if_forgotten(&posted);
                return posted.map(|()| pipe_reply(stream::empty().boxed()));
            };
            // Registered before the POST, since the answer may come on the stream first.
            let messages = self.pipe.expect_reply(id)?;
            let ended = CancellationToken::new();
            // The stream of the call holds the guard: when the call ends, its POST may be
            // abandoned.
            let guard = ended.clone().drop_guard();
            tokio::spawn(post_request(
                self.pipe.clone(),
                self.poster.clone(),
                OutgoingMessage {
                    body,
                    id: Some(id),
                    headers,
                },
                wait_lingering(ended, self.lingering.clone()),
            ));
            let held = messages.map(move |message| {
                let _until_the_call_ends = &guard;
                message
            });
            Ok(pipe_reply(held.boxed()))
        }
        .boxed()
    }

    fn close_pipe(&self) -> BoxFuture<'_, ()> {
        self.pipe.stop();
        std::future::ready(()).boxed()
    }
}

/// Returns a reply without its own response, as on a pipe.
fn pipe_reply(messages: MessageStream) -> LinkReply {
    LinkReply {
        headers: HeaderMap::new(),
        status: 200,
        messages,
    }
}

impl SseLink {
    fn close_if_forgotten(&self, posted: &Result<(), LinkError>) {
        if let Err(error) = posted
            && is_unknown_endpoint(error)
        {
            self.pipe.fail(unknown_endpoint_error());
        }
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.pipe.stop();
    }
}

/// Sends replies to server requests, a few POSTs at once.
async fn post_answers(answers: impl Stream<Item = Bytes>, poster: Arc<MessagePoster>) {
    let posting =
        answers.map(|answer| tokio::time::timeout(ANSWER_TIME, poster.post(answer, Vec::new())));
    posting
        .buffer_unordered(ANSWERS_AT_ONCE)
        .for_each(|_| std::future::ready(()))
        .await;
}

/// Sends a request without waiting for its POST. The answer comes on the stream, possibly before
/// the POST ends.
async fn post_request(
    pipe: Arc<RpcPipe>,
    poster: Arc<MessagePoster>,
    outgoing: OutgoingMessage,
    ended: impl Future<Output = ()>,
) {
    let posted = tokio::select! {
        posted = poster.post(outgoing.body, outgoing.headers) => posted,
        () = ended => return,
    };
    match (posted, outgoing.id) {
        (Ok(()), _) | (_, None) => {}
        // The session is lost, so all open calls fail and the server is connected again.
        (Err(error), _) if is_unknown_endpoint(&error) => pipe.fail(unknown_endpoint_error()),
        (Err(error), Some(id)) => pipe.fail_call(id, error),
    }
}

/// Waits until a POST must be abandoned: a while after its call, or at once if too many are open.
async fn wait_lingering(ended: CancellationToken, lingering: Arc<Semaphore>) {
    ended.cancelled().await;
    if let Ok(_permit) = lingering.try_acquire() {
        tokio::time::sleep(POST_GRACE).await;
    }
}

/// True if the server refused a POST because it no longer knows its endpoint.
fn is_unknown_endpoint(error: &LinkError) -> bool {
    matches!(
        error,
        LinkError::Status {
            status: 404 | 410,
            ..
        }
    )
}

fn unknown_endpoint_error() -> LinkError {
    LinkError::Closed(
        "the server no longer knows the endpoint that it named for messages".to_owned(),
    )
}

impl MessagePoster {
    async fn post(&self, body: Bytes, headers: HeaderList) -> Result<(), LinkError> {
        let response = self
            .0
            .request(HttpRequest::post("*/*", headers, body))
            .await?;
        if !response.status().is_success() {
            return Err(read_status_error(
                response,
                self.0.forward_proxy(),
                None,
                PathAdvice::Known,
            )
            .await);
        }
        // The body means nothing, but reading it frees the connection.
        drain_body(response.into_body()).await;
        Ok(())
    }
}

/// Events of a stream. One longer than `max_message` ends the link: the call that it answers cannot
/// be read.
struct SseEventReader {
    body: ResponseBody,
    reader: SseDecoder,
    /// Memory of the event that arrives.
    reservation: MemoryReservation,
}

impl SseEventReader {
    async fn next(&mut self) -> Option<Result<SseEvent, LinkError>> {
        let mut read = 0;
        loop {
            match self.reader.next_event() {
                Ok(Some(event)) => {
                    // The pipe reserves whole messages.
                    drop(self.reservation.take());
                    return Some(Ok(event));
                }
                Ok(None) => {}
                Err(e) => return Some(Err(LinkError::TooLarge { limit: e.limit })),
            }
            // A stream without events must not keep the thread from its other tasks.
            if read > SILENT_BYTES {
                read = 0;
                tokio::task::yield_now().await;
            }
            match self.body.data().await {
                Ok(Some(data)) => {
                    read += data.len();
                    if let Err(exhausted) = self
                        .reservation
                        .cover(self.reader.held_bytes() + data.len())
                    {
                        return Some(Err(exhausted.into()));
                    }
                    self.reader.push(&data);
                }
                Ok(None) => return None,
                Err(broken) => {
                    return Some(Err(connection_error(&broken, "the event stream broke off")));
                }
            }
        }
    }

    /// Returns the messages: "Server messages are sent as SSE `message` events".
    fn messages(self) -> impl Stream<Item = Result<Bytes, LinkError>> + Send {
        let events = stream::unfold(self, |mut events| async move {
            events.next().await.map(|event| (event, events))
        });
        events.filter_map(|event| {
            std::future::ready(match event {
                Ok(event) if event.kind.as_deref().is_none_or(|kind| kind == "message") => {
                    Some(Ok(event.data))
                }
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(data: &str) -> Result<url::Url, LinkError> {
        let base = url::Url::parse("https://example.com:8443/mcp/sse?key=1").unwrap();
        let data = Bytes::copy_from_slice(data.as_bytes());
        endpoint(
            &base,
            Some(Ok(SseEvent {
                kind: Some("endpoint".to_owned()),
                id: None,
                data,
            })),
        )
    }

    #[test]
    fn messages_go_to_the_configured_origin_only() {
        for (data, uri) in [
            (
                "/message?sessionId=1",
                "https://example.com:8443/message?sessionId=1",
            ),
            ("message", "https://example.com:8443/mcp/message"),
            ("?s=1", "https://example.com:8443/mcp/sse?s=1"),
            (
                " https://example.com:8443/m \n",
                "https://example.com:8443/m",
            ),
        ] {
            assert_eq!(named(data).unwrap().to_string(), uri, "{data}");
        }
        for data in [
            "http://example.com:8443/m",
            "https://example.com/m",
            "https://evil.test:8443/m",
            "//evil.test/m",
            "https://user@example.com:8443/m",
            "https://:x@example.com:8443/m",
            "file:///etc/passwd",
            "data:,x",
            "http://[",
        ] {
            assert!(matches!(named(data), Err(LinkError::Protocol(_))), "{data}");
        }
    }

    #[test]
    fn the_first_event_must_name_the_endpoint() {
        let base = url::Url::parse("http://example.com/sse").unwrap();
        let event = SseEvent {
            kind: None,
            id: None,
            data: Bytes::from_static(b"/message"),
        };
        assert!(endpoint(&base, Some(Ok(event))).is_err());
        assert!(endpoint(&base, None).is_err());
    }
}
