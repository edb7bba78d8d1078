//! Secret members of JSON that is an argument of a program.
//!
//! Owns how members are found in any text around them. Does not parse JSON. Invariant: a value whose
//! end cannot be found is secret to the end of the text.

use std::ops::Range;

use moongate_telemetry::secret_names::sounds_secret;

use super::harmless_value::{has_plain_name, is_count, is_path};

/// Finds the values of members whose names sound secret: those of `{"client_secret": "x"}`, and of
/// the same in a shell's quotes, where a backslash is before each quote.
pub(super) fn secret_members(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (colon, _) in text.match_indices(':') {
        let Some(name) = name_before(&text[..colon]) else {
            continue;
        };
        if !sounds_secret(name) {
            continue;
        }
        let value = value_at(text, colon + 1);
        let shown = &text[value.clone()];
        let is_location = has_plain_name(name) && is_path(shown) || is_count(name, shown);
        if !is_location {
            found.push(value);
        }
    }
    found
}

/// Returns the name of a member that ends here, in front of its colon.
fn name_before(text: &str) -> Option<&str> {
    let name = text.trim_end().strip_suffix('"')?;
    let name = name.strip_suffix('\\').unwrap_or(name);
    name.rsplit('"').next()
}

/// Returns the range of the value that starts here.
fn value_at(text: &str, from: usize) -> Range<usize> {
    let rest = &text[from..];
    let start = from + rest.len() - rest.trim_start().len();
    let value = &text[start..];
    let end_of = |quote: &str| start + quote.len()..string_end(text, start + quote.len(), quote);
    if value.starts_with('"') {
        end_of("\"")
    } else if value.starts_with("\\\"") {
        end_of("\\\"")
    } else if value.starts_with(['{', '[']) {
        start..text.len()
    } else {
        let length = value.find([',', '}', ' ']).unwrap_or(value.len());
        start..start + length
    }
}

/// Finds the end of a string with these quotes. A quote that is escaped once more is part of it.
fn string_end(text: &str, from: usize, quote: &str) -> usize {
    let is_end = |at: &usize| {
        let before = &text[from..*at];
        let slashes = before.len() - before.trim_end_matches('\\').len();
        slashes.is_multiple_of(2)
    };
    let mut ends = text[from..].match_indices(quote).map(|(at, _)| from + at);
    ends.find(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let mut out = text.to_owned();
        for range in secret_members(text).into_iter().rev() {
            out.replace_range(range, "***");
        }
        out
    }

    #[test]
    fn the_values_of_secret_members_are_found() {
        for (text, expected) in [
            (
                r#"{"client_id":"a","client_secret":"hush"}"#,
                r#"{"client_id":"a","client_secret":"***"}"#,
            ),
            (
                r#"--info={ "client_secret" : "hu\"sh", "b": 1 }"#,
                r#"--info={ "client_secret" : "***", "b": 1 }"#,
            ),
            (
                r#"run '{"a":{"api_key":1234567890},"b":2}' x"#,
                r#"run '{"a":{"api_key":***},"b":2}' x"#,
            ),
            (
                r#"sh -c "run {\"token\": \"hush\", \"b\": 2}""#,
                r#"sh -c "run {\"token\": \"***\", \"b\": 2}""#,
            ),
            (r#"{"token":{"value":"hush"}}"#, r#"{"token":***"#),
            (r#"{"token":"hush"#, r#"{"token":"***"#),
            (r#"{"max_tokens":4096}"#, r#"{"max_tokens":4096}"#),
            ("http://a.example:80/x", "http://a.example:80/x"),
            (r#"{"":"","a":"b"}"#, r#"{"":"","a":"b"}"#),
        ] {
            assert_eq!(masked(text), expected);
        }
    }
}
