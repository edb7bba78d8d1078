//! Server-sent events, in every form that the standard allows.
//!
//! Owns the bytes of an event. Does not know its content. Invariant: a reader that follows the
//! standard gets the same message from every form.

use bytes::Bytes;

use super::script::{NewlineStyle, SseRules};

/// Encodes a message as one event, in as many pieces as the script asks for.
pub(super) fn event(sse: &SseRules, id: Option<&str>, message: &str) -> Vec<Bytes> {
    let mut lines = vec!["event: message".to_owned()];
    lines.extend(id.map(|id| format!("id: {id}")));
    // JSON allows a line break after its first brace or bracket, and SSE joins `data` lines with
    // one.
    let message = match (sse.split, message.starts_with(['{', '['])) {
        (true, true) => format!("{}\n{}", &message[..1], &message[1..]),
        _ => message.to_owned(),
    };
    lines.extend(message.lines().map(|line| format!("data: {line}")));
    encode_lines(sse, lines)
}

/// Encodes an event with another name.
pub(super) fn named(sse: &SseRules, name: &str, data: &str) -> Vec<Bytes> {
    encode_lines(sse, vec![format!("event: {name}"), format!("data: {data}")])
}

/// Encodes a comment and an event without data. No client may take either for a message.
pub(super) fn prime(sse: &SseRules, id: Option<&str>) -> Vec<Bytes> {
    let mut all = encode_lines(sse, vec![": hello".to_owned()]);
    let mut lines: Vec<String> = id.map(|id| format!("id: {id}")).into_iter().collect();
    lines.extend((sse.retry_ms > 0).then(|| format!("retry: {}", sse.retry_ms)));
    lines.push("data:".to_owned());
    all.extend(encode_lines(sse, lines));
    all
}

fn encode_lines(sse: &SseRules, lines: Vec<String>) -> Vec<Bytes> {
    let end = match sse.newline {
        NewlineStyle::Lf => "\n",
        NewlineStyle::Cr => "\r",
        NewlineStyle::Crlf => "\r\n",
    };
    let mut text = lines.join(end);
    text.push_str(end);
    text.push_str(end);
    let whole = Bytes::from(text);
    if sse.chunk == 0 {
        return vec![whole];
    }
    // Pieces may cut a character or a line end in half, as TCP does. Readers have to join them.
    (0..whole.len())
        .step_by(sse.chunk)
        .map(|at| whole.slice(at..whole.len().min(at + sse.chunk)))
        .collect()
}
