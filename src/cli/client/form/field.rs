//! One field of a form: what it takes, and what was typed for it.
//!
//! Invariant: a value that is given back is of the field's type and within its limits.

use bytes::Bytes;

use crate::json::{Object, Raw, Text};

use super::super::schema;

/// A field.
pub(super) struct Field {
    name: String,
    kind: Kind,
    required: bool,
    description: Option<Text>,
    default: Option<Raw>,
    /// What may be chosen: the value and what it is called. Empty: anything that fits.
    choices: Vec<(Raw, String)>,
    schema: Object,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Number,
    Integer,
    Boolean,
    /// Several of the choices.
    Several,
}

impl Field {
    pub(super) fn read(name: &Text, schema: &Object, required: bool) -> Self {
        let kind = match schema.text("type").as_deref() {
            Some("number") => Kind::Number,
            Some("integer") => Kind::Integer,
            Some("boolean") => Kind::Boolean,
            Some("array") => Kind::Several,
            _ => Kind::Text,
        };
        let items = schema.object("items").unwrap_or_default();
        Field {
            name: schema.text("title").unwrap_or_else(|| name.clone()).to_string(),
            kind,
            required,
            description: schema.text("description"),
            default: schema.get("default").filter(|raw| !raw.is_null()).cloned(),
            choices: choices(if kind == Kind::Several { &items } else { schema }),
            schema: schema.clone(),
        }
    }

    /// What to know before it is filled in.
    pub(super) fn intro(&self) -> String {
        let described = self.description.iter().map(|text| format!("  {text}\n"));
        let choices = self.choices.iter().enumerate().map(|(n, (_, title))| format!("  {}) {title}\n", n + 1));
        described.chain(choices).collect()
    }

    /// What stands before the cursor.
    pub(super) fn prompt(&self) -> String {
        let kind = match self.kind {
            _ if !self.choices.is_empty() && self.kind != Kind::Several => "one of the above",
            Kind::Text => "text",
            Kind::Number => "number",
            Kind::Integer => "whole number",
            Kind::Boolean => "y or n",
            Kind::Several => "some of the above, with commas",
        };
        let optional = if self.required { "" } else { ", may be empty" };
        let default = self.default.as_ref().map(|raw| format!(" [{}]", plain(raw))).unwrap_or_default();
        format!("{} ({kind}{optional}){default}: ", self.name)
    }

    /// The value of a line; nothing if the field stays empty. Fails with what is wrong with it.
    pub(super) fn parse(&self, line: &str) -> Result<Option<Raw>, String> {
        if line.is_empty() {
            return match &self.default {
                Some(default) => Ok(Some(default.clone())),
                None if self.required => Err("It is required.".to_owned()),
                None => Ok(None),
            };
        }
        let value = match self.kind {
            Kind::Several => {
                let chosen: Result<Vec<Raw>, String> = line.split(',').map(|one| self.choice(one.trim())).collect();
                Raw::array(chosen?.iter())
            }
            _ if !self.choices.is_empty() => self.choice(line)?,
            Kind::Text => Raw::string(line),
            Kind::Number => number(line, "number").ok_or("That is not a number.")?,
            Kind::Integer => number(line, "integer").ok_or("That is not a whole number.")?,
            Kind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Raw::literal("true"),
                "n" | "no" | "false" => Raw::literal("false"),
                _ => return Err("Type y or n.".to_owned()),
            },
        };
        self.within_limits(&value)?;
        Ok(Some(value))
    }

    /// By number, value or title.
    fn choice(&self, line: &str) -> Result<Raw, String> {
        let same = |(raw, title): &&(Raw, String)| plain(raw) == line || title == line;
        let numbered = || line.parse::<usize>().ok().and_then(|n| self.choices.get(n.checked_sub(1)?));
        let found = self.choices.iter().find(same).or_else(numbered);
        found.map(|(raw, _)| raw.clone()).ok_or_else(|| format!("{line:?} is not among the choices."))
    }

    fn within_limits(&self, value: &Raw) -> Result<(), String> {
        let limit = |key: &str| self.schema.get(key).and_then(|raw| raw.read::<f64>().ok());
        let (size, least, most, unit) = match self.kind {
            Kind::Text => (value.as_text().map(|t| t.chars().count() as f64), "minLength", "maxLength", " characters"),
            Kind::Number | Kind::Integer => (value.read().ok(), "minimum", "maximum", ""),
            Kind::Several => (value.as_array().map(|items| items.len() as f64), "minItems", "maxItems", " items"),
            Kind::Boolean => return Ok(()),
        };
        let Some(size) = size else { return Ok(()) };
        match (limit(least), limit(most)) {
            (Some(least), _) if size < least => Err(format!("At least {least}{unit}.")),
            (_, Some(most)) if size > most => Err(format!("At most {most}{unit}.")),
            _ => Ok(()),
        }
    }
}

fn number(line: &str, kind: &str) -> Option<Raw> {
    Raw::parse(Bytes::copy_from_slice(line.as_bytes())).ok().filter(|raw| schema::is_a(raw, kind))
}

/// `enum` with `enumNames`, or `oneOf` and `anyOf` with titles.
fn choices(schema: &Object) -> Vec<(Raw, String)> {
    let titled = |raw: &Raw| {
        let branch = raw.as_object()?;
        let value = branch.get("const")?.clone();
        let title = branch.text("title").map_or_else(|| plain(&value), |title| title.to_string());
        Some((value, title))
    };
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Raw::as_array);
    if let Some(branches) = branches {
        return branches.iter().filter_map(titled).collect();
    }
    let names = schema::texts(schema.get("enumNames"));
    let title = |n: usize, raw: &Raw| names.get(n).map_or_else(|| plain(raw), |name| name.to_string());
    schema::choices(schema).into_iter().enumerate().map(|(n, raw)| (raw.clone(), title(n, &raw))).collect()
}

/// A value as people write it.
fn plain(raw: &Raw) -> String {
    raw.as_text().map_or_else(|| format!("{raw:?}"), |text| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_taken_by_number_value_or_title() {
        let schema = r#"{"type":"array","items":{"anyOf":[{"const":"r","title":"Red"},{"const":"g"}]},"maxItems":2}"#;
        let field = Field::read(&Text::literal("colours"), &Raw::literal(schema).as_object().unwrap(), true);
        let parsed = |line| field.parse(line).map(|raw| format!("{:?}", raw.unwrap()));
        assert_eq!(parsed("Red, 2").as_deref(), Ok(r#"["r","g"]"#));
        assert_eq!(parsed("r").as_deref(), Ok(r#"["r"]"#));
        for wrong in ["", "blue", "0", "3", "r,g,r"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
