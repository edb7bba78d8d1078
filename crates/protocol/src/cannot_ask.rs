//! Failures of tools that can ask only in the legacy era, as servers word them.
//!
//! Owns how such a failure is distinguished from others, and the advice that goes with it. Does not
//! choose the era of a call (`upstream`). Invariant: a result without `isError` is not such a
//! failure.
//!
//! 2026-07-28/changelog.mdx removed requests of servers. A server of both eras may have tools that
//! send them anyway, and then says that it cannot.

use std::borrow::Cow;

use crate::argument_refusal::{TEXT_MAX, first_text};
use crate::v2026_07_28::REVISION;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{Error, McpErrorKind, Outcome};

/// Names of a server's requests in general, in lower case: FastMCP, the official SDKs of Python and
/// TypeScript.
const REQUESTS: [&str; 2] = ["server-initiated request", "server-to-client request"];
/// Names of single requests.
const ASKED: [&str; 3] = ["elicitation", "sampling", "roots/list"];
/// Words for what cannot be done.
const REFUSALS: [&str; 8] = [
    "unavailable",
    "not available",
    "no back-channel",
    "no back channel",
    "not supported",
    "unsupported",
    "cannot be sent",
    "cannot send",
];
/// Advice to whoever reads the failure of a tool that could not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAdvice {
    /// The next call of the tool goes to the server in an earlier revision.
    EarlierRevision,
    /// The next call of the tool goes to the server on a connection that declares what its client
    /// can answer.
    OwnCapabilities,
}

impl CallAdvice {
    fn text(self) -> &'static str {
        match self {
            CallAdvice::EarlierRevision => {
                "This tool can request input only in an earlier protocol revision. Call it again: \
                 the gateway then uses that revision, if the server speaks it."
            }
            CallAdvice::OwnCapabilities => {
                "This tool asked for something that this client can't answer. Call it again: its \
                 server then knows what this client can answer."
            }
        }
    }
}

/// Returns true if a call failed because its tool cannot ask on a connection of the stateless era.
pub fn cannot_ask(end: &Result<Outcome, Error>) -> bool {
    match end {
        Err(Error {
            kind: McpErrorKind::ServerError(error),
            ..
        }) => {
            let text = error.message.as_str();
            names_request(&text[..text.floor_char_boundary(TEXT_MAX)].to_lowercase())
        }
        Err(_) => false,
        Ok(outcome) => {
            is_error_result(outcome) && first_text(outcome).is_some_and(|text| names_request(&text))
        }
    }
}

/// Returns true if a server answered a call with a failure.
pub fn has_failed(end: &Result<Outcome, Error>) -> bool {
    match end {
        Err(error) => matches!(error.kind, McpErrorKind::ServerError(_)),
        Ok(outcome) => is_error_result(outcome),
    }
}

fn is_error_result(outcome: &Outcome) -> bool {
    outcome
        .result
        .get("isError")
        .is_some_and(|is_error| is_error.bytes() == "true")
}

fn names_request(text: &str) -> bool {
    has_any(text, &REFUSALS)
        && (has_any(text, &REQUESTS) || (has_any(text, &ASKED) && text.contains(REVISION)))
}

fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Adds to the failure that another call has better prospects.
pub fn advise_another_call(end: &mut Result<Outcome, Error>, advice: CallAdvice) {
    let advice = advice.text();
    match end {
        Ok(outcome) => {
            let mut blocks = outcome
                .result
                .get("content")
                .and_then(RawJson::as_array)
                .unwrap_or_default();
            let text = JsonObject::new()
                .with("type", RawJson::literal("\"text\""))
                .with("text", RawJson::string(advice));
            blocks.push(text.to_raw());
            outcome.result.set(
                ByteString::literal("content"),
                RawJson::array(blocks.iter()),
            );
        }
        Err(error) => {
            let message = format!("{} {advice}", error.message);
            if let McpErrorKind::ServerError(answered) = &mut error.kind {
                answered.message = ByteString::from(message.as_str());
            }
            error.message = Cow::Owned(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use moongate_jsonrpc::message::RpcError;

    fn result(text: &str, is_error: bool) -> Result<Outcome, Error> {
        let text = RawJson::string(text);
        let json =
            format!(r#"{{"content":[{{"type":"text","text":{text:?}}}],"isError":{is_error}}}"#);
        Ok(Outcome::from_result(
            JsonObject::parse(Bytes::from(json)).unwrap(),
        ))
    }

    fn error(message: &str) -> Result<Outcome, Error> {
        Err(Error::from_server(RpcError {
            code: -32600,
            message: ByteString::from(message),
            data: None,
        }))
    }

    #[test]
    fn the_words_of_sdks_are_known_and_other_failures_are_not() {
        for text in [
            "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.",
            "Error calling tool 'x': Cannot send 'sampling/createMessage': this transport context \
             has no back-channel for server-initiated requests.",
            "Server-to-client requests are not available on protocol revision 2026-07-28: \
             'roots/list' cannot be sent while serving a request on that revision.",
            "Method 'elicitation/create' is not supported by the negotiated protocol version (wire \
             era 2026-07-28)",
        ] {
            assert!(
                cannot_ask(&result(text, true)) && cannot_ask(&error(text)),
                "{text}"
            );
            assert!(!cannot_ask(&result(text, false)), "{text}");
        }
        for text in [
            "The service is unavailable",
            "Client does not support sampling (required for sampling/createMessage)",
            "server-initiated requests took too long",
            "the report of 2026-07-28 is not available",
        ] {
            assert!(
                !cannot_ask(&result(text, true)) && !cannot_ask(&error(text)),
                "{text}"
            );
        }
        assert!(!cannot_ask(&Err(Error::internal(
            "server-initiated requests are not supported"
        ))));
    }

    #[test]
    fn the_advice_stands_behind_the_servers_own_words() {
        let mut failed = result("no", true);
        advise_another_call(&mut failed, CallAdvice::EarlierRevision);
        let text = failed
            .unwrap()
            .result
            .get("content")
            .unwrap()
            .bytes()
            .clone();
        let own = br#"[{"type":"text","text":"no"},{"type":"text","text":"This tool can request"#;
        assert!(text.starts_with(own), "{text:?}");
        let mut failed = error("no.");
        advise_another_call(&mut failed, CallAdvice::EarlierRevision);
        let Err(Error {
            kind: McpErrorKind::ServerError(answered),
            message,
            ..
        }) = failed
        else {
            panic!()
        };
        assert!(
            answered.message.starts_with("no. This tool"),
            "{answered:?}"
        );
        assert_eq!(answered.message.as_str(), message);
    }
}
