//! Holders of the gateway's memory.
//!
//! Owns their names. Does not count their bytes (`budget.rs`). Invariant: callers that cannot be
//! distinguished are one holder.

use std::net::IpAddr;
use std::sync::Arc;

/// Client or server that makes the gateway hold bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemoryHolder {
    /// Principal of a request with a key.
    Principal(u32),
    /// Peer of a request without a key.
    Peer(IpAddr),
    /// Clients without a key and without an address: those of a Unix socket, a pipe or the program
    /// itself.
    Local,
    /// Server, for its messages.
    Server(Arc<str>),
}
