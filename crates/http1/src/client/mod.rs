//! Client side: requests over pooled connections.
//!
//! Owns everything between an encoded request and the bytes of its response. Does not connect.
//! Invariant: a connection carries one request at a time.

mod chunked;
mod connection;
mod decode_body;
mod decode_head;
mod encode;
mod http_io;
mod pool;
mod pooled_body;

pub use encode::{EncodedRequest, RequestTemplate};
pub use http_io::{HttpIo, MemoryIo};
pub use pool::{ClientPool, PoolLimits, RequestError};
pub use pooled_body::PooledBody;
