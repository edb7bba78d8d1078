//! Results and errors in the wire form of the stateless revision.
//!
//! Owns error codes, HTTP statuses and the members that every result carries. Does not encode
//! notifications. Invariant: error codes of this revision's responses come from here alone.

use bytes::{BufMut, Bytes, BytesMut};

use crate::gateway_info::gateway_info;
use crate::legacy::tool_error;
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::error_codes::{
    HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION, current_code,
};
use crate::v2026_07_28::meta_keys::SERVER_INFO;
use crate::v2026_07_28::tasks;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcError, code, encode_with, write_error, write_result_head,
};
use moongate_model::{CacheHint, Error, InputRequest, McpErrorKind, McpMethod, Outcome};

/// Size in bytes above which a result is passed on as it is, instead of being copied into one
/// buffer.
const COPY_MAX: usize = 4 * 1024;

/// Converts an error to this revision's code and text. All its responses use this function.
pub(crate) fn rpc_error(error: &Error) -> RpcError {
    let code = match &error.kind {
        McpErrorKind::ServerError(answered) => {
            let is_same = error.server_revision == REVISION;
            let code = if is_same {
                answered.code
            } else {
                current_code(answered.code)
            };
            return RpcError {
                code,
                ..answered.clone()
            };
        }
        McpErrorKind::Parse => code::PARSE,
        McpErrorKind::InvalidRequest | McpErrorKind::UnknownSession | McpErrorKind::TooLarge => {
            code::INVALID_REQUEST
        }
        McpErrorKind::UnknownMethod => code::METHOD_NOT_FOUND,
        // server/resources.mdx, Error Handling: a resource that does not exist is `-32602` in this
        // revision.
        McpErrorKind::InvalidParams | McpErrorKind::UnknownName | McpErrorKind::UnknownResource => {
            code::INVALID_PARAMS
        }
        McpErrorKind::HeaderMismatch => HEADER_MISMATCH,
        McpErrorKind::UnsupportedRevision => UNSUPPORTED_VERSION,
        McpErrorKind::MissingCapability => MISSING_CAPABILITY,
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

/// Returns the HTTP status for an error that is the whole response.
pub(crate) fn http_status(error: &Error) -> u16 {
    match rpc_error(error).code {
        // basic/transports/streamable-http.mdx, Protocol Version Header: "If the server does not
        // implement the requested RPC method, it MUST respond with `404 Not Found`". The endpoint
        // has the method even if the server behind it lacks it.
        code::METHOD_NOT_FOUND if !matches!(error.kind, McpErrorKind::ServerError(_)) => 404,
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => 400,
        code::PARSE => 400,
        _ => match error.kind {
            McpErrorKind::TooLarge => 413,
            McpErrorKind::Overloaded => 503,
            McpErrorKind::InvalidRequest => 400,
            _ => 200,
        },
    }
}

/// Encodes an error response.
pub(crate) fn encode_error(id: Option<&RequestId>, error: &Error) -> Bytes {
    encode_with(256, |out| write_error(out, id, &rpc_error(error)))
}

/// Encodes the end of a call: HTTP status and response.
pub(crate) fn encode_outcome(
    id: &RequestId,
    method: &McpMethod,
    end: Result<Outcome, Error>,
) -> (u16, Vec<Bytes>) {
    match end {
        Ok(outcome) => {
            let hint = required_hint(method, outcome.cache_hint);
            (
                200,
                encode_result(id, tasks::write_result(method, outcome), hint),
            )
        }
        Err(error) if *method == McpMethod::CallTool && error.is_server_failure() => {
            (200, encode_result(id, tool_error(&error), None))
        }
        // One overloaded server says nothing about the gateway, which is what the status is about.
        Err(error) if error.kind == McpErrorKind::Overloaded => {
            (200, vec![encode_error(Some(id), &error)])
        }
        // Of a method that only the server may have, the server says whether the endpoint has it.
        Err(error)
            if matches!(method, McpMethod::Other(_))
                && rpc_error(&error).code == code::METHOD_NOT_FOUND =>
        {
            (404, vec![encode_error(Some(id), &error)])
        }
        Err(error) => (http_status(&error), vec![encode_error(Some(id), &error)]),
    }
}

/// Adds the cache hints that the specification demands on lists and reads.
///
/// server/utilities/caching.mdx, Cacheable Results: the hints MUST be there. Without hints from the
/// server, a result may be neither kept nor shared.
fn required_hint(method: &McpMethod, hint: Option<CacheHint>) -> Option<CacheHint> {
    match method {
        McpMethod::List(_) | McpMethod::ReadResource => Some(hint.unwrap_or(CacheHint {
            ttl_ms: 0,
            public: false,
        })),
        _ => None,
    }
}

/// Encodes a complete result in parts. A large unchanged result is not copied.
pub(crate) fn encode_result(
    id: &RequestId,
    result: JsonObject,
    cache: Option<CacheHint>,
) -> Vec<Bytes> {
    encode_result_from(gateway_info(), id, result, cache)
}

/// Encodes a complete result with the given `Implementation` as the server's info.
pub(crate) fn encode_result_from(
    info: RawJson,
    id: &RequestId,
    mut result: JsonObject,
    cache: Option<CacheHint>,
) -> Vec<Bytes> {
    let mut head = BytesMut::with_capacity(512);
    write_result_head(&mut head, id);
    head.put_u8(b'{');
    // basic/index.mdx, Result Responses: "The `result` MUST include a `resultType` field to
    // indicate the type of the result."
    if result.get("resultType").is_none() {
        head.put_slice(br#""resultType":"complete","#);
    }
    if let Some(hint) = cache {
        let scope = if hint.public { "public" } else { "private" };
        head.put_slice(format!(r#""ttlMs":{},"cacheScope":"{scope}","#, hint.ttl_ms).as_bytes());
    }
    insert_server_info(&mut head, &mut result, info);
    match result.whole_members() {
        // One vectored write sends a large result from the server's buffer. Small ones are cheaper
        // to copy.
        Some(members) if members.len() > COPY_MAX => {
            vec![head.freeze(), members, Bytes::from_static(b"}}")]
        }
        _ => {
            head.reserve(result.size_hint() + 2);
            result.write_members(&mut head, false);
            if head.last() == Some(&b',') {
                // A result without members leaves the comma of the member before it.
                head.truncate(head.len() - 1);
            }
            head.put_slice(b"}}");
            vec![head.freeze()]
        }
    }
}

/// Adds the server's info. The client's server is the gateway.
///
/// basic/index.mdx: "Servers SHOULD include the following `io.modelcontextprotocol/*` field in
/// every result's `_meta`".
fn insert_server_info(head: &mut BytesMut, result: &mut JsonObject, info: RawJson) {
    let meta = match result.get("_meta") {
        None => JsonObject::new(),
        Some(raw) => match raw.as_object() {
            Some(meta) => meta,
            // A `_meta` that cannot be read passes as it is.
            None => return,
        },
    };
    let mut meta = meta;
    meta.set(ByteString::literal(SERVER_INFO), info);
    if result.get("_meta").is_some() {
        result.set(ByteString::literal("_meta"), meta.to_raw());
        return;
    }
    head.put_slice(br#""_meta":"#);
    meta.write(head);
    head.put_u8(b',');
}

/// Encodes a server's input requests as an interim result.
pub(crate) fn encode_input_required<'a>(
    id: &RequestId,
    requests: impl Iterator<Item = (&'a ByteString, &'a InputRequest)>,
    state: Option<&RawJson>,
) -> Vec<Bytes> {
    let mut result = JsonObject::new().with("resultType", RawJson::literal("\"input_required\""));
    let mut requests = requests.peekable();
    if requests.peek().is_some() {
        result.set(
            ByteString::literal("inputRequests"),
            tasks::write_input_requests(requests),
        );
    }
    if let Some(state) = state {
        result.set(ByteString::literal("requestState"), state.clone());
    }
    self::encode_result(id, result, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: i64) -> Error {
        Error::from_server(RpcError {
            code,
            message: ByteString::literal("no"),
            data: None,
        })
    }

    #[test]
    fn the_code_of_a_server_of_the_same_revision_stays() {
        for (code, translated) in [
            (-32002, -32602),
            (-32042, -32602),
            (-32601, -32601),
            (-32050, -32050),
        ] {
            assert_eq!(rpc_error(&answered(code)).code, translated);
            assert_eq!(rpc_error(&answered(code).answered_in(REVISION)).code, code);
            assert_eq!(
                crate::legacy::rpc_error(&answered(code).answered_in(REVISION)).code,
                code
            );
        }
    }
}
