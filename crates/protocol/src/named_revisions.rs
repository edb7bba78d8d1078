//! Revisions that a server names when it refuses one.
//!
//! Owns where they may be: in the error's data, in its text, in the text of an HTTP status. Does
//! not try them (`ladder.rs`). Invariant: only supported revisions are found, newest first.

use crate::connect_error::ConnectError;
use crate::era::SUPPORTED;
use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_jsonrpc::message::{RpcError, RpcMessage, RpcResponse};
use moongate_transport::LinkError;

/// Members of an error's data that list what the server supports.
const LISTS: [&str; 4] = [
    "supported",
    "supportedVersions",
    "supportedProtocolVersions",
    "supported_versions",
];

/// Returns the revisions that the error names, newest first.
pub(super) fn named_revisions(error: &ConnectError) -> Vec<&'static str> {
    match error {
        ConnectError::Answered(error) => in_rpc_error(error),
        ConnectError::NoCommonRevision(text) => in_text(text.as_bytes()),
        ConnectError::Link(LinkError::Status {
            message: Some(message),
            hint,
            ..
        }) => match &**message {
            RpcMessage::Response(RpcResponse {
                outcome: Err(error),
                ..
            }) => in_rpc_error(error),
            _ => in_text(hint.as_bytes()),
        },
        ConnectError::Link(LinkError::Status { hint, .. }) => in_text(hint.as_bytes()),
        ConnectError::Link(_) => Vec::new(),
    }
}

fn in_rpc_error(error: &RpcError) -> Vec<&'static str> {
    // A list says more than the text, which may also name the revision that is refused.
    let data = error.data.as_ref().and_then(RawJson::as_object);
    let list = data
        .iter()
        .flat_map(|data: &JsonObject| LISTS.iter().filter_map(|name| data.get(name)));
    let listed: Vec<_> = list.flat_map(|list| in_text(list.bytes())).collect();
    if !listed.is_empty() {
        return listed;
    }
    let data = error
        .data
        .as_ref()
        .map(|data| data.bytes().clone())
        .unwrap_or_default();
    in_text(&[error.message.as_bytes(), &data].join(&b' '))
}

fn in_text(text: &[u8]) -> Vec<&'static str> {
    SUPPORTED
        .into_iter()
        .rev()
        .filter(|revision| memchr::memmem::find(text, revision.as_bytes()).is_some())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(message: &str, data: Option<&'static str>) -> ConnectError {
        ConnectError::Answered(RpcError {
            code: -32602,
            message: message.into(),
            data: data.map(RawJson::literal),
        })
    }

    #[test]
    fn revisions_are_found_wherever_a_server_names_them() {
        let cases = [
            answered(
                "Unsupported protocol version",
                Some(r#"{"supported":["2025-06-18"],"requested":"2025-11-25"}"#),
            ),
            answered(
                "no",
                Some(r#"{"supportedVersions":["2025-06-18","2030-01-01"]}"#),
            ),
            answered("no", Some(r#"["2025-06-18"]"#)),
            answered("no", Some(r#""only 2025-06-18""#)),
            answered("Unsupported version; use 2025-06-18", None),
            ConnectError::NoCommonRevision("it speaks only 2025-06-18".to_owned()),
            LinkError::Status {
                status: 400,
                hint: "; it said: (supported versions: 2025-06-18)".to_owned(),
                message: None,
                retry_after: None,
                challenge: None,
            }
            .into(),
        ];
        for error in cases {
            assert_eq!(named_revisions(&error), ["2025-06-18"], "{error:?}");
        }
        assert_eq!(
            named_revisions(&answered("2024-11-05, 2025-03-26", None)),
            ["2025-03-26", "2024-11-05"]
        );
        assert!(named_revisions(&answered("Method not found", None)).is_empty());
    }
}
