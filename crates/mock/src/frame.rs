//! Frames that calls and listeners send to their transport.
//!
//! Owns the ends that a request may have. Does not carry them out (`pipe`, `stream`). Invariant:
//! `Final` is the last frame of a request.

/// Frame that a call or a listener sends to its transport.
#[derive(Debug)]
pub(super) enum OutgoingFrame {
    /// Message before the response.
    Message(String),
    /// Bytes that aren't a message, written unchanged where the transport allows it.
    Raw(Vec<u8>),
    /// End of a request.
    Final(RequestEnd),
}

/// End of a request, as the transport carries it out.
#[derive(Debug)]
pub(super) enum RequestEnd {
    /// Response, under the HTTP status that the revision asks for.
    Answer {
        text: String,
        status: u16,
        twice: bool,
        content_type: Option<String>,
    },
    /// HTTP response that is not JSON-RPC.
    Http {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Silence: the request gets no response.
    Nothing,
    /// End of the connection. A process also exits with this code, if there is one.
    Broken { reset: bool, exit: Option<i32> },
}
