//! Apps, the extension `io.modelcontextprotocol/ui` (SEP-1865): where a tool names the page that shows its results.
//!
//! Pure functions. Invariant: of a tool, only the URI of its page is ever changed.

use crate::json::{ByteString, JsonObject, RawJson};

/// What the URIs of pages begin with: "MUST use the `ui://` URI scheme" (ext-apps, 2026-01-26, UI Resource Format).
/// Clients refuse a tool whose page begins with anything else.
pub const APP_SCHEME: &str = "ui://";
/// Where the page stands: `_meta.ui.resourceUri`.
const NESTED: (&str, &str) = ("ui", "resourceUri");
/// Where it stood before: "The flat `_meta["ui/resourceUri"]` format is deprecated" (the same, Resource Discovery).
const FLAT: &str = "ui/resourceUri";
/// Longest URI of a page, in bytes; what is longer names none.
const URI_MAX: usize = 4096;

/// The pages that a tool names: as a rule one, at most two, since it may be spelled both ways.
pub fn app_pages(definition: &JsonObject) -> Vec<ByteString> {
    let Some(meta) = definition.get_object("_meta") else { return Vec::new() };
    let nested = meta.get_object(NESTED.0).and_then(|ui| ui.get_string(NESTED.1));
    let mut pages: Vec<ByteString> = nested.into_iter().chain(meta.get_string(FLAT)).filter(is_page).collect();
    pages.dedup();
    pages
}

fn is_page(uri: &ByteString) -> bool {
    uri.starts_with(APP_SCHEME) && uri.len() <= URI_MAX
}

/// The tool with other URIs for its pages; `None` where `map` leaves them all as they are.
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
    fn both_spellings_name_a_page() {
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
