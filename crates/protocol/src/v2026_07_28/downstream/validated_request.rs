//! Requests of this revision, with their headers and `_meta` validated.
//!
//! Owns reading a request and checking that its headers agree with it. Does not start requests
//! (`dialect.rs`). Invariant: authorisation and routing use the body alone; a header only ever
//! causes a refusal.

use std::sync::{Arc, LazyLock};

use http::HeaderMap;
use memchr::memmem::Finder;
use tokio::time::Instant;

use crate::dialect::{DownstreamState, McpRequest};
use crate::era::VERSION_HEADER;
use crate::lookalike_members::reject_lookalikes;
use crate::request_checks::{check_content_type, malformed_error, take_meta};
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::meta_keys::PROTOCOL_VERSION;
use crate::v2026_07_28::{meta, mirrored_headers};
use crate::{notifications, trace_context};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcMessage, RpcNotification, RpcPayload, RpcRequest};
use moongate_model::{
    Caller, CancelReason, Error, McpErrorKind, McpServer, Notification, Principal, extends_protocol,
};
use moongate_telemetry::{DroppedItem, MemoryHolder};

/// Search for the key of the version, prepared once: it runs for each request.
static VERSION_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PROTOCOL_VERSION));

/// True if a request carries the `_meta` of this revision.
pub(crate) fn carries_version(request: &RpcRequest) -> bool {
    request.params.get("_meta").is_some_and(|meta| {
        // A cheap search first: most legacy requests fail it and are never parsed.
        VERSION_FINDER.find(meta.bytes()).is_some()
            && meta
                .as_object()
                .is_some_and(|meta| meta.get(PROTOCOL_VERSION).is_some())
    })
}

/// Body of a POST.
pub(super) enum ParsedPost {
    Nothing,
    Notification(RpcNotification, Arc<Principal>),
    Request(Box<ValidatedRequest>),
}

/// Request whose headers and `_meta` were validated.
pub(crate) struct ValidatedRequest {
    pub(super) id: RequestId,
    pub(super) method: ByteString,
    pub(super) params: JsonObject,
    pub(super) meta: JsonObject,
    /// Name of the tool or prompt, or URI of the resource.
    pub(super) target: Option<ByteString>,
    pub(super) caller: Arc<Caller>,
    pub(super) holder: MemoryHolder,
    pub(super) scope: ByteString,
    /// HTTP headers. A pipe has none: "There is no header layer" (basic/transports/stdio.mdx,
    /// Request Metadata).
    pub(super) headers: Option<HeaderMap>,
    /// Reason of a cancellation. Over HTTP a client has no way to give one.
    pub(super) cancel_reason: Option<CancelReason>,
    pub(super) received: Instant,
}

/// Principal of a request, and its endpoint.
pub(crate) struct RequestSender {
    pub(crate) principal: Arc<Principal>,
    /// Holder of the memory that the request takes.
    pub(crate) holder: MemoryHolder,
    pub(crate) scope: ByteString,
}

/// HTTP status, id and error of a request that is refused.
pub(super) type ModernRefusal = (u16, Option<RequestId>, Error);

/// Reads the body of a POST, and validates a request.
pub(super) fn read_request(
    inbound: McpRequest,
    state: &DownstreamState,
) -> Result<ParsedPost, ModernRefusal> {
    let McpRequest {
        headers,
        payload,
        principal,
        holder,
        scope,
        received,
        ..
    } = inbound;
    let payload = payload.map_err(|e| {
        let (id, error) = malformed_error(&e);
        (400, id, error)
    })?;
    check_content_type(&headers).map_err(|error| (400, None, error))?;
    let request = match payload {
        RpcPayload::One(RpcMessage::Request(request)) => request,
        RpcPayload::One(RpcMessage::Notification(notification))
            if extends_protocol(&notification.method) =>
        {
            return Ok(ParsedPost::Notification(notification, principal));
        }
        // Over HTTP a disconnect cancels (basic/patterns/cancellation.mdx), so that no other
        // notification has a meaning here.
        RpcPayload::One(RpcMessage::Notification(_)) => return Ok(ParsedPost::Nothing),
        // "The body of the HTTP POST MUST be a single JSON-RPC request or notification."
        RpcPayload::One(RpcMessage::Response(_)) => {
            return Err(wrong_body(
                "a response, but clients send none in this revision",
            ));
        }
        RpcPayload::Batch(_) => {
            return Err(wrong_body(
                "a batch, but this revision has none; send each message by itself",
            ));
        }
    };
    let id = request.id.clone();
    let checked = validate(
        request,
        Some(headers),
        RequestSender {
            principal,
            holder,
            scope,
        },
        received,
        state,
    );
    checked
        .map(|checked| ParsedPost::Request(Box::new(checked)))
        .map_err(|error| (400, Some(id), error))
}

/// Passes a client's notification on, if it is an extension's.
pub(crate) fn notify_extension(
    notification: RpcNotification,
    principal: Arc<Principal>,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) {
    let RpcNotification { method, params } = notification;
    if !extends_protocol(&method) {
        return;
    }
    if params.size_hint() > notifications::NOTIFICATION_BYTES_MAX {
        return state
            .metrics
            .calls
            .dropped
            .inc(DroppedItem::LargeNotification);
    }
    let caller = Caller {
        revision: REVISION,
        ..Caller::without_capabilities(principal)
    };
    endpoint.notify(&Arc::new(caller), Notification::Extension(method, params));
}

/// Builds the refusal of a body that isn't a single request or notification.
fn wrong_body(found: &str) -> ModernRefusal {
    (
        400,
        None,
        Error::new(
            McpErrorKind::InvalidRequest,
            format!("Invalid request: the body is {found}"),
        ),
    )
}

/// Validates the members of a request, and its headers if it has any.
pub(crate) fn validate(
    request: RpcRequest,
    headers: Option<HeaderMap>,
    sender: RequestSender,
    received: Instant,
    state: &DownstreamState,
) -> Result<ValidatedRequest, Error> {
    let RpcRequest {
        id,
        method,
        mut params,
    } = request;
    // Once for all below: each view of the name as text checks its encoding.
    let name: &str = &method;
    reject_lookalikes(name, &params)?;
    let mut meta = take_meta(&mut params)?;
    let version = meta::take_version(&mut meta)?;
    check_version(headers.as_ref(), &version)?;
    let none = HeaderMap::new();
    let caller = meta::take_caller(
        &mut meta,
        sender.principal,
        headers.as_ref().unwrap_or(&none),
        state,
    )?;
    let target = match name {
        "tools/call" | "prompts/get" => params.get_string("name"),
        "resources/read" => params.get_string("uri"),
        // SEP-2663, Routing Headers: "the client MUST set the `Mcp-Name` header […] to the value of
        // `params.taskId`".
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.get_string("taskId"),
        _ => None,
    };
    if let Some(headers) = &headers {
        mirrored_headers::check_headers(headers, name, target.as_deref())?;
        trace_context::copy_headers(&mut meta, headers);
    }
    let RequestSender { holder, scope, .. } = sender;
    let cancel_reason = None;
    Ok(ValidatedRequest {
        id,
        method,
        params,
        meta,
        target,
        caller,
        holder,
        scope,
        headers,
        cancel_reason,
        received,
    })
}

/// Checks the revision in header and body.
///
/// basic/transports/streamable-http.mdx, Protocol Version Header: the header MUST be there, MUST
/// match the body, and an unsupported one is answered with the supported ones.
fn check_version(headers: Option<&HeaderMap>, version: &ByteString) -> Result<(), Error> {
    let header = headers.map(|headers| headers.get(VERSION_HEADER).and_then(|v| v.to_str().ok()));
    if let Some(header) = header
        && header != Some(version.as_str())
    {
        let shown = header.unwrap_or("missing");
        return Err(Error::new(
            McpErrorKind::HeaderMismatch,
            format!(
                "Header mismatch: MCP-Protocol-Version is {shown:?}, the body says {version:?}"
            ),
        ));
    }
    if version.as_str() == REVISION {
        return Ok(());
    }
    let data = JsonObject::new()
        .with("supported", RawJson::from_value(&[REVISION]))
        .with("requested", RawJson::string(version));
    Err(Error::new(
        McpErrorKind::UnsupportedRevision,
        "Unsupported protocol version",
    )
    .with_data(data.to_raw()))
}
