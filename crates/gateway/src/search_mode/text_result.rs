//! Results of tools that the gateway writes or adds to.
//!
//! Owns content blocks of text. Does not choose the words. Invariant: blocks of a server keep their
//! bytes.

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::Outcome;
use moongate_telemetry::plain_text::readable;

/// Builds a result with these content blocks.
pub(super) fn content_result(blocks: &[RawJson]) -> Outcome {
    Outcome::from_result(JsonObject::new().with("content", RawJson::array(blocks.iter())))
}

/// Builds a result of one text.
pub(super) fn text_result(text: &str) -> Outcome {
    content_result(&[text_block(text)])
}

/// Builds a result that shows a model what went wrong.
// 2025-11-25/server/tools.mdx, Error Handling: such errors "contain actionable feedback that
// language models can use to self-correct and retry with adjusted parameters".
pub(super) fn error_result(text: &str) -> Outcome {
    let mut outcome = text_result(text);
    outcome
        .result
        .set(ByteString::literal("isError"), RawJson::literal("true"));
    outcome
}

/// Appends a text to the content of a result.
pub(super) fn append_text(result: &mut JsonObject, text: &str) {
    let mut blocks = result
        .get("content")
        .and_then(RawJson::as_array)
        .unwrap_or_default();
    blocks.push(text_block(text));
    result.set(
        ByteString::literal("content"),
        RawJson::array(blocks.iter()),
    );
}

/// Builds a content block of text, without characters that could hide instructions to a model.
pub(super) fn text_block(text: &str) -> RawJson {
    let text = readable(text);
    JsonObject::new()
        .with("type", RawJson::literal("\"text\""))
        .with("text", RawJson::string(&text))
        .to_raw()
}
