//! Redaction of secrets in a config.
//!
//! Owns the judgement of secrets by path and by form. Does not print. Invariant: a value in doubt
//! is secret.

use std::ops::Range;

use moongate_telemetry::secret_look::secret_ranges;
use moongate_telemetry::secret_names::{has_secret_part, sounds_secret};

use super::masked_text::{mask_text, secret_parts};
use super::tree::{ConfigNode, ConfigPath, ConfigValue, SourceSpan};

/// Tables whose values are secret, in our form and in those of clients.
pub(super) const SECRET_TABLES: [&str; 6] = [
    "headers",
    "env",
    "environment",
    "envs",
    "http_headers",
    "httpHeaders",
];
/// Lists of arguments. Some arguments are secret.
pub(super) const ARGUMENTS: [&str; 3] = ["args", "arguments", "command"];

/// Returns true if a text has a part that looks like a secret, whatever its name is.
pub fn looks_secret(text: &str) -> bool {
    !secret_ranges(text).is_empty()
}

/// True if the text at a path is secret, or has a part that is. `before` is the item before it in
/// its list.
pub(super) fn is_secret(path: &ConfigPath, text: &str, before: Option<&str>) -> bool {
    !secret_parts(path, text, before).is_empty()
}

/// Masks the value of a node. `None` if nothing of it is secret.
pub(super) fn masked_node(
    path: &ConfigPath,
    node: &ConfigNode,
    before: Option<&str>,
    mask: &str,
) -> Option<String> {
    match &node.value {
        ConfigValue::Text(text) => mask_text(path, text, before, mask),
        // A secret of digits only is a number to the parser.
        ConfigValue::Int(number) => {
            is_secret(path, &number.to_string(), before).then(|| mask.to_owned())
        }
        _ => None,
    }
}

/// True if a text is secret beyond doubt: its name says it, or a password in it. A value of `env`
/// or `headers` is in doubt by its table alone.
pub(super) fn is_surely_secret(path: &ConfigPath, text: &str, before: Option<&str>) -> bool {
    let password = url_password(text);
    let is_named = password.is_some()
        || path
            .0
            .last()
            .is_some_and(|key| key.starts_with('[') || sounds_secret(key));
    let is_reference = password.is_some_and(|password| password.starts_with("${"));
    is_named && !is_reference && is_secret(path, text, before)
}

/// Password in a URL, as in `scheme://user:password@host`.
pub(super) fn url_password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
    user.split_once(':')
        .map(|(_, password)| password)
        .filter(|password| !password.is_empty())
}

/// Value at a path in the form in which a message may quote it.
pub(super) fn quoted_value(node: &ConfigNode, path: &ConfigPath) -> String {
    match node.as_text().filter(|_| !node.expanded && !node.secret) {
        // A long value would hide the message around it.
        Some(text) if text.len() <= 100 && !is_secret(path, text, None) => format!("{text:?}"),
        _ => "its value".to_owned(),
    }
}

/// True if the text has only names of variables, and no part that could be a secret.
pub(super) fn is_only_reference(text: &str) -> bool {
    let Some((before, rest)) = text.split_once("${") else {
        return text.is_empty();
    };
    let Some((name, after)) = rest.split_once('}') else {
        return false;
    };
    let scheme = before.trim().to_ascii_lowercase();
    // A default after `:-` is text of the file, so it may be a secret.
    after.is_empty()
        && !name.contains(":-")
        && matches!(scheme.as_str(), "" | "bearer" | "basic" | "token")
}

/// Collects the spans of all values of a file that are secret, or have a secret part.
pub(super) fn secret_spans(tree: &ConfigNode) -> Vec<SourceSpan> {
    let mut spans = Vec::new();
    collect(tree, &ConfigPath::root(), None, &mut |node, _| {
        spans.push(node.span)
    });
    spans
}

/// Collects the ranges of all secrets in the text of a file. An address keeps its host and plain
/// segments.
pub(super) fn secret_ranges_of(tree: &ConfigNode, text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    collect(tree, &ConfigPath::root(), None, &mut |node, parts| {
        let whole = node.span.start..node.span.end;
        let written = node
            .as_text()
            .and_then(|value| Some((value, text.get(whole.clone())?.find(value)?)));
        match written {
            Some((value, at)) if parts.len() != 1 || parts[0] != (0..value.len()) => {
                let start = whole.start + at;
                ranges.extend(
                    parts
                        .iter()
                        .map(|part| start + part.start..start + part.end),
                );
            }
            // With escapes in it, or secret as a whole.
            _ => ranges.push(whole),
        }
    });
    ranges
}

/// Calls `found` for each value with a secret, with its secret parts.
fn collect(
    node: &ConfigNode,
    path: &ConfigPath,
    before: Option<&str>,
    found: &mut dyn FnMut(&ConfigNode, Vec<Range<usize>>),
) {
    let parts = match &node.value {
        ConfigValue::Text(text) => secret_parts(path, text, before),
        // A secret of digits only is a number to the parser.
        ConfigValue::Int(number) => secret_parts(path, &number.to_string(), before),
        _ => Vec::new(),
    };
    if !parts.is_empty() {
        found(node, parts);
    }
    match &node.value {
        ConfigValue::List(items) => {
            for (i, item) in items.iter().enumerate() {
                let before = i.checked_sub(1).and_then(|i| items[i].as_text());
                collect(item, &path.item(i), before, found);
            }
        }
        ConfigValue::Table(table) => table
            .iter()
            .for_each(|(key, child)| collect(child, &path.key(key), None, found)),
        _ => {}
    }
}

/// Returns the ranges that touch another one. `ranges` are merged.
pub(super) fn ranges_within(ranges: &[Range<usize>], outer: Range<usize>) -> &[Range<usize>] {
    let first = ranges.partition_point(|range| range.end <= outer.start);
    let length = ranges[first..].partition_point(|range| range.start < outer.end);
    &ranges[first..first + length]
}

/// Redacts the secrets of a line that starts at byte `start`. Each character keeps its column.
/// `secrets` are merged.
pub(super) fn redact_line(line: &str, start: usize, secrets: &[Range<usize>]) -> String {
    let mut left = ranges_within(secrets, start..start + line.len());
    let redacted = line.char_indices().map(|(at, c)| {
        while left.first().is_some_and(|secret| secret.end <= start + at) {
            left = &left[1..];
        }
        let is_secret = left
            .first()
            .is_some_and(|secret| secret.contains(&(start + at)));
        if is_secret && is_letter(c) { '*' } else { c }
    });
    redacted.collect()
}

/// Redacts every word of a part of a line, whose secrets nobody knows.
pub(super) fn redact_words(part: &str) -> String {
    cover_words(part, |_| true)
}

/// Redacts possible secrets of a line that could not be parsed. It covers long words after the
/// first separator, and every word if the line sounds secret.
pub(super) fn redact_unparsed(line: &str) -> String {
    let Some(from) = line.find([':', '=']) else {
        return cover_words(line, |word| word.chars().count() >= 16);
    };
    let (name, value) = line.split_at(from);
    // Most numbers, booleans and units are shorter than 8 and stay readable.
    let shortest = if mentions_secret(name, line) { 1 } else { 8 };
    let covered = cover_words(value, |word| word.chars().count() >= shortest);
    format!("{name}{covered}")
}

/// Redacts possible secrets of a comment: the words behind a name that sounds secret, and those
/// that look like keys.
pub(super) fn redact_comment(comment: &str) -> String {
    match comment.find([':', '=']).map(|from| comment.split_at(from)) {
        Some((name, value)) if mentions_secret(name, comment) => {
            format!("{name}{}", cover_words(value, |_| true))
        }
        _ => cover_words(comment, |word| {
            word.len() >= 16 && word.contains(|c: char| c.is_ascii_digit())
        }),
    }
}

fn mentions_secret(name: &str, line: &str) -> bool {
    sounds_secret(name) || has_secret_part(line)
}

fn cover_words(text: &str, is_secret: impl Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars() {
        if is_letter(c) || "-_.~+/$%&@!#?^".contains(c) {
            word.push(c);
        } else {
            flush_word(&mut word, &mut out, &is_secret);
            out.push(c);
        }
    }
    flush_word(&mut word, &mut out, &is_secret);
    out
}

/// Moves a word to the output, redacted if it is secret.
fn flush_word(word: &mut String, out: &mut String, is_secret: &impl Fn(&str) -> bool) {
    let is_secret = is_secret(word);
    out.extend(
        word.chars()
            .map(|c| if is_secret && is_letter(c) { '*' } else { c }),
    );
    word.clear();
}

fn is_letter(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, '"' | '\'' | '{' | '}' | '[' | ']' | ',' | '=' | ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(path: &[&str], text: &str) -> bool {
        is_secret(&ConfigPath::of(path), text, None)
    }

    fn surely_secret(path: &[&str], text: &str) -> bool {
        is_surely_secret(&ConfigPath::of(path), text, None)
    }

    #[test]
    fn what_is_secret() {
        assert!(secret(&["servers", "a", "headers", "X"], "x"));
        assert!(secret(&["mcp", "servers", "a", "env", "X"], "x"));
        assert!(secret(&["auth", "keys", "[0]", "key"], "x"));
        assert!(
            !secret(&["servers", "token-service", "title"], "x"),
            "the name of a server says nothing"
        );
        assert!(!secret(
            &["servers", "a", "env", "MEMORY_FILE_PATH"],
            "/data/memory.json"
        ));
        assert!(secret(
            &["servers", "a", "url"],
            "https://user:x@example.com/"
        ));
        assert!(secret(
            &["servers", "a", "url"],
            "https://example.com/?key=x"
        ));
        assert!(secret(&["servers", "a", "args", "[1]"], "--token=x"));
        assert!(secret(&["servers", "a", "my_password"], "x"));
        assert!(secret(&["servers", "a", "headers", "X"], "${X:-literal}"));
        assert!(secret(&["servers", "a", "headers", "X"], "Bearer abc${X}"));
        assert!(!secret(&["servers", "a", "headers", "X"], "Bearer ${X}"));
        assert!(!secret(&["servers", "a", "url"], "https://example.com/mcp"));
        assert!(!secret(
            &["servers", "a", "args", "[1]"],
            "@scope/server-token"
        ));
        assert!(is_secret(
            &ConfigPath::of(&["servers", "a", "args", "[1]"]),
            "x",
            Some("--api-key")
        ));
    }

    #[test]
    fn what_is_secret_beyond_doubt() {
        assert!(surely_secret(
            &["servers", "a", "headers", "X-Api-Key"],
            "x"
        ));
        assert!(surely_secret(
            &["servers", "a", "env", "DB"],
            "pg://ada:x@db/d"
        ));
        assert!(!surely_secret(
            &["servers", "a", "env", "DB"],
            "pg://ada:${PW}@db/d"
        ));
        assert!(
            !surely_secret(&["servers", "a", "env", "PUB"], "x")
                && !surely_secret(&["servers", "a", "headers", "X-Org"], "x")
        );
        assert!(!surely_secret(
            &["servers", "a", "env", "TOKEN"],
            "${TOKEN}"
        ));
    }

    #[test]
    fn a_line_that_cannot_be_parsed_keeps_only_what_is_short() {
        assert_eq!(redact_unparsed("drain = 30s"), "drain = 30s");
        assert_eq!(redact_unparsed("X = \"abcdefghij"), "X = \"**********");
        assert_eq!(redact_unparsed("api_key = \"abc"), "api_key = \"***");
    }
}
