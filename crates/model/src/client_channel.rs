//! Way to one client outside of its calls.
//!
//! Owns the trait. Does not know how messages reach the client. Invariant: a request that is given
//! up is taken back.

use std::fmt::{self, Debug};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::InputRequest;
use moongate_jsonrpc::json::JsonObject;
use moongate_jsonrpc::message::RpcError;

/// Sender of input requests that belong to no call.
pub trait AskClient: Send + Sync {
    /// Sends a request to the client and waits for its response. Dropping the future takes the
    /// request back.
    fn ask(&self, request: InputRequest) -> BoxFuture<'static, Result<JsonObject, RpcError>>;
}

/// Channel to the client of a session.
#[derive(Clone)]
pub struct ClientChannel(pub Arc<dyn AskClient>);

impl Debug for ClientChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientChannel")
    }
}
