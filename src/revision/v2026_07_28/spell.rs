//! Results and errors, as the stateless revision spells them.

use bytes::{BufMut, Bytes, BytesMut};

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Id, RpcError, code, to_bytes, write_error, write_result_head};
use crate::model::{CacheHint, Error, Method, Outcome, Question, Reason};
use crate::revision::implementation;
use crate::revision::legacy::tool_error;
use crate::revision::v2026_07_28::{
    HEADER_MISMATCH, MISSING_CAPABILITY, RETIRED, SERVER_INFO, UNSUPPORTED_VERSION, tasks,
};

/// Results larger than this are handed on as they are instead of being copied into one buffer.
const COPY_MAX: usize = 4 * 1024;

/// The code and text for an error; the only place where this revision's answers get them.
pub(in crate::revision) fn rpc_error(error: &Error) -> RpcError {
    let code = match &error.reason {
        Reason::Answered(answered) => {
            let retired = RETIRED.contains(&answered.code);
            let code = if retired { code::INVALID_PARAMS } else { answered.code };
            return RpcError { code, ..answered.clone() };
        }
        Reason::Parse => code::PARSE,
        Reason::InvalidRequest | Reason::UnknownSession | Reason::TooLarge => code::INVALID_REQUEST,
        Reason::UnknownMethod => code::METHOD_NOT_FOUND,
        // server/resources.mdx, Error Handling: a resource that does not exist is `-32602` in this revision.
        Reason::InvalidParams | Reason::UnknownName | Reason::UnknownResource => code::INVALID_PARAMS,
        Reason::HeaderMismatch => HEADER_MISMATCH,
        Reason::UnsupportedRevision => UNSUPPORTED_VERSION,
        Reason::MissingCapability => MISSING_CAPABILITY,
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

/// The HTTP status of an error that is the whole answer.
pub(super) fn status(error: &Error) -> u16 {
    match rpc_error(error).code {
        // basic/transports/streamable-http.mdx, Protocol Version Header: "If the server does not implement the
        // requested RPC method, it MUST respond with `404 Not Found`". A server behind us that lacks a method is
        // not us lacking it.
        code::METHOD_NOT_FOUND if !matches!(error.reason, Reason::Answered(_)) => 404,
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => 400,
        code::PARSE => 400,
        _ => match error.reason {
            Reason::TooLarge => 413,
            Reason::Overloaded => 503,
            Reason::InvalidRequest => 400,
            _ => 200,
        },
    }
}

/// An error answer.
pub(super) fn failure(id: Option<&Id>, error: &Error) -> Bytes {
    to_bytes(256, |out| write_error(out, id, &rpc_error(error)))
}

/// The end of a call: status and answer.
pub(super) fn end(id: &Id, method: &Method, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
    match end {
        Ok(outcome) => {
            let hint = hint(method, outcome.cache);
            (200, result(id, tasks::result(method, outcome), hint))
        }
        Err(error) if *method == Method::CallTool && error.is_server_fault() => {
            (200, result(id, tool_error(&error), None))
        }
        // One server that is full says nothing of the gateway, which is what the status is about.
        Err(error) if error.reason == Reason::Overloaded => (200, vec![failure(Some(id), &error)]),
        Err(error) => (status(&error), vec![failure(Some(id), &error)]),
    }
}

/// server/utilities/caching.mdx, Cacheable Results: the hints MUST be there on lists and reads. Without a word from
/// the server, nothing may be kept and nothing be shared.
fn hint(method: &Method, hint: Option<CacheHint>) -> Option<CacheHint> {
    match method {
        Method::List(_) | Method::ReadResource => Some(hint.unwrap_or(CacheHint { ttl_ms: 0, public: false })),
        _ => None,
    }
}

/// A complete result in parts; a large one that nobody changed is not copied.
pub(super) fn result(id: &Id, result: Object, cache: Option<CacheHint>) -> Vec<Bytes> {
    result_from(implementation(), id, result, cache)
}

/// The same from an `Implementation` of this endpoint's own.
pub(super) fn result_from(info: Raw, id: &Id, mut result: Object, cache: Option<CacheHint>) -> Vec<Bytes> {
    let mut head = BytesMut::with_capacity(512);
    write_result_head(&mut head, id);
    head.put_u8(b'{');
    if result.get("resultType").is_none() {
        head.put_slice(br#""resultType":"complete","#);
    }
    if let Some(hint) = cache {
        let scope = if hint.public { "public" } else { "private" };
        head.put_slice(format!(r#""ttlMs":{},"cacheScope":"{scope}","#, hint.ttl_ms).as_bytes());
    }
    identify(&mut head, &mut result, info);
    match result.whole_members() {
        Some(members) if members.len() > COPY_MAX => vec![head.freeze(), members, Bytes::from_static(b"}}")],
        _ => {
            head.reserve(result.size_hint() + 2);
            result.write_members(&mut head, false);
            if head.last() == Some(&b',') {
                head.truncate(head.len() - 1);
            }
            head.put_slice(b"}}");
            vec![head.freeze()]
        }
    }
}

/// basic/index.mdx: "Servers SHOULD include the following `io.modelcontextprotocol/*` field in every result's
/// `_meta`": who answered. The client's server is the gateway.
fn identify(head: &mut BytesMut, result: &mut Object, info: Raw) {
    let meta = match result.get("_meta") {
        None => Object::new(),
        Some(raw) => match raw.as_object() {
            Some(meta) => meta,
            None => return,
        },
    };
    let mut meta = meta;
    meta.set(Text::literal(SERVER_INFO), info);
    if result.get("_meta").is_some() {
        result.set(Text::literal("_meta"), meta.raw());
        return;
    }
    head.put_slice(br#""_meta":"#);
    meta.write(head);
    head.put_u8(b',');
}

/// What a server asks, as an interim result.
pub(super) fn input_required<'a>(
    id: &Id,
    requests: impl Iterator<Item = (&'a Text, &'a Question)>,
    state: Option<&Raw>,
) -> Vec<Bytes> {
    let mut result = Object::new().with("resultType", Raw::literal("\"input_required\""));
    let mut requests = requests.peekable();
    if requests.peek().is_some() {
        result.set(Text::literal("inputRequests"), tasks::write_questions(requests));
    }
    if let Some(state) = state {
        result.set(Text::literal("requestState"), state.clone());
    }
    self::result(id, result, None)
}
