//! Caller that represents the gateway itself. Owns its identity for lists, subscriptions and
//! descriptions. Does not represent any client. Invariant: it declares no capabilities, and no
//! client has its principal.

use std::sync::{Arc, OnceLock};

use moongate_model::{Caller, Principal};

/// Returns the gateway's own identity, for its own requests to servers.
pub fn gateway_caller() -> Arc<Caller> {
    static OWN: OnceLock<Arc<Caller>> = OnceLock::new();
    OWN.get_or_init(create_caller).clone()
}

fn create_caller() -> Arc<Caller> {
    let principal = Principal::new("moongate", Principal::GATEWAY, [u8::MAX; 16]);
    Arc::new(Caller::without_capabilities(Arc::new(principal)))
}
