//! Capabilities of clients, which all revisions declare with the same members.
//!
//! Owns their names. Does not check requests against them. Invariant: a capability that is not declared is not granted.

use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{ClientCapabilities, InputKind};

/// Reads a client's capabilities.
pub(super) fn read_client_capabilities(capabilities: &JsonObject) -> ClientCapabilities {
    let has = |name: &str| capabilities.get(name).is_some_and(RawJson::is_object);
    let elicitation = capabilities.get_object("elicitation");
    let sampling = capabilities.get_object("sampling");
    // 2025-11-25/client/elicitation.mdx, Capabilities: "an empty capabilities object is equivalent to declaring
    // support for `form` mode only".
    let mode = |name: &str| elicitation.as_ref().is_some_and(|e| e.get(name).is_some_and(RawJson::is_object));
    ClientCapabilities {
        sample: has("sampling"),
        // 2025-11-25/client/sampling.mdx, Capabilities: "Servers MUST NOT send tool-enabled sampling requests to
        // Clients that have not declared support for tool use via the `sampling.tools` capability."
        sample_with_tools: sampling.is_some_and(|s| s.get("tools").is_some_and(RawJson::is_object)),
        roots: has("roots"),
        // "Servers MUST NOT send elicitation requests with modes that are not supported by the client."
        elicit_form: elicitation.as_ref().is_some_and(JsonObject::is_empty) || mode("form"),
        elicit_url: mode("url"),
    }
}

/// Returns the capability that a client must declare for this kind of input request.
pub(super) fn required_capability(kind: InputKind) -> RawJson {
    match kind {
        InputKind::ElicitForm => RawJson::literal(r#"{"elicitation":{"form":{}}}"#),
        InputKind::ElicitUrl => RawJson::literal(r#"{"elicitation":{"url":{}}}"#),
        InputKind::Sample => RawJson::literal(r#"{"sampling":{}}"#),
        InputKind::SampleWithTools => RawJson::literal(r#"{"sampling":{"tools":{}}}"#),
        InputKind::Roots => RawJson::literal(r#"{"roots":{}}"#),
        InputKind::Other => RawJson::literal("{}"),
    }
}
