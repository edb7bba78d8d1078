//! Discovery of a stateless server (`server/discover`).
//!
//! Owns the request, its result, and the errors that show a modern server. Does not decide on the
//! era (`negotiate.rs`). Invariant: the gateway's own requests declare the gateway's capabilities.

use std::sync::Arc;

use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::legacy::first_response;
use crate::unannounced_lists::find_unannounced_lists;
use crate::v2026_07_28::REVISION;
use crate::v2026_07_28::error_codes::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::v2026_07_28::meta_keys::{
    CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO,
};
use crate::v2026_07_28::{mirrored_headers, tasks};
use crate::{PendingCalls, server_capabilities};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::{
    RequestId, RpcMessage, RpcResponse, code, encode_with, write_request,
};
use moongate_model::{ServerCapabilities, ServerDescription};
use moongate_transport::{Link, LinkError, OutgoingMessage};

/// Builds the `_meta` of the gateway's own requests.
pub(crate) fn gateway_meta(options: &ConnectOptions) -> JsonObject {
    // Each request names a revision, and the first one before it is known what the server speaks.
    let version = options.revision.unwrap_or(REVISION);
    JsonObject::new()
        .with(PROTOCOL_VERSION, RawJson::string(version))
        .with(CLIENT_INFO, options.client_info.clone())
        .with(CLIENT_CAPABILITIES, options.capabilities.clone())
}

/// Discovers the server's description (`server/discover`).
pub(crate) async fn discover(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<ServerDescription, ConnectError> {
    let result = send_discover(link, calls, options).await?;
    let versions = result
        .get("supportedVersions")
        .and_then(RawJson::as_array)
        .ok_or_else(|| {
            ConnectError::Link(LinkError::Protocol(
                "the answer to server/discover has no supportedVersions".to_owned(),
            ))
        })?;
    // The server lists all it speaks, so no second request with another revision could succeed.
    if !versions
        .iter()
        .any(|v| v.as_text().is_some_and(|v| v.as_str() == REVISION))
    {
        let supported: Vec<String> = versions
            .iter()
            .filter_map(|v| v.as_text().map(|t| t.to_string()))
            .collect();
        return Err(ConnectError::NoCommonRevision(format!(
            "it speaks only {}, none of which Moongate knows",
            supported.join(", ")
        )));
    }
    let info = result
        .get_object("_meta")
        .and_then(|meta| meta.get(SERVER_INFO).cloned())
        .filter(RawJson::is_object);
    let mut description = ServerDescription {
        info: info.unwrap_or_else(|| RawJson::literal("{}")),
        instructions: result
            .get_string("instructions")
            .as_ref()
            .map(ByteString::to_string),
        capabilities: read_capabilities(
            &result.get_object("capabilities").unwrap_or_default(),
            options,
        ),
        notes: Vec::new(),
    };
    find_unannounced_lists(&mut description, |kind| {
        send_own_request(link, calls, options, kind.list_method())
    })
    .await;
    Ok(description)
}

pub(crate) async fn send_discover(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<JsonObject, ConnectError> {
    send_own_request(link, calls, options, "server/discover").await
}

/// Sends one of the gateway's own requests without params, and returns its result.
async fn send_own_request(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
    method: &str,
) -> Result<JsonObject, ConnectError> {
    let id = calls.next_id();
    let params = JsonObject::new().with("_meta", gateway_meta(options).to_raw());
    let body = encode_with(512, |out| {
        write_request(out, &RequestId::number(id), method, &params)
    });
    let headers = mirrored_headers::write_headers(method, None, None, None);
    let reply = link
        .send(OutgoingMessage {
            body,
            id: Some(id),
            headers,
        })
        .await?;
    first_response(reply.messages).await
}

fn read_capabilities(capabilities: &JsonObject, options: &ConnectOptions) -> ServerCapabilities {
    ServerCapabilities {
        tasks: tasks::read_capability(capabilities),
        ..server_capabilities::read_capabilities(capabilities, options)
    }
}

/// True if the error of a failed probe shows that the server is modern.
///
/// basic/versioning.mdx: "a recognized modern JSON-RPC error (such as
/// `UnsupportedProtocolVersionError`) identifies a modern server".
pub(crate) fn is_modern(error: &ConnectError) -> bool {
    match error {
        ConnectError::Answered(error) => is_modern_code(error.code),
        // It answered `server/discover`, so it is modern, but of no known revision.
        ConnectError::NoCommonRevision(_) => true,
        ConnectError::Link(LinkError::Status {
            message: Some(message),
            ..
        }) => match &**message {
            RpcMessage::Response(RpcResponse {
                outcome: Err(error),
                ..
            }) => is_modern_code(error.code) && error.code != code::INTERNAL,
            _ => false,
        },
        ConnectError::Link(_) => false,
    }
}

fn is_modern_code(code: i64) -> bool {
    matches!(
        code,
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION
    )
}
