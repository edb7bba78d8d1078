//! Caller that stands for the gateway itself. Owns its identity for lists, subscriptions and
//! descriptions. Does not stand for any client. Invariant: it declares no capabilities, and no
//! client has its principal.

use std::sync::{Arc, OnceLock};

use moongate_model::{Caller, Principal};

/// Returns the gateway's own identity, for its own requests to servers.
pub fn gateway_caller() -> Arc<Caller> {
    static OWN: OnceLock<Arc<Caller>> = OnceLock::new();
    let make = || {
        let principal = Principal::new("moongate", Principal::GATEWAY, [u8::MAX; 16]);
        Arc::new(Caller::without_capabilities(Arc::new(principal)))
    };
    OWN.get_or_init(make).clone()
}
