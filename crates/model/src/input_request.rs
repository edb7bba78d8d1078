//! Requests of servers for input from the client.
//!
//! Owns their kinds, as far as the gateway tells them apart. Does not know who answers (`exchange.rs`). Invariant: params
//! stay as the server wrote them.

use moongate_jsonrpc::json::{ByteString, JsonObject};

/// Request for input from the client.
#[derive(Clone, Debug)]
pub struct InputRequest {
    /// Kind of input, as far as it is known.
    pub kind: InputKind,
    /// Method of the request.
    pub method: ByteString,
    /// Params, unchanged.
    pub params: JsonObject,
}

/// Kind of input that a server may request from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Form for the user.
    ElicitForm,
    /// Web page for the user.
    ElicitUrl,
    /// Completion by the client's model.
    Sample,
    /// Completion by the client's model, with tools that the model may call.
    SampleWithTools,
    /// Directories of the client.
    Roots,
    /// Unknown kind.
    Other,
}

impl InputKind {
    /// Classifies a server's request to the client.
    pub fn classify(method: &str, params: &JsonObject) -> Self {
        match method {
            "elicitation/create" => match params.get_string("mode").as_deref() {
                Some("url") => InputKind::ElicitUrl,
                // A missing `mode` means a form: older revisions have no other.
                _ => InputKind::ElicitForm,
            },
            // 2025-11-25/client/sampling.mdx, Capabilities: "Servers MUST NOT send tool-enabled sampling requests to
            // Clients that have not declared support for tool use".
            "sampling/createMessage" if ["tools", "toolChoice"].iter().any(|key| params.get(key).is_some()) => {
                InputKind::SampleWithTools
            }
            "sampling/createMessage" => InputKind::Sample,
            "roots/list" => InputKind::Roots,
            _ => InputKind::Other,
        }
    }

    /// Returns the capability that a client must declare, as messages for people name it.
    pub fn capability(self) -> &'static str {
        match self {
            InputKind::ElicitForm => "elicitation",
            InputKind::ElicitUrl => "elicitation.url",
            InputKind::Sample => "sampling",
            InputKind::SampleWithTools => "sampling.tools",
            InputKind::Roots => "roots",
            InputKind::Other => "an unknown capability",
        }
    }
}
