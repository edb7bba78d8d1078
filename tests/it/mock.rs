//! The mock server, driven by hand: raw lines and raw HTTP, at every revision.

mod input_requests;
mod fixtures;
mod during;
mod faults;
mod http;
mod links;
mod scripts;
mod stdio;
mod streams;
