//! The codes of failed requests, for metrics and logs.
//!
//! Owns which codes are named there. Does not spell answers (`*/spell.rs`). Invariant: a server that invents codes makes
//! no more labels than there are here.

use std::time::Duration;

use crate::jsonrpc::code;
use crate::model::{Error, McpErrorKind, McpMethod};
use crate::revision::{Era, era_of, legacy, v2026_07_28};
use crate::telemetry::{CallEnding, Metrics};

/// Codes that stand for themselves: those of JSON-RPC, of the revisions, and the first of the range that JSON-RPC leaves
/// to implementations, which SDKs use.
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

/// The end of a request of a client of this revision that failed.
pub fn call_ending(revision: &str, method: &McpMethod, error: &Error) -> CallEnding {
    let kind = match &error.kind {
        McpErrorKind::ServerError(answered) => code_label(answered.code),
        _ => error.label(),
    };
    // A server that failed is told of in a tool's result.
    if *method == McpMethod::CallTool && error.is_server_failure() {
        return CallEnding { error: kind, code: "" };
    }
    let answer = match era_of(revision) {
        Era::Modern => v2026_07_28::rpc_error(error),
        Era::Legacy => legacy::rpc_error(error),
    };
    CallEnding { error: kind, code: code_label(answer.code) }
}

fn code_label(code: i64) -> &'static str {
    NAMED.into_iter().find(|(known, _)| *known == code).map_or("_OTHER", |(_, name)| name)
}

/// Counts a request that a front answered itself; `method` is one of few.
pub(super) fn count_local_answer(
    metrics: &Metrics,
    method: &'static str,
    error: Option<&Error>,
    revision: &'static str,
    took: Duration,
) {
    let ending = error.map_or(CallEnding::FINE, |error| call_ending(revision, &McpMethod::Complete, error));
    metrics.record_gateway_request(method, ending, revision, took);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::RpcError;
    use crate::revision::SUPPORTED;

    #[test]
    fn failures_carry_the_code_of_their_answer_and_servers_invent_none() {
        for revision in SUPPORTED {
            let unknown = Error::new(McpErrorKind::UnknownName, "no");
            let expected = CallEnding { error: "unknown_name", code: "-32602" };
            assert_eq!(call_ending(revision, &McpMethod::CallTool, &unknown), expected);
            let away = Error::new(McpErrorKind::ServerDown, "no");
            assert_eq!(
                call_ending(revision, &McpMethod::CallTool, &away),
                CallEnding { error: "server_down", code: "" }
            );
            let expected = CallEnding { error: "server_down", code: "-32603" };
            assert_eq!(call_ending(revision, &McpMethod::GetPrompt, &away), expected);
            for (code, name) in [(-32601, "-32601"), (-32042, "-32042"), (7, "_OTHER")] {
                let answered = Error::from_server(RpcError { code, message: "no".into(), data: None });
                assert_eq!(call_ending(revision, &McpMethod::CallTool, &answered).error, name);
            }
        }
    }
}
