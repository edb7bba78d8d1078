//! Elicitations by URL in the wire form of 2025-11-25 (client/elicitation.mdx).
//!
//! Owns their ids, and the error that demands some. Pure functions, which send nothing. Invariant:
//! an elicitation by URL has an id before a legacy client gets it.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_jsonrpc::message::RpcError;
use moongate_model::{Error, McpErrorKind};

/// Error code "URL elicitation required" (2025-11-25/client/elicitation.mdx, Error Handling).
const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Member with the id of an elicitation by URL, which its completion names.
const ELICITATION_ID: &str = "elicitationId";

/// Returns the params of the elicitations that an error demands. `None` for other errors.
///
/// "The error MUST include a list of elicitations that are required to complete before the original
/// can be retried."
pub(crate) fn required_elicitations(error: &RpcError) -> Option<Vec<JsonObject>> {
    if error.code != URL_ELICITATION_REQUIRED {
        return None;
    }
    let listed = error
        .data
        .as_ref()?
        .as_object()?
        .get("elicitations")?
        .as_array()?;
    let listed: Option<Vec<JsonObject>> = listed.iter().map(RawJson::as_object).collect();
    listed.filter(|listed| !listed.is_empty())
}

/// Returns true for an error that demands elicitations: the client's program shows them, and tries
/// again.
pub fn demands_elicitations(error: &Error) -> bool {
    matches!(&error.kind,
        McpErrorKind::ServerError(error) if required_elicitations(error).is_some())
}

/// Returns the id of an elicitation by URL, and adds one if its server's revision has none.
///
/// Legacy clients expect it: "Any elicitations [...] MUST be URL mode elicitations and have an
/// `elicitationId` property".
pub(super) fn ensure_elicitation_id(params: &mut JsonObject) -> Option<ByteString> {
    if params.get(ELICITATION_ID).is_none() {
        // 128 random bits, since ids must not collide across servers.
        let id: [u8; 16] = moongate_random::random_bytes();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        params.set(ByteString::literal(ELICITATION_ID), RawJson::string(&hex));
    }
    params.get_string(ELICITATION_ID)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn error(code: i64, data: &'static str) -> RpcError {
        RpcError {
            code,
            message: ByteString::literal("more"),
            data: Some(RawJson::parse(Bytes::from_static(data.as_bytes())).unwrap()),
        }
    }

    #[test]
    fn only_the_one_error_demands_elicitations() {
        let listed = r#"{"elicitations":[{"mode":"url","url":"https://a.example","elicitationId":"1","message":"m"}]}"#;
        assert_eq!(
            required_elicitations(&error(-32042, listed)).map(|l| l.len()),
            Some(1)
        );
        assert!(required_elicitations(&error(-32041, listed)).is_none());
        for broken in [
            "{}",
            "[]",
            r#"{"elicitations":[]}"#,
            r#"{"elicitations":[1]}"#,
            r#"{"elicitations":{}}"#,
        ] {
            assert!(
                required_elicitations(&error(-32042, broken)).is_none(),
                "{broken}"
            );
        }
    }
}
