#![doc = include_str!("../ARCHITECTURE.md")]

// In reading order. Each module may use only the ones above it; `tests/tidy.rs` checks that.
pub mod random;
pub mod json;
pub mod jsonrpc;
pub mod sse;
pub mod body;
pub mod lazy_timer;
pub mod model;
pub mod telemetry;
pub mod store;
pub mod session;
pub mod policy;
pub mod link;
pub mod auth;
pub mod revision;
pub mod upstream;
pub mod gateway;
pub mod front;
pub mod admin;
pub mod config;
pub mod mock;
pub mod app;
pub mod cli;
