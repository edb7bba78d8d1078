//! Example of a call in the newest revision, in parts.
//!
//! Owns its type. Does not write it (`v2026_07_28/example_call.rs`). Invariant: the arguments are
//! between the parts of the body.

use crate::v2026_07_28;

/// Call of a tool, as a person sends it by hand.
#[derive(Debug)]
pub struct ExampleCall {
    /// Headers of the request.
    pub headers: Vec<(String, String)>,
    /// Body before the arguments.
    pub body_before: String,
    /// Body after the arguments.
    pub body_after: String,
}

/// Writes the call of a tool without its arguments.
pub fn example_call(tool: &str) -> ExampleCall {
    v2026_07_28::example_call(tool)
}
