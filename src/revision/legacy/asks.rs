//! What the legacy revisions say about questions to clients, where it matters beyond their own edge.

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::RpcError;
use crate::model::{AskKind, Can};

/// "URL elicitation required" (2025-11-25/client/elicitation.mdx, Error Handling).
const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Names an elicitation by URL, so that its end can be told.
const ELICITATION_ID: &str = "elicitationId";

/// Reads a client's capabilities; all revisions spell these members alike.
pub(in crate::revision) fn can(capabilities: &Object) -> Can {
    let has = |name: &str| capabilities.get(name).is_some_and(Raw::is_object);
    let elicitation = capabilities.object("elicitation");
    let sampling = capabilities.object("sampling");
    // 2025-11-25/client/elicitation.mdx, Capabilities: "an empty capabilities object is equivalent to declaring
    // support for `form` mode only".
    let mode = |name: &str| elicitation.as_ref().is_some_and(|e| e.get(name).is_some_and(Raw::is_object));
    Can {
        sample: has("sampling"),
        sample_with_tools: sampling.is_some_and(|s| s.get("tools").is_some_and(Raw::is_object)),
        roots: has("roots"),
        elicit_form: elicitation.as_ref().is_some_and(Object::is_empty) || mode("form"),
        elicit_url: mode("url"),
    }
}

/// The capabilities that a client would have to declare, to be asked for this.
pub(in crate::revision) fn required(kind: AskKind) -> Raw {
    match kind {
        AskKind::ElicitForm => Raw::literal(r#"{"elicitation":{"form":{}}}"#),
        AskKind::ElicitUrl => Raw::literal(r#"{"elicitation":{"url":{}}}"#),
        AskKind::Sample => Raw::literal(r#"{"sampling":{}}"#),
        AskKind::SampleWithTools => Raw::literal(r#"{"sampling":{"tools":{}}}"#),
        AskKind::Roots => Raw::literal(r#"{"roots":{}}"#),
        AskKind::Other => Raw::literal("{}"),
    }
}

/// The params of the elicitations that an error demands, if it is the error that does: "The error MUST include a list
/// of elicitations that are required to complete before the original can be retried."
pub(in crate::revision) fn url_elicitations(error: &RpcError) -> Option<Vec<Object>> {
    if error.code != URL_ELICITATION_REQUIRED {
        return None;
    }
    let listed = error.data.as_ref()?.as_object()?.get("elicitations")?.as_array()?;
    let listed: Option<Vec<Object>> = listed.iter().map(Raw::as_object).collect();
    listed.filter(|listed| !listed.is_empty())
}

/// The id of an elicitation by URL; where its server's revision has none, it gets one, since clients of these revisions
/// look for it: "Any elicitations [...] MUST be URL mode elicitations and have an `elicitationId` property".
pub(super) fn page_id(params: &mut Object) -> Option<Text> {
    if params.get(ELICITATION_ID).is_none() {
        let id: [u8; 16] = crate::random::bytes();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        params.set(Text::literal(ELICITATION_ID), Raw::string(&hex));
    }
    params.text(ELICITATION_ID)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_the_one_error_demands_elicitations() {
        let error = |code, data: &'static str| RpcError {
            code,
            message: Text::literal("more"),
            data: Some(Raw::parse(Bytes::from_static(data.as_bytes())).unwrap()),
        };
        let listed = r#"{"elicitations":[{"mode":"url","url":"https://a.example","elicitationId":"1","message":"m"}]}"#;
        assert_eq!(url_elicitations(&error(-32042, listed)).map(|l| l.len()), Some(1));
        assert!(url_elicitations(&error(-32041, listed)).is_none());
        for broken in ["{}", "[]", r#"{"elicitations":[]}"#, r#"{"elicitations":[1]}"#, r#"{"elicitations":{}}"#] {
            assert!(url_elicitations(&error(-32042, broken)).is_none(), "{broken}");
        }
    }
}
