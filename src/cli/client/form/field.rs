//! Field of a form on the terminal. Owns its prompt and the parsing of a typed line.
//!
//! Does not print or read (`form/mod.rs`). Invariant: a parsed value has the field's type and is
//! within its limits.

use bytes::Bytes;

use moongate_form::{FieldChoice, FieldKind, FormField, schema};
use moongate_jsonrpc::json::RawJson;

/// Prompt for one field.
pub(super) struct FieldPrompt(FormField);

impl FieldPrompt {
    pub(super) fn new(field: FormField) -> Self {
        FieldPrompt(field)
    }

    /// Returns the values to choose from. Empty if any value of the type fits.
    fn choices(&self) -> &[FieldChoice] {
        match &self.0.kind {
            FieldKind::Choice(choices) => choices,
            FieldKind::List(item) => match &item.kind {
                FieldKind::Choice(choices) => choices,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// Returns the text above the prompt.
    pub(super) fn intro(&self) -> String {
        let described = self.0.description.iter().map(|text| format!("  {text}\n"));
        let choices = self
            .choices()
            .iter()
            .enumerate()
            .map(|(n, choice)| format!("  {}) {}\n", n + 1, choice.title));
        described.chain(choices).collect()
    }

    /// Returns the text before the cursor.
    pub(super) fn prompt(&self) -> String {
        let kind = match self.0.kind {
            FieldKind::Choice(_) => "one of the above",
            FieldKind::Number => "number",
            FieldKind::Integer => "whole number",
            FieldKind::Boolean => "y or n",
            FieldKind::List(_) => "some of the above, with commas",
            // Servers may ask for flat values only, so all else is taken for text.
            _ => "text",
        };
        let optional = if self.0.required {
            ""
        } else {
            ", may be empty"
        };
        let default = self
            .0
            .default
            .as_ref()
            .map(|raw| format!(" [{}]", plain(raw)))
            .unwrap_or_default();
        format!("{} ({kind}{optional}){default}: ", self.0.label())
    }

    /// Parses a line. Returns `None` for a field that stays empty, or the problem with the line.
    pub(super) fn parse(&self, line: &str) -> Result<Option<RawJson>, String> {
        if line.is_empty() {
            return match &self.0.default {
                // 2025-11-25/client/elicitation.mdx: "Clients that support defaults SHOULD
                // pre-populate form fields with these values."
                Some(default) => Ok(Some(default.clone())),
                None if self.0.required => Err("This field is required.".to_owned()),
                None => Ok(None),
            };
        }
        let value = match self.0.kind {
            FieldKind::List(_) => {
                let chosen: Result<Vec<RawJson>, String> =
                    line.split(',').map(|one| self.choice(one.trim())).collect();
                RawJson::array(chosen?.iter())
            }
            FieldKind::Choice(_) => self.choice(line)?,
            FieldKind::Number => number(line, "number").ok_or("That is not a number.")?,
            FieldKind::Integer => number(line, "integer").ok_or("That is not a whole number.")?,
            FieldKind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => RawJson::literal("true"),
                "n" | "no" | "false" => RawJson::literal("false"),
                _ => return Err("Type y or n.".to_owned()),
            },
            _ => RawJson::string(line),
        };
        self.within_limits(&value)?;
        Ok(Some(value))
    }

    /// Returns the choice with this number, value or title.
    fn choice(&self, line: &str) -> Result<RawJson, String> {
        let choices = self.choices();
        // Values and titles before numbers: a choice may be a number itself.
        let found = choices
            .iter()
            .find(|choice| plain(&choice.value) == line || choice.title == line)
            .or_else(|| choices.get(line.parse::<usize>().ok()?.checked_sub(1)?));
        found
            .map(|choice| choice.value.clone())
            .ok_or_else(|| format!("{line:?} is not among the choices."))
    }

    fn within_limits(&self, value: &RawJson) -> Result<(), String> {
        let (size, unit) = match self.0.kind {
            // JSON Schema counts characters, not bytes (`minLength`, `maxLength`).
            FieldKind::Text { .. } => (
                value.as_text().map(|t| t.chars().count() as f64),
                " characters",
            ),
            FieldKind::Number | FieldKind::Integer => (value.parse_as().ok(), ""),
            FieldKind::List(_) => (value.as_array().map(|items| items.len() as f64), " items"),
            _ => return Ok(()),
        };
        let Some(size) = size else { return Ok(()) };
        match (self.0.limits.least, self.0.limits.most) {
            (Some(least), _) if size < least => Err(format!("At least {least}{unit}.")),
            (_, Some(most)) if size > most => Err(format!("At most {most}{unit}.")),
            _ => Ok(()),
        }
    }
}

fn number(line: &str, kind: &str) -> Option<RawJson> {
    RawJson::parse(Bytes::copy_from_slice(line.as_bytes()))
        .ok()
        .filter(|raw| schema::is_a(raw, kind))
}

/// Returns a value as people write it.
fn plain(raw: &RawJson) -> String {
    raw.as_text()
        .map_or_else(|| format!("{raw:?}"), |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(field: &FieldPrompt, line: &str) -> Result<String, String> {
        field.parse(line).map(|raw| format!("{:?}", raw.unwrap()))
    }

    #[test]
    fn choices_are_taken_by_number_value_or_title() {
        let schema = r#"{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g"}]},"maxItems":2}"#;
        let form = format!(r#"{{"properties":{{"colours":{schema}}},"required":["colours"]}}"#);
        let form = RawJson::parse(form.into()).unwrap().as_object().unwrap();
        let FieldKind::Object { mut fields, .. } = moongate_form::read_form(&form).kind else {
            panic!("no object")
        };
        let field = FieldPrompt::new(fields.remove(0));
        assert_eq!(parsed(&field, "Red, 2").as_deref(), Ok(r#"["r","g"]"#));
        assert_eq!(parsed(&field, "r").as_deref(), Ok(r#"["r"]"#));
        for wrong in ["", "blue", "0", "3", "r,g,r"] {
            assert!(parsed(&field, wrong).is_err(), "{wrong}");
        }
    }
}
