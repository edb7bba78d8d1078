//! MCP Apps, the extension `io.modelcontextprotocol/ui` (SEP-1865): the page that shows a tool's results.
//!
//! Owns the places where a tool names its page. Pure functions, which do not fetch pages. Invariant: the URI of its
//! page is the only part of a tool that ever changes.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Prefix of the URIs of pages. Clients refuse a tool whose page has another prefix.
///
/// "MUST use the `ui://` URI scheme" (ext-apps, 2026-01-26, UI Resource Format).
pub const APP_SCHEME: &str = "ui://";
/// Path of the page's URI: `_meta.ui.resourceUri`.
const NESTED: (&str, &str) = ("ui", "resourceUri");
/// Earlier key of the page's URI: "The flat `_meta["ui/resourceUri"]` format is deprecated" (ext-apps, Resource
/// Discovery).
const FLAT: &str = "ui/resourceUri";
/// Limit in bytes of a page's URI. A longer one is ignored.
const URI_MAX: usize = 4096;

/// Returns the pages that a tool names: usually one, at most two, since both places may be set.
pub fn app_pages(definition: &JsonObject) -> Vec<ByteString> {
    let Some(meta) = definition.get_object("_meta") else { return Vec::new() };
    let nested = meta.get_object(NESTED.0).and_then(|ui| ui.get_string(NESTED.1));
    let mut pages: Vec<ByteString> = nested.into_iter().chain(meta.get_string(FLAT)).filter(is_page).collect();
    // Both places usually name the same page.
    pages.dedup();
    pages
}

fn is_page(uri: &ByteString) -> bool {
    // Other URIs are no pages, and stay as they are.
    uri.starts_with(APP_SCHEME) && uri.len() <= URI_MAX
}

/// Replaces the URIs of a tool's pages. `None` if `map` changes none of them.
pub fn with_app_pages(definition: &RawJson, map: impl Fn(&ByteString) -> Option<ByteString>) -> Option<RawJson> {
    let mut tool = definition.as_object()?;
    let mut meta = tool.get_object("_meta")?;
    let other =
        |holder: &JsonObject, key: &str| Some(RawJson::string(&map(&holder.get_string(key).filter(is_page)?)?));
    let mut changed = false;
    if let Some(mut ui) = meta.get_object(NESTED.0)
        && let Some(uri) = other(&ui, NESTED.1)
    {
        ui.set(ByteString::literal(NESTED.1), uri);
        meta.set(ByteString::literal(NESTED.0), ui.to_raw());
        changed = true;
    }
    if let Some(uri) = other(&meta, FLAT) {
        meta.set(ByteString::literal(FLAT), uri);
        changed = true;
    }
    if !changed {
        return None;
    }
    tool.set(ByteString::literal("_meta"), meta.to_raw());
    Some(tool.to_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(json: &'static str) -> Vec<String> {
        app_pages(&RawJson::literal(json).as_object().unwrap()).iter().map(ByteString::to_string).collect()
    }

    #[test]
    fn both_meta_keys_name_a_page() {
        assert_eq!(pages(r#"{"name":"a","_meta":{"ui":{"resourceUri":"ui://x"}}}"#), ["ui://x"]);
        assert_eq!(pages(r#"{"_meta":{"ui/resourceUri":"ui://x"}}"#), ["ui://x"]);
        assert_eq!(pages(r#"{"_meta":{"ui":{"resourceUri":"ui://x"},"ui/resourceUri":"ui://x"}}"#), ["ui://x"]);
        assert_eq!(
            pages(r#"{"_meta":{"ui":{"resourceUri":"ui://x"},"ui/resourceUri":"ui://y"}}"#),
            ["ui://x", "ui://y"]
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
            r#"{"ui":{"resourceUri":"ui://x"}}"#,
        ] {
            assert_eq!(pages(none), [""; 0], "{none}");
        }
        let long = format!(r#"{{"_meta":{{"ui":{{"resourceUri":"ui://{}"}}}}}}"#, "x".repeat(URI_MAX));
        assert!(app_pages(&JsonObject::parse(bytes::Bytes::from(long)).unwrap()).is_empty());
    }

    #[test]
    fn only_the_uri_changes() {
        let map = |uri: &ByteString| (uri.as_str() == "ui://x").then(|| ByteString::from("ui://w/x"));
        let tool = RawJson::literal(
            r#"{"name":"a","_meta":{"k": 1.0,"ui":{"visibility": ["app"],"resourceUri":"ui://x"},"ui/resourceUri":"ui://x"},"z":[ ]}"#,
        );
        let want = br#"{"name":"a","_meta":{"k":1.0,"ui":{"visibility":["app"],"resourceUri":"ui://w/x"},"ui/resourceUri":"ui://w/x"},"z":[ ]}"#;
        assert_eq!(&with_app_pages(&tool, map).unwrap().bytes()[..], want);
        assert_eq!(with_app_pages(&RawJson::literal(r#"{"_meta":{"ui":{"resourceUri":"ui://y"}}}"#), map), None);
    }
}
