//! Call-driven HTTP/1.1: pooled client connections, and a fast path for servers.
//!
//! Owns the encoding and decoding of requests and responses. Does not know MCP, routes, metrics or
//! TLS. Invariant: a connection moves bytes only while its user polls it, and ambiguous input is an
//! error or left to hyper.

mod client;
mod error;
#[cfg(test)]
mod round_trip;
mod server;

pub use client::{
    ClientPool, EncodedRequest, HttpIo, MemoryIo, PoolLimits, PooledBody, RequestError,
    RequestTemplate,
};
pub use error::{ConnectionError, ParseError};
pub use server::{
    BufferedRequest, ClientGone, NextRequest, PartialRequest, Persistence, Rewind, SendBody,
    ServerConnection,
};
