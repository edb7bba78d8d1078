//! Reserved members in the `_meta` of a request: revision, client, capabilities and log level.
//!
//! Owns their reading from clients and their writing for servers. Does not touch other members.
//! Invariant: reserved members for a server are written here alone.

use std::sync::Arc;

use http::HeaderMap;

use crate::client_capabilities::read_client_capabilities;
use crate::client_headers;
use crate::client_identity::{bounded_client_info, check_capabilities_size};
use crate::dialect::DownstreamState;
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::meta_keys::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION,
};
use crate::v2026_07_28::tasks;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{
    Caller, ClientCapabilities, Error, LogFilter, LogLevel, McpErrorKind, Principal,
};

/// Takes the revision out of `_meta`.
pub(super) fn take_version(meta: &mut JsonObject) -> Result<ByteString, Error> {
    let version = meta.remove(PROTOCOL_VERSION).and_then(|raw| raw.as_text());
    // 2026-07-28/basic/index.mdx, Request Metadata: "A request missing any required field is
    // malformed; the server MUST reject it with JSON-RPC error code `-32602` (Invalid params)."
    version.ok_or_else(|| missing_member(PROTOCOL_VERSION, "a string"))
}

/// Takes the caller out of `_meta`.
pub(super) fn take_caller(
    meta: &mut JsonObject,
    principal: Arc<Principal>,
    headers: &HeaderMap,
    state: &DownstreamState,
) -> Result<Arc<Caller>, Error> {
    let declared = meta.remove(CLIENT_CAPABILITIES);
    let capabilities = declared
        .filter(RawJson::is_object)
        .ok_or_else(|| missing_member(CLIENT_CAPABILITIES, "an object"))?;
    check_capabilities_size(&capabilities)?;
    let members = capabilities
        .as_object()
        .ok_or_else(|| missing_member(CLIENT_CAPABILITIES, "an object without duplicate keys"))?;
    let client_capabilities: ClientCapabilities = read_client_capabilities(&members);
    let log = match meta.remove(LOG_LEVEL) {
        // server/utilities/logging.mdx: "The server MUST NOT emit `notifications/message` for a
        // request that does not include this field."
        None => LogFilter::Nothing,
        Some(raw) => {
            let level = raw.as_text().and_then(|name| LogLevel::from_name(&name));
            LogFilter::AtLeast(level.ok_or_else(|| {
                Error::new(
                    McpErrorKind::InvalidParams,
                    format!("Invalid params: _meta[\"{LOG_LEVEL}\"] is not a log level"),
                )
            })?)
        }
    };
    // Optional: "Clients SHOULD include `io.modelcontextprotocol/clientInfo` on every request
    // unless specifically configured not to do so" (2026-07-28/basic/index.mdx).
    let info = meta
        .remove(CLIENT_INFO)
        .as_ref()
        .and_then(bounded_client_info);
    // A call that accepts input requests may be parked for long, and must not keep the request's
    // buffer alive.
    let (capabilities, info) = match client_capabilities == ClientCapabilities::default() {
        true => (capabilities, info),
        false => (
            capabilities.detached(),
            info.as_ref().map(RawJson::detached),
        ),
    };
    Ok(Arc::new(Caller {
        principal,
        session: None,
        declared_capabilities: capabilities,
        capabilities: client_capabilities,
        client_info: info,
        log_filter: log,
        revision: REVISION,
        forwarded_headers: client_headers::collect_headers(headers, state),
        ended: tokio_util::sync::CancellationToken::new(),
        channel: None,
    }))
}

fn missing_member(key: &str, what: &str) -> Error {
    Error::new(
        McpErrorKind::InvalidParams,
        format!("Invalid params: _meta[\"{key}\"] must be {what}"),
    )
}

/// Writes the `_meta` of a request to a server: the client's members, the reserved ones and the
/// progress token.
///
/// `may_task` is true if the call may return a task. A client of this revision declares that in its
/// own capabilities.
pub(super) fn write_meta(
    mut meta: JsonObject,
    caller: &Caller,
    own_info: &RawJson,
    token: Option<u64>,
    may_task: bool,
) -> JsonObject {
    meta.set(
        ByteString::literal(PROTOCOL_VERSION),
        const { RawJson::literal("\"2026-07-28\"") },
    );
    meta.set(
        ByteString::literal(CLIENT_INFO),
        caller
            .client_info
            .clone()
            .unwrap_or_else(|| own_info.clone()),
    );
    let capabilities = match caller.revision {
        REVISION => caller.declared_capabilities.clone(),
        _ => tasks::set_declared(&caller.declared_capabilities, may_task),
    };
    meta.set(ByteString::literal(CLIENT_CAPABILITIES), capabilities);
    // server/utilities/logging.mdx has no default: without the field, no log message MUST be sent.
    // A legacy client without a level expects its server's default, so the gateway requests that on
    // its behalf.
    let level = match caller.log_filter {
        LogFilter::AtLeast(level) => Some(level),
        LogFilter::ServerDecides => Some(LogFilter::BY_DEFAULT),
        LogFilter::Nothing => None,
    };
    if let Some(level) = level {
        meta.set(
            ByteString::literal(LOG_LEVEL),
            RawJson::string(level.name()),
        );
    }
    if let Some(token) = token {
        meta.set(ByteString::literal("progressToken"), RawJson::number(token));
    }
    meta
}
