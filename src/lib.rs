#![doc = include_str!("../ARCHITECTURE.md")]

pub use moongate_access::{auth, policy};
pub use moongate_jsonrpc::{json, message as jsonrpc, sse};
pub use moongate_protocol::{body, lazy_timer};
pub use moongate_session::store;
pub use {
    moongate_mock as mock, moongate_model as model, moongate_protocol as revision, moongate_random as random,
    moongate_session as session, moongate_telemetry as telemetry, moongate_transport as link,
};

// In reading order. Each module may use only the ones above it; `tests/tidy.rs` checks that.
pub mod upstream;
pub mod gateway;
pub mod front;
pub mod admin;
pub mod config;
pub mod app;
pub mod cli;
