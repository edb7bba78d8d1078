//! Exposed items: another name, another description.
//!
//! Owns these changes, in pure functions. Does not choose names (`names.rs`), and mends nothing
//! (`protocol/definitions.rs`). Invariant: an item without a change keeps the server's bytes.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::ItemKind;

/// Renders an item under its exposed key, with the description that the config gives it. Without a
/// change, the bytes are the server's.
pub(super) fn render_item(
    kind: ItemKind,
    item: &JsonObject,
    exposed: &str,
    description: Option<&String>,
) -> RawJson {
    let same = item
        .get_string(kind.item_key())
        .is_some_and(|own| own.as_str() == exposed);
    if same && description.is_none() {
        return item.to_raw();
    }
    let mut item = item.clone();
    if !same {
        item.set(
            ByteString::literal(kind.item_key()),
            RawJson::string(exposed),
        );
    }
    if let Some(description) = description {
        item.set(
            ByteString::literal("description"),
            RawJson::string(description),
        );
    }
    item.to_raw()
}

/// Joins two texts where both are there.
pub(super) fn join_paragraphs(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{}\n\n{second}", first.trim_end())),
        (first, second) => first.or(second),
    }
}

/// Joins the instructions of several servers in one text of at most `limit` bytes. Starts with a
/// sentence that can stand alone.
pub(super) fn instructions(
    servers: impl Iterator<Item = (String, Option<String>)>,
    limit: usize,
) -> Option<String> {
    let mut names = Vec::new();
    let mut details = Vec::new();
    for (name, text) in servers {
        if let Some(text) = text.filter(|t| !t.trim().is_empty()) {
            details.push(format!("\n\n[{name}] {}", text.trim()));
        }
        names.push(name);
    }
    if names.is_empty() {
        return None;
    }
    let mut all = format!(
        "This endpoint serves the tools, resources and prompts of several MCP servers: {}.",
        names.join(", ")
    );
    // Each server gets an equal part of the rest, so that a long text displaces no other.
    let share = limit.saturating_sub(all.len()) / details.len().max(1);
    for detail in details {
        all.push_str(truncate_text(&detail, share));
    }
    Some(truncate_text(&all, limit).to_owned())
}

/// Maximum number of announced extensions for all servers of an endpoint.
const EXTENSIONS_MAX: usize = 256;
/// Maximum length of their identifiers and settings together, in bytes.
const EXTENSIONS_BYTES_MAX: usize = 64 * 1024;

/// Merges the extensions of several servers. The first server with an identifier sets its value.
pub(super) fn merge_extensions<'a>(servers: impl Iterator<Item = &'a JsonObject>) -> JsonObject {
    let mut all = JsonObject::new();
    let mut count = 0;
    let mut bytes = 0;
    for (identifier, settings) in servers.flat_map(JsonObject::iter) {
        let more = bytes + identifier.len() + settings.bytes().len();
        // The first server wins. Servers are sorted by name, so the winner does not depend on who
        // connected first.
        if all.get(identifier).is_some() || count == EXTENSIONS_MAX || more > EXTENSIONS_BYTES_MAX {
            continue;
        }
        (count, bytes) = (count + 1, more);
        all.set(identifier.clone(), settings.clone());
    }
    all
}

/// Returns the longest beginning of at most `limit` bytes that is whole characters.
fn truncate_text(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;

    fn tool(json: &str) -> Arc<JsonObject> {
        Arc::new(JsonObject::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap())
    }

    #[test]
    fn an_unchanged_item_keeps_its_bytes() {
        let item = tool("{ \"name\" : \"a\", \"x\": 1.0 }");
        assert_eq!(
            render_item(ItemKind::Tools, &item, "a", None).bytes(),
            "{ \"name\" : \"a\", \"x\": 1.0 }".as_bytes()
        );
        assert_eq!(
            render_item(ItemKind::Tools, &item, "s__a", None).bytes(),
            r#"{"name":"s__a","x":1.0}"#.as_bytes()
        );
        let described = render_item(ItemKind::Tools, &item, "a", Some(&"why".to_owned()));
        assert_eq!(
            described.bytes(),
            r#"{"name":"a","x":1.0,"description":"why"}"#.as_bytes()
        );
    }

    #[test]
    fn the_first_server_says_an_extension_and_all_are_bounded() {
        let servers = [
            tool(r#"{"x/a":{ "n": 1.0}}"#),
            tool(r#"{"x/a":{"n":2},"x/b":{}}"#),
        ];
        let all = merge_extensions(servers.iter().map(|server| &**server));
        assert_eq!(&all.bytes()[..], br#"{"x/a":{ "n": 1.0},"x/b":{}}"#);
        let many: Vec<_> = (0..EXTENSIONS_MAX + 9)
            .map(|n| tool(&format!(r#"{{"x/{n}":{{}}}}"#)))
            .collect();
        assert_eq!(
            merge_extensions(many.iter().map(|server| &**server))
                .iter()
                .count(),
            EXTENSIONS_MAX
        );
        let long = "x".repeat(EXTENSIONS_BYTES_MAX);
        let long = [tool(&format!(r#"{{"x/a":{{"a":"{long}"}},"x/b":{{}}}}"#))];
        assert_eq!(
            &merge_extensions(long.iter().map(|server| &**server)).bytes()[..],
            br#"{"x/b":{}}"#
        );
    }

    #[test]
    fn instructions_stay_within_their_limit() {
        let servers = (0..20).map(|_| ("server".to_owned(), Some("é".repeat(5000))));
        let text = instructions(servers, 2048).unwrap();
        assert!(text.len() <= 2048);
        assert!(text.starts_with("This endpoint serves"));
        assert_eq!(instructions(std::iter::empty(), 2048), None);
    }
}
