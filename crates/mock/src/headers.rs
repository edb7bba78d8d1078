//! Headers that mirror a modern request.
//!
//! Owns their comparison with the body. Does not own the meaning of the body. Invariant: a request
//! whose headers and body differ never reaches a method.

use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use serde_json::{Value, json};

use super::{
    modern,
    received_request::ReceivedRequest,
    revision::Revision,
    server::MockServer,
    wire::{RpcFailure, WireRequest},
};

/// Checks the version, then every header that the request must carry.
pub(super) fn check(
    server: &MockServer,
    received: &ReceivedRequest,
    request: &WireRequest,
) -> Result<(), RpcFailure> {
    let version = received
        .header("mcp-protocol-version")
        .ok_or_else(|| missing(server, "MCP-Protocol-Version"))?;
    match request.meta(modern::VERSION) {
        Value::String(body) if body != version => {
            return Err(mismatch(
                server,
                format!("MCP-Protocol-Version is '{version}', but the body says '{body}'"),
            ));
        }
        _ if !Revision::of(version).is_some_and(|r| r.is_modern() && server.speaks(r)) => {
            return Err(modern::unsupported(server, version));
        }
        _ => {}
    }
    let method = received
        .header("mcp-method")
        .ok_or_else(|| missing(server, "Mcp-Method"))?;
    if method != request.method {
        return Err(mismatch(
            server,
            format!(
                "Mcp-Method is '{method}', but the body says '{}'",
                request.method
            ),
        ));
    }
    // Each of these methods has its target in the header `Mcp-Name`.
    let source = match request.method.as_str() {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    };
    if let Some(body) = source.and_then(|key| request.params[key].as_str()) {
        let name = decode(
            received
                .header("mcp-name")
                .ok_or_else(|| missing(server, "Mcp-Name"))?,
        )
        .map_err(|text| mismatch(server, text))?;
        if name != body {
            return Err(mismatch(
                server,
                format!("Mcp-Name is '{name}', but the body says '{body}'"),
            ));
        }
    }
    // "Any server that processes the message body MUST validate that encoded header values ...
    // match the corresponding values in the request body" (2026-07-28,
    // basic/transports/streamable-http).
    for (header, value) in modern::parameter_headers(server, request) {
        let sent = received
            .header(&header)
            .map(decode)
            .transpose()
            .map_err(|text| mismatch(server, text))?;
        if !matches_body(sent.as_deref(), value.as_ref()) {
            return Err(mismatch(
                server,
                format!("{header} is {sent:?}, but the body says {value:?}"),
            ));
        }
    }
    Ok(())
}

/// Returns the refusal of a header. It names the supported versions: a legacy client may have
/// nothing else to show its user.
fn mismatch(server: &MockServer, text: String) -> RpcFailure {
    let text = format!(
        "Header mismatch: {text} (supported versions: {})",
        server.supported()
    );
    RpcFailure::new(-32020, text)
        .data(json!({"supported": server.supported()}))
        .status(400)
}

fn missing(server: &MockServer, name: &str) -> RpcFailure {
    mismatch(server, format!("the header {name} is missing"))
}

fn decode(value: &str) -> Result<String, String> {
    let Some(inner) = value
        .strip_prefix("=?base64?")
        .and_then(|v| v.strip_suffix("?="))
    else {
        return match value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) {
            true => Ok(value.to_owned()),
            false => Err(format!("'{value}' has characters that must be encoded")),
        };
    };
    let bytes = B64
        .decode(inner)
        .map_err(|e| format!("'{value}' is not Base64: {e}"))?;
    String::from_utf8(bytes).map_err(|_| format!("'{value}' is not UTF-8"))
}

fn matches_body(header: Option<&str>, body: Option<&Value>) -> bool {
    match (header, body) {
        // An argument without a value must have no header, and the other way round.
        (None, None) => true,
        (Some(header), Some(Value::String(body))) => header == body,
        (Some(header), Some(Value::Bool(body))) => header == body.to_string(),
        // Numbers agree by value: 42.0 and 42 are the same.
        (Some(header), Some(Value::Number(body))) => header.parse::<f64>().ok() == body.as_f64(),
        _ => false,
    }
}
