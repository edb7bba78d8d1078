#![doc = include_str!("../ARCHITECTURE.md")]

// In reading order. Each module may use only the ones above it; `tests/tidy.rs` checks that.
pub mod allocator;
pub mod app;
pub mod embed;
pub mod cli;
