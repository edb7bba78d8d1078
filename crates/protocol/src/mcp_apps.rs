//! MCP Apps, the extension `io.modelcontextprotocol/ui` (SEP-1865): the page that shows a tool's
//! results.
//!
//! Owns the members by which a tool or a result names its page. Pure functions, which do not fetch
//! pages. Invariant: the URI of its page is the only part of a tool or a result that ever changes.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Identifier of the extension. It has no methods between a client and its server.
const IDENTIFIER: &str = "io.modelcontextprotocol/ui";

/// Returns true for an announced extension that works at every endpoint, since the gateway
/// translates what it needs.
pub fn is_bridged_extension(identifier: &str) -> bool {
    identifier == IDENTIFIER
}

/// Prefix of the URIs of pages. Clients refuse a tool whose page has another prefix.
///
/// "MUST use the `ui://` URI scheme" (ext-apps, 2026-01-26, UI Resource Format).
pub const APP_SCHEME: &str = "ui://";
/// Text that every JSON with such a URI has, also where its slashes are escaped.
const SCHEME_MARK: &[u8] = b"ui:";
/// Path of the page's URI: `_meta.ui.resourceUri`.
const NESTED: (&str, &str) = ("ui", "resourceUri");
/// Other keys of the page's URI. The first is an earlier one: "The flat `_meta["ui/resourceUri"]`
/// format is deprecated" (ext-apps, Resource Discovery). The second is that of OpenAI's Apps SDK.
const FLAT: [&str; 2] = ["ui/resourceUri", "openai/outputTemplate"];
/// Limit in bytes of a page's URI. A longer one is ignored.
const URI_MAX: usize = 4096;

/// Returns the pages that a tool names: usually one, at most three, since all members may be set.
pub fn app_pages(definition: &JsonObject) -> Vec<ByteString> {
    let Some(meta) = definition.get_object("_meta") else {
        return Vec::new();
    };
    let nested = meta
        .get_object(NESTED.0)
        .and_then(|ui| ui.get_string(NESTED.1));
    let flat = FLAT.iter().filter_map(|key| meta.get_string(key));
    let mut pages: Vec<ByteString> = nested.into_iter().chain(flat).filter(is_page).collect();
    // The members usually name the same page.
    pages.dedup();
    pages
}

fn is_page(uri: &ByteString) -> bool {
    // Other URIs aren't pages, and stay as they are.
    uri.starts_with(APP_SCHEME) && uri.len() <= URI_MAX
}

/// Returns true if a JSON text may name a page. Most have none, and cost only one scan.
pub fn may_name_page(json: &RawJson) -> bool {
    memchr::memmem::find(json.bytes(), SCHEME_MARK).is_some()
}

/// Replaces the URIs of the pages that a tool, a result or a part of one names. `None` if `map`
/// changes none of them.
pub fn with_app_pages(
    holder: &RawJson,
    map: impl Fn(&ByteString) -> Option<ByteString>,
) -> Option<RawJson> {
    if !may_name_page(holder) {
        return None;
    }
    let mut holder = holder.as_object()?;
    map_app_pages(&mut holder, map).then(|| holder.to_raw())
}

/// Replaces the URIs of the pages that an object names. Returns true if `map` changes any of them.
pub fn map_app_pages(
    holder: &mut JsonObject,
    map: impl Fn(&ByteString) -> Option<ByteString>,
) -> bool {
    let meta = holder.get("_meta").filter(|meta| may_name_page(meta));
    let Some(mut meta) = meta.and_then(RawJson::as_object) else {
        return false;
    };
    let mut changed = false;
    if let Some(mut ui) = meta.get_object(NESTED.0)
        && let Some(uri) = mapped_page(&ui, NESTED.1, &map)
    {
        ui.set(ByteString::literal(NESTED.1), uri);
        meta.set(ByteString::literal(NESTED.0), ui.to_raw());
        changed = true;
    }
    for key in FLAT {
        if let Some(uri) = mapped_page(&meta, key, &map) {
            meta.set(ByteString::literal(key), uri);
            changed = true;
        }
    }
    if changed {
        holder.set(ByteString::literal("_meta"), meta.to_raw());
    }
    changed
}

fn mapped_page(
    holder: &JsonObject,
    key: &str,
    map: impl Fn(&ByteString) -> Option<ByteString>,
) -> Option<RawJson> {
    let page = holder.get_string(key).filter(is_page)?;
    Some(RawJson::string(&map(&page)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(json: &'static str) -> Vec<String> {
        app_pages(&RawJson::literal(json).as_object().unwrap())
            .iter()
            .map(ByteString::to_string)
            .collect()
    }

    #[test]
    fn both_meta_keys_name_a_page() {
        assert_eq!(
            pages(r#"{"name":"a","_meta":{"ui":{"resourceUri":"ui://x"}}}"#),
            ["ui://x"]
        );
        assert_eq!(
            pages(r#"{"_meta":{"ui/resourceUri":"ui://x"}}"#),
            ["ui://x"]
        );
        assert_eq!(
            pages(r#"{"_meta":{"ui":{"resourceUri":"ui://x"},"ui/resourceUri":"ui://x"}}"#),
            ["ui://x"]
        );
        assert_eq!(
            pages(r#"{"_meta":{"ui":{"resourceUri":"ui://x"},"ui/resourceUri":"ui://y"}}"#),
            ["ui://x", "ui://y"]
        );
        assert_eq!(
            pages(r#"{"_meta":{"openai/outputTemplate":"ui:\/\/x"}}"#),
            ["ui://x"]
        );
    }

    #[test]
    fn nothing_else_does() {
        for none in [
            r#"{"name":"a"}"#,
            r#"{"_meta":null}"#,
            r#"{"_meta":{"ui":"ui://x"}}"#,
            r#"{"_meta":{"ui":{"resourceUri":7}}}"#,
            r#"{"_meta":{"ui":{"resourceUri":"file:///etc/passwd"}}}"#,
            r#"{"_meta":{"openai/outputTemplate":"https://ui://x"}}"#,
            r#"{"ui":{"resourceUri":"ui://x"}}"#,
        ] {
            assert_eq!(pages(none), [""; 0], "{none}");
        }
        let long = format!(
            r#"{{"_meta":{{"ui":{{"resourceUri":"ui://{}"}}}}}}"#,
            "x".repeat(URI_MAX)
        );
        assert!(app_pages(&JsonObject::parse(bytes::Bytes::from(long)).unwrap()).is_empty());
    }

    fn moved_page(uri: &ByteString) -> Option<ByteString> {
        (uri.as_str() == "ui://x").then(|| ByteString::from("ui://w/x"))
    }

    #[test]
    fn only_the_uri_changes() {
        let tool = RawJson::literal(
            r#"{"name":"a","_meta":{"k": 1.0,"ui":{"visibility": ["app"],"resourceUri":"ui://x"},"ui/resourceUri":"ui://x"},"z":[ ]}"#,
        );
        let want = br#"{"name":"a","_meta":{"k":1.0,"ui":{"visibility":["app"],"resourceUri":"ui://w/x"},"ui/resourceUri":"ui://w/x"},"z":[ ]}"#;
        assert_eq!(
            &with_app_pages(&tool, moved_page).unwrap().bytes()[..],
            want
        );
        assert_eq!(
            with_app_pages(
                &RawJson::literal(r#"{"_meta":{"ui":{"resourceUri":"ui://y"}}}"#),
                moved_page
            ),
            None
        );
        let escaped = RawJson::literal(
            r#"{"_meta":{"ui\/resourceUri":"ui:\/\/x","openai/outputTemplate":"ui:\/\/x"}}"#,
        );
        let want = br#"{"_meta":{"ui/resourceUri":"ui://w/x","openai/outputTemplate":"ui://w/x"}}"#;
        assert_eq!(
            &with_app_pages(&escaped, moved_page).unwrap().bytes()[..],
            want
        );
    }
}
