//! Link rewriting: URIs inside results lead back to the server that gave them.
//!
//! Owns the links learned from results that no list has. Does not choose the exposed URI
//! (`resolve_uri.rs`). Invariant: a result without links is unchanged, and only the URI of a link
//! or a page changes.

use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

use memchr::memmem::Finder;
use parking_lot::Mutex;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::{McpMethod, TaskMethod};
use moongate_protocol::{map_app_pages, may_name_page, with_app_pages};

/// Maximum number of learned links. The oldest goes first.
const LEARNED_MAX: usize = 10_000;

/// Longest link that is learned, in bytes.
const LINK_BYTES_MAX: usize = 4096;
/// Maximum number of links in one result that are rewritten. The others stay as they are.
const LINKS_MAX: usize = 1000;

/// Servers of links that no list has.
#[derive(Default)]
pub(super) struct LearnedUris(Mutex<LearnedTable>);

#[derive(Default)]
struct LearnedTable {
    servers: HashMap<ByteString, ByteString>,
    order: VecDeque<ByteString>,
}

impl LearnedUris {
    /// Returns the server that gave this link, if it is learned.
    pub(super) fn server_of(&self, uri: &str) -> Option<ByteString> {
        self.0.lock().servers.get(&ByteString::from(uri)).cloned()
    }

    /// Learns a link. Returns false if another server gave the same one.
    pub(super) fn learn(&self, uri: &ByteString, server: &str) -> bool {
        // Nobody follows longer links, and 10,000 of them would take too much memory.
        if uri.len() > LINK_BYTES_MAX {
            return true;
        }
        let mut table = self.0.lock();
        // The first server keeps the link, and links of later ones are wrapped.
        if let Some(known) = table.servers.get(uri) {
            return known.as_str() == server;
        }
        if table.order.len() >= LEARNED_MAX
            && let Some(oldest) = table.order.pop_front()
        {
            table.servers.remove(&oldest);
        }
        // Copied: the URI is a span of a whole response, which must not live as long as the link.
        let uri = ByteString::from(uri.as_str());
        table.servers.insert(uri.clone(), ByteString::from(server));
        table.order.push_back(uri);
        true
    }
}

/// Maps a server's own URI to the exposed one. Returns `None` if they are the same.
type UriMapper<'a> = &'a dyn Fn(&ByteString) -> Option<ByteString>;

/// Rewrites the URIs of one item of a result. Returns `None` if nothing changes.
type ItemRewriter = fn(&RawJson, UriMapper<'_>) -> Option<RawJson>;

/// Rewrites the URIs of a result by `map`, which returns the exposed URI if it differs.
pub(super) fn rewrite(method: &McpMethod, result: &mut JsonObject, map: UriMapper<'_>) {
    let (member, item): (&'static str, ItemRewriter) = match method {
        McpMethod::CallTool | McpMethod::Task(TaskMethod::Result) => ("content", content),
        McpMethod::ReadResource => ("contents", uri_member),
        McpMethod::GetPrompt => ("messages", message),
        _ => return,
    };
    // Each link may cost a lookup in all templates.
    let left = std::cell::Cell::new(LINKS_MAX);
    let map: UriMapper<'_> = &|uri| {
        left.set(left.get().checked_sub(1)?);
        map(uri)
    };
    if let Some(changed) = result
        .get(member)
        .filter(|raw| has_links(raw))
        .and_then(|raw| items(raw, item, map))
    {
        result.set(ByteString::literal(member), changed);
    }
    map_app_pages(result, map);
}

/// Search for the start of a link, prepared once: it runs for each result.
static LINK_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"u"));

/// Returns true if a text may have a link.
fn has_links(raw: &RawJson) -> bool {
    // Most results have no link, so they cost only one scan. It finds what both the member `"uri"`
    // and a page `"ui://…"` start with. A link whose key is escaped (`"\u0075ri"`) is not seen, and
    // stays as the server sent it.
    let may_have = LINK_FINDER.find(raw.bytes()).is_some();
    may_have && (memchr::memmem::find(raw.bytes(), b"\"uri\"").is_some() || may_name_page(raw))
}

fn items(raw: &RawJson, item: ItemRewriter, map: UriMapper<'_>) -> Option<RawJson> {
    let mut all = raw.as_array()?;
    let mut changed = false;
    for one in &mut all {
        if let Some(new) = item(one, map) {
            *one = new;
            changed = true;
        }
    }
    changed.then(|| RawJson::array(all.iter()))
}

/// Rewrites a content block. A `resource_link` has a URI, and an embedded `resource` holds an
/// object with one. Each may name a page.
fn content(raw: &RawJson, map: UriMapper<'_>) -> Option<RawJson> {
    let block = raw.as_object()?;
    let linked = match block.get_string("type")?.as_str() {
        "resource_link" => return uri_member(raw, map),
        "resource" => {
            let resource = block
                .get("resource")
                .and_then(|resource| uri_member(resource, map));
            resource.map(|resource| with_member(block.clone(), "resource", resource))
        }
        _ => None,
    };
    with_app_pages(linked.as_ref().unwrap_or(raw), map).or(linked)
}

/// Rewrites a prompt's message. Its content is one block, or several.
fn message(raw: &RawJson, map: UriMapper<'_>) -> Option<RawJson> {
    let message = raw.as_object()?;
    let block = message.get("content")?;
    let new = if block.is_object() {
        content(block, map)?
    } else {
        items(block, content, map)?
    };
    Some(with_member(message.clone(), "content", new))
}

/// Rewrites an object with a URI, which may name a page as well.
fn uri_member(raw: &RawJson, map: UriMapper<'_>) -> Option<RawJson> {
    let mut holder = raw.as_object()?;
    let uri = holder.get_string("uri").and_then(|uri| map(&uri));
    let is_linked = uri.is_some();
    if let Some(uri) = uri {
        holder.set(ByteString::literal("uri"), RawJson::string(&uri));
    }
    (map_app_pages(&mut holder, map) || is_linked).then(|| holder.to_raw())
}

fn with_member(mut object: JsonObject, key: &'static str, value: RawJson) -> RawJson {
    object.set(ByteString::literal(key), value);
    object.to_raw()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn rewritten(method: McpMethod, json: &'static str) -> String {
        let mut result = JsonObject::parse(Bytes::from_static(json.as_bytes())).unwrap();
        rewrite(&method, &mut result, &|uri| {
            (uri.as_str() == "a://1").then(|| ByteString::from("w:a://1"))
        });
        String::from_utf8(result.bytes().to_vec()).unwrap()
    }

    #[test]
    fn only_the_uris_of_links_change() {
        let call = r#"{"content":[{"type":"text","text":"a://1"}, {"type":"resource_link","uri":"a://1","n":1.0},{"type":"resource","resource":{"uri":"a://1"}}],"structuredContent":{"uri":"a://1"}}"#;
        let want = r#"{"content":[{"type":"text","text":"a://1"},{"type":"resource_link","uri":"w:a://1","n":1.0},{"type":"resource","resource":{"uri":"w:a://1"}}],"structuredContent":{"uri":"a://1"}}"#;
        assert_eq!(rewritten(McpMethod::CallTool, call), want);
        let read = r#"{"contents":[{"uri":"a://1","text":"x"},{"uri":"a://2"}]}"#;
        assert_eq!(
            rewritten(McpMethod::ReadResource, read),
            read.replacen("a://1", "w:a://1", 1)
        );
        let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a://1"}}}]}"#;
        assert_eq!(
            rewritten(McpMethod::GetPrompt, prompt),
            prompt.replace("a://1", "w:a://1")
        );
    }

    #[test]
    fn pages_in_meta_change_wherever_they_are_named() {
        let map =
            |uri: &ByteString| (uri.as_str() == "ui://1").then(|| ByteString::from("ui://w/1"));
        let meta = r#""_meta":{"k":[ ],"ui":{"resourceUri":"ui://1"},"ui/resourceUri":"ui://1","openai/outputTemplate":"ui:\/\/1"}"#;
        let all = [
            (
                McpMethod::CallTool,
                format!(
                    r#"{{"content":[{{"type":"text","text":"ui://1",{meta}}}],{meta},"structuredContent":{{{meta}}}}}"#
                ),
            ),
            (
                McpMethod::CallTool,
                format!(
                    r#"{{"content":[{{"type":"resource","resource":{{"uri":"ui://1",{meta}}},{meta}}}]}}"#
                ),
            ),
            (
                McpMethod::CallTool,
                format!(r#"{{"content":[{{"type":"resource_link","uri":"ui://1",{meta}}}]}}"#),
            ),
            (
                McpMethod::Task(TaskMethod::Result),
                format!(r#"{{{meta}}}"#),
            ),
            (
                McpMethod::ReadResource,
                format!(r#"{{"contents":[{{"uri":"ui://1","text":"ui://1",{meta}}}],{meta}}}"#),
            ),
            (
                McpMethod::GetPrompt,
                format!(
                    r#"{{"messages":[{{"content":{{"type":"text","text":"",{meta}}}}}],{meta}}}"#
                ),
            ),
        ];
        let moved = r#""_meta":{"k":[ ],"ui":{"resourceUri":"ui://w/1"},"ui/resourceUri":"ui://w/1","openai/outputTemplate":"ui://w/1"}"#;
        for (method, json) in all {
            let mut result = JsonObject::parse(Bytes::from(json.clone())).unwrap();
            rewrite(&method, &mut result, &map);
            let structured = format!(r#""structuredContent":{{{meta}}}"#);
            let expected = json.replace(&structured, "HERE").replace(meta, moved);
            let expected = expected
                .replace(r#""uri":"ui://1""#, r#""uri":"ui://w/1""#)
                .replace("HERE", &structured);
            assert_eq!(String::from_utf8_lossy(&result.bytes()), expected);
        }
    }

    #[test]
    fn pages_of_one_result_are_bounded() {
        let block = r#"{"type":"text","text":"","_meta":{"ui/resourceUri":"ui://1"}},"#;
        let json = format!(r#"{{"content":[{}{{}}]}}"#, block.repeat(LINKS_MAX + 10));
        let mut result = JsonObject::parse(Bytes::from(json)).unwrap();
        rewrite(&McpMethod::CallTool, &mut result, &|_| {
            Some(ByteString::from("ui://w"))
        });
        assert_eq!(
            memchr::memmem::find_iter(&result.bytes(), b"ui://w").count(),
            LINKS_MAX
        );
    }

    #[test]
    fn results_without_links_keep_their_bytes() {
        for json in [
            r#"{ "content" : [ {"type":"text","text":"uri"} ] }"#,
            r#"{ "content":[{"type":"resource_link","uri":"b://2"}]}"#,
        ] {
            assert_eq!(rewritten(McpMethod::CallTool, json), json);
        }
    }

    #[test]
    fn learned_uris_are_bounded() {
        let learned = LearnedUris::default();
        for n in 0..LEARNED_MAX + 10 {
            assert!(learned.learn(&ByteString::from(format!("x://{n}")), "a"));
        }
        assert!(learned.server_of("x://0").is_none());
        assert_eq!(learned.server_of("x://100").as_deref(), Some("a"));
        assert!(!learned.learn(&ByteString::from("x://100"), "b"));
    }
}
