//! JSON-RPC messages whose values keep the bytes of their sender, and the codec for event streams.
//!
//! Owns the reading and splicing of messages. Does not know MCP, HTTP or any transport. Invariant:
//! the bytes that were checked are the bytes that are forwarded.

pub mod json;
pub mod message;
pub mod sse;
