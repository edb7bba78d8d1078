//! Links to upstream servers.
//!
//! Owns pipes and HTTP connections that move JSON-RPC messages to a server and back. Knows no
//! protocol revision: headers come from the caller, and only the id of a message is read.
//! Invariant: every send ends, and a slow reader of one call delays no other call.

mod response_body;
mod address_guard;
mod address_resolver;
mod byte_budget;
mod own_listeners;
mod server_text;
pub mod child_environment;
pub mod rpc_pipe;
mod pipe_link;
pub mod reaper;
pub mod connect_hints;
mod connect_timeout;
mod content_coding;
mod cookie_jar;
pub mod credential_source;
mod error_chain;
mod error_words;
mod event_stream;
pub mod fetcher;
mod foreign_text;
mod http_error;
pub mod http_settings;
mod loopback_host;
mod media_type;
pub mod metadata_address;
mod read_body;
mod sent_credential;
mod status_error;
pub mod streamable_http;
mod tcp_connector;
mod unix_connector;
mod partial_id;
mod plain_client;
pub mod proxy;
pub mod reply_rate_limit;
mod sse_reconnect;
pub mod pinned;
pub mod socket;
pub mod http_sse;
pub mod stderr;
pub mod stdio_link;
pub mod trust;
mod tunnel;
mod retry_after;
mod http_client;
mod pong_gate;
pub mod websocket;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::credential_source::AuthChallenge;
use moongate_jsonrpc::message::RpcMessage;

pub use byte_budget::{ByteBudget, ByteReservation};
pub use http_settings::OnResume;
use moongate_telemetry::MemoryExhausted;
pub use partial_id::PartialIdScanner;

/// Transport to one server.
pub trait Link: Send + Sync {
    /// Sends a message. The messages in the reply to a request end with its answer.
    fn send(&self, outgoing: OutgoingMessage) -> BoxFuture<'_, Result<LinkReply, LinkError>>;

    /// Sends a message whose event stream can be resumed if it ends early. The headers in `resume`
    /// go with each GET that resumes it. Only some revisions allow this.
    fn send_resumable(
        &self,
        outgoing: OutgoingMessage,
        resume: HeaderList,
    ) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        // Transports without resumption need nothing more than a plain send.
        let _ = resume;
        self.send(outgoing)
    }

    /// Sends the gateway's own reply to a server request on a pipe. Replies have their own room
    /// besides queued calls. The caller waits for that room and reads nothing meanwhile.
    fn reply(&self, body: Bytes) -> BoxFuture<'_, ()> {
        let outgoing = OutgoingMessage {
            body,
            id: None,
            headers: HeaderList::new(),
        };
        self.send(outgoing).map(drop).boxed()
    }

    /// Opens the stream of messages that belong to no request.
    ///
    /// `headers` go with the opening request, if the transport has one. Fails with
    /// [`LinkError::Status`] if the server offers no such stream.
    fn open_server_stream(
        &self,
        headers: HeaderList,
    ) -> BoxFuture<'_, Result<MessageStream, LinkError>>;

    /// Ends the session that `headers` identify. Never fails; takes a few seconds at most.
    fn close(&self, headers: HeaderList) -> BoxFuture<'_, ()>;

    /// Waits until the link is unusable and returns the reason. Links that connect again for each
    /// message stay pending.
    fn closed(&self) -> BoxFuture<'_, LinkError>;

    /// Returns true once after each sign of life: a message, or a response from the server's host.
    /// Sent messages do not count, and neither does input accepted without a response.
    fn take_activity(&self) -> bool;

    /// Returns the number of messages received so far. Only pipes count them.
    fn received_count(&self) -> u64 {
        0
    }

    /// True if all calls share one stream. A message from the server may then not name its call.
    fn is_multiplexed(&self) -> bool;

    /// Returns what is wrong with the server's output, if it has a known mistake.
    fn output_mistake(&self) -> Option<&'static str> {
        None
    }

    /// Returns the process id for telemetry, if the link has a process.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Records the state of a probe, so that stderr lines that the probe causes are not logged as
    /// news.
    fn set_probe_state(&self, probe: ProbeState) {
        let _ = probe;
    }
}

/// State of a request that the server may not understand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeState {
    /// No probe is running, or the server understood it.
    #[default]
    Settled,
    /// The probe was sent and has no answer yet.
    Sent,
    /// The server did not understand the probe.
    Refused,
}

/// Flag for activity since the last check.
#[derive(Default)]
struct ActivityFlag(AtomicBool);

impl ActivityFlag {
    /// Records activity. A set flag is not written again, so the cache line stays shared between
    /// threads.
    fn mark(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the flag and clears it.
    fn take(&self) -> bool {
        // Relaxed suffices: the flag publishes no other data.
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Reading end of a pipe in memory.
pub type PipeReader = Box<dyn AsyncRead + Send + Unpin>;
/// Writing end of a pipe in memory.
pub type PipeWriter = Box<dyn AsyncWrite + Send + Unpin>;
/// Both ends of a pipe that leads to no process and no socket.
pub type MemoryPipe = (PipeReader, PipeWriter);
/// Opens a pipe in memory instead of a connection.
pub type PipeDialer = Arc<dyn Fn() -> Result<MemoryPipe, LinkError> + Send + Sync>;

/// Limit of messages in one batch from a server.
// A message can be a few bytes long, so the limit of bytes alone would allow a million of them.
const BATCH_MAX: usize = 1000;

/// Header names and values for one message; empty on a pipe.
pub type HeaderList = Vec<(HeaderName, HeaderValue)>;

/// Messages from a server, in order.
pub type MessageStream = Pin<Box<dyn Stream<Item = Result<RpcMessage, LinkError>> + Send>>;

/// Message to a server.
#[derive(Debug)]
pub struct OutgoingMessage {
    /// JSON text of the message.
    pub body: Bytes,
    /// Request id; absent for notifications and responses.
    pub id: Option<u64>,
    /// Headers that the protocol revision requires.
    pub headers: HeaderList,
}

/// Reply of a server to one message.
pub struct LinkReply {
    /// Response headers; empty on a pipe.
    pub headers: HeaderMap,
    /// HTTP status; 200 on a pipe.
    pub status: u16,
    /// Messages of the reply; none for a notification.
    pub messages: MessageStream,
}

/// Destination of a message on a pipe that answers no request of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageRoute {
    /// To the open call with this id.
    Call(u64),
    /// To the stream of messages that belong to no call.
    Events,
    /// To no one; the server gets this reply at once.
    Answer(Bytes),
}

/// Selects the destination of a message on a pipe. Only the protocol revision can read that. The
/// second argument says whether the pipe awaits the response to a request.
pub type CorrelateFn = Arc<dyn Fn(&RpcMessage, &dyn Fn(u64) -> bool) -> MessageRoute + Send + Sync>;

/// Failure of a link.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    /// The program cannot be started, and a retry will not help.
    #[error("{0}")]
    Spawn(String),
    /// The server cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The other end closed the connection.
    #[error("{0}")]
    Closed(String),
    /// The other end closed before any byte of this message was written, so a retry is safe.
    #[error("{0}")]
    NotSent(String),
    /// The server responded with a status other than 2xx.
    #[error("HTTP status {status}{hint}")]
    Status {
        /// HTTP status.
        status: u16,
        /// Explanation for people.
        hint: String,
        /// Message in the body, if the body holds one.
        message: Option<Box<RpcMessage>>,
        /// `Retry-After` of the response, in seconds.
        retry_after: Option<u64>,
        /// Challenge of a response that refuses the credential.
        challenge: Option<Box<AuthChallenge>>,
    },
    /// The server broke the protocol.
    #[error("{0}")]
    Protocol(String),
    /// A message exceeds `max_message`.
    #[error("the message is larger than max_message = {limit} bytes")]
    TooLarge {
        /// Limit in bytes.
        limit: usize,
    },
    /// The gateway has no memory left for the message.
    #[error(transparent)]
    MemoryExhausted(#[from] MemoryExhausted),
    /// Expected data did not come in time.
    #[error("{0}")]
    Timeout(String),
    /// Too many bytes wait to be written.
    #[error("{0}")]
    QueueFull(String),
}
