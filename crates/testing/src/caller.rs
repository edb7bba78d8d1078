//! Callers of the neutral model.
//!
//! Creates what unit tests need of `moongate-model`. Knows no wire. Invariant: a caller here has no capabilities.

use std::sync::Arc;

use moongate_jsonrpc::json::{ByteString, RawJson};
use moongate_model::{Caller, ClientCapabilities, LogFilter, Principal};

/// Creates a principal. Its mark repeats the last byte of its id.
pub fn principal(id: u32) -> Arc<Principal> {
    Arc::new(match id {
        Principal::ANONYMOUS => Principal::anonymous(),
        _ => Principal::new("test", id, [id.to_be_bytes()[3]; 16]),
    })
}

/// Creates a caller without capabilities.
pub fn caller(principal: u32, session: Option<&str>) -> Arc<Caller> {
    Arc::new(Caller {
        principal: self::principal(principal),
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
