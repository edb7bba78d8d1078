//! Errors and results in the wire form of the legacy revisions.
//!
//! Owns error codes, HTTP statuses and the tool error. Does not encode notifications. Invariant:
//! error codes of legacy responses come from here alone.

use bytes::Bytes;

use crate::legacy::profile::RESOURCE_NOT_FOUND;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcError, code, encode_with, write_error, write_result,
};
use moongate_model::{Error, McpErrorKind, McpMethod, Outcome};

/// Size in bytes above which a result is passed on as it is, instead of being copied into one
/// buffer.
const COPY_MAX: usize = 4 * 1024;

/// Converts an error to the legacy code and text. All legacy responses use this function.
pub(crate) fn rpc_error(error: &Error) -> RpcError {
    let code = match &error.kind {
        // A server's own error passes as it is: its code may mean something to the client.
        McpErrorKind::ServerError(answered) => return answered.clone(),
        McpErrorKind::Parse => code::PARSE,
        McpErrorKind::InvalidRequest
        | McpErrorKind::UnsupportedRevision
        | McpErrorKind::UnknownSession
        | McpErrorKind::TooLarge => code::INVALID_REQUEST,
        McpErrorKind::UnknownMethod => code::METHOD_NOT_FOUND,
        // 2025-11-25/server/tools.mdx, Error Handling: unknown tools are protocol errors, with the
        // code -32602 in its example.
        McpErrorKind::InvalidParams | McpErrorKind::UnknownName | McpErrorKind::HeaderMismatch => {
            code::INVALID_PARAMS
        }
        McpErrorKind::UnknownResource => RESOURCE_NOT_FOUND,
        McpErrorKind::MissingCapability => code::INVALID_REQUEST,
        McpErrorKind::Overloaded
        | McpErrorKind::CannotCross
        | McpErrorKind::Cancelled
        | McpErrorKind::ServerDown
        | McpErrorKind::ServerTimeout
        | McpErrorKind::ServerProtocol
        | McpErrorKind::ServerRefused
        | McpErrorKind::Internal => code::INTERNAL,
    };
    RpcError {
        code,
        message: ByteString::from(error.message.as_ref()),
        data: error.data.clone(),
    }
}

/// Returns the HTTP status for an error that ends a request before it became a call.
pub(crate) fn http_status(error: &Error) -> u16 {
    match error.kind {
        // 2025-11-25/basic/transports.mdx, Session Management: "it MUST respond to requests
        // containing that session ID with HTTP 404 Not Found".
        McpErrorKind::UnknownSession => 404,
        McpErrorKind::TooLarge => 413,
        McpErrorKind::Overloaded => 503,
        McpErrorKind::Internal => 500,
        _ => 400,
    }
}

/// Builds the result of a tool call on a failed server: `isError`, which the model can read.
pub(crate) fn tool_error(error: &Error) -> JsonObject {
    let text = JsonObject::new()
        .with("type", RawJson::literal("\"text\""))
        .with("text", RawJson::string(&error.message));
    let content = [&b"["[..], &text.bytes(), &b"]"[..]].concat();
    let content = RawJson::parse(content.into()).unwrap_or(RawJson::literal("[]"));
    JsonObject::new()
        .with("content", content)
        .with("isError", RawJson::literal("true"))
}

/// Encodes the end of a call in parts.
pub(crate) fn encode_outcome(
    id: &RequestId,
    method: &McpMethod,
    end: Result<Outcome, Error>,
) -> Vec<Bytes> {
    match end {
        Ok(outcome) => encode_result(id, &outcome.result),
        // A model sees results only. As an error it would be shown to the user, or to nobody.
        Err(error) if *method == McpMethod::CallTool && error.is_server_failure() => {
            encode_result(id, &tool_error(&error))
        }
        Err(error) => vec![encode_error(Some(id), &error)],
    }
}

/// Encodes a result. A large unchanged result is not copied.
pub(crate) fn encode_result(id: &RequestId, result: &JsonObject) -> Vec<Bytes> {
    match result.whole_members() {
        // One vectored write sends a large result from the server's buffer. Small ones are cheaper
        // to copy.
        Some(members) if members.len() > COPY_MAX => {
            let head = encode_with(64, |out| {
                moongate_jsonrpc::message::write_result_head(out, id);
                out.extend_from_slice(b"{");
            });
            vec![head, members, Bytes::from_static(b"}}")]
        }
        _ => vec![encode_with(result.size_hint(), |out| {
            write_result(out, id, result)
        })],
    }
}

/// Encodes an error response.
pub(crate) fn encode_error(id: Option<&RequestId>, error: &Error) -> Bytes {
    encode_with(256, |out| write_error(out, id, &rpc_error(error)))
}
