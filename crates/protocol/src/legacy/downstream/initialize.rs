//! `initialize` of a legacy client: its capabilities, and the revision of its session.
//!
//! Owns the reading of the request and the encoding of its result. Does not keep the session
//! (`session`). Invariant: the session speaks the revision that the result names.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use tokio::time::Instant;

use crate::body::Body;
use crate::client_capabilities::read_client_capabilities;
use crate::client_identity::{bounded_client_info, check_capabilities_size};
use crate::dialect::DownstreamState;
use crate::error_labels::count_local_answer;
use crate::http_response::json_response;
use crate::legacy::downstream::encode;
use crate::legacy::downstream::refusal::LegacyRefusal;
use crate::legacy::profile::{NEWEST, Profile, SESSION_HEADER, profile};
use crate::legacy::tasks;
use crate::lookalike_members::reject_lookalikes;
use crate::{client_headers, server_capabilities};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcRequest;
use moongate_model::{Caller, Error, LogFilter, McpServer, ServerCapabilities};
use moongate_session::Session;

pub(crate) fn initialize(
    request: &RpcRequest,
    headers: &HeaderMap,
    principal: Arc<moongate_model::Principal>,
    scope: ByteString,
    endpoint: &Arc<dyn McpServer>,
    state: &DownstreamState,
) -> Result<Response<Body>, LegacyRefusal> {
    // Read before the session is opened: a refused request must leave no session behind.
    let caller = read_caller(&request.params, headers, principal, state)
        .map_err(|e| LegacyRefusal::for_id(&request.id, e))?;
    let session = state
        .sessions
        .open(caller, scope, None)
        .map_err(|e| LegacyRefusal::for_id(&request.id, e))?;
    let mut response = json_response(200, initialize_result(request, &session, endpoint));
    let id = HeaderValue::from_str(&session.identity.id)
        .map_err(|_| Error::internal("the session id is not a valid header value"))?;
    response.headers_mut().insert(SESSION_HEADER, id);
    Ok(response)
}

/// Counts an `initialize` under the revision that its client speaks from now on.
pub(crate) fn count_initialize(
    state: &DownstreamState,
    error: Option<&Error>,
    params: &JsonObject,
    received: Instant,
) {
    count_local_answer(
        &state.metrics,
        "initialize",
        error,
        negotiate_profile(params).name,
        received.elapsed(),
    );
}

/// Encodes the result of `initialize`.
pub(crate) fn initialize_result(
    request: &RpcRequest,
    session: &Session,
    endpoint: &Arc<dyn McpServer>,
) -> Vec<Bytes> {
    let caller = session.identity.caller();
    let description = endpoint.describe(&caller);
    let mut result = JsonObject::new()
        // 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "If the server supports the
        // requested protocol version, it MUST respond with the same version."
        .with("protocolVersion", RawJson::string(caller.revision))
        .with(
            "capabilities",
            write_capabilities(caller.revision, &description.capabilities).to_raw(),
        )
        .with("serverInfo", description.info);
    if let Some(instructions) = description.instructions {
        result.set(
            ByteString::literal("instructions"),
            RawJson::string(&instructions),
        );
    }
    encode::encode_result(&request.id, &result)
}

fn write_capabilities(revision: &str, capabilities: &ServerCapabilities) -> JsonObject {
    let mut written = server_capabilities::write_capabilities(capabilities);
    // Only 2025-11-25 defines tasks. A client of an older revision does not know the capability.
    let tasks = profile(revision).is_some_and(|profile| profile.tasks);
    if let Some(capabilities) = capabilities.tasks.filter(|_| tasks) {
        written.set(
            ByteString::literal("tasks"),
            tasks::write_capability(capabilities),
        );
    }
    written
}

/// Picks the revision for a client.
///
/// 2025-11-25/basic/lifecycle.mdx, Version Negotiation: "Otherwise, the server MUST respond with
/// another protocol version it supports. This SHOULD be the latest version supported by the
/// server."
fn negotiate_profile(params: &JsonObject) -> &'static Profile {
    params
        .get_string("protocolVersion")
        .as_deref()
        .and_then(profile)
        .unwrap_or(NEWEST)
}

/// Reads the caller from its `initialize` request.
pub(crate) fn read_caller(
    params: &JsonObject,
    headers: &HeaderMap,
    principal: Arc<moongate_model::Principal>,
    state: &DownstreamState,
) -> Result<Caller, Error> {
    reject_lookalikes("initialize", params)?;
    let profile = negotiate_profile(params);
    if let Some(capabilities) = params.get("capabilities") {
        check_capabilities_size(capabilities)?;
    }
    let capabilities = params.get_object("capabilities").unwrap_or_default();
    Ok(Caller {
        principal,
        session: None,
        capabilities: read_client_capabilities(&capabilities),
        // Copies: a session must not keep the whole body of its first request alive.
        declared_capabilities: capabilities.to_raw().detached(),
        client_info: params
            .get("clientInfo")
            .and_then(bounded_client_info)
            .as_ref()
            .map(RawJson::detached),
        log_filter: LogFilter::ServerDecides,
        revision: profile.name,
        forwarded_headers: client_headers::collect_headers(headers, state),
        ended: tokio_util::sync::CancellationToken::new(),
        channel: None,
    })
}
