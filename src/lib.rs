#![doc = include_str!("../ARCHITECTURE.md")]

// In reading order: each module may use the ones above it, and `tests/tidy.rs` checks that it does not use others.
pub mod auth;
pub mod body;
pub mod cli;
pub mod config;
pub mod json;
pub mod jsonrpc;
pub mod mock;
pub mod model;
pub mod policy;
pub mod sse;
pub mod upstream;
