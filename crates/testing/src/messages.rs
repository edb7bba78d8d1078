//! JSON-RPC messages as the bytes that clients send.
//!
//! Writes messages of both eras. Sends none. Invariant: members are in the order in which they are
//! written here.

use serde_json::{Value, json};

/// Last revision with sessions.
pub const LATEST_LEGACY: &str = "2025-11-25";
/// First revision without sessions.
pub const MODERN: &str = "2026-07-28";
/// Notification that ends the handshake.
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Writes a request.
pub fn request(id: impl Into<Value>, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}).to_string()
}

/// Writes a notification.
pub fn notification(method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// Writes an `initialize` request of a client with this name.
pub fn initialize(id: u64, revision: &str, name: &str, capabilities: &Value) -> String {
    let params = json!({"protocolVersion": revision, "capabilities": capabilities,
        "clientInfo": {"name": name, "version": "1"}});
    request(id, "initialize", params)
}

/// Writes a `tools/call` request.
pub fn call_tool(id: impl Into<Value>, tool: &str, arguments: Value) -> String {
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

/// Builds the `_meta` of a modern request: a client named `test`, without capabilities.
pub fn modern_meta() -> Value {
    json!({"io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}})
}

/// Adds members to an object, over those that it has.
pub fn extended(mut object: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}
