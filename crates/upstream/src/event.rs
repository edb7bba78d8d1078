//! Events of servers for the gateway. Owns the audience of each event. Does not deliver events
//! (`gateway`). Invariant: a sink never blocks.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::connection_owner::ConnectionOwner;
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Notification};

/// Notification of a server that belongs to no call.
#[derive(Clone, Debug)]
pub struct UpstreamEvent {
    /// Name of the server.
    pub server: ByteString,
    /// Clients that may get it.
    pub audience: Audience,
    /// Notification with the server's own names and URIs.
    pub notification: Notification,
}

/// Clients that may get an event.
#[derive(Clone, Debug)]
pub enum Audience {
    /// All clients of the server.
    Everyone,
    /// Clients that use the shared connection, on which it came. The others have it from their own.
    SharedClients(DedicatedSessions),
    /// Clients that own the dedicated connection on which it came.
    Owner(ConnectionOwner),
}

impl Audience {
    /// Returns true if this caller may get the event.
    pub fn includes(&self, caller: &Caller) -> bool {
        match self {
            Audience::Everyone => true,
            Audience::SharedClients(elsewhere) => !(elsewhere.0)(caller),
            Audience::Owner(owner) => owner.matches(caller),
        }
    }

    /// Returns true if clients of several principals may get the event.
    pub fn spans_principals(&self) -> bool {
        match self {
            Audience::Everyone | Audience::SharedClients(_) => true,
            Audience::Owner(owner) => owner.spans_principals(),
        }
    }
}

/// Check whether a client has its own open connection to a server.
#[derive(Clone)]
pub struct DedicatedSessions(pub(crate) Arc<dyn Fn(&Caller) -> bool + Send + Sync>);

impl Debug for DedicatedSessions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DedicatedSessions")
    }
}

/// Consumer of the events of servers. No method blocks.
pub trait EventSink: Send + Sync {
    /// Publishes an event.
    fn publish(&self, event: UpstreamEvent);

    /// Signals that the items or the description of a server changed.
    fn lists_changed(&self);

    /// Waits until clients see what was signalled before.
    fn lists_published(&self) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// Sink that discards everything.
#[cfg(any(test, feature = "testing"))]
pub struct NoSink;

#[cfg(any(test, feature = "testing"))]
impl EventSink for NoSink {
    fn publish(&self, _: UpstreamEvent) {}

    fn lists_changed(&self) {}
}
