//! Errors and results, as the legacy revisions spell them.

use bytes::Bytes;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, RpcError, code, to_bytes, write_error, write_result};
use crate::model::{Error, Method, Outcome, Reason};
use crate::revision::legacy::RESOURCE_NOT_FOUND;

/// Results larger than this are handed on as they are instead of being copied into one buffer.
const COPY_MAX: usize = 4 * 1024;

/// The code and text for an error; the only place where legacy answers get them.
pub(in crate::revision) fn rpc_error(error: &Error) -> RpcError {
    let code = match &error.reason {
        Reason::Answered(answered) => return answered.clone(),
        Reason::Parse => code::PARSE,
        Reason::InvalidRequest | Reason::UnsupportedRevision | Reason::UnknownSession | Reason::TooLarge => {
            code::INVALID_REQUEST
        }
        Reason::UnknownMethod => code::METHOD_NOT_FOUND,
        Reason::InvalidParams | Reason::UnknownName | Reason::HeaderMismatch => code::INVALID_PARAMS,
        Reason::UnknownResource => RESOURCE_NOT_FOUND,
        Reason::MissingCapability => code::INVALID_REQUEST,
        Reason::Overloaded
        | Reason::CannotCross
        | Reason::Cancelled
        | Reason::ServerDown
        | Reason::ServerTimeout
        | Reason::ServerProtocol
        | Reason::ServerRefused
        | Reason::Internal => code::INTERNAL,
    };
    RpcError { code, message: Text::from(error.message.as_ref()), data: error.data.clone() }
}

/// Which HTTP status goes with an error that ends a request before it was a call.
pub(super) fn status(error: &Error) -> u16 {
    match error.reason {
        // 2025-11-25/basic/transports.mdx, Session Management: "it MUST respond to requests containing that session
        // ID with HTTP 404 Not Found".
        Reason::UnknownSession => 404,
        Reason::TooLarge => 413,
        Reason::Overloaded => 503,
        Reason::Internal => 500,
        _ => 400,
    }
}

/// A failed server on a tool call is a result that the model can read: `isError`.
pub(in crate::revision) fn tool_error(error: &Error) -> Object {
    let text = Object::new().with("type", Raw::literal("\"text\"")).with("text", Raw::string(&error.message));
    let content = [&b"["[..], &text.bytes(), &b"]"[..]].concat();
    let content = Raw::parse(content.into()).unwrap_or(Raw::literal("[]"));
    Object::new().with("content", content).with("isError", Raw::literal("true"))
}

/// An answer in parts.
pub(super) fn answer(id: &Id, method: &Method, end: Result<Outcome, Error>) -> Vec<Bytes> {
    match end {
        Ok(outcome) => result(id, &outcome.result),
        Err(error) if *method == Method::CallTool && error.is_server_fault() => result(id, &tool_error(&error)),
        Err(error) => vec![failure(Some(id), &error)],
    }
}

/// A result; a large one that nobody changed is not copied.
pub(super) fn result(id: &Id, result: &Object) -> Vec<Bytes> {
    match result.whole_members() {
        Some(members) if members.len() > COPY_MAX => {
            let head = to_bytes(64, |out| {
                crate::jsonrpc::write_result_head(out, id);
                out.extend_from_slice(b"{");
            });
            vec![head, members, Bytes::from_static(b"}}")]
        }
        _ => vec![to_bytes(result.size_hint(), |out| write_result(out, id, result))],
    }
}

/// An error answer.
pub(super) fn failure(id: Option<&Id>, error: &Error) -> Bytes {
    to_bytes(256, |out| write_error(out, id, &rpc_error(error)))
}
