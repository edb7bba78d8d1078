//! Links: they move JSON-RPC messages to a server and back.
//!
//! Owns pipes and HTTP connections. Knows no revision: headers come from the back that sends, and of a message no
//! more is read than its id. Invariant: every send ends, and a slow reader of one call delays no other call.

mod response_body;
mod byte_budget;
pub mod rpc_pipe;
pub mod reaper;
pub(crate) mod connect_hints;
pub mod streamable_http;
mod http1;
mod partial_id;
mod pool;
pub mod proxy;
pub mod reply_rate_limit;
mod sse_reconnect;
pub mod pinned;
pub mod socket;
pub mod http_sse;
pub mod stderr;
pub mod stdio;
pub mod trust;
mod tunnel;
mod retry_after;
mod http_client;
pub mod websocket;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::jsonrpc::RpcMessage;

pub use byte_budget::{ByteBudget, ByteReservation};
pub(crate) use partial_id::PartialIdScanner;
pub use sse_reconnect::OnResume;

/// A way to reach one server.
pub trait Link: Send + Sync {
    /// Sends a message. For a request, the reply's messages end with its answer.
    fn send(&self, outgoing: OutgoingMessage) -> BoxFuture<'_, Result<LinkReply, LinkError>>;

    /// The same for a revision in which an answer's stream that ended too early can be asked for again; `resume` goes
    /// with that request.
    fn send_resumable(
        &self,
        outgoing: OutgoingMessage,
        resume: HeaderList,
    ) -> BoxFuture<'_, Result<LinkReply, LinkError>> {
        let _ = resume;
        self.send(outgoing)
    }

    /// Sends the gateway's own answer to a request of the server's, on a pipe. It has room of its own, beside what calls
    /// have waiting; who sends it waits for that, and is not to read on meanwhile.
    fn reply(&self, body: Bytes) -> BoxFuture<'_, ()> {
        let outgoing = OutgoingMessage { body, id: None, headers: HeaderList::new() };
        self.send(outgoing).map(drop).boxed()
    }

    /// Opens the stream of messages that belong to no request.
    ///
    /// `headers` go with the request that opens it, where there is one. Fails with [`LinkError::Status`] where the
    /// server offers none.
    fn open_server_stream(&self, headers: HeaderList) -> BoxFuture<'_, Result<MessageStream, LinkError>>;

    /// Ends what `headers` identify, politely. Never fails; never takes longer than a few seconds.
    fn close(&self, headers: HeaderList) -> BoxFuture<'_, ()>;

    /// Waits until the link is beyond use, and says why. A link that is opened anew for each message never is.
    fn closed(&self) -> BoxFuture<'_, LinkError>;

    /// Whether anything was heard since this was asked last: a message, or an answer of whoever hosts the server. What
    /// was sent, and what was taken without a word, is no sign of a server.
    fn take_activity(&self) -> bool;

    /// How many messages a pipe has brought so far; what is no pipe need not count.
    fn received_count(&self) -> u64 {
        0
    }

    /// Whether all calls share one stream, so that a message from the server may not say which call it is about.
    fn is_multiplexed(&self) -> bool;

    /// What identifies this link in telemetry: a process id, or nothing.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Hears how a probe of ours goes, so that what it makes a program write is not taken for news.
    fn set_probe_state(&self, probe: ProbeState) {
        let _ = probe;
    }
}

/// A question of which nobody knows whether the server understands it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeState {
    /// There is none, or it was understood.
    #[default]
    Settled,
    /// It was sent, and is not answered.
    Sent,
    /// The server did not understand it.
    Refused,
}

/// Whether anything was heard since somebody looked.
#[derive(Default)]
struct ActivityFlag(AtomicBool);

impl ActivityFlag {
    /// Something was. Most often that is known already, and nothing is written that other threads read.
    fn mark(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Looks, and begins anew.
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// What is read from a pipe in memory.
pub type PipeReader = Box<dyn AsyncRead + Send + Unpin>;
/// What a pipe in memory is told.
pub type PipeWriter = Box<dyn AsyncWrite + Send + Unpin>;
/// The two ends of a pipe that leads to no process and no socket.
pub type MemoryPipe = (PipeReader, PipeWriter);
/// Opens such a pipe, in place of a connection.
pub type PipeDialer = Arc<dyn Fn() -> Result<MemoryPipe, LinkError> + Send + Sync>;

/// Messages that a server may put into one batch.
const BATCH_MAX: usize = 1000;

/// Header names and values for one message; empty on a pipe.
pub type HeaderList = Vec<(HeaderName, HeaderValue)>;

/// Messages from a server, in order.
pub type MessageStream = Pin<Box<dyn Stream<Item = Result<RpcMessage, LinkError>> + Send>>;

/// One message to a server.
#[derive(Debug)]
pub struct OutgoingMessage {
    /// The message.
    pub body: Bytes,
    /// Its id if it is a request.
    pub id: Option<u64>,
    /// Headers that its revision wants.
    pub headers: HeaderList,
}

/// What a server sends back for one message.
pub struct LinkReply {
    /// The headers of the answer; empty on a pipe.
    pub headers: HeaderMap,
    /// The status of the answer; 200 on a pipe.
    pub status: u16,
    /// The messages: none for a notification.
    pub messages: MessageStream,
}

/// Where a message on a pipe goes that answers no request of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageRoute {
    /// To the open call that it is about.
    Call(u64),
    /// To whoever listens to what belongs to no call.
    Events,
    /// Nowhere: this is its answer.
    Answer(Bytes),
}

/// Decides where a message on a pipe goes; only the back can read that.
pub type CorrelateFn = Arc<dyn Fn(&RpcMessage) -> MessageRoute + Send + Sync>;

/// What can go wrong on a link.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LinkError {
    /// The program cannot be started: repeating it will not help.
    #[error("{0}")]
    Spawn(String),
    /// The server cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// The other end went away.
    #[error("{0}")]
    Closed(String),
    /// The other end had gone away, or was leaving, before anything of this was written.
    #[error("{0}")]
    NotSent(String),
    /// The server answered with a status that is not 2xx.
    #[error("HTTP status {status}{hint}")]
    Status {
        /// The status.
        status: u16,
        /// A word of explanation for people.
        hint: String,
        /// The message in the body, if it was one.
        message: Option<Box<RpcMessage>>,
        /// Seconds that the server asked us to wait.
        retry_after: Option<u64>,
    },
    /// What came is not what the protocol allows.
    #[error("{0}")]
    Protocol(String),
    /// A message or answer was larger than `max_message`.
    #[error("the message is larger than max_message = {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Nothing came in time.
    #[error("{0}")]
    Timeout(String),
    /// Too much is waiting to be written.
    #[error("{0}")]
    QueueFull(String),
}
