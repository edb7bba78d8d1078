//! Requests of servers for input from the client.
//!
//! Owns their kinds, as far as the gateway distinguishes them. Does not know who answers
//! (`exchange.rs`). Invariant: params stay as the server wrote them.

use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::{ShownQuestion, extends_protocol};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Request for input from the client.
#[derive(Clone, Debug)]
pub struct InputRequest {
    /// Kind of input, as far as it is known.
    pub kind: InputKind,
    /// Method of the request.
    pub method: ByteString,
    /// Params, unchanged.
    pub params: JsonObject,
    /// Way of the client's progress to the server. `None`: the server did not ask for any, or the
    /// client can send none.
    pub progress: Option<InputProgress>,
}

impl InputRequest {
    /// Reads an elicitation as people see it.
    pub fn shown(&self) -> ShownQuestion {
        self.params.read_members()
    }
}

/// Answer of a person to an elicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElicitationAction {
    /// Agreement.
    Accept,
    /// Refusal.
    Decline,
    /// No decision.
    Cancel,
}

impl ElicitationAction {
    /// Returns the action with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Accept, Self::Decline, Self::Cancel]
            .into_iter()
            .find(|action| action.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }

    /// Builds the result for the server. `content` is the object that the person filled in.
    pub fn result(self, content: Option<RawJson>) -> JsonObject {
        let result = JsonObject::new().with("action", RawJson::string(self.name()));
        match content {
            Some(content) => result.with("content", content),
            None => result,
        }
    }
}

/// Way of the client's progress on one input request: the params of each notification, with any
/// token.
#[derive(Clone)]
pub struct InputProgress(pub Arc<dyn Fn(JsonObject) + Send + Sync>);

impl Debug for InputProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InputProgress")
    }
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
    /// Request of an extension.
    Extension,
    /// Request that no client answers.
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
            // 2025-11-25/client/sampling.mdx, Capabilities: "Servers MUST NOT send tool-enabled
            // sampling requests to Clients that have not declared support for tool use".
            "sampling/createMessage"
                if ["tools", "toolChoice"]
                    .iter()
                    .any(|key| params.get(key).is_some()) =>
            {
                InputKind::SampleWithTools
            }
            "sampling/createMessage" => InputKind::Sample,
            "roots/list" => InputKind::Roots,
            other if extends_protocol(other) => InputKind::Extension,
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
            InputKind::Extension => "an extension",
            InputKind::Other => "an unknown capability",
        }
    }
}
