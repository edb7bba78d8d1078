//! Field of a form. Owns its type, its limits and the parsing of a typed line.
//!
//! Does not print or read (`form/mod.rs`). Invariant: a parsed value has the field's type and is within its limits.

use bytes::Bytes;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

use super::super::schema;

/// Field of a form, as its schema describes it.
pub(super) struct FormField {
    name: String,
    kind: FieldKind,
    required: bool,
    description: Option<ByteString>,
    default: Option<RawJson>,
    /// Allowed values, each with its title. Empty if any value of the type fits.
    choices: Vec<(RawJson, String)>,
    schema: JsonObject,
}

#[derive(Clone, Copy, PartialEq)]
enum FieldKind {
    Text,
    Number,
    Integer,
    Boolean,
    /// Array of several choices.
    Several,
}

impl FormField {
    pub(super) fn read(name: &ByteString, schema: &JsonObject, required: bool) -> Self {
        let kind = match schema.get_string("type").as_deref() {
            Some("number") => FieldKind::Number,
            Some("integer") => FieldKind::Integer,
            Some("boolean") => FieldKind::Boolean,
            Some("array") => FieldKind::Several,
            // A type that is not known here can still be typed, and the server judges it.
            _ => FieldKind::Text,
        };
        let items = schema.get_object("items").unwrap_or_default();
        FormField {
            name: schema.get_string("title").unwrap_or_else(|| name.clone()).to_string(),
            kind,
            required,
            description: schema.get_string("description"),
            default: schema.get("default").filter(|raw| !raw.is_null()).cloned(),
            choices: choices(if kind == FieldKind::Several { &items } else { schema }),
            schema: schema.clone(),
        }
    }

    /// Returns the text above the prompt.
    pub(super) fn intro(&self) -> String {
        let described = self.description.iter().map(|text| format!("  {text}\n"));
        let choices = self.choices.iter().enumerate().map(|(n, (_, title))| format!("  {}) {title}\n", n + 1));
        described.chain(choices).collect()
    }

    /// Returns the text before the cursor.
    pub(super) fn prompt(&self) -> String {
        let kind = match self.kind {
            _ if !self.choices.is_empty() && self.kind != FieldKind::Several => "one of the above",
            FieldKind::Text => "text",
            FieldKind::Number => "number",
            FieldKind::Integer => "whole number",
            FieldKind::Boolean => "y or n",
            FieldKind::Several => "some of the above, with commas",
        };
        let optional = if self.required { "" } else { ", may be empty" };
        let default = self.default.as_ref().map(|raw| format!(" [{}]", plain(raw))).unwrap_or_default();
        format!("{} ({kind}{optional}){default}: ", self.name)
    }

    /// Parses a line. Returns `None` for a field that stays empty, or the problem with the line.
    pub(super) fn parse(&self, line: &str) -> Result<Option<RawJson>, String> {
        if line.is_empty() {
            return match &self.default {
                // 2025-11-25/client/elicitation.mdx: "Clients that support defaults SHOULD pre-populate form
                // fields with these values."
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("It is required.".to_owned()),
                None => Ok(None),
            };
        }
        let value = match self.kind {
            FieldKind::Several => {
                let chosen: Result<Vec<RawJson>, String> = line.split(',').map(|one| self.choice(one.trim())).collect();
                RawJson::array(chosen?.iter())
            }
            _ if !self.choices.is_empty() => self.choice(line)?,
            FieldKind::Text => RawJson::string(line),
            FieldKind::Number => number(line, "number").ok_or("That is not a number.")?,
            FieldKind::Integer => number(line, "integer").ok_or("That is not a whole number.")?,
            FieldKind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => RawJson::literal("true"),
                "n" | "no" | "false" => RawJson::literal("false"),
                _ => return Err("Type y or n.".to_owned()),
            },
        };
        self.within_limits(&value)?;
        Ok(Some(value))
    }

    /// Returns the choice with this number, value or title.
    fn choice(&self, line: &str) -> Result<RawJson, String> {
        let same = |(raw, title): &&(RawJson, String)| plain(raw) == line || title == line;
        let numbered = || line.parse::<usize>().ok().and_then(|n| self.choices.get(n.checked_sub(1)?));
        // Values and titles before numbers: a choice may be a number itself.
        let found = self.choices.iter().find(same).or_else(numbered);
        found.map(|(raw, _)| raw.clone()).ok_or_else(|| format!("{line:?} is not among the choices."))
    }

    fn within_limits(&self, value: &RawJson) -> Result<(), String> {
        let limit = |key: &str| self.schema.get(key).and_then(|raw| raw.parse_as::<f64>().ok());
        let (size, least, most, unit) = match self.kind {
            FieldKind::Text => {
                // JSON Schema counts characters, not bytes (`minLength`, `maxLength`).
                (value.as_text().map(|t| t.chars().count() as f64), "minLength", "maxLength", " characters")
            }
            FieldKind::Number | FieldKind::Integer => (value.parse_as().ok(), "minimum", "maximum", ""),
            FieldKind::Several => (value.as_array().map(|items| items.len() as f64), "minItems", "maxItems", " items"),
            FieldKind::Boolean => return Ok(()),
        };
        let Some(size) = size else { return Ok(()) };
        match (limit(least), limit(most)) {
            (Some(least), _) if size < least => Err(format!("At least {least}{unit}.")),
            (_, Some(most)) if size > most => Err(format!("At most {most}{unit}.")),
            _ => Ok(()),
        }
    }
}

fn number(line: &str, kind: &str) -> Option<RawJson> {
    RawJson::parse(Bytes::copy_from_slice(line.as_bytes())).ok().filter(|raw| schema::is_a(raw, kind))
}

/// Reads the choices: `enum` with `enumNames`, or `oneOf` and `anyOf` with titles.
fn choices(schema: &JsonObject) -> Vec<(RawJson, String)> {
    let titled = |raw: &RawJson| {
        let branch = raw.as_object()?;
        let value = branch.get("const")?.clone();
        let title = branch.get_string("title").map_or_else(|| plain(&value), |title| title.to_string());
        Some((value, title))
    };
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(RawJson::as_array);
    if let Some(branches) = branches {
        return branches.iter().filter_map(titled).collect();
    }
    let names = schema::texts(schema.get("enumNames"));
    let title = |n: usize, raw: &RawJson| names.get(n).map_or_else(|| plain(raw), |name| name.to_string());
    schema::choices(schema).into_iter().enumerate().map(|(n, raw)| (raw.clone(), title(n, &raw))).collect()
}

/// Returns a value as people write it.
fn plain(raw: &RawJson) -> String {
    raw.as_text().map_or_else(|| format!("{raw:?}"), |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_taken_by_number_value_or_title() {
        let schema = r#"{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g"}]},"maxItems":2}"#;
        let field =
            FormField::read(&ByteString::literal("colours"), &RawJson::literal(schema).as_object().unwrap(), true);
        let parsed = |line| field.parse(line).map(|raw| format!("{:?}", raw.unwrap()));
        assert_eq!(parsed("Red, 2").as_deref(), Ok(r#"["r","g"]"#));
        assert_eq!(parsed("r").as_deref(), Ok(r#"["r"]"#));
        for wrong in ["", "blue", "0", "3", "r,g,r"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
