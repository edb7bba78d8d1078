//! Callers of the neutral model.
//!
//! Creates what unit tests need of `moongate-model`. Knows no wire. Invariant: a caller here has no
//! capabilities.

use std::sync::Arc;

use moongate_jsonrpc::json::ByteString;
use moongate_model::{Caller, Principal};

/// Creates a principal. Its key repeats the last byte of its id.
pub fn principal(id: u32) -> Arc<Principal> {
    Arc::new(match id {
        Principal::ANONYMOUS => Principal::anonymous(),
        _ => Principal::new("test", id, [id.to_be_bytes()[3]; 16]),
    })
}

/// Creates a caller without capabilities.
pub fn caller(principal: u32, session: Option<&str>) -> Arc<Caller> {
    Arc::new(Caller {
        session: session.map(ByteString::from),
        ..Caller::without_capabilities(self::principal(principal))
    })
}
