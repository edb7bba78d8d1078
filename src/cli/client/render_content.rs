//! Results as text. Owns the line that stands for content other than text.
//!
//! Does not write to stdout (`output.rs`). Invariant: no block is left out. Content that cannot be
//! shown is named with its type and size.

use moongate_jsonrpc::json::{JsonObject, RawJson, or_default, or_null};
use serde::Deserialize;

/// Result of a tool.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ToolResult {
    #[serde(deserialize_with = "or_default")]
    content: Vec<RawJson>,
    #[serde(deserialize_with = "or_null")]
    structured_content: Option<RawJson>,
}

/// Result of a prompt.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptResult {
    #[serde(deserialize_with = "or_default")]
    messages: Vec<RawJson>,
}

/// Message of a prompt.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PromptMessage {
    #[serde(deserialize_with = "or_default")]
    role: Option<String>,
    #[serde(deserialize_with = "or_null")]
    content: Option<RawJson>,
}

/// Result of reading a resource.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReadResult {
    #[serde(deserialize_with = "or_default")]
    contents: Vec<RawJson>,
}

/// Contents of a resource.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceContents {
    #[serde(deserialize_with = "or_default")]
    uri: Option<String>,
    #[serde(deserialize_with = "or_default")]
    mime_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    text: Option<String>,
    #[serde(deserialize_with = "or_default")]
    blob: Option<String>,
}

/// Block of content, with the members of all types.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContentBlock {
    #[serde(rename = "type", deserialize_with = "or_default")]
    kind: Option<String>,
    #[serde(deserialize_with = "or_default")]
    mime_type: Option<String>,
    #[serde(deserialize_with = "or_default")]
    text: Option<String>,
    #[serde(deserialize_with = "or_default")]
    data: Option<String>,
    #[serde(deserialize_with = "or_default")]
    size: Option<usize>,
    #[serde(deserialize_with = "or_default")]
    uri: Option<String>,
    #[serde(deserialize_with = "or_default")]
    resource: JsonObject,
}

/// Renders the result of a tool.
pub(super) fn tool_result(result: &JsonObject) -> String {
    let result: ToolResult = result.read_members();
    // Servers SHOULD repeat structured content as text, but some do not.
    match result.structured_content {
        Some(structured) if result.content.is_empty() => ended(format!("{structured:?}")),
        _ => result.content.iter().map(|raw| ended(block(raw))).collect(),
    }
}

/// Returns the text of the first block of a tool's result, if it has one.
pub(super) fn first_text(result: &JsonObject) -> Option<String> {
    let result: ToolResult = result.read_members();
    let block: ContentBlock = result.content.first()?.as_object()?.read_members();
    block.text
}

/// Renders a prompt: each message under its role.
pub(super) fn prompt_result(result: &JsonObject) -> String {
    let result: PromptResult = result.read_members();
    let messages: Vec<String> = result.messages.iter().map(message).collect();
    messages.join("\n")
}

fn message(raw: &RawJson) -> String {
    let message: PromptMessage = raw.as_object().unwrap_or_default().read_members();
    let role = message.role.as_deref().unwrap_or("unknown");
    let content = message.content.as_ref().map(block).unwrap_or_default();
    format!("[{role}]\n{}", ended(content))
}

/// Renders the contents of a resource.
pub(super) fn read_result(result: &JsonObject) -> String {
    let result: ReadResult = result.read_members();
    result.contents.iter().map(resource_content).collect()
}

fn resource_content(raw: &RawJson) -> String {
    let content: ResourceContents = raw.as_object().unwrap_or_default().read_members();
    match content.text {
        Some(text) => ended(text),
        None => ended(embedded("blob", content)),
    }
}

fn block(raw: &RawJson) -> String {
    let block: ContentBlock = raw.as_object().unwrap_or_default().read_members();
    let kind = block.kind.as_deref().unwrap_or("unknown");
    match kind {
        "text" => block.text.unwrap_or_default(),
        "image" | "audio" => {
            let size = block.data.as_deref().map(decoded);
            line(kind, block.mime_type, size, None)
        }
        "resource_link" => line(kind, block.mime_type, block.size, block.uri),
        "resource" => embedded(kind, block.resource.read_members()),
        // Unknown types get a line, too: later revisions add some.
        _ => line(kind, block.mime_type, Some(raw.bytes().len()), None),
    }
}

/// Returns a line about an embedded resource.
fn embedded(kind: &str, content: ResourceContents) -> String {
    let text = content.text.as_deref().map(str::len);
    let size = text.or_else(|| content.blob.as_deref().map(decoded));
    line(kind, content.mime_type, size, content.uri)
}

fn line(kind: &str, mime: Option<String>, size: Option<usize>, uri: Option<String>) -> String {
    let mut about: Vec<String> = Vec::new();
    about.extend(mime);
    about.extend(size.map(|size| format!("{size} bytes")));
    about.extend(uri);
    let about = if about.is_empty() {
        String::new()
    } else {
        format!(": {}", about.join(", "))
    };
    format!("[{kind}{about}]").replace('\n', " ")
}

/// Returns the decoded size of a base64 text, in bytes.
fn decoded(data: &str) -> usize {
    let digits = data
        .bytes()
        .filter(|b| !b.is_ascii_whitespace() && *b != b'=')
        .count();
    // Four base64 digits encode three bytes. Padding and line ends aren't digits.
    digits * 3 / 4
}

fn ended(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &'static str) -> JsonObject {
        RawJson::literal(json).as_object().unwrap()
    }

    #[test]
    fn every_block_is_there() {
        let result = object(
            r#"{"content":[{"type":"text","text":"one\n"},{"type":"text","text":"two"},
            {"type":"image","mimeType":"image/png","data":"AAECAw=="},{"type":"audio","data":""},
            {"type":"resource_link","uri":"a://b","name":"b","mimeType":"text/plain","size":12},
            {"type":"resource","resource":{"uri":"a://c","text":"wörld"}},
            {"type":"resource","resource":{"uri":"a://d","blob":"AAEC","mimeType":"x/y"}},{"type":"new"},7]}"#,
        );
        let lines = [
            "one",
            "two",
            "[image: image/png, 4 bytes]",
            "[audio: 0 bytes]",
            "[resource_link: text/plain, 12 bytes, a://b]",
            "[resource: 6 bytes, a://c]",
            "[resource: x/y, 3 bytes, a://d]",
            "[new: 14 bytes]",
            "[unknown: 1 bytes]",
        ];
        assert_eq!(tool_result(&result).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn structured_content_stands_in_for_missing_text() {
        assert_eq!(
            tool_result(&object(r#"{"content":[],"structuredContent":{"a": 1.0}}"#)),
            "{\"a\": 1.0}\n"
        );
        assert_eq!(tool_result(&object(r#"{"content":[]}"#)), "");
    }

    #[test]
    fn messages_stand_under_their_roles() {
        let result = object(
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}},
            {"role":"assistant","content":{"type":"text","text":"ho"}}]}"#,
        );
        assert_eq!(prompt_result(&result), "[user]\nhi\n\n[assistant]\nho\n");
    }
}
