//! Server side: simple POSTs of a connection, until hyper takes over.
//!
//! Owns the bytes between a client and the code that answers it. Does not route or authenticate.
//! Invariant: a request that is not understood at once is not judged here.

mod connection;
mod date_cache;
mod decode;
mod encode;
mod rewind;

pub use connection::{
    BufferedRequest, ClientGone, NextRequest, PartialRequest, Persistence, ServerConnection,
};
pub use encode::SendBody;
pub use rewind::Rewind;
