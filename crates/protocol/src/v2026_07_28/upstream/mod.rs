//! Server side of the stateless revision: connections to servers without sessions, and their calls.
//!
//! Owns what is written to servers and read from them. Does not know clients. Invariant: no request
//! depends on an earlier one.

pub(super) mod call;
pub(super) mod connection;
pub(super) mod discover;
pub(super) mod handle;
pub(super) mod listen_stream;
pub(super) mod poll_task;
pub(super) mod request_rounds;
pub(super) mod stray_list_changes;
