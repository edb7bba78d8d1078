//! 2026-07-28: `_meta` on every request, `server/discover`, `subscriptions/listen`, input requests
//! in results.
//!
//! Owns the parts that only the stateless revision has, apart from headers. Does not own
//! transports. Invariant: nothing is kept between two requests; state leaves sealed, with the
//! client.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::{
    call::{CallOutcome, LEVELS, MockCall},
    legacy,
    listeners::ListenTarget,
    revision::Revision,
    scenario,
    server::MockServer,
    wire::{self, ResultBody, RpcFailure, WireRequest},
};

pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// True if the request claims to be modern.
pub(super) fn is_modern(request: &WireRequest) -> bool {
    !request.meta(VERSION).is_null()
}

/// Error for a version that this server does not speak.
pub(super) fn unsupported(server: &MockServer, requested: &str) -> RpcFailure {
    let data = json!({"supported": server.supported(), "requested": requested});
    RpcFailure::new(-32022, "Unsupported protocol version")
        .data(data)
        .status(400)
}

/// Reads the revision and the capabilities that the request carries.
pub(super) fn check(
    server: &MockServer,
    request: &WireRequest,
) -> Result<(Revision, Value), RpcFailure> {
    let version = request
        .meta(VERSION)
        .as_str()
        .ok_or_else(|| missing(server, VERSION))?;
    let revision = Revision::of(version).filter(|r| r.is_modern() && server.speaks(*r));
    let revision = revision.ok_or_else(|| unsupported(server, version))?;
    let caps = request.meta(CAPABILITIES);
    if !caps.is_object() {
        return Err(missing(server, CAPABILITIES));
    }
    match request.meta(LEVEL) {
        Value::Null => {}
        Value::String(level) if LEVELS.contains(&level.as_str()) => {}
        other => return Err(RpcFailure::params(format!("Invalid log level: {other}")).status(400)),
    }
    Ok((revision, caps.clone()))
}

/// Returns the refusal of a request that lacks a member. It names the supported versions: a legacy
/// client may have nothing else to show its user.
fn missing(server: &MockServer, what: &str) -> RpcFailure {
    let text = format!(
        "Invalid params: `_meta` lacks `{what}` (supported versions: {})",
        server.supported()
    );
    RpcFailure::params(text)
        .data(json!({"supported": server.supported()}))
        .status(400)
}

/// Collects the caller's responses so far, from its `requestState` and its `inputResponses`.
pub(super) fn input_responses(
    server: &MockServer,
    request: &WireRequest,
) -> Result<Value, RpcFailure> {
    let params = &request.params;
    // A `tasks/update` carries responses for a task, so it isn't a retry of a call.
    if request.method.starts_with("tasks/") {
        return Ok(json!({}));
    }
    let mut answers = match &params["requestState"] {
        Value::Null if params["inputResponses"].is_null() => return Ok(json!({})),
        // A flow with state trusts no responses without it. It sends its requests again.
        Value::Null if scenario::flow_of(server, request).is_some_and(|flow| flow.state) => {
            return Ok(json!({}));
        }
        Value::Null if scenario::flow_of(server, request).is_some() => json!({}),
        Value::String(sealed) => server
            .seal
            .open(&describe(request), sealed)
            .map_err(RpcFailure::params)?,
        _ => {
            return Err(RpcFailure::params(
                "`inputResponses` came without the `requestState` that was given with the request",
            ));
        }
    };
    // Responses of this retry come last: the client may correct an earlier one.
    for (key, value) in params["inputResponses"].as_object().into_iter().flatten() {
        answers[key] = value.clone();
    }
    Ok(answers)
}

/// Describes the request that a sealed state belongs to: method, target, and a digest of the
/// arguments.
fn describe(request: &WireRequest) -> String {
    // The digest need not resist attacks: the seal around it is an HMAC.
    let mut hasher = DefaultHasher::new();
    request.params["arguments"].to_string().hash(&mut hasher);
    let target = request.params["name"]
        .as_str()
        .or(request.params["uri"].as_str())
        .unwrap_or_default();
    format!("{} {target} {:x}", request.method, hasher.finish())
}

/// Result that asks the caller for input.
pub(super) fn input_required(call: &MockCall, requests: &Value, state: bool) -> ResultBody {
    let body = ResultBody::new()
        .put("resultType", &json!("input_required"))
        .put("inputRequests", requests);
    if !state {
        return body;
    }
    let state = call
        .server
        .seal
        .seal(&describe(&call.request), &call.input_responses);
    body.put("requestState", &json!(state))
}

/// Adds the members that every modern result has.
pub(super) fn encode_result(call: &MockCall, body: ResultBody) -> ResultBody {
    let complete = !body.has("resultType");
    let mut body = if complete {
        body.put("resultType", &json!("complete"))
    } else {
        body
    };
    let mut meta = body.get("_meta").unwrap_or_else(|| json!({}));
    if meta[SERVER].is_null() {
        meta[SERVER] = legacy::info(&call.server);
        body = body.put("_meta", &meta);
    }
    let method = call.request.method.as_str();
    // An incomplete result must not be cached: it belongs to one call.
    let cacheable =
        method == "server/discover" || method == "resources/read" || method.ends_with("/list");
    if complete && cacheable && !body.has("ttlMs") {
        let list = &call.server.script.list;
        body = body
            .put("ttlMs", &json!(list.ttl_ms))
            .put("cacheScope", &json!(list.cache_scope));
    }
    body
}

/// Answers the methods that only modern revisions have.
pub(super) async fn method(call: &MockCall) -> CallOutcome {
    match call.request.method.as_str() {
        "server/discover" => {
            let mut body = ResultBody::new()
                .put("supportedVersions", &call.server.supported())
                .put(
                    "capabilities",
                    &legacy::capabilities(&call.server, call.revision),
                );
            if let Some(text) = &call.server.script.instructions {
                body = body.put("instructions", &json!(text));
            }
            Ok(body)
        }
        "subscriptions/listen" => listen(call).await,
        other => Err(
            RpcFailure::new(-32601, format!("Method not found: {other}"))
                .status(404)
                .into(),
        ),
    }
}

async fn listen(call: &MockCall) -> CallOutcome {
    let requested = &call.request.params["notifications"];
    if !requested.is_object() {
        return Err(RpcFailure::params("`notifications` is missing").into());
    }
    let offered = legacy::capabilities(&call.server, call.revision);
    let mut filter = json!({});
    // The acknowledged filter has only what the capabilities offer.
    for list in ["tools", "prompts", "resources"] {
        let key = format!("{list}ListChanged");
        if requested[&key] == true && offered[list]["listChanged"] == true {
            filter[&key] = json!(true);
        }
    }
    if requested["resourceSubscriptions"].is_array() && offered["resources"]["subscribe"] == true {
        filter["resourceSubscriptions"] = requested["resourceSubscriptions"].clone();
    }
    let id: Value = serde_json::from_str(&call.request.id).unwrap_or_default();
    let meta = json!({SUBSCRIPTION: id});
    let acknowledged = json!({"_meta": meta, "notifications": filter});
    let first = wire::notification("notifications/subscriptions/acknowledged", &acknowledged);
    let target = ListenTarget::Subscription {
        id: call.request.id.clone(),
        filter,
    };
    let Some(_listening) = call.server.listen(target, call.out.clone(), Some(first)) else {
        return Err(RpcFailure::new(-32603, "too many listeners").into());
    };
    let mut stop = call.server.stop.subscribe();
    // The call ends only when the server stops. A client ends it by closing the stream.
    let _ = stop.wait_for(|stop| *stop).await;
    let ended = json!({"_meta": meta, "requestId": id, "reason": "the server is shutting down"});
    call.send_message(wire::notification("notifications/cancelled", &ended))
        .await;
    Ok(ResultBody::new().put("_meta", &meta))
}

/// Lists the headers that a `tools/call` must carry for its marked arguments, with the expected
/// values.
pub(super) fn parameter_headers(
    server: &MockServer,
    request: &WireRequest,
) -> Vec<(String, Option<Value>)> {
    let Some(name) = request.tool() else {
        return Vec::new();
    };
    let contents = server.contents.lock();
    let Some(tool) = contents.tools.iter().find(|t| t.key == name) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    collect_marked(
        &tool.value()["inputSchema"],
        &request.params["arguments"],
        &mut found,
    );
    found
}

fn collect_marked(schema: &Value, value: &Value, found: &mut Vec<(String, Option<Value>)>) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = &value[key];
        // Header names are case-insensitive, and hyper gives them in lower case.
        if let Some(header) = property["x-mcp-header"].as_str() {
            found.push((
                format!("mcp-param-{}", header.to_ascii_lowercase()),
                (!value.is_null()).then(|| value.clone()),
            ));
        }
        collect_marked(property, value, found);
    }
}
