//! Templates of the table of clients.
//!
//! Owns the replacement of placeholders in texts and in JSON. Does not know clients. Invariant:
//! text that was filled in is not read again, so a value may have braces.

use serde_json::Value;

/// Values of placeholders, by name. A placeholder without a value removes the part that it is in.
pub(crate) struct TemplateValues<'a>(pub(crate) &'a [(&'a str, Option<&'a str>)]);

impl TemplateValues<'_> {
    fn value(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| *other == name)
            .and_then(|(_, value)| *value)
    }

    /// Fills a text. `None` if a value is missing.
    pub(crate) fn fill(&self, template: &str) -> Option<String> {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, (name, after))) = rest
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            out.push_str(before);
            out.push_str(self.value(name)?);
            rest = after;
        }
        out.push_str(rest);
        Some(out)
    }

    /// Fills each word of a text. `None` if a value is missing.
    pub(crate) fn fill_words(&self, template: &str) -> Option<Vec<String>> {
        template
            .split_whitespace()
            .map(|word| self.fill(word))
            .collect()
    }

    /// Fills every text of a JSON value. Leaves out members without a value, and tables of nothing
    /// else.
    pub(crate) fn fill_json(&self, template: &Value) -> Option<Value> {
        match template {
            Value::String(text) => self.fill(text).map(Value::String),
            Value::Array(items) => Some(
                items
                    .iter()
                    .filter_map(|item| self.fill_json(item))
                    .collect(),
            ),
            Value::Object(members) => {
                let filled = members
                    .iter()
                    .filter_map(|(name, value)| Some((name.clone(), self.fill_json(value)?)));
                let filled: serde_json::Map<String, Value> = filled.collect();
                (members.is_empty() || !filled.is_empty()).then_some(Value::Object(filled))
            }
            other => Some(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_without_a_value_are_left_out() {
        let values = TemplateValues(&[("a", Some("{b}")), ("b", Some("x")), ("none", None)]);
        assert_eq!(values.fill("{a}{b}/{a}").as_deref(), Some("{b}x/{b}"));
        assert_eq!(values.fill("a {none}"), None);
        let template = json!({"url": "{b}", "headers": {"Authorization": "{none}"},
            "tools": ["*", "{none}"], "n": {}});
        assert_eq!(
            values.fill_json(&template),
            Some(json!({"url": "x", "tools": ["*"], "n": {}}))
        );
    }
}
