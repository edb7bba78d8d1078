//! Results as text. Owns the line that stands for content other than text.
//!
//! Does not write to stdout (`output.rs`). Invariant: no block is left out. Content that cannot be
//! shown is named with its type and size.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Renders the result of a tool.
pub(super) fn tool_result(result: &JsonObject) -> String {
    let blocks = items(result, "content");
    // Servers SHOULD repeat structured content as text, but some do not.
    match result
        .get("structuredContent")
        .filter(|_| blocks.is_empty())
    {
        Some(structured) => ended(format!("{structured:?}")),
        None => blocks.iter().map(|raw| ended(block(raw))).collect(),
    }
}

/// Renders a prompt: each message under its role.
pub(super) fn prompt_result(result: &JsonObject) -> String {
    items(result, "messages")
        .iter()
        .map(message)
        .collect::<Vec<_>>()
        .join("\n")
}

fn message(raw: &RawJson) -> String {
    let message = raw.as_object().unwrap_or_default();
    let role = message
        .get_string("role")
        .unwrap_or_else(|| ByteString::literal("unknown"));
    let content = message.get("content").map(block).unwrap_or_default();
    format!("[{role}]\n{}", ended(content))
}

/// Renders the contents of a resource.
pub(super) fn read_result(result: &JsonObject) -> String {
    items(result, "contents")
        .iter()
        .map(resource_content)
        .collect()
}

fn resource_content(raw: &RawJson) -> String {
    let content = raw.as_object().unwrap_or_default();
    match content.get_string("text") {
        Some(text) => ended(text.to_string()),
        None => ended(embedded("blob", &content)),
    }
}

fn items(result: &JsonObject, member: &str) -> Vec<RawJson> {
    result
        .get(member)
        .and_then(RawJson::as_array)
        .unwrap_or_default()
}

fn block(raw: &RawJson) -> String {
    let block = raw.as_object().unwrap_or_default();
    let kind = block
        .get_string("type")
        .unwrap_or_else(|| ByteString::literal("unknown"));
    let mime = block.get_string("mimeType");
    match kind.as_str() {
        "text" => block
            .get_string("text")
            .unwrap_or_else(|| ByteString::literal(""))
            .to_string(),
        "image" | "audio" => line(
            &kind,
            mime,
            block.get_string("data").map(|data| decoded(&data)),
            None,
        ),
        "resource_link" => line(
            &kind,
            mime,
            block.get("size").and_then(|size| size.parse_as().ok()),
            block.get_string("uri"),
        ),
        "resource" => embedded(
            "resource",
            &block.get_object("resource").unwrap_or_default(),
        ),
        // Unknown types get a line, too: later revisions add some.
        _ => line(&kind, mime, Some(raw.bytes().len()), None),
    }
}

/// Returns a line about an embedded resource.
fn embedded(kind: &str, content: &JsonObject) -> String {
    let text = content.get_string("text").map(|text| text.len());
    let size = text.or_else(|| content.get_string("blob").map(|data| decoded(&data)));
    line(
        kind,
        content.get_string("mimeType"),
        size,
        content.get_string("uri"),
    )
}

fn line(
    kind: &str,
    mime: Option<ByteString>,
    size: Option<usize>,
    uri: Option<ByteString>,
) -> String {
    let mut about: Vec<String> = Vec::new();
    about.extend(mime.map(|mime| mime.to_string()));
    about.extend(size.map(|size| format!("{size} bytes")));
    about.extend(uri.map(|uri| uri.to_string()));
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
