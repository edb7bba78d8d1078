//! The mock server, driven by hand: raw lines and raw HTTP, at every revision.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "mock/asks.rs"]
mod asks;
#[path = "mock/client.rs"]
mod client;
#[path = "mock/during.rs"]
mod during;
#[path = "mock/faults.rs"]
mod faults;
#[path = "mock/http.rs"]
mod http;
#[path = "mock/links.rs"]
mod links;
#[path = "mock/scripts.rs"]
mod scripts;
#[path = "mock/stdio.rs"]
mod stdio;
#[path = "mock/streams.rs"]
mod streams;
