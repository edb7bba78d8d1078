//! Reasons why a server could not be opened.
//!
//! Owns their texts. Does not decide on another attempt (`upstream`). Invariant: a server's own
//! error keeps its code.

use moongate_jsonrpc::json::RawJson;
use moongate_jsonrpc::message::RpcError;
use moongate_transport::LinkError;

/// Reason why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The link failed.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The server returned an error.
    #[error("it refused the handshake: {} (code {}){}", .0.message, .0.code, supported_list(.0))]
    Answered(RpcError),
    /// The server supports no revision that the gateway supports.
    #[error("{0}")]
    NoCommonRevision(String),
}

/// Returns the revisions that a server says to support, as it wrote them.
fn supported_list(error: &RpcError) -> String {
    let supported = error
        .data
        .as_ref()
        .and_then(RawJson::as_object)
        .and_then(|data| data.get("supported")?.as_array());
    let names: Vec<String> = supported
        .into_iter()
        .flatten()
        .filter_map(|name| Some(name.as_text()?.to_string()))
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("; it supports {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(data: Option<&'static str>) -> String {
        let error = RpcError {
            code: -32022,
            message: "no".into(),
            data: data.map(RawJson::literal),
        };
        ConnectError::Answered(error).to_string()
    }

    #[test]
    fn a_refusal_lists_what_the_server_supports() {
        let listed = refusal(Some(r#"{"supported":["2027-01-01","2028-01-01"]}"#));
        assert_eq!(
            listed,
            "it refused the handshake: no (code -32022); it supports 2027-01-01, 2028-01-01"
        );
        assert_eq!(refusal(None), "it refused the handshake: no (code -32022)");
    }
}
