//! Codes of failed requests, for metrics and logs.
//!
//! Owns the set of codes with their own labels. Does not encode responses (`encode.rs` of each
//! revision). Invariant: a server with invented codes adds no labels.

use std::time::Duration;

use crate::era::era_of;
use crate::v2026_07_28::error_codes::MISSING_CAPABILITY;
use crate::{Era, legacy, v2026_07_28};
use moongate_jsonrpc::message::code;
use moongate_model::{Error, McpErrorKind, McpMethod};
use moongate_telemetry::{CallEnding, Metrics};

/// Codes with their own label: those of JSON-RPC, of the revisions, and the first of the range that
/// JSON-RPC leaves to implementations, which SDKs use.
const NAMED: [(i64, &str); 14] = [
    (code::PARSE, "-32700"),
    (code::INVALID_REQUEST, "-32600"),
    (code::METHOD_NOT_FOUND, "-32601"),
    (code::INVALID_PARAMS, "-32602"),
    (code::INTERNAL, "-32603"),
    (-32000, "-32000"),
    (-32001, "-32001"),
    (-32002, "-32002"),
    (-32003, "-32003"),
    (-32004, "-32004"),
    (-32020, "-32020"),
    (-32021, "-32021"),
    (-32022, "-32022"),
    (-32042, "-32042"),
];

/// Returns the ending of a failed request, for a client of this revision.
pub fn call_ending(revision: &str, method: &McpMethod, error: &Error) -> CallEnding {
    let kind = match &error.kind {
        McpErrorKind::ServerError(answered) => code_label(answered.code),
        _ => error.label(),
    };
    // The failure of a server on a tool call becomes a result, which has no code.
    if *method == McpMethod::CallTool && error.is_server_failure() {
        return CallEnding {
            error: kind,
            code: "",
        };
    }
    let answer = match era_of(revision) {
        Era::Modern => v2026_07_28::rpc_error(error),
        Era::Legacy => legacy::rpc_error(error),
    };
    CallEnding {
        error: kind,
        code: code_label(answer.code),
    }
}

/// Returns true for a request that failed since its caller did not declare a capability.
pub fn lacks_capability(error: &Error) -> bool {
    v2026_07_28::rpc_error(error).code == MISSING_CAPABILITY
}

fn code_label(code: i64) -> &'static str {
    // A fixed set of labels, because servers choose their codes freely.
    NAMED
        .into_iter()
        .find(|(known, _)| *known == code)
        .map_or("_OTHER", |(_, name)| name)
}

/// Counts a request that a dialect answered itself. `method` is one of a fixed set.
pub(super) fn count_local_answer(
    metrics: &Metrics,
    method: &'static str,
    error: Option<&Error>,
    revision: &'static str,
    took: Duration,
) {
    let ending = error.map_or(CallEnding::FINE, |error| {
        call_ending(revision, &McpMethod::Complete, error)
    });
    metrics.record_gateway_request(method, ending, revision, took);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SUPPORTED;
    use moongate_jsonrpc::message::RpcError;

    #[test]
    fn failures_carry_the_code_of_their_answer_and_servers_invent_none() {
        for revision in SUPPORTED {
            let unknown = Error::new(McpErrorKind::UnknownName, "no");
            let expected = CallEnding {
                error: "unknown_name",
                code: "-32602",
            };
            assert_eq!(
                call_ending(revision, &McpMethod::CallTool, &unknown),
                expected
            );
            let away = Error::new(McpErrorKind::ServerDown, "no");
            assert_eq!(
                call_ending(revision, &McpMethod::CallTool, &away),
                CallEnding {
                    error: "server_down",
                    code: ""
                }
            );
            let expected = CallEnding {
                error: "server_down",
                code: "-32603",
            };
            assert_eq!(
                call_ending(revision, &McpMethod::GetPrompt, &away),
                expected
            );
            for (code, name) in [(-32601, "-32601"), (-32042, "-32042"), (7, "_OTHER")] {
                let answered = Error::from_server(RpcError {
                    code,
                    message: "no".into(),
                    data: None,
                });
                assert_eq!(
                    call_ending(revision, &McpMethod::CallTool, &answered).error,
                    name
                );
            }
        }
    }
}
