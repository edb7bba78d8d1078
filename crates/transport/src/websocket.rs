//! WebSocket towards a server, with one JSON-RPC message in each text frame.
//!
//! No revision of the specification has this transport; there is a proposal (SEP-1288). This client
//! follows the common part of the SDKs' own WebSocket transports: the subprotocol `mcp`, one
//! message a frame, one client a connection. Owns the handshake, the pings and the meaning of close
//! codes. Does not match answers to calls (`rpc_pipe`). Invariant: a silent connection, without
//! even an answer to a ping, is closed. A server that pings is read no faster than it reads the
//! answers.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, Stream, StreamExt, stream};
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tower::ServiceExt;

use crate::connect_hints::unreachable;
use crate::error_chain::error_chain;
use crate::metadata_address::MetadataAccess;
use crate::pipe_link::PipeLink;
use crate::pong_gate::{PongGate, UnsentPongs};
use crate::proxy::ProxyAddress;
use crate::reply_rate_limit::{ReplyMeter, ReplyRateLimit};
use crate::rpc_pipe::{OnGarbage, RpcPipe, RpcPipeSettings, WriteQueue};
use crate::sent_credential::SentCredential;
use crate::status_error::{PathAdvice, status_error};
use crate::tcp_connector::TcpConnector;
use crate::tunnel::ProxyConnector;
use crate::{ByteBudget, CorrelateFn, HeaderList, LinkError};
use moongate_telemetry::logs;

/// Subprotocol that both sides must agree on.
const SUBPROTOCOL: &str = "mcp";
/// Limit of the closing handshake.
const CLOSE_TIME: Duration = Duration::from_secs(1);
/// Size of the read and write buffers that each connection holds, in bytes.
const READ_BUFFER: usize = 16 * 1024;

/// Pings of a connection. They keep intermediaries from closing it, and detect a server that has
/// disappeared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketPing {
    /// Time between two pings; zero sends none.
    pub interval: Duration,
    /// Longest silence after a ping, including no answer to it.
    pub timeout: Duration,
}

impl Default for WebSocketPing {
    fn default() -> Self {
        WebSocketPing {
            interval: Duration::from_secs(20),
            timeout: Duration::from_secs(20),
        }
    }
}

/// Stand-in for "no ping": longer than any process lives.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

impl WebSocketPing {
    fn next_ping(self) -> Instant {
        Instant::now()
            + if self.interval.is_zero() {
                NEVER
            } else {
                self.interval
            }
    }

    /// Returns the time at which a silent connection is closed.
    fn give_up_at(self, last_received: &LastReceived) -> Instant {
        last_received.last()
            + if self.interval.is_zero() {
                NEVER
            } else {
                self.longest_silence()
            }
    }

    /// Returns the longest silence that is allowed.
    fn longest_silence(self) -> Duration {
        self.interval.saturating_add(self.timeout)
    }
}

/// Settings of a connection to one server.
pub struct WsSettings {
    /// Endpoint with the scheme `ws://` or `wss://`.
    pub url: url::Url,
    /// Proxy of the connection, always used with CONNECT.
    pub proxy: Option<ProxyAddress>,
    /// Right to be where clouds keep credentials.
    pub metadata: MetadataAccess,
    /// Headers of the request that opens the connection.
    pub headers: HeaderList,
    /// Limit of TCP, proxy, TLS and handshake together.
    pub connect_timeout: Duration,
    /// Limit of one message, in bytes.
    pub max_message: usize,
    /// Intervals of pings.
    pub ping: WebSocketPing,
    /// Byte budget of unread messages. Unwritten messages may take as many bytes again.
    pub backlog: Arc<ByteBudget>,
    /// Finds the open call that a message belongs to.
    pub correlate: CorrelateFn,
    /// Called for frames that aren't messages.
    pub on_garbage: OnGarbage,
}

/// Connection to a server over WebSocket.
pub struct WsLink {
    pipe: RpcPipe,
}

impl WsLink {
    /// Connects and agrees on the subprotocol.
    pub async fn open(
        settings: WsSettings,
        tls: &Arc<rustls::ClientConfig>,
    ) -> Result<Self, LinkError> {
        let limit = settings.connect_timeout;
        let through = settings
            .proxy
            .as_ref()
            .map_or(String::new(), |proxy| format!(" through {proxy}"));
        let connecting = async {
            let target = connector_uri(&settings.url)?;
            let host = target.host().map(str::to_owned);
            let connected = connector(
                TcpConnector::with_keepalive(limit, settings.metadata),
                settings.proxy.clone(),
                tls,
            )
            .oneshot(target)
            .await;
            let stream = connected.map_err(|e| unreachable(&*e, host.as_deref()))?;
            WsLink::handshake(TokioIo::new(stream), settings).await
        };
        tokio::time::timeout(limit, connecting).await.map_err(|_| {
            LinkError::Unreachable(format!(
                "cannot connect: no handshake within {limit:?}{through}"
            ))
        })?
    }

    /// Performs the handshake on a connection and starts to exchange messages.
    async fn handshake<S>(stream: S, settings: WsSettings) -> Result<Self, LinkError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let limit = settings.max_message;
        let ping = settings.ping;
        let config = WebSocketConfig::default()
            // Both limits: a message may come in many frames, each below the limit.
            .max_message_size(Some(limit))
            .max_frame_size(Some(limit))
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(READ_BUFFER);
        let sent = sent_credential(&settings.headers);
        let request = request(&settings.url, settings.headers)?;
        let unsent = UnsentPongs::default();
        let opened =
            client_async_with_config(request, PongGate::new(stream, unsent.clone()), Some(config))
                .await;
        let (stream, _) = opened.map_err(|error| handshake_error(error, sent.as_ref()))?;
        let (sink, stream) = stream.split();
        let last_received = LastReceived::default();
        let pings = PingReplies {
            unsent,
            rate_limit: ReplyRateLimit::default(),
            meter: settings.backlog.replies.clone(),
        };
        let frames = frames(stream, last_received.clone(), pings);
        let messages = messages(frames, settings.on_garbage.clone(), limit);
        let settings = RpcPipeSettings {
            max_message: limit,
            backlog: settings.backlog,
            correlate: settings.correlate,
            on_garbage: settings.on_garbage,
            closed: "the server closed the connection without a closing frame",
            explain: None,
        };
        let (pipe, outbox) = RpcPipe::framed(messages, settings);
        tokio::spawn(write(sink, outbox, last_received, ping));
        Ok(WsLink { pipe })
    }
}

/// Returns the URL in the form of an HTTP connector, which knows no `ws` schemes.
fn connector_uri(url: &url::Url) -> Result<Uri, LinkError> {
    let scheme = if url.scheme() == "wss" {
        "https"
    } else {
        "http"
    };
    let authority = url
        .as_str()
        .split_once("://")
        .and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    format!("{scheme}://{}/", authority.unwrap_or_default())
        .parse()
        .map_err(|e| invalid_request(&e))
}

fn invalid_request(error: &dyn std::error::Error) -> LinkError {
    LinkError::Spawn(format!("the URL cannot be used: {error}"))
}

fn connector(
    tcp: TcpConnector,
    proxy: Option<ProxyAddress>,
    tls: &Arc<rustls::ClientConfig>,
) -> HttpsConnector<ProxyConnector> {
    // Without ALPN: a WebSocket starts as HTTP/1.1, and a server could choose HTTP/2 otherwise.
    HttpsConnectorBuilder::new()
        .with_tls_config((**tls).clone())
        .https_or_http()
        .enable_http1()
        .wrap_connector(ProxyConnector::tunneling(tcp, proxy))
}

fn request(url: &url::Url, configured: HeaderList) -> Result<Request<()>, LinkError> {
    let mut request = url
        .as_str()
        .into_client_request()
        .map_err(|e| invalid_request(&e))?;
    let headers = request.headers_mut();
    headers.insert(
        "sec-websocket-protocol",
        HeaderValue::from_static(SUBPROTOCOL),
    );
    headers.extend(configured);
    let agent = HeaderValue::from_static(concat!("moongate/", env!("CARGO_PKG_VERSION")));
    headers.entry(USER_AGENT).or_insert(agent);
    Ok(request)
}

/// Returns the credential that the request carries, from a source or from the config.
fn sent_credential(headers: &HeaderList) -> Option<SentCredential> {
    let mut headers = headers.iter();
    let (_, value) = headers.find(|(name, _)| *name == AUTHORIZATION)?;
    Some(SentCredential::new(value.clone()))
}

/// Explains a failed handshake.
fn handshake_error(error: Error, sent: Option<&SentCredential>) -> LinkError {
    match error {
        Error::Http(response) => {
            let (head, body) = response.into_parts();
            let refused = status_error(
                head.status,
                &head.headers,
                body.map(Bytes::from),
                PathAdvice::Unproven,
                sent,
            );
            match refused {
                // A 2xx comes from a plain HTTP server: a WebSocket handshake ends with 101.
                LinkError::Status {
                    status,
                    hint,
                    message,
                    retry_after,
                    challenge,
                } if head.status.is_success() => {
                    let hint = format!("{hint}: it does not speak WebSocket at that URL");
                    LinkError::Status {
                        status,
                        hint,
                        message,
                        retry_after,
                        challenge,
                    }
                }
                refused => refused,
            }
        }
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol | SubProtocolError::InvalidSubProtocol,
        )) => LinkError::Protocol(format!(
            "the server speaks WebSocket, but did not agree on the subprotocol {SUBPROTOCOL:?}; is \
             it an MCP server?"
        )),
        Error::Io(error) => {
            LinkError::Closed(format!("the connection broke in the handshake: {error}"))
        }
        error => LinkError::Protocol(format!(
            "the WebSocket handshake failed: {}",
            error_chain(&error)
        )),
    }
}

/// Time of the last received frame.
#[derive(Clone)]
struct LastReceived(Arc<Mutex<Instant>>);

impl Default for LastReceived {
    fn default() -> Self {
        LastReceived(Arc::new(Mutex::new(Instant::now())))
    }
}

impl LastReceived {
    fn mark(&self) {
        *self.0.lock() = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.0.lock()
    }
}

/// Replies to the server's pings, which the WebSocket library sends while it is read.
///
/// RFC 6455, section 5.5.3, lets an endpoint that has several pings to answer "elect to send a Pong
/// frame for only the most recently processed Ping frame". A server that pings in a loop is read no
/// faster than it may ask for replies.
struct PingReplies {
    unsent: UnsentPongs,
    rate_limit: ReplyRateLimit,
    meter: ReplyMeter,
}

impl PingReplies {
    /// Counts the reply to a ping. The reader waits here, which slows down the server.
    async fn count(&self) {
        self.unsent.add();
        let was_delayed = self.rate_limit.wait_turn().await;
        self.meter.record_answered(was_delayed);
    }
}

/// Returns the frames of a connection. The WebSocket library answers pings while they are read.
fn frames<S>(
    stream: SplitStream<WebSocketStream<S>>,
    last_received: LastReceived,
    pings: PingReplies,
) -> impl Stream<Item = Result<Frame, Error>> + Send
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    stream::unfold((stream, pings), move |(mut stream, pings)| {
        let last_received = last_received.clone();
        async move {
            let frame = stream.next().await?;
            // Any frame counts as a sign of life, also a pong.
            last_received.mark();
            if matches!(frame, Ok(Frame::Ping(_))) {
                pings.count().await;
            }
            Some((frame, (stream, pings)))
        }
    })
}

/// Returns the messages among the frames of a connection.
fn messages(
    frames: impl Stream<Item = Result<Frame, Error>> + Send,
    on_garbage: OnGarbage,
    limit: usize,
) -> impl Stream<Item = Result<Bytes, LinkError>> + Send {
    frames.filter_map(move |frame| {
        std::future::ready(match frame {
            Ok(Frame::Text(text)) => Some(Ok(Bytes::from(text))),
            Ok(Frame::Binary(bytes)) => {
                // MCP messages are UTF-8 text, and only text frames are checked for that.
                on_garbage(format!("a binary frame of {} bytes", bytes.len()).as_bytes());
                None
            }
            Ok(Frame::Close(close)) => Some(Err(LinkError::Closed(close_reason(close.as_ref())))),
            Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_)) => None,
            // The id of the oversized message is unknown, so every open call fails with it.
            Err(Error::Capacity(_)) => Some(Err(LinkError::TooLarge { limit })),
            Err(error) => Some(Err(LinkError::Closed(format!(
                "the connection broke: {}",
                error_chain(&error)
            )))),
        })
    })
}

/// Explains a close frame. Codes: RFC 6455, section 7.4.1, and its IANA registry.
fn close_reason(close: Option<&CloseFrame>) -> String {
    let Some(CloseFrame { code, reason }) = close else {
        return "the server closed the connection and gave no reason".to_owned();
    };
    let code = u16::from(*code);
    let meaning = match code {
        1000 => "it is done",
        1001 => "it is going away",
        1002 => "it saw a protocol error",
        1003 => "it does not accept text frames",
        1007 => "it saw a frame that is not UTF-8",
        1008 => "its policy forbids what was sent",
        1009 => "a message was too big for it",
        1010 => "it requires an extension",
        1011 => "it had an internal error",
        1012 => "it is restarting",
        1013 => "it is overloaded; try again later",
        4000..=4999 => "a private code",
        _ => "an unknown code",
    };
    // The reason is the server's text, and ends up in logs and errors.
    let text = logs::redact(&logs::one_line(reason.as_str()));
    let text = if text.is_empty() {
        text
    } else {
        format!(": {text}")
    };
    format!("the server closed the connection with code {code} ({meaning}){text}")
}

/// Writes the queue to its end, sends pings while it is empty, and closes the connection.
async fn write<S>(
    mut sink: SplitSink<WebSocketStream<S>, Frame>,
    mut outbox: WriteQueue,
    last_received: LastReceived,
    pings: WebSocketPing,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut lines = Vec::new();
    let mut ping = pings.next_ping();
    let mut failed = std::pin::pin!(outbox.failed());
    loop {
        let more = tokio::select! {
            more = outbox.next(&mut lines) => more,
            () = tokio::time::sleep_until(ping.min(pings.give_up_at(&last_received))) => {
                if Instant::now() >= pings.give_up_at(&last_received) {
                    let silence = pings.longest_silence();
                    let silence = format!("nothing came from the server for {silence:?}, not even \
                        an answer to a ping");
                    // No close frame: a peer that is gone would not read it.
                    return outbox.fail(LinkError::Closed(silence));
                }
                if Instant::now() < ping {
                    // A frame arrived meanwhile, so the deadline has moved.
                    continue;
                }
                ping = pings.next_ping();
                if outbox.run_write(sink.send(Frame::Ping(Bytes::new()))).await {
                    continue;
                }
                false
            }
            () = &mut failed => false,
        };
        if !more {
            break;
        }
        let writing = async {
            let mut frames = stream::iter(lines.drain(..).map(|(message, _permit)| text(message)));
            sink.send_all(&mut frames).await
        };
        if !outbox.run_write(writing).await {
            break;
        }
    }
    // Answers the server's close frame, which may have stopped the writing, or sends the first.
    let _ = tokio::time::timeout(CLOSE_TIME, sink.close()).await;
}

fn text(message: Bytes) -> Result<Frame, Error> {
    let text = Utf8Bytes::try_from(message);
    text.map(Frame::Text)
        .map_err(|e| Error::Io(io::Error::new(io::ErrorKind::InvalidData, e)))
}

impl PipeLink for WsLink {
    fn pipe(&self) -> &RpcPipe {
        &self.pipe
    }

    fn close_pipe(&self) -> BoxFuture<'_, ()> {
        self.pipe.close_within(CLOSE_TIME).boxed()
    }
}

impl Drop for WsLink {
    fn drop(&mut self) {
        self.pipe.stop();
    }
}

#[cfg(test)]
mod tests;
