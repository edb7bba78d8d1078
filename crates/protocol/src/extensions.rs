//! Extensions of the protocol that servers announce in their capabilities.
//!
//! Owns the bounds of a server's announcements. Does not read an extension's settings; tasks have
//! their own handling (`tasks.rs`). Invariant: settings leave as the bytes that came.

use crate::connect_options::ConnectOptions;
use crate::v2026_07_28::tasks;
use moongate_jsonrpc::json::{ByteString, JsonObject};
use moongate_telemetry::DroppedItem;

/// Limit of extensions that are passed on for one server.
const ANNOUNCED_MAX: usize = 64;
/// Limit in bytes of their identifiers and settings together.
const ANNOUNCED_BYTES_MAX: usize = 16 * 1024;

/// Reads a server's announcements in this member of its capabilities. Invalid or excess entries are
/// left out and counted.
///
/// "a map of extension identifiers to per-extension settings objects"
/// (2026-07-28/basic/versioning.mdx, Extension Negotiation).
pub(super) fn read_announced(
    capabilities: &JsonObject,
    member: &str,
    options: &ConnectOptions,
) -> JsonObject {
    let (announced, left_out) = bounded(&capabilities.get_object(member).unwrap_or_default());
    if left_out > 0 {
        options
            .metrics
            .calls
            .dropped
            .series(DroppedItem::Extension)
            .inc_by(left_out);
        tracing::warn!(
            server = options.server,
            left_out,
            "some {member} of the server's capabilities are not passed on"
        );
    }
    announced
}

/// Copies the entries that fit, since spans would keep the whole response alive. Returns the number
/// left out, too.
fn bounded(all: &JsonObject) -> (JsonObject, u64) {
    let mut announced = JsonObject::new();
    let mut left_out = 0;
    let mut count = 0;
    let mut bytes = 0;
    for (identifier, settings) in all
        .iter()
        .filter(|(identifier, _)| identifier.as_str() != tasks::EXTENSION)
    {
        let more = bytes + identifier.len() + settings.bytes().len();
        if !settings.is_object() || count == ANNOUNCED_MAX || more > ANNOUNCED_BYTES_MAX {
            left_out += 1;
            continue;
        }
        (count, bytes) = (count + 1, more);
        announced.set(ByteString::from(identifier.as_str()), settings.detached());
    }
    (announced, left_out)
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
        let (announced, left_out) = bounded(&object(all));
        assert_eq!(
            &announced.bytes()[..],
            br#"{"com.example/x":{ "a" : 1.0 },"io.modelcontextprotocol/ui":{}}"#
        );
        assert_eq!(
            left_out, 1,
            "what is no object; tasks are not lost but handled elsewhere"
        );
    }

    #[test]
    fn announced_extensions_are_bounded() {
        let many: Vec<String> = (0..ANNOUNCED_MAX + 3)
            .map(|n| format!(r#""x/{n}":{{}}"#))
            .collect();
        assert_eq!(bounded(&object(&format!("{{{}}}", many.join(",")))).1, 3);
        let long = "x".repeat(ANNOUNCED_BYTES_MAX);
        let (announced, left_out) = bounded(&object(&format!(
            r#"{{"x/long":{{"a":"{long}"}},"x/short":{{}}}}"#
        )));
        assert_eq!(&announced.bytes()[..], br#"{"x/short":{}}"#);
        assert_eq!(left_out, 1);
    }
}
