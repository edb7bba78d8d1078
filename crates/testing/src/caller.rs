//! Callers of the neutral model.
//!
//! Creates what unit tests need of `moongate-model`. Knows no wire. Invariant: a caller here has no capabilities.

use std::sync::Arc;

use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{Caller, ClientCapabilities, LogFilter, Principal};

/// Creates a caller without capabilities.
pub fn caller(principal: u32, session: Option<&str>) -> Arc<Caller> {
    Arc::new(Caller {
        principal: Arc::new(Principal { name: "test".to_owned(), id: principal }),
        session: session.map(ByteString::from),
        declared_capabilities: RawJson::literal("{}"),
        capabilities: ClientCapabilities::default(),
        client_info: None,
        log_filter: LogFilter::Nothing,
        revision: "",
        forwarded_headers: Vec::new(),
        ended: tokio_util::sync::CancellationToken::new(),
    })
}
