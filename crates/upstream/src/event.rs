//! Events of one server for the gateway, and the gateway's own identity towards servers. Owns the types. Does not
//! deliver events (`gateway`). Invariant: a sink never blocks.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::lists::subscriptions::ConnectionOwner;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Caller, ClientCapabilities, LogFilter, LogLevel, Notification, Principal, TaskState};

/// Event of one upstream server, for the gateway.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// The items or the description of the server changed.
    ListsChanged,
    /// A resource changed: the server's own URI and the params.
    ResourceUpdated(ByteString, JsonObject),
    /// Log message outside of any call: the level and the params.
    Logged(Option<LogLevel>, JsonObject),
    /// A user finished the page of an elicitation: its id and the params.
    ElicitationCompleted(ByteString, JsonObject),
    /// Status of a task.
    Task(Box<TaskState>),
    /// Notification on a dedicated connection, for its owner alone.
    ToOwner(ConnectionOwner, Box<Notification>),
}

/// Consumer of upstream events, by the server's name. Must not block.
pub type EventSink = Arc<dyn Fn(&str, UpstreamEvent) + Send + Sync>;

/// Returns the gateway's own identity, for its own requests to servers.
pub fn gateway_caller() -> Arc<Caller> {
    static OWN: OnceLock<Arc<Caller>> = OnceLock::new();
    let make = || {
        Arc::new(Caller {
            principal: Arc::new(Principal::new("moongate", Principal::GATEWAY, [u8::MAX; 16])),
            session: None,
            declared_capabilities: RawJson::literal("{}"),
            capabilities: ClientCapabilities::default(),
            client_info: None,
            log_filter: LogFilter::Nothing,
            revision: "",
            forwarded_headers: Vec::new(),
            ended: CancellationToken::new(),
        })
    };
    OWN.get_or_init(make).clone()
}
