//! Caller that stands for the gateway itself. Owns its identity for lists, subscriptions and descriptions. Does not
//! stand for any client. Invariant: it declares no capabilities, and no client has its principal.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use moongate_jsonrpc::json::RawJson;
use moongate_model::{Caller, ClientCapabilities, LogFilter, Principal};

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
