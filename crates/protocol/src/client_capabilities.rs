//! Capabilities of clients in the wire form that all revisions share, and those that the gateway
//! declares itself.
//!
//! Owns their names. Does not check requests against them. Invariant: a capability that is not
//! declared is not granted.

use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{ClientCapabilities, InputKind};

/// Reads a client's capabilities.
pub(super) fn read_client_capabilities(capabilities: &JsonObject) -> ClientCapabilities {
    let elicitation = capabilities.get_object("elicitation");
    let sampling = capabilities.get_object("sampling");
    ClientCapabilities {
        sample: capabilities.has_object("sampling"),
        // 2025-11-25/client/sampling.mdx, Capabilities: "Servers MUST NOT send tool-enabled
        // sampling requests to Clients that have not declared support for tool use via the
        // `sampling.tools` capability."
        sample_with_tools: sampling.is_some_and(|s| s.has_object("tools")),
        roots: capabilities.has_object("roots"),
        // "Servers MUST NOT send elicitation requests with modes that are not supported by the
        // client."
        //
        // 2025-11-25/client/elicitation.mdx, Capabilities: "an empty capabilities object is
        // equivalent to declaring support for `form` mode only".
        elicit_form: elicitation
            .as_ref()
            .is_some_and(|modes| modes.is_empty() || modes.has_object("form")),
        elicit_url: elicitation.is_some_and(|modes| modes.has_object("url")),
    }
}

/// Returns the capabilities for a connection that all clients share.
///
/// - Input requests are declared, since some client may support them. They fail for callers that do
///   not.
/// - Apps are declared, so that servers name pages in their tools. Other clients ignore that
///   `_meta`.
/// - Roots are not declared here, because they belong to one client. A legacy handshake adds them
///   until the server has asked for them once.
///
/// extensions/overview.mdx, Client Capabilities, has the wire form of `io.modelcontextprotocol/ui`.
pub fn shared_capabilities() -> RawJson {
    RawJson::literal(concat!(
        r#"{"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"#,
        r#""extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#
    ))
}

/// Returns the capability that a client must declare for this kind of input request.
pub(super) fn required_capability(kind: InputKind) -> RawJson {
    match kind {
        InputKind::ElicitForm => RawJson::literal(r#"{"elicitation":{"form":{}}}"#),
        InputKind::ElicitUrl => RawJson::literal(r#"{"elicitation":{"url":{}}}"#),
        InputKind::Sample => RawJson::literal(r#"{"sampling":{}}"#),
        InputKind::SampleWithTools => RawJson::literal(r#"{"sampling":{"tools":{}}}"#),
        InputKind::Roots => RawJson::literal(r#"{"roots":{}}"#),
        InputKind::Extension | InputKind::Other => RawJson::literal("{}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_extensions_are_json() {
        let all = shared_capabilities().as_object().unwrap();
        let types = all
            .get_object("extensions")
            .unwrap()
            .get_object("io.modelcontextprotocol/ui")
            .unwrap();
        assert_eq!(
            &types.get("mimeTypes").unwrap().bytes()[..],
            br#"["text/html;profile=mcp-app"]"#
        );
    }
}
