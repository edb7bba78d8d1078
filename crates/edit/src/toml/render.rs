//! Writer of TOML values.
//!
//! Owns the text of keys and values on one line. Does not decide where they go.

use serde_json::Value;

/// Longest inline table beneath a header. A longer one gets its own header.
pub(crate) const LINE_MAX: usize = 100;

/// Quotes of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuoteStyle {
    /// `"text"`, with escapes.
    Basic,
    /// `'text'`, where the text allows it.
    Literal,
}

impl QuoteStyle {
    /// Finds the quotes of a value's text.
    pub(crate) fn of_text(text: &str) -> QuoteStyle {
        if text.starts_with('\'') {
            QuoteStyle::Literal
        } else {
            QuoteStyle::Basic
        }
    }
}

/// Writes a key, with quotes if it needs them.
pub(crate) fn render_key(key: &str) -> String {
    let is_bare = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare {
        key.to_owned()
    } else {
        render_string(key, QuoteStyle::Basic)
    }
}

/// Writes the line of an entry, with its line end.
pub(crate) fn render_entry(key: &str, value: &Value, quotes: QuoteStyle) -> String {
    format!("{} = {}\n", render_key(key), render_value(value, quotes))
}

/// Writes a value on one line. TOML has no null: the proof refuses a text that has one.
pub(crate) fn render_value(value: &Value, quotes: QuoteStyle) -> String {
    match value {
        Value::String(text) => render_string(text, quotes),
        Value::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| render_value(item, quotes))
                .collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(table) if table.is_empty() => "{}".to_owned(),
        Value::Object(table) => {
            let entries: Vec<String> = table
                .iter()
                .map(|(key, value)| {
                    format!("{} = {}", render_key(key), render_value(value, quotes))
                })
                .collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            // `1e30` is a float in TOML, too.
            if text.contains(['.', 'e']) {
                text
            } else {
                format!("{text}.0")
            }
        }
        value => value.to_string(),
    }
}

fn render_string(text: &str, quotes: QuoteStyle) -> String {
    // A literal string has no escapes, so these characters cannot be written in one.
    let allows_literal = !text.contains('\'') && !text.chars().any(char::is_control);
    if quotes == QuoteStyle::Literal && allows_literal {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
