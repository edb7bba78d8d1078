//! Open streams of HTTP+SSE.
//!
//! Owns the table of their sessions, and the paths. Does not open or read streams (`http_sse`).
//! Invariant: a session is in the table for as long as its stream is open.

use std::{collections::HashMap, sync::Arc};

use tokio::{io::DuplexStream, sync::Mutex};

/// Path where a client opens its stream.
pub(super) const OPEN: &str = "/sse";
/// Path for the client's messages.
pub(super) const SEND: &str = "/message";

/// Ends that POSTs write to, by session.
#[derive(Default)]
pub(super) struct HttpSseSessions(
    pub(super) parking_lot::Mutex<HashMap<String, Arc<Mutex<DuplexStream>>>>,
);

impl HttpSseSessions {
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
