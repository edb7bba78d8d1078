//! Dialect of the stateless revision for clients: no POST depends on an earlier one.
//!
//! Owns reading a request and checking that its headers agree with it. Does not keep state between
//! requests. Invariant: authorisation and routing use the body alone; a header only ever causes a
//! refusal.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method as Verb, Response, header};
use tokio::time::Instant;

use crate::admitted::Admitted;
use crate::body::Body;
use crate::dialect::{BodyHint, Dialect, DownstreamState, McpRequest, RequestHead};
use crate::era::VERSION_HEADER;
use crate::error_labels::count_local_answer;
use crate::http_response::{accepted_response, json_response};
use crate::lookalike_members::reject_lookalikes;
use crate::request_checks::{check_content_type, malformed_error, take_meta};
use crate::respond::{InputAction, ResponseEncoder, ResponseOptions, respond};
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::downstream::input_rounds::{self, InputRound, RetryParams, RetryPurpose};
use crate::v2026_07_28::downstream::request_state::StateContext;
use crate::v2026_07_28::downstream::{encode, subscriptions};
use crate::v2026_07_28::meta_keys::PROTOCOL_VERSION;
use crate::v2026_07_28::{meta, mirrored_headers, tasks};
use crate::{legacy, notifications, server_capabilities, trace_context};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{RequestId, RpcMessage, RpcNotification, RpcPayload, RpcRequest};
use moongate_jsonrpc::sse;
use moongate_model::{
    CacheHint, Call, Caller, CancelReason, DeferredCheck, Error, Exchange, InputRequired,
    McpErrorKind, McpMethod, McpServer, Notification, Outcome, Principal, ServerCapabilities,
    StateHolder, TaskMethod, TaskMode, extends_protocol,
};
use moongate_session::StateUse;
use moongate_telemetry::{DroppedItem, InputOutcome, MemoryHolder};

/// Dialect of this revision.
pub(crate) static DIALECT: ModernDialect = ModernDialect;

pub(crate) struct ModernDialect;

/// Function that delimits a message on a stream.
type FrameFn = fn(&[u8]) -> Bytes;

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
                "Method not allowed: this revision has POST only",
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

// === reading ===

/// True if a request carries the `_meta` of this revision.
pub(crate) fn carries_version(request: &RpcRequest) -> bool {
    request.params.get("_meta").is_some_and(|meta| {
        // A cheap search first: most legacy requests fail it and are never parsed.
        memchr::memmem::find(meta.bytes(), PROTOCOL_VERSION.as_bytes()).is_some()
            && meta
                .as_object()
                .is_some_and(|meta| meta.get(PROTOCOL_VERSION).is_some())
    })
}

enum ParsedPost {
    Nothing,
    Notification(RpcNotification, Arc<Principal>),
    Request(Box<ValidatedRequest>),
}

/// Request whose headers and `_meta` were validated.
pub(crate) struct ValidatedRequest {
    id: RequestId,
    method: ByteString,
    params: JsonObject,
    meta: JsonObject,
    /// Name of the tool or prompt, or URI of the resource.
    target: Option<ByteString>,
    caller: Arc<Caller>,
    holder: MemoryHolder,
    scope: ByteString,
    /// HTTP headers. A pipe has none: "There is no header layer" (basic/transports/stdio.mdx,
    /// Request Metadata).
    headers: Option<HeaderMap>,
    /// Reason of a cancellation. Over HTTP a client has no way to give one.
    pub(crate) cancel_reason: Option<CancelReason>,
    received: Instant,
}

/// Principal of a request, and its endpoint.
pub(crate) struct RequestSender {
    pub(crate) principal: Arc<Principal>,
    /// Holder of the memory that the request takes.
    pub(crate) holder: MemoryHolder,
    pub(crate) scope: ByteString,
}

type ModernRefusal = (u16, Option<RequestId>, Error);

fn read_request(inbound: McpRequest, state: &DownstreamState) -> Result<ParsedPost, ModernRefusal> {
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
            return Err(neither("a response, and this revision has none of clients"));
        }
        RpcPayload::Batch(_) => {
            return Err(neither(
                "a batch, and this revision has none; send each message by itself",
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

/// Builds the refusal of a body that is no single request or notification.
fn neither(found: &str) -> ModernRefusal {
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

// === answering ===

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
    let count = |method: &'static str, error: Option<&Error>| {
        count_local_answer(
            &state.metrics,
            method,
            error,
            REVISION,
            request.received.elapsed(),
        );
    };
    let method = match &*request.method {
        "server/discover" => {
            count("server/discover", None);
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
            count("subscriptions/listen", subscribed.as_ref().err());
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
        count("_OTHER", Some(&error));
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

/// Ends a request with an error.
fn refuse(id: &RequestId, error: &Error) -> ModernStarted {
    ModernStarted::Ready(
        encode::http_status(error),
        vec![encode::encode_error(Some(id), error)],
    )
}

/// Starts a request that becomes a call, or goes on with one.
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

/// Encoder of one exchange for a client of this revision.
///
/// Dropping it cancels the exchange: "The server MUST treat a client disconnect as cancellation of
/// that request" (basic/patterns/cancellation.mdx).
pub(crate) struct ModernEncoder {
    id: RequestId,
    context: StateContext,
    token: Option<RawJson>,
    caller: Arc<Caller>,
    holder: MemoryHolder,
    scope: ByteString,
    frame: FrameFn,
    state: Arc<DownstreamState>,
    /// Error of the first input request that the client did not declare. The response, if the
    /// server fails without it.
    undeclared: Option<Box<Error>>,
    /// Use of the state that the request brought. It is taken back if the call had no effect.
    used_state: Option<StateUse>,
}

impl ModernEncoder {
    fn input_round(&self) -> InputRound<'_> {
        InputRound {
            id: &self.id,
            context: &self.context,
            caller: &self.caller,
            holder: &self.holder,
            scope: &self.scope,
            state: &self.state,
        }
    }
}

/// Returns true if a call failed, at the server or by its tool's own account.
fn has_failed(end: &Result<Outcome, Error>) -> bool {
    end.as_ref().map_or(true, |outcome| {
        outcome
            .result
            .get("isError")
            .is_some_and(|failed| failed.bytes() == "true")
    })
}

impl ResponseEncoder for ModernEncoder {
    fn notification(&mut self, notification: Notification) -> Option<Bytes> {
        match notification {
            Notification::Progress(params) => self
                .token
                .as_ref()
                .map(|token| notifications::encode_progress(params, token)),
            Notification::Log(level, params) if self.caller.log_filter.allows(level) => Some(
                notifications::encode_notification("notifications/message", &params),
            ),
            Notification::Extension(method, params) => {
                Some(notifications::encode_notification(&method, &params))
            }
            // "These notifications MUST relate to the originating client request": other
            // notifications do not.
            _ => None,
        }
    }

    fn input_required(&mut self, input: InputRequired) -> InputAction {
        let round = self.input_round();
        if let Some(error) = round.check_declared(&input) {
            if matches!(input.state_holder, StateHolder::Server) {
                round.refuse(input, &error);
                self.undeclared.get_or_insert_with(|| Box::new(error));
                return InputAction::Refused;
            }
            round.count(&input, InputOutcome::Refused);
            return InputAction::End(
                encode::http_status(&error),
                vec![encode::encode_error(Some(&self.id), &error)],
            );
        }
        round.count(&input, InputOutcome::Asked);
        match input.state_holder {
            StateHolder::Client(state) => {
                InputAction::End(200, round.forward(&input.requests, input.server, state))
            }
            StateHolder::Server => InputAction::Park(input),
        }
    }

    fn frame(&mut self, message: &[u8], _: bool) -> Bytes {
        (self.frame)(message)
    }

    async fn park(
        &mut self,
        exchange: Exchange,
        input: InputRequired,
    ) -> Result<(u16, Vec<Bytes>), Exchange> {
        self.input_round().park(exchange, input).await
    }

    fn result(&mut self, end: Result<Outcome, Error>) -> (u16, Vec<Bytes>) {
        if let Err(error) = &end
            && let Some(input) = input_rounds::from_error(error)
            && let InputAction::End(status, parts) = self.input_required(input)
        {
            return (status, parts);
        }
        // A server that could do without the input has answered. One that failed needs the
        // capability.
        let end = match self.undeclared.take().filter(|_| has_failed(&end)) {
            Some(missing) => Err(*missing),
            None => end,
        };
        if let (Some(used), Err(error)) = (self.used_state.take(), &end)
            && input_rounds::was_never_sent(error)
        {
            used.give_back();
        }
        encode::encode_outcome(&self.id, self.context.method(), end)
    }
}
