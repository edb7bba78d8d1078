//! Streamable HTTP towards a server: requests, and responses as JSON or as an event stream.
//!
//! Owns the reading of responses; `http_client` and the modules below it own requests and connections. Does not know
//! sessions or revisions: their headers come with each message. Invariant: no answer is read past `max_message`, and no
//! redirect is followed.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::header::{CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use tokio::sync::Semaphore;

use crate::jsonrpc::{RpcMessage, RpcPayload, RpcResponse};
use crate::link::connect_hints;
use crate::link::http_client::{HttpClient, HttpEndpoint, HttpRequest};
use crate::link::proxy::ProxyAddress;
use crate::link::response_body::ResponseBody;
use crate::link::retry_after::retry_after;
use crate::link::rpc_pipe::OnGarbage;
use crate::link::sse_reconnect::{OnResume, SseReconnect, with_reconnects};
use crate::link::{
    ActivityFlag, BATCH_MAX, HeaderList, Link, LinkError, LinkReply, MessageStream, OutgoingMessage, PipeDialer,
};
use crate::sse;

/// Limit of the bytes read from the body of an error response.
const REFUSAL_BYTES: usize = 64 * 1024;
/// Longest time that a finished event stream is drained, so that its connection can be reused.
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// Limit of finished event streams drained at once. Further ones are closed with their connections.
const DRAINS_MAX: usize = 64;
/// Limit of the bytes that one poll reads from an event stream without yielding a message.
const SILENT_BYTES_MAX: usize = 256 * 1024;
/// `Accept` header of a POST.
const ACCEPT_JSON_OR_EVENTS: &str = "application/json, text/event-stream";

/// Settings of a connection to one HTTP server.
pub struct HttpSettings {
    /// MCP endpoint.
    pub url: url::Url,
    /// Unix socket of the server, whatever host the URL names.
    pub socket: Option<PathBuf>,
    /// Proxy, used only without a Unix socket.
    pub proxy: Option<ProxyAddress>,
    /// Headers of every request.
    pub headers: HeaderList,
    /// Limit of TCP, TLS and the proxy together.
    pub connect_timeout: Duration,
    /// Limit of one answer or event, in bytes.
    pub max_message: usize,
    /// Called for events that are no messages.
    pub on_garbage: OnGarbage,
    /// Called for each stream that is resumed.
    pub on_resume: OnResume,
    /// Opens connections in memory in place of the network.
    pub dial: Option<PipeDialer>,
}

/// Connection to a server over HTTP.
pub struct HttpLink {
    target: HttpEndpoint,
    max_message: usize,
    on_garbage: OnGarbage,
    on_resume: OnResume,
    activity: Arc<ActivityFlag>,
    drains: Arc<Semaphore>,
}

impl HttpLink {
    /// Creates a link; the first message opens the connection.
    ///
    /// Fails if the URL cannot be used.
    pub fn new(settings: HttpSettings, tls: Arc<rustls::ClientConfig>) -> Result<Self, LinkError> {
        let way = HttpClient::for_origin(&settings, &tls)?;
        let HttpSettings { url, headers, max_message, on_garbage, on_resume, .. } = settings;
        let target = way.endpoint(&url, headers)?;
        let drains = Arc::new(Semaphore::new(DRAINS_MAX));
        Ok(HttpLink { target, max_message, on_garbage, on_resume, activity: Arc::default(), drains })
    }

    /// Returns the request that resumes a stream.
    fn reconnect_plan(&self, headers: HeaderList, id: Option<u64>) -> SseReconnect {
        let request = HttpRequest::bare(Method::GET, "text/event-stream", headers);
        let read = self.stream_options(id);
        SseReconnect { target: self.target.clone(), request, options: read, on_resume: self.on_resume.clone() }
    }

    /// Returns the options for a stream that ends with the answer to this request.
    fn stream_options(&self, id: Option<u64>) -> EventStreamOptions {
        EventStreamOptions {
            id,
            limit: self.max_message,
            on_garbage: self.on_garbage.clone(),
            activity: self.activity.clone(),
            drains: self.drains.clone(),
        }
    }

    async fn exchange(&self, request: HttpRequest) -> Result<http::Response<ResponseBody>, LinkError> {
        let response = self.target.request(request).await?;
        self.activity.mark();
        if response.status().is_success() { Ok(response) } else { Err(read_status_error(response, &self.target).await) }
    }

    async fn post(&self, outgoing: OutgoingMessage, resume: Option<HeaderList>) -> Result<LinkReply, LinkError> {
        let response = self.exchange(HttpRequest::post(ACCEPT_JSON_OR_EVENTS, outgoing.headers, outgoing.body)).await?;
        self.read_reply(outgoing.id, response, resume).await
    }

    async fn read_reply(
        &self,
        id: Option<u64>,
        response: http::Response<ResponseBody>,
        resume: Option<HeaderList>,
    ) -> Result<LinkReply, LinkError> {
        let (head, body) = response.into_parts();
        let (status, media) = (head.status.as_u16(), ResponseMedia::of(&head.headers));
        let reply = |messages| LinkReply { headers: head.headers, status, messages };
        let Some(id) = id else {
            // 202 for a notification: the body means nothing, but reading it frees the connection. It is read inline: a
            // server that does not end it gets no further notifications meanwhile.
            if !body.is_finished() {
                drain(body).await;
            }
            return Ok(reply(stream::empty().boxed()));
        };
        match media {
            ResponseMedia::Json => {
                let bytes = collect(body, self.max_message).await?;
                let message = json_answer(&bytes, id)?;
                if matches!(&message, RpcMessage::Response(response) if !is_for(response, id)) {
                    // A cache or proxy in between may mix up responses; the wrong one must not reach the caller.
                    return Err(LinkError::Protocol("the answer is to another request".to_owned()));
                }
                Ok(reply(stream::once(std::future::ready(Ok(message))).boxed()))
            }
            ResponseMedia::Events => {
                let events = EventStream::new(body, self.stream_options(Some(id)));
                Ok(reply(match resume {
                    Some(headers) => with_reconnects(events, self.reconnect_plan(headers, Some(id))),
                    None => events.boxed(),
                }))
            }
            ResponseMedia::Other(kind) => {
                let kind = kind.map_or("no content type".to_owned(), |t| format!("the content type {t}"));
                Err(LinkError::Protocol(format!("the answer has status {status} and {kind}, not JSON or events")))
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

    fn open_server_stream(&self, headers: HeaderList) -> BoxFuture<'_, Result<MessageStream, LinkError>> {
        async move {
            let request = HttpRequest::bare(Method::GET, "text/event-stream", headers.clone());
            let response = self.exchange(request).await?;
            if !is_event_stream(response.headers()) {
                return Err(LinkError::Protocol("the answer to GET is no event stream".to_owned()));
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
            let _ = tokio::time::timeout(Duration::from_secs(2), self.target.request(request)).await;
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

// === reading ===

/// Options of an event stream.
#[derive(Clone)]
pub(super) struct EventStreamOptions {
    /// Request whose answer ends the stream, if there is one.
    pub(super) id: Option<u64>,
    /// Limit of one event, in bytes.
    limit: usize,
    on_garbage: OnGarbage,
    activity: Arc<ActivityFlag>,
    drains: Arc<Semaphore>,
}

/// Messages of an event stream. With an id, the stream ends after the answer to that id.
pub(super) struct EventStream {
    body: Option<ResponseBody>,
    reader: sse::SseDecoder,
    /// Rest of a batch.
    batch: VecDeque<RpcMessage>,
    options: EventStreamOptions,
}

impl EventStream {
    pub(super) fn new(body: ResponseBody, options: EventStreamOptions) -> Self {
        EventStream { body: Some(body), reader: sse::SseDecoder::new(options.limit), batch: VecDeque::new(), options }
    }

    /// Returns the decoder, which knows the last event id and the reconnection time.
    pub(super) fn reader(&self) -> &sse::SseDecoder {
        &self.reader
    }

    /// Returns the message of the next complete event, if there is one.
    fn next_message(&mut self) -> Option<Result<RpcMessage, LinkError>> {
        loop {
            while let Some(message) = self.batch.pop_front() {
                if let Some(message) = self.accept(message) {
                    return Some(Ok(message));
                }
            }
            let event = match self.reader.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => return None,
                Err(e) => {
                    self.body = None;
                    return Some(Err(LinkError::TooLarge { limit: e.limit }));
                }
            };
            // Only events of the kind `message` carry messages; servers may send others, such as pings.
            if event.kind.as_deref().is_some_and(|kind| kind != "message") {
                continue;
            }
            // 2025-03-26/basic/transports.mdx, Sending Messages to the Server: "These responses MAY be batched", and
            // so may requests and notifications, also on the stream of a GET.
            match RpcPayload::parse(&event.data, BATCH_MAX) {
                Ok(RpcPayload::One(message)) => {
                    self.options.activity.mark();
                    if let Some(message) = self.accept(message) {
                        return Some(Ok(message));
                    }
                }
                Ok(RpcPayload::Batch(messages)) => {
                    self.options.activity.mark();
                    for message in messages {
                        match message {
                            Ok(message) => self.batch.push_back(message),
                            Err(_) => (self.options.on_garbage)(&event.data),
                        }
                    }
                }
                Err(_) => (self.options.on_garbage)(&event.data),
            }
        }
    }

    /// Returns the message unless it answers another request. The answer ends the stream.
    fn accept(&mut self, message: RpcMessage) -> Option<RpcMessage> {
        if let (Some(id), RpcMessage::Response(response)) = (self.options.id, &message) {
            if !is_for(response, id) {
                // Each request has its own stream, so an answer to another one is a server's mistake.
                (self.options.on_garbage)(b"an answer to a request that is not on this stream");
                return None;
            }
            self.drain_rest();
        }
        Some(message)
    }

    /// Drains the rest of the body in the background, so that the connection returns to the pool.
    fn drain_rest(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        // Most servers end the stream with the answer, so the rest is usually here and needs no task.
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let ended = loop {
            match body.poll_data(&mut cx) {
                Poll::Ready(Ok(Some(_))) => {}
                Poll::Ready(Ok(None) | Err(_)) => break true,
                Poll::Pending => break body.is_finished(),
            }
        };
        if !ended && let Ok(place) = self.options.drains.clone().try_acquire_owned() {
            tokio::spawn(async move {
                drain(body).await;
                drop(place);
            });
        }
    }
}

impl Stream for EventStream {
    type Item = Result<RpcMessage, LinkError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut read = 0;
        loop {
            if self.body.is_none() {
                return Poll::Ready(None);
            }
            if let Some(message) = self.next_message() {
                return Poll::Ready(Some(message));
            }
            if read > SILENT_BYTES_MAX {
                // Many bytes without a message: yields, so that the caller can check its deadline and the thread its
                // other tasks.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            match ready!(body.poll_data(cx)) {
                Ok(Some(data)) => {
                    read += data.len();
                    self.reader.push(&data);
                }
                Err(broken) => {
                    self.body = None;
                    return Poll::Ready(Some(Err(broken.into_link_error("the event stream broke off"))));
                }
                Ok(None) => {
                    self.body = None;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// True if a response answers the request with this id. Only an error may lack an id: its sender could not read it.
fn is_for(response: &RpcResponse, id: u64) -> bool {
    match &response.id {
        Some(answered) => answered.as_number() == Some(id),
        None => response.outcome.is_err(),
    }
}

/// Reads a body without a meaning, so that its connection can be reused.
pub(super) async fn drain(mut body: ResponseBody) {
    let _ = tokio::time::timeout(DRAIN_TIME, async { while let Ok(Some(_)) = body.data().await {} }).await;
}

/// Returns the answer in a JSON body. Revision 2025-03-26 allows it in a batch.
fn json_answer(bytes: &Bytes, id: u64) -> Result<RpcMessage, LinkError> {
    let wrong = |e| LinkError::Protocol(format!("the answer is {e}"));
    match RpcPayload::parse(bytes, BATCH_MAX).map_err(wrong)? {
        RpcPayload::One(message) => Ok(message),
        RpcPayload::Batch(messages) => {
            let answers = |m: &RpcMessage| matches!(m, RpcMessage::Response(r) if r.id.as_ref().is_some_and(|i| i.as_number() == Some(id)));
            let mut found = messages.into_iter().filter_map(Result::ok).filter(answers);
            found
                .next()
                .ok_or_else(|| LinkError::Protocol("the answer is a batch without the request's answer".to_owned()))
        }
    }
}

/// Reads a whole body, into one buffer if its length is known.
async fn collect(mut body: ResponseBody, limit: usize) -> Result<Bytes, LinkError> {
    let length = body.length().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    if length.is_some_and(|length| length > limit) {
        // Refused by the announced length, before any byte of the body is stored.
        return Err(LinkError::TooLarge { limit });
    }
    if let Some(whole) = body.take_buffered() {
        return Ok(whole);
    }
    let mut all = BytesMut::with_capacity(length.unwrap_or(0));
    while body.fill(&mut all).await.map_err(|broken| broken.into_link_error("the answer broke off"))? {
        if all.len() > limit {
            return Err(LinkError::TooLarge { limit });
        }
    }
    Ok(all.freeze())
}

/// Media type of a response.
enum ResponseMedia {
    Json,
    Events,
    Other(Option<String>),
}

impl ResponseMedia {
    fn of(headers: &HeaderMap) -> Self {
        match media_type(headers) {
            Some("application/json") => ResponseMedia::Json,
            Some("text/event-stream") => ResponseMedia::Events,
            other => ResponseMedia::Other(other.map(str::to_owned)),
        }
    }
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?;
    // The common form first, without a parse.
    if value == "application/json" {
        return Some("application/json");
    }
    let value = value.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

/// True if a response is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers) == Some("text/event-stream")
}

/// Turns a response with a status other than 2xx into an error.
pub(super) async fn read_status_error(response: http::Response<ResponseBody>, target: &HttpEndpoint) -> LinkError {
    let (head, body) = response.into_parts();
    // The body only adds detail to the error, so a slow one must not delay the call for long.
    let body = tokio::time::timeout(Duration::from_secs(5), collect(body, REFUSAL_BYTES)).await;
    let mut error = status_error(head.status, &head.headers, body.ok().and_then(Result::ok));
    // A forwarding proxy reports its own errors with the same statuses.
    if let (LinkError::Status { status: 403 | 407 | 500.., hint, .. }, Some(proxy)) =
        (&mut error, target.forward_proxy())
    {
        hint.push_str(&format!("; it came through {proxy}, which may have said so itself"));
    }
    error
}

/// Turns the status, headers and body of a response into an error.
pub(super) fn status_error(status: StatusCode, headers: &HeaderMap, body: Option<Bytes>) -> LinkError {
    let retry_after = retry_after(headers);
    let hint = match (status, header(headers, LOCATION)) {
        (status, Some(to)) if status.is_redirection() => {
            format!(": it redirects to {to:?}, which is not followed; configure that URL")
        }
        // RFC 9728, WWW-Authenticate Response: the parameter names the start of the login.
        (StatusCode::UNAUTHORIZED, _) if names_login(headers) => ": the server wants an OAuth login, which this \
            version cannot do; until it can, get a token in another way, and set \
            `headers = { Authorization = \"Bearer ${TOKEN}\" }`"
            .to_owned(),
        (StatusCode::NOT_FOUND, _) => ": there is nothing at this path; is `url` complete? Most servers are at /mcp, \
            older ones at /sse"
            .to_owned(),
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            ": the configured credentials are missing or refused".to_owned()
        }
        (StatusCode::TOO_MANY_REQUESTS, _) => ": too many requests".to_owned(),
        (StatusCode::PROXY_AUTHENTICATION_REQUIRED, _) => ": the proxy on the way wants other credentials; write \
            `USER:PASSWORD@` before its host (`proxy`, or HTTP_PROXY)"
            .to_owned(),
        _ => String::new(),
    };
    let message = body.and_then(|bytes| RpcMessage::parse(&bytes).ok()).map(Box::new);
    LinkError::Status { status: status.as_u16(), hint, message, retry_after }
}

fn names_login(headers: &HeaderMap) -> bool {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    challenges.into_iter().any(|challenge| challenge.to_ascii_lowercase().contains("resource_metadata"))
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Explains why a request to this host got no response.
pub(super) fn unreachable_error(error: &hyper_util::client::legacy::Error, host: Option<&str>) -> LinkError {
    if error.is_connect() {
        connect_hints::unreachable(error, host)
    } else {
        LinkError::Closed(format!("the connection broke: {}", chain(error)))
    }
}

/// Returns an error with its causes. The outermost error alone says little.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        let said = |status: u16, challenge: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(challenge) = challenge {
                headers.insert(WWW_AUTHENTICATE, http::HeaderValue::from_static(challenge));
            }
            status_error(StatusCode::from_u16(status).unwrap(), &headers, None).to_string()
        };
        let login = r#"Bearer error="invalid_token", resource_metadata="https://x.example/.well-known/y""#;
        assert!(said(401, Some(login)).contains("OAuth login, which this version cannot do; until it can"));
        assert!(said(401, Some(login)).contains("headers = {"), "{}", said(401, Some(login)));
        assert!(said(401, Some("Bearer")).contains("credentials are missing or refused"));
        assert!(said(404, None).contains("is `url` complete"));
        assert_eq!(said(500, None), "HTTP status 500");
    }
}
