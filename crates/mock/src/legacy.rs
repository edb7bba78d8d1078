//! Legacy revisions: `initialize`, sessions, `ping`, log levels, subscriptions.
//!
//! Owns the parts that only revisions up to 2025-11-25 have. Does not own transports. Invariant: a
//! session has a revision that the script names.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    call::{CallOutcome, LEVELS, MockCall},
    revision::Revision,
    seal,
    server::MockServer,
    session::MockSession,
    wire::{ResultBody, RpcFailure},
};

/// Opens a session. Fails if the server speaks no legacy revision.
pub(super) fn initialize(
    server: &Arc<MockServer>,
    params: &Value,
) -> Result<(Arc<MockSession>, ResultBody), RpcFailure> {
    let newest = server
        .legacy()
        .ok_or_else(|| RpcFailure::new(-32601, "Method not found: initialize"))?;
    let requested = params["protocolVersion"]
        .as_str()
        .ok_or_else(|| RpcFailure::params("`protocolVersion` is missing"))?;
    if !params["capabilities"].is_object() || !params["clientInfo"]["name"].is_string() {
        return Err(RpcFailure::params(
            "`capabilities` and `clientInfo` are required",
        ));
    }
    // "Otherwise, the server MUST respond with another protocol version it supports" (2025-11-25,
    // basic/lifecycle).
    let known = Revision::of(requested).filter(|r| !r.is_modern() && server.speaks(*r));
    let session = Arc::new(MockSession::new(
        seal::random_name(),
        known.unwrap_or(newest),
        params,
    ));
    let mut body = ResultBody::new()
        .put("protocolVersion", &json!(session.revision.date()))
        .put("capabilities", &capabilities(server, session.revision))
        .put("serverInfo", &info(server));
    if let Some(text) = &server.script.instructions {
        body = body.put("instructions", &json!(text));
    }
    Ok((session, body))
}

/// Name and version of the server, as `serverInfo`.
pub(super) fn info(server: &MockServer) -> Value {
    json!({"name": server.script.name, "version": server.script.version})
}

/// Capabilities that the server announces to this revision.
pub(super) fn capabilities(server: &MockServer, revision: Revision) -> Value {
    if let Some(given) = &server.script.capabilities {
        return given.clone();
    }
    let contents = server.contents.lock();
    let mut all = json!({"logging": {}, "tools": {"listChanged": true}});
    if !contents.resources.is_empty() || !contents.templates.is_empty() {
        all["resources"] = json!({"subscribe": true, "listChanged": true});
    }
    if !contents.prompts.is_empty() {
        all["prompts"] = json!({"listChanged": true});
    }
    // In 2024-11-05 completion had no capability.
    if revision >= Revision::V2025_03_26
        && !(contents.prompts.is_empty() && contents.templates.is_empty())
    {
        all["completions"] = json!({});
    }
    drop(contents);
    super::tasks::announce(server, revision, &mut all);
    for (member, given) in [
        ("extensions", &server.script.extensions),
        ("experimental", &server.script.experimental),
    ] {
        for (identifier, settings) in given {
            all[member][identifier] = settings.clone();
        }
    }
    all
}

/// Answers the methods that only legacy revisions have.
pub(super) fn method(call: &MockCall) -> CallOutcome {
    let params = &call.request.params;
    match call.request.method.as_str() {
        "ping" => {}
        "logging/setLevel" => {
            let level = params["level"].as_str().filter(|l| LEVELS.contains(l));
            let level = level
                .ok_or_else(|| RpcFailure::params("`level` is not one of the eight levels"))?;
            // A server without sessions keeps no level. It accepts the request and sends
            // everything.
            if let Some(session) = &call.session {
                *session.log.lock() = Some(level.to_owned());
            }
        }
        "resources/subscribe" => {
            let uri = params["uri"]
                .as_str()
                .ok_or_else(|| RpcFailure::params("`uri` is missing"))?;
            // Reading the contents checks that the resource exists.
            super::resources::contents(call, uri)
                .ok_or_else(|| super::resources::missing(call, uri))?;
            if !call.session.as_ref().is_some_and(|s| s.subscribe(uri)) {
                return Err(RpcFailure::new(
                    -32603,
                    "cannot subscribe: no session, or too many subscriptions",
                )
                .into());
            }
        }
        "resources/unsubscribe" => {
            let uri = params["uri"]
                .as_str()
                .ok_or_else(|| RpcFailure::params("`uri` is missing"))?;
            if let Some(session) = &call.session {
                session.subscribed.lock().remove(uri);
            }
        }
        other => return Err(RpcFailure::new(-32601, format!("Method not found: {other}")).into()),
    }
    Ok(ResultBody::new())
}
