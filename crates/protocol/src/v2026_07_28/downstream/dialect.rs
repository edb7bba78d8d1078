//! Dialect of the stateless revision for clients: no POST depends on an earlier one.
//!
//! Owns the start of requests, and those that reach no server. Does not read requests
//! (`validated_request.rs`) or encode results (`response_encoder.rs`). Invariant: nothing is kept
//! between requests.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method as Verb, Response, header};

use crate::admitted::Admitted;
use crate::body::Body;
use crate::dialect::{BodyHint, Dialect, DownstreamState, McpRequest, RequestHead};
use crate::era::VERSION_HEADER;
use crate::error_labels::count_local_answer;
use crate::http_response::{accepted_response, json_response};
use crate::respond::{ResponseOptions, respond};
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::downstream::input_rounds::{RetryParams, RetryPurpose};
use crate::v2026_07_28::downstream::request_state::StateContext;
use crate::v2026_07_28::downstream::response_encoder::{FrameFn, ModernEncoder};
use crate::v2026_07_28::downstream::validated_request::{
    ParsedPost, ValidatedRequest, carries_version, notify_extension, read_request,
};
use crate::v2026_07_28::downstream::{encode, subscriptions};
use crate::v2026_07_28::{mirrored_headers, tasks};
use crate::{legacy, server_capabilities};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcMessage};
use moongate_jsonrpc::sse;
use moongate_model::{
    CacheHint, Call, DeferredCheck, Error, Exchange, McpErrorKind, McpMethod, McpServer,
    ServerCapabilities, TaskMethod, TaskMode, extends_protocol,
};

/// Dialect of this revision.
pub(crate) static DIALECT: ModernDialect = ModernDialect;

pub(crate) struct ModernDialect;

impl Dialect for ModernDialect {
    // basic/versioning.mdx: "A request carrying modern per-request `_meta` is served statelessly
    // according to this revision." An unknown revision in the header belongs here, too: only this
    // revision has an error code for it.
    fn matches(&self, head: &RequestHead<'_>, peek: &BodyHint<'_>) -> bool {
        // Regardless of its headers: no modern client opens with a handshake.
        if matches!(peek.message,
            Some(RpcMessage::Request(r)) if r.method.as_bytes() == b"initialize" && r.params.get("_meta").is_none())
        {
            return false;
        }
        if let Some(version) = head.headers.get(VERSION_HEADER) {
            let known = version.to_str().ok().and_then(legacy::profile).is_some();
            if version == REVISION || (!known && !head.headers.contains_key(legacy::SESSION_HEADER))
            {
                return true;
            }
        }
        matches!(peek.message, Some(RpcMessage::Request(request)) if carries_version(request))
    }

    fn serve<'a>(
        &'a self,
        inbound: Admitted<McpRequest>,
        endpoint: Arc<dyn McpServer>,
        state: &'a Arc<DownstreamState>,
    ) -> BoxFuture<'a, Response<Body>> {
        // Runs synchronously up to the first wait, so that the returned future is small.
        let response = if inbound.method == Verb::POST {
            match read_request(inbound.into_inner(), state) {
                Ok(ParsedPost::Nothing) => accepted_response(),
                Ok(ParsedPost::Notification(notification, principal)) => {
                    notify_extension(notification, principal, &endpoint, state);
                    accepted_response()
                }
                Ok(ParsedPost::Request(request)) => {
                    return serve_request(*request, &endpoint, state);
                }
                Err((status, id, error)) => {
                    json_response(status, [encode::encode_error(id.as_ref(), &error)])
                }
            }
        } else {
            let error = Error::new(
                McpErrorKind::InvalidRequest,
                "Method not allowed: this revision allows only POST",
            );
            let mut response = json_response(405, [encode::encode_error(None, &error)]);
            // RFC 9110, section 15.5.6: "The origin server MUST generate an Allow header field in a
            // 405 response".
            response
                .headers_mut()
                .insert(header::ALLOW, HeaderValue::from_static("POST"));
            response
        };
        std::future::ready(response).boxed()
    }

    fn error_response(&self, id: Option<&RequestId>, error: &Error) -> Response<Body> {
        // The request never became a call, so a 200 would be wrong.
        let status = match encode::http_status(error) {
            200 => 400,
            status => status,
        };
        json_response(status, [encode::encode_error(id, error)])
    }
}

/// Outcome of starting a request.
pub(crate) enum ModernStarted {
    /// Complete: HTTP status and response.
    Ready(u16, Vec<Bytes>),
    /// Opens a stream of notifications.
    Subscribed(subscriptions::ListenStream),
    /// Runs as an exchange.
    Running(Exchange, ModernEncoder),
}

fn serve_request(
    request: ValidatedRequest,
    endpoint: &Arc<dyn McpServer>,
    state: &Arc<DownstreamState>,
) -> BoxFuture<'static, Response<Body>> {
    let accepts_streams = request.headers.as_ref().is_none_or(accepts_stream);
    // Beyond the limit, the client gets plain JSON without notifications.
    let stream = accepts_streams
        && state.metrics.clients.streams.get()
            < i64::try_from(state.streams_max).unwrap_or(i64::MAX);
    let response = match start_request(request, endpoint, state, sse::encode_event) {
        ModernStarted::Ready(status, parts) => json_response(status, parts),
        ModernStarted::Subscribed(open) => subscriptions::respond(open),
        ModernStarted::Running(exchange, encoder) => {
            let metrics = state.metrics.clone();
            let timers = state.timers.clone();
            let options = ResponseOptions {
                keep_alive: state.keep_alive,
                stream,
                metrics,
                timers,
            };
            return respond(exchange, encoder, options).boxed();
        }
    };
    std::future::ready(response).boxed()
}

/// Returns true if a client may call this method, perhaps as an extension's.
fn has_method(method: &McpMethod) -> bool {
    match method {
        // SEP-2663: "`tasks/result` is removed; clients calling it MUST receive `-32601`"; so is
        // `tasks/list`.
        McpMethod::Task(TaskMethod::Result | TaskMethod::List) => false,
        McpMethod::Other(name) => extends_protocol(name),
        _ => true,
    }
}

/// Starts a request. `frame` delimits messages on a stream.
pub(crate) fn start_request(
    request: ValidatedRequest,
    endpoint: &Arc<dyn McpServer>,
    state: &Arc<DownstreamState>,
    frame: FrameFn,
) -> ModernStarted {
    // These methods never reach a server, so their metrics are counted here.
    let method = match &*request.method {
        "server/discover" => {
            count_answer(&request, state, "server/discover", None);
            return ModernStarted::Ready(200, discover(&request, &**endpoint));
        }
        "subscriptions/listen" => {
            let subscribed = subscriptions::open_stream(
                &request.id,
                &request.params,
                &request.caller,
                endpoint,
                state,
            );
            let error = subscribed.as_ref().err();
            count_answer(&request, state, "subscriptions/listen", error);
            return subscribed.map_or_else(
                |error| refuse(&request.id, &error),
                ModernStarted::Subscribed,
            );
        }
        name => McpMethod::from_name(name),
    };
    if !has_method(&method) {
        let error = Error::new(
            McpErrorKind::UnknownMethod,
            format!("Method not found: {}", method.name()),
        );
        count_answer(&request, state, "_OTHER", Some(&error));
        return refuse(&request.id, &error);
    }
    let may_task = matches!(method, McpMethod::CallTool | McpMethod::Task(_))
        && tasks::is_declared(&request.caller.declared_capabilities);
    if matches!(method, McpMethod::Task(_)) && !may_task {
        return refuse(&request.id, &tasks::missing_capability());
    }
    let task_mode = if may_task {
        TaskMode::Allowed
    } else {
        TaskMode::Never
    };
    start_call(request, (method, task_mode), endpoint, state, frame)
}

/// Counts an answer of the gateway itself.
fn count_answer(
    request: &ValidatedRequest,
    state: &DownstreamState,
    method: &'static str,
    error: Option<&Error>,
) {
    let took = request.received.elapsed();
    count_local_answer(&state.metrics, method, error, REVISION, took);
}

/// Ends a request with an error.
fn refuse(id: &RequestId, error: &Error) -> ModernStarted {
    ModernStarted::Ready(
        encode::http_status(error),
        vec![encode::encode_error(Some(id), error)],
    )
}

/// Starts a request that becomes a call, or continues one.
fn start_call(
    request: ValidatedRequest,
    (method, task_mode): (McpMethod, TaskMode),
    endpoint: &Arc<dyn McpServer>,
    state: &Arc<DownstreamState>,
    frame: FrameFn,
) -> ModernStarted {
    let ValidatedRequest {
        id,
        mut params,
        mut meta,
        target,
        caller,
        holder,
        scope,
        headers,
        cancel_reason,
        received,
        ..
    } = request;
    let context = StateContext::from_request(&method, target, &params);
    // Other methods have no input rounds, so such members are ordinary params there.
    let retry_params = if context.allows_input() {
        RetryParams::take(&mut params)
    } else {
        RetryParams::default()
    };
    let mut encoder = ModernEncoder {
        id,
        context,
        token: meta.remove("progressToken"),
        caller,
        holder,
        scope,
        frame,
        state: state.clone(),
        undeclared: None,
        used_state: None,
    };
    let exchange = match encoder.input_round().begin_retry(retry_params) {
        Ok(RetryPurpose::NewCall(resume, used)) => {
            encoder.used_state = used;
            let check = headers
                .filter(|_| method == McpMethod::CallTool)
                .map(params_check);
            let call = Call {
                meta,
                progress: encoder.token.is_some(),
                deferred_check: check,
                continuation: resume,
                task_mode,
                detailed: method == McpMethod::Task(TaskMethod::Get),
                cancel_reason,
                received,
                ..Call::new(method, params)
            };
            endpoint.call(&encoder.caller, call)
        }
        Ok(RetryPurpose::ParkedCall(exchange)) => exchange,
        Ok(RetryPurpose::StillOpen(exchange, open)) => {
            let (status, parts) = encoder.input_round().repark(exchange, open);
            return ModernStarted::Ready(status, parts);
        }
        Err(error) => return refuse(&encoder.id, &error),
    };
    ModernStarted::Running(exchange, encoder)
}

/// Creates the check of mirrored arguments. Deferred, since only the endpoint finds the tool's
/// definition.
///
/// 2026-07-28/basic/transports/streamable-http.mdx: "Any server that processes the message body
/// MUST validate that encoded header values, after decoding if Base64-encoded, match the
/// corresponding values in the request body."
fn params_check(headers: HeaderMap) -> DeferredCheck {
    Box::new(move |definition, arguments| {
        mirrored_headers::check_params(&headers, definition, arguments)
    })
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    // 2026-07-28/basic/transports/streamable-http.mdx: "The client MUST include an `Accept` header
    // listing both" types. A request without the header is taken to accept both.
    accept.is_none_or(|a| a.contains("text/event-stream") || a.contains("*/*"))
}

/// Writes the server capabilities of this revision.
///
/// Tasks appear as an extension only: "Servers […] MUST NOT continue to advertise the legacy
/// capabilities under any protocol version that includes this extension" (SEP-2663, Backward
/// Compatibility).
fn write_capabilities(capabilities: &ServerCapabilities) -> JsonObject {
    let mut written = server_capabilities::write_capabilities(capabilities);
    if capabilities.tasks.is_some() {
        written.set(
            ByteString::literal("extensions"),
            tasks::extensions(&capabilities.extensions),
        );
    }
    written
}

/// Encodes the result of `server/discover` (server/discover.mdx).
fn discover(request: &ValidatedRequest, endpoint: &dyn McpServer) -> Vec<Bytes> {
    let description = endpoint.describe(&request.caller);
    let mut result = JsonObject::new()
        .with("supportedVersions", RawJson::from_value(&[REVISION]))
        .with(
            "capabilities",
            write_capabilities(&description.capabilities).to_raw(),
        );
    if let Some(instructions) = &description.instructions {
        result.set(
            ByteString::literal("instructions"),
            RawJson::string(instructions),
        );
    }
    // Private, since the description depends on the caller.
    let hint = CacheHint {
        ttl_ms: 60_000,
        public: false,
    };
    encode::encode_result_from(description.info, &request.id, result, Some(hint))
}
