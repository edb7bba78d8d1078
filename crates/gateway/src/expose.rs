//! Exposed items: another name, another description, a repaired schema.
//!
//! Owns these changes, in pure functions. Does not choose names (`names.rs`). Invariant: an item without a change keeps
//! the server's bytes.

use std::sync::Arc;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::ItemKind;

/// Reason why an item cannot be exposed, in words.
pub(super) type ExposeProblem = String;

/// Checks an item, and repairs it where that loses nothing. Other items of its list are not affected.
pub(super) fn check_item(kind: ItemKind, item: &Arc<JsonObject>) -> Result<Arc<JsonObject>, ExposeProblem> {
    let key = kind.item_key();
    if item.get_string(key).is_none_or(|name| name.is_empty()) {
        return Err(format!("it has no {key}"));
    }
    if kind != ItemKind::Tools {
        return Ok(item.clone());
    }
    match item.get("inputSchema") {
        // A tool without a schema takes no arguments, so an empty object schema changes nothing.
        // 2025-11-25/server/tools.mdx, Data Types: `inputSchema` "MUST be a valid JSON Schema object (not `null`)".
        None => Ok(Arc::new(with_schema(item, JsonObject::new()))),
        Some(raw) if raw.is_null() => Ok(Arc::new(with_schema(item, JsonObject::new()))),
        Some(raw) => {
            let schema = raw.as_object().ok_or("its inputSchema is no object, or has duplicate keys")?;
            // Beyond this depth parsers of clients give up on the whole list.
            raw.parse_as::<serde_json::Value>().map_err(|e| format!("its inputSchema cannot be read: {e}"))?;
            match schema.get("type") {
                None => Ok(Arc::new(with_schema(item, schema))),
                Some(kind) if kind.as_text().is_some_and(|t| t.as_str() == "object") => Ok(item.clone()),
                Some(_) => Err("the type of its inputSchema is not \"object\"".to_owned()),
            }
        }
    }
}

/// Sets the schema's type to object. Arguments are always an object, so this loses nothing.
fn with_schema(item: &JsonObject, mut schema: JsonObject) -> JsonObject {
    let mut item = item.clone();
    schema.set(ByteString::literal("type"), RawJson::literal("\"object\""));
    item.set(ByteString::literal("inputSchema"), schema.to_raw());
    item
}

/// Renders an item under its exposed key, with the description that the config gives it. Without a change, the bytes
/// are the server's.
pub(super) fn render_item(kind: ItemKind, item: &JsonObject, exposed: &str, description: Option<&String>) -> RawJson {
    let same = item.get_string(kind.item_key()).is_some_and(|own| own.as_str() == exposed);
    if same && description.is_none() {
        return item.to_raw();
    }
    let mut item = item.clone();
    if !same {
        item.set(ByteString::literal(kind.item_key()), RawJson::string(exposed));
    }
    if let Some(description) = description {
        item.set(ByteString::literal("description"), RawJson::string(description));
    }
    item.to_raw()
}

/// Joins two texts where both are there.
pub(super) fn paragraphs(first: Option<String>, second: Option<String>) -> Option<String> {
    match (first, second) {
        (Some(first), Some(second)) => Some(format!("{}\n\n{second}", first.trim_end())),
        (first, second) => first.or(second),
    }
}

/// Joins the instructions of several servers in one text of at most `limit` bytes. Begins with a sentence that can
/// stand alone.
pub(super) fn instructions(servers: impl Iterator<Item = (String, Option<String>)>, limit: usize) -> Option<String> {
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
    let mut all =
        format!("This endpoint serves the tools, resources and prompts of several MCP servers: {}.", names.join(", "));
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
    let (mut count, mut bytes) = (0, 0);
    for (identifier, settings) in servers.flat_map(JsonObject::iter) {
        let more = bytes + identifier.len() + settings.bytes().len();
        // The first server wins. Servers are sorted by name, so the winner does not depend on who connected first.
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
    use bytes::Bytes;

    use super::*;

    fn tool(json: &str) -> Arc<JsonObject> {
        Arc::new(JsonObject::parse(Bytes::copy_from_slice(json.as_bytes())).unwrap())
    }

    #[test]
    fn a_bad_schema_is_repaired_or_left_out_alone() {
        let repaired = [
            (r#"{"name":"a"}"#, r#"{"type":"object"}"#),
            (r#"{"name":"a","inputSchema":null}"#, r#"{"type":"object"}"#),
            (r#"{"name":"a","inputSchema":{}}"#, r#"{"type":"object"}"#),
            (r#"{"name":"a","inputSchema":{"properties":{"x":{}}}}"#, r#"{"properties":{"x":{}},"type":"object"}"#),
            (r#"{"name":"a","inputSchema":{"type":"object","anyOf":[{}]}}"#, r#"{"type":"object","anyOf":[{}]}"#),
        ];
        for (given, schema) in repaired {
            let checked = check_item(ItemKind::Tools, &tool(given)).unwrap();
            assert_eq!(checked.get("inputSchema").unwrap().bytes(), schema.as_bytes());
        }
        let deep =
            format!(r#"{{"name":"a","inputSchema":{}{}}}"#, r#"{"x":"#.repeat(500), "1".to_owned() + &"}".repeat(500));
        let wrong = [
            r#"{"inputSchema":{"type":"object"}}"#,
            r#"{"name":"","inputSchema":{}}"#,
            r#"{"name":7,"inputSchema":{}}"#,
            r#"{"name":"a","inputSchema":[]}"#,
            r#"{"name":"a","inputSchema":"object"}"#,
            r#"{"name":"a","inputSchema":{"type":"string"}}"#,
            r#"{"name":"a","inputSchema":{"type":["object","null"]}}"#,
            r#"{"name":"a","inputSchema":{"type":"object","type":"object"}}"#,
            &deep,
        ];
        for given in wrong {
            assert!(check_item(ItemKind::Tools, &tool(given)).is_err(), "{}", &given[..given.len().min(80)]);
        }
    }

    #[test]
    fn an_unchanged_item_keeps_its_bytes() {
        let item = tool("{ \"name\" : \"a\", \"x\": 1.0 }");
        assert_eq!(
            render_item(ItemKind::Tools, &item, "a", None).bytes(),
            "{ \"name\" : \"a\", \"x\": 1.0 }".as_bytes()
        );
        assert_eq!(render_item(ItemKind::Tools, &item, "s__a", None).bytes(), r#"{"name":"s__a","x":1.0}"#.as_bytes());
        let described = render_item(ItemKind::Tools, &item, "a", Some(&"why".to_owned()));
        assert_eq!(described.bytes(), r#"{"name":"a","x":1.0,"description":"why"}"#.as_bytes());
    }

    #[test]
    fn the_first_server_says_an_extension_and_all_are_bounded() {
        let servers = [tool(r#"{"x/a":{ "n": 1.0}}"#), tool(r#"{"x/a":{"n":2},"x/b":{}}"#)];
        let all = merge_extensions(servers.iter().map(|server| &**server));
        assert_eq!(&all.bytes()[..], br#"{"x/a":{ "n": 1.0},"x/b":{}}"#);
        let many: Vec<_> = (0..EXTENSIONS_MAX + 9).map(|n| tool(&format!(r#"{{"x/{n}":{{}}}}"#))).collect();
        assert_eq!(merge_extensions(many.iter().map(|server| &**server)).iter().count(), EXTENSIONS_MAX);
        let long = "x".repeat(EXTENSIONS_BYTES_MAX);
        let long = [tool(&format!(r#"{{"x/a":{{"a":"{long}"}},"x/b":{{}}}}"#))];
        assert_eq!(&merge_extensions(long.iter().map(|server| &**server)).bytes()[..], br#"{"x/b":{}}"#);
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
