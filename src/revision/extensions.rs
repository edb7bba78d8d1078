//! Extensions of the protocol: what servers announce of them, and the one that the gateway declares.
//!
//! Owns the bounds of what is kept of a server's announcements. Reads no extension's settings. Tasks have their own
//! handling (`tasks`). Invariant: settings leave as the bytes that came.

use crate::json::{ByteString, JsonObject, RawJson};
use crate::revision::negotiate::ConnectOptions;
use crate::revision::v2026_07_28::tasks;

/// Extensions of one server that are passed on.
const ANNOUNCED_MAX: usize = 64;
/// What their identifiers and settings may be long together, in bytes.
const ANNOUNCED_BYTES_MAX: usize = 16 * 1024;

/// What is declared to a server on a connection that all clients share: what some client may be able to answer (it is
/// refused where the one who calls cannot), and that some client may show what apps need, so that servers offer their
/// tools with one; clients that cannot ignore the `_meta` that names it. Roots are not declared: they belong to one
/// client.
///
/// extensions/overview.mdx, Client Capabilities, has the spelling of `io.modelcontextprotocol/ui`.
pub fn shared_capabilities() -> RawJson {
    RawJson::literal(concat!(
        r#"{"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"#,
        r#""extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}"#
    ))
}

/// What a server announces in this member of its capabilities: "a map of extension identifiers to per-extension
/// settings objects" (2026-07-28/basic/versioning.mdx, Extension Negotiation). Whatever is no such thing, or is more
/// than fits, is left out alone and counted.
pub(super) fn read_announced(capabilities: &JsonObject, member: &str, hello: &ConnectOptions) -> JsonObject {
    let (kept, left_out) = bounded(&capabilities.get_object(member).unwrap_or_default());
    if left_out > 0 {
        hello.metrics.dropped.with_label_values(&["extension"]).inc_by(left_out);
        tracing::warn!(server = hello.server, left_out, "some {member} of the server's capabilities are not passed on");
    }
    kept
}

/// Copies, since spans would keep the whole answer alive; and how many were left out.
fn bounded(all: &JsonObject) -> (JsonObject, u64) {
    let (mut kept, mut left_out) = (JsonObject::new(), 0);
    let (mut count, mut bytes) = (0, 0);
    for (identifier, settings) in all.iter().filter(|(identifier, _)| identifier.as_str() != tasks::EXTENSION) {
        let more = bytes + identifier.len() + settings.bytes().len();
        if !settings.is_object() || count == ANNOUNCED_MAX || more > ANNOUNCED_BYTES_MAX {
            left_out += 1;
            continue;
        }
        (count, bytes) = (count + 1, more);
        kept.set(ByteString::from(identifier.as_str()), settings.detached());
    }
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn object(json: &str) -> JsonObject {
        JsonObject::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap()
    }

    #[test]
    fn unknown_extensions_keep_their_bytes() {
        let all = r#"{"io.modelcontextprotocol/tasks":{},"com.example/x":{ "a" : 1.0 },"odd":true,"io.modelcontextprotocol/ui":{}}"#;
        let (kept, left_out) = bounded(&object(all));
        assert_eq!(&kept.bytes()[..], br#"{"com.example/x":{ "a" : 1.0 },"io.modelcontextprotocol/ui":{}}"#);
        assert_eq!(left_out, 1, "what is no object; tasks are not lost but handled elsewhere");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let many: Vec<String> = (0..ANNOUNCED_MAX + 3).map(|n| format!(r#""x/{n}":{{}}"#)).collect();
        assert_eq!(bounded(&object(&format!("{{{}}}", many.join(",")))).1, 3);
        let long = "x".repeat(ANNOUNCED_BYTES_MAX);
        let (kept, left_out) = bounded(&object(&format!(r#"{{"x/long":{{"a":"{long}"}},"x/short":{{}}}}"#)));
        assert_eq!((&kept.bytes()[..], left_out), (&br#"{"x/short":{}}"#[..], 1));
    }

    #[test]
    fn what_is_declared_is_json() {
        let all = shared_capabilities().as_object().unwrap();
        let types = all.get_object("extensions").unwrap().get_object("io.modelcontextprotocol/ui").unwrap();
        assert_eq!(&types.get("mimeTypes").unwrap().bytes()[..], br#"["text/html;profile=mcp-app"]"#);
    }
}
