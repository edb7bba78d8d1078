//! Refusals of arguments, as servers word them.
//!
//! Owns how a refusal is distinguished from other failures of a tool. Does not read arguments.
//! Invariant: a result without `isError` is not a refusal.

use moongate_jsonrpc::json::RawJson;
use moongate_jsonrpc::message::code;
use moongate_model::{Error, McpErrorKind, Outcome};

/// Bytes of a text that are read.
pub(crate) const TEXT_MAX: usize = 2000;
/// Words of SDKs' checks, in lower case: the official ones of TypeScript and Python, FastMCP,
/// pydantic, zod, ajv, serde.
const WORDS: [&str; 13] = [
    "-32602",
    "validation error",
    "invalid argument",
    "invalid param",
    "invalid input",
    "invalid_type",
    "missing required",
    "required property",
    "is required",
    "missing field",
    "unknown field",
    "unrecognized key",
    "unexpected keyword argument",
];

/// Returns true if a server refused the arguments of a call.
pub fn refuses_arguments(end: &Result<Outcome, Error>) -> bool {
    match end {
        Err(Error {
            kind: McpErrorKind::ServerError(error),
            ..
        }) => error.code == code::INVALID_PARAMS,
        Err(_) => false,
        Ok(outcome) => {
            let is_error = outcome
                .result
                .get("isError")
                .is_some_and(|is_error| is_error.bytes() == "true");
            is_error
                && outcome.task.is_none()
                && first_text(outcome).is_some_and(|text| names_arguments(&text))
        }
    }
}

/// Returns the first text of a result, in lower case.
pub(crate) fn first_text(outcome: &Outcome) -> Option<String> {
    let block = outcome
        .result
        .get("content")
        .and_then(RawJson::as_array)?
        .first()?
        .as_object()?;
    block
        .get_string("text")
        .map(|text| text[..text.floor_char_boundary(TEXT_MAX)].to_lowercase())
}

fn names_arguments(text: &str) -> bool {
    WORDS.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use moongate_jsonrpc::json::{ByteString, JsonObject};
    use moongate_jsonrpc::message::RpcError;

    fn result(text: &str, is_error: bool) -> Result<Outcome, Error> {
        let text = RawJson::string(text);
        let json =
            format!(r#"{{"content":[{{"type":"text","text":{text:?}}}],"isError":{is_error}}}"#);
        Ok(Outcome::from_result(
            JsonObject::parse(Bytes::from(json)).unwrap(),
        ))
    }

    fn server_error(code: i64) -> Result<Outcome, Error> {
        Err(Error::from_server(RpcError {
            code,
            message: ByteString::from("no"),
            data: None,
        }))
    }

    #[test]
    fn refusals_of_sdks_are_known_and_other_failures_are_not() {
        for text in [
            "MCP error -32602: Input validation error: Invalid arguments for tool add",
            "Input validation error: 'a' is a required property",
            "Error executing tool add: 1 validation error for addArguments",
            "missing field `path`",
        ] {
            assert!(refuses_arguments(&result(text, true)), "{text}");
            assert!(!refuses_arguments(&result(text, false)), "{text}");
        }
        assert!(!refuses_arguments(&result("The file does not exist", true)));
        assert!(
            refuses_arguments(&server_error(code::INVALID_PARAMS))
                && !refuses_arguments(&server_error(code::INTERNAL))
        );
        assert!(!refuses_arguments(&Err(Error::new(
            McpErrorKind::InvalidParams,
            "ours"
        ))));
    }
}
