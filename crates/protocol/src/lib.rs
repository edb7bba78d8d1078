//! Wire forms of all revisions of MCP.
//!
//! Owns dates, headers, reserved `_meta` keys and error codes, for clients and for servers. Does
//! not know the configured servers. Invariant: each side translates between its wire and the
//! neutral model, and knows nothing of the other side.

mod admitted;
mod argument_refusal;
mod await_task;
mod background_sender;
pub mod body;
mod call_error;
mod call_timeouts;
mod cannot_ask;
mod client_capabilities;
mod client_headers;
mod client_identity;
mod connect_error;
mod connect_options;
mod correlation;
pub mod cors_headers;
mod definitions;
mod dialect;
mod era;
mod error_labels;
mod example_call;
mod extension_requests;
mod extensions;
mod gateway_info;
mod http_response;
mod input_clock;
mod input_recipient;
mod ladder;
pub mod lazy_timer;
mod legacy;
mod lookalike_members;
mod mcp_apps;
mod named_revisions;
mod negotiate;
mod notifications;
mod open_inputs;
mod pipe_routes;
mod request_checks;
mod respond;
mod roots_owner;
mod seen_input_flag;
mod server_capabilities;
mod stdio_client;
mod stray_messages;
mod tasks;
mod trace_context;
mod unannounced_lists;
mod v2026_07_28;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

pub use admitted::{AdmissionPolicy, Admitted, ClientPayload};
pub use argument_refusal::refuses_arguments;
pub use call_timeouts::CallTimeouts;
pub use cannot_ask::{CallAdvice, advise_another_call, cannot_ask, has_failed};
pub use client_capabilities::shared_capabilities;
pub use connect_error::ConnectError;
pub use connect_options::ConnectOptions;
pub use correlation::PendingCalls;
pub use definitions::{CheckedDefinition, LEGACY_ONLY, LegacyForm, LegacyMend, check_definition};
pub use dialect::{BodyHint, Dialect, DownstreamState, McpRequest, RequestHead};
pub use era::{Era, NEWEST_LEGACY, SUPPORTED, era_of, supported_revision};
pub use error_labels::{call_ending, lacks_capability};
pub use example_call::{ExampleCall, example_call};
pub use gateway_info::{gateway_info, gateway_info_with};
pub use input_recipient::CallTarget;
pub use legacy::{
    LegacyGreeting, ListedOutput, OutputShape, ToolOutput, demands_elicitations, fit_output,
    holds_objects_only,
};
pub use mcp_apps::{
    APP_SCHEME, app_pages, is_bridged_extension, map_app_pages, may_name_page, with_app_pages,
};
pub use negotiate::{LinkOpener, NegotiatedServer, connect, connect_http_sse, may_be_http_sse};
pub use seen_input_flag::{SeenInputFlag, SeenRequests};
pub use stdio_client::{ClientDisconnected, StdioClient, opens_session};

/// Selects the dialect of a request: the first that matches. The legacy dialect matches all
/// requests that are left.
pub fn select_dialect(head: &RequestHead<'_>, peek: &BodyHint<'_>) -> &'static dyn Dialect {
    // The order matters: the legacy dialect matches everything.
    const DIALECTS: [&dyn Dialect; 2] = [&v2026_07_28::DIALECT, &legacy::DIALECT];
    DIALECTS
        .into_iter()
        .find(|dialect| dialect.matches(head, peek))
        .unwrap_or(&legacy::DIALECT)
}

/// Returns the dialect of HTTP+SSE, the HTTP transport of 2024-11-05, which has its own endpoints.
pub fn http_sse_dialect() -> &'static dyn Dialect {
    &legacy::HTTP_SSE
}

/// True if a tool declares that its calls may become tasks.
pub fn may_be_task(definition: Option<&JsonObject>) -> bool {
    tasks::task_support(definition) != tasks::TaskSupport::Forbidden
}

/// Returns the reason not to expose a listed tool, by the rules of the server's revision.
///
/// 2026-07-28/basic/transports/streamable-http.mdx, Schema Extension: "the client MUST exclude the
/// invalid tool from the result of `tools/list`". Pipes have no headers and may ignore the
/// annotations.
pub fn tool_problem(era: Era, is_pipe: bool, definition: &JsonObject) -> Option<String> {
    match era {
        Era::Modern if !is_pipe => v2026_07_28::tool_problem(definition),
        _ => None,
    }
}

/// Returns a tool's definition with the mark that it may run as a task, for clients whose revision
/// reads it there.
///
/// `None` if the definition has the mark already.
pub fn offer_as_task(definition: &RawJson) -> Option<RawJson> {
    tasks::offer_as_task(definition)
}

/// Error code for a request without a valid key, in all revisions.
///
/// JSON-RPC leaves this range to implementations, and clients show such an error with its message.
pub const UNAUTHORIZED: i64 = -32001;

/// Gateway's own `_meta` key in a list that is empty because its server is unavailable.
///
/// 2025-11-25/basic/index.mdx, `_meta`: a prefix "MUST be a series of labels separated by dots
/// (`.`), followed by a slash (`/`)".
const UNAVAILABLE: &str = "moongate/unavailable";

/// Writes the reason for a server's absence into the `_meta` of a list.
pub fn explain_absence(result: &mut JsonObject, reason: &str) {
    let mut meta = result.get_object("_meta").unwrap_or_default();
    meta.set(ByteString::literal(UNAVAILABLE), RawJson::string(reason));
    result.set(ByteString::literal("_meta"), meta.to_raw());
}
