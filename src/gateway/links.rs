//! URIs inside results: made to lead back to the server that gave them.
//!
//! Owns what was learned of links that stand in no list. Invariant: a result without links is not touched, and only
//! the URI of a link is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::json::{Object, Raw, Text};
use crate::model::{Method, TaskMethod};

/// Links that are remembered; the oldest is forgotten first.
const LEARNED_MAX: usize = 10_000;

/// Longest link that is remembered, in bytes.
const LINK_BYTES_MAX: usize = 4096;
/// Links of one result that are mapped; the others stay as they are.
const LINKS_MAX: usize = 1000;

/// Which server gave a link that stands in no list.
#[derive(Default)]
pub(super) struct Learned(Mutex<Table>);

#[derive(Default)]
struct Table {
    servers: HashMap<Text, Text>,
    order: VecDeque<Text>,
}

impl Learned {
    /// The server that gave this link, if it is remembered.
    pub(super) fn find(&self, uri: &str) -> Option<Text> {
        self.lock().servers.get(&Text::from(uri)).cloned()
    }

    /// Remembers a link. False: another server gave the same one.
    pub(super) fn learn(&self, uri: &Text, server: &str) -> bool {
        // What is longer is no link that anybody follows, and 10,000 of them would be a lot of memory.
        if uri.len() > LINK_BYTES_MAX {
            return true;
        }
        let mut table = self.lock();
        if let Some(known) = table.servers.get(uri) {
            return known.as_str() == server;
        }
        if table.order.len() >= LEARNED_MAX
            && let Some(oldest) = table.order.pop_front()
        {
            table.servers.remove(&oldest);
        }
        // A copy: the URI is a span of a whole answer, which must not live as long as the link.
        let uri = Text::from(uri.as_str());
        table.servers.insert(uri.clone(), Text::from(server));
        table.order.push_back(uri);
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the exposed URI for a server's own, if it differs.
type Map<'a> = &'a dyn Fn(&Text) -> Option<Text>;

/// Rewrites the URIs of one item of a result, if there is anything to rewrite.
type Item = fn(&Raw, Map<'_>) -> Option<Raw>;

/// Rewrites the URIs of a result by `map`, which gives the exposed URI if it differs.
pub(super) fn rewrite(method: &Method, result: &mut Object, map: Map<'_>) {
    // Most results have no link: one scan for the word is all that they cost.
    let has_links = |raw: &Raw| memchr::memmem::find(raw.bytes(), b"\"uri\"").is_some();
    let (member, item): (&'static str, Item) = match method {
        Method::CallTool | Method::Task(TaskMethod::End) => ("content", content),
        Method::ReadResource => ("contents", uri_member),
        Method::GetPrompt => ("messages", message),
        _ => return,
    };
    let Some(raw) = result.get(member).filter(|raw| has_links(raw)) else { return };
    let left = std::cell::Cell::new(LINKS_MAX);
    let map: Map<'_> = &|uri| {
        left.set(left.get().checked_sub(1)?);
        map(uri)
    };
    if let Some(changed) = items(raw, item, map) {
        result.set(Text::literal(member), changed);
    }
}

fn items(raw: &Raw, item: Item, map: Map<'_>) -> Option<Raw> {
    let mut all = raw.as_array()?;
    let mut changed = false;
    for one in &mut all {
        if let Some(new) = item(one, map) {
            *one = new;
            changed = true;
        }
    }
    changed.then(|| Raw::array(all.iter()))
}

/// A content block: a `resource_link` has a URI, an embedded `resource` holds one that has.
fn content(raw: &Raw, map: Map<'_>) -> Option<Raw> {
    let block = raw.as_object()?;
    match block.text("type")?.as_str() {
        "resource_link" => uri_member(raw, map),
        "resource" => Some(changed(block.clone(), "resource", uri_member(block.get("resource")?, map)?)),
        _ => None,
    }
}

/// A prompt's message: its content is one block, or several.
fn message(raw: &Raw, map: Map<'_>) -> Option<Raw> {
    let message = raw.as_object()?;
    let block = message.get("content")?;
    let new = if block.is_object() { content(block, map)? } else { items(block, content, map)? };
    Some(changed(message.clone(), "content", new))
}

fn uri_member(raw: &Raw, map: Map<'_>) -> Option<Raw> {
    let holder = raw.as_object()?;
    let new = map(&holder.text("uri")?)?;
    Some(changed(holder, "uri", Raw::string(&new)))
}

fn changed(mut object: Object, key: &'static str, value: Raw) -> Raw {
    object.set(Text::literal(key), value);
    object.raw()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn rewritten(method: Method, json: &'static str) -> String {
        let mut result = Object::parse(Bytes::from_static(json.as_bytes())).unwrap();
        rewrite(&method, &mut result, &|uri| (uri.as_str() == "a://1").then(|| Text::from("w:a://1")));
        String::from_utf8(result.bytes().to_vec()).unwrap()
    }

    #[test]
    fn only_the_uris_of_links_change() {
        let call = r#"{"content":[{"type":"text","text":"a://1"}, {"type":"resource_link","uri":"a://1","n":1.0},{"type":"resource","resource":{"uri":"a://1"}}],"structuredContent":{"uri":"a://1"}}"#;
        let want = r#"{"content":[{"type":"text","text":"a://1"},{"type":"resource_link","uri":"w:a://1","n":1.0},{"type":"resource","resource":{"uri":"w:a://1"}}],"structuredContent":{"uri":"a://1"}}"#;
        assert_eq!(rewritten(Method::CallTool, call), want);
        let read = r#"{"contents":[{"uri":"a://1","text":"x"},{"uri":"a://2"}]}"#;
        assert_eq!(rewritten(Method::ReadResource, read), read.replacen("a://1", "w:a://1", 1));
        let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a://1"}}}]}"#;
        assert_eq!(rewritten(Method::GetPrompt, prompt), prompt.replace("a://1", "w:a://1"));
    }

    #[test]
    fn what_has_no_link_keeps_its_bytes() {
        for json in [
            r#"{ "content" : [ {"type":"text","text":"uri"} ] }"#,
            r#"{ "content":[{"type":"resource_link","uri":"b://2"}]}"#,
        ] {
            assert_eq!(rewritten(Method::CallTool, json), json);
        }
    }

    #[test]
    fn what_was_learned_is_bounded() {
        let learned = Learned::default();
        for n in 0..LEARNED_MAX + 10 {
            assert!(learned.learn(&Text::from(format!("x://{n}")), "a"));
        }
        assert!(learned.find("x://0").is_none());
        assert_eq!(learned.find("x://100").as_deref(), Some("a"));
        assert!(!learned.learn(&Text::from("x://100"), "b"));
    }
}
