//! Example of a call, for people who repeat it by hand.
//!
//! Owns its headers and its body. Does not send it. Invariant: it is a valid request of this
//! revision.

use moongate_jsonrpc::json::{JsonObject, RawJson};

use super::meta_keys::{CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION};
use super::mirrored_headers::write_headers;
use crate::example_call::ExampleCall;

/// Writes the call of a tool.
pub(crate) fn example_call(tool: &str) -> ExampleCall {
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        (
            "accept".to_owned(),
            "application/json, text/event-stream".to_owned(),
        ),
    ];
    let own = write_headers("tools/call", Some(tool), None, None);
    headers.extend(own.iter().map(|(name, value)| {
        let value = value.to_str().unwrap_or_default();
        (name.as_str().to_owned(), value.to_owned())
    }));
    let meta = JsonObject::new()
        .with(PROTOCOL_VERSION, RawJson::string(super::REVISION))
        .with(
            CLIENT_INFO,
            RawJson::literal(r#"{"name":"curl","version":"1"}"#),
        )
        .with(CLIENT_CAPABILITIES, RawJson::literal("{}"));
    let meta = format!("{:?}", meta.to_raw());
    let name = format!("{:?}", RawJson::string(tool));
    ExampleCall {
        headers,
        body_before: format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{meta},"name":{name},"arguments":"#
        ),
        body_after: "}}".to_owned(),
    }
}
