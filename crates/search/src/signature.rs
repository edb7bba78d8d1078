//! Signatures: one line that says how to call a tool, at a third of the tokens of its schema.
//!
//! Owns how types are written. Does not check schemas. Invariant: a signature is one line of
//! bounded length, whatever the schema is.

use serde_json::Value;

use crate::schema::{object_properties, parse_schema, resolve};

/// Length from which further arguments are left out.
const MAX_ARGUMENTS_LENGTH: usize = 1000;
/// Values of an enumeration, or alternatives of a union.
const MAX_ALTERNATIVES: usize = 8;
/// Nested objects that are written out.
const MAX_DEPTH: usize = 2;
/// Schemas that are looked at: references may lead to one of them many times.
const MAX_SCHEMAS: usize = 400;
/// Longest literal in bytes.
const MAX_LITERAL: usize = 60;
/// Characters of a summary.
const MAX_SUMMARY: usize = 200;

/// Writes a tool's name and arguments in one line: `name(owner: string, labels?: string[], limit?:
/// integer = 10)`.
///
/// Required arguments come first, each group in the order of the schema. A schema that cannot be
/// read gives `name(…)`.
pub fn signature(name: &str, input_schema: &str) -> String {
    let Some(schema) = parse_schema(input_schema) else {
        return format!("{name}(…)");
    };
    let mut writer = SignatureWriter {
        root: &schema,
        schemas_left: MAX_SCHEMAS,
    };
    let arguments = writer.arguments(&schema, 0);
    format!("{name}({arguments})")
}

/// Cuts a description down to its first paragraph, in one line of at most 200 characters.
pub fn summary(description: &str) -> String {
    let paragraph: Vec<&str> = description
        .trim()
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .flat_map(str::split_whitespace)
        .collect();
    let text = paragraph.join(" ");
    let Some((end, _)) = text.char_indices().nth(MAX_SUMMARY) else {
        return text;
    };
    // Room for the mark, and no half word unless the word is all there is.
    let (last, _) = text[..end].char_indices().next_back().unwrap_or_default();
    let cut = text[..last]
        .rfind(' ')
        .filter(|at| *at > last / 2)
        .unwrap_or(last);
    format!("{}…", text[..cut].trim_end_matches([',', ';', ':', ' ']))
}

struct SignatureWriter<'a> {
    root: &'a Value,
    schemas_left: usize,
}

impl<'a> SignatureWriter<'a> {
    fn arguments(&mut self, schema: &'a Value, depth: usize) -> String {
        let object = resolve(self.root, schema);
        let required: Vec<&str> = object
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let is_required = |name: &str| required.contains(&name);
        let first = object_properties(self.root, object).filter(|(name, _)| is_required(name));
        let rest = object_properties(self.root, object).filter(|(name, _)| !is_required(name));
        let ordered: Vec<(&String, &Value)> = first.chain(rest).collect();
        let mut text = String::new();
        for (name, property) in ordered {
            let separator = if text.is_empty() { "" } else { ", " };
            let argument = self.argument(name, property, is_required(name), depth);
            // Required arguments come first, so the cut takes optional ones as long as it can.
            if text.len() + argument.len() > MAX_ARGUMENTS_LENGTH {
                text += separator;
                text.push('…');
                break;
            }
            text += separator;
            text += &argument;
        }
        text
    }

    fn argument(
        &mut self,
        name: &str,
        schema: &'a Value,
        is_required: bool,
        depth: usize,
    ) -> String {
        let mark = if is_required { "" } else { "?" };
        let kind = self.kind(schema, depth);
        // A default next to a `$ref` belongs to this argument, and wins over that of the shared
        // type.
        let default = schema
            .get("default")
            .or_else(|| resolve(self.root, schema).get("default"));
        let default = default.filter(|value| !value.is_null()).and_then(literal);
        let default = default
            .map(|value| format!(" = {value}"))
            .unwrap_or_default();
        format!("{}{mark}: {kind}{default}", argument_name(name))
    }

    /// Type of a schema, in the notation of TypeScript.
    fn kind(&mut self, schema: &'a Value, depth: usize) -> String {
        if self.schemas_left == 0 {
            // Each schema costs one. A union that refers to itself twice would grow exponentially.
            return "…".to_owned();
        }
        self.schemas_left -= 1;
        let schema = resolve(self.root, schema);
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return union(
                values
                    .iter()
                    .map(|value| literal(value).unwrap_or_else(|| "…".to_owned())),
            );
        }
        if let Some(value) = schema.get("const") {
            return literal(value).unwrap_or_else(|| "any".to_owned());
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(parts) = schema
                .get(key)
                .and_then(Value::as_array)
                .filter(|parts| !parts.is_empty())
            {
                return union(parts.iter().map(|part| self.kind(part, depth)));
            }
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.kind_by_name(name, schema, depth),
            Some(Value::Array(names)) => union(
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|name| self.kind_by_name(name, schema, depth)),
            ),
            _ if schema.get("properties").is_some() => self.kind_by_name("object", schema, depth),
            _ if schema.get("items").is_some() => self.kind_by_name("array", schema, depth),
            // Composed of several: the first that says something counts for all.
            _ => match schema
                .get("allOf")
                .and_then(Value::as_array)
                .and_then(|parts| parts.first())
            {
                Some(part) => self.kind(part, depth),
                None => "any".to_owned(),
            },
        }
    }

    fn kind_by_name(&mut self, name: &str, schema: &'a Value, depth: usize) -> String {
        match name {
            "array" => match schema.get("items").filter(|items| items.is_object()) {
                Some(items) => {
                    let kind = self.kind(items, depth);
                    // `a|b[]` would read as a list of `b` only.
                    if kind.contains('|') && !kind.starts_with('{') {
                        format!("({kind})[]")
                    } else {
                        format!("{kind}[]")
                    }
                }
                None => "any[]".to_owned(),
            },
            "object"
                if depth < MAX_DEPTH && object_properties(self.root, schema).next().is_some() =>
            {
                format!("{{{}}}", self.arguments(schema, depth + 1))
            }
            "string" | "number" | "integer" | "boolean" | "null" | "object" => name.to_owned(),
            _ => "any".to_owned(),
        }
    }
}

/// Joins alternatives, each once.
fn union(parts: impl Iterator<Item = String>) -> String {
    let mut known: Vec<String> = Vec::new();
    for part in parts {
        if known.contains(&part) {
            continue;
        }
        // Checked after the duplicates: a repeated part takes no room.
        if known.len() == MAX_ALTERNATIVES {
            known.push("…".to_owned());
            break;
        }
        known.push(part);
    }
    if known.is_empty() {
        "any".to_owned()
    } else {
        known.join("|")
    }
}

/// Value as JSON, which has no line breaks. `None` if it is long.
fn literal(value: &Value) -> Option<String> {
    let text = value.to_string();
    (text.len() <= MAX_LITERAL).then_some(text)
}

/// Name of an argument: in quotes if it could be taken for something else.
fn argument_name(name: &str) -> String {
    if !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "_-.$@".contains(c))
    {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_arguments_come_first_in_the_order_of_the_schema() {
        let schema = r#"{"type":"object","required":["repo","owner"],"properties":{
            "labels":{"type":"array","items":{"type":"string"}},
            "owner":{"type":"string"},"repo":{"type":"string"},
            "limit":{"type":"integer","default":10},"draft":{"type":["boolean","null"],"default":null}}}"#;
        assert_eq!(
            signature("create_issue", schema),
            "create_issue(owner: string, repo: string, labels?: string[], limit?: integer = 10, \
             draft?: boolean|null)"
        );
    }

    #[test]
    fn unions_enumerations_and_objects_are_written_out() {
        for (schema, expected) in [
            (r#"{"enum":[0,1,2,3,4]}"#, "0|1|2|3|4"),
            (r#"{"enum":["a","b\nc"]}"#, r#""a"|"b\nc""#),
            (r#"{"enum":[1,2,3,4,5,6,7,8,9]}"#, "1|2|3|4|5|6|7|8|…"),
            (r#"{"const":"x"}"#, r#""x""#),
            (
                r#"{"anyOf":[{"type":"string"},{"type":"null"},{"type":"string"}]}"#,
                "string|null",
            ),
            (
                r#"{"type":"array","items":{"type":["string","number"]}}"#,
                "(string|number)[]",
            ),
            (r#"{"type":"array"}"#, "any[]"),
            (r#"{"type":"object"}"#, "object"),
            (r#"{"allOf":[{"type":"number"}]}"#, "number"),
            ("true", "any"),
            ("{}", "any"),
            (r##"{"$ref":"#/nowhere"}"##, "any"),
            (
                r#"{"properties":{"b":{"properties":{"c":{"properties":{"d":{}}}}},"e":{"type":"string"}},"required":["e"]}"#,
                "{e: string, b?: {c?: object}}",
            ),
        ] {
            let schema = format!(r#"{{"properties":{{"a":{schema}}}}}"#);
            assert_eq!(signature("f", &schema), format!("f(a?: {expected})"));
        }
    }

    #[test]
    fn local_references_are_followed_within_bounds() {
        let schema = r##"{"properties":{"a":{"$ref":"#/$defs/Node"},"b":{"$ref":"#/$defs/Loop"}},
            "$defs":{"Node":{"type":"object","properties":{"next":{"$ref":"#/$defs/Node"}}},"Loop":{"$ref":"#/$defs/Loop"}}}"##;
        assert_eq!(
            signature("f", schema),
            "f(a?: {next?: {next?: object}}, b?: any)"
        );
        let union = [r##"{"$ref":"#/$defs/U"}"##; 8].join(",");
        let schema = format!(
            r##"{{"properties":{{"a":{{"$ref":"#/$defs/U"}}}},"$defs":{{"U":{{"anyOf":[{union}]}}}}}}"##
        );
        assert!(signature("f", &schema).len() < 2000);
    }

    #[test]
    fn hostile_schemas_give_one_short_line() {
        let many = (0..5_000)
            .map(|n| format!(r#""argument{n}":{{"type":"string"}}"#))
            .collect::<Vec<_>>()
            .join(",");
        for (schema, expected) in [
            ("no JSON".to_owned(), "f(…)"),
            ("[".repeat(200_000), "f(…)"),
            ("[]".to_owned(), "f()"),
            (
                r#"{"properties":{"a\n):":{}}}"#.to_owned(),
                r#"f("a\n):"?: any)"#,
            ),
            (
                format!(r#"{{"properties":{{"{}":{{}}}}}}"#, "x".repeat(5000)),
                "f(…)",
            ),
        ] {
            assert_eq!(signature("f", &schema), expected);
        }
        let line = signature("f", &format!(r#"{{"properties":{{{many}}}}}"#));
        assert!(line.ends_with(", …)") && line.len() < 1100, "{line}");
    }

    #[test]
    fn summaries_are_the_first_paragraph_in_one_line() {
        assert_eq!(
            summary("  Creates\n an  issue.\n\nArgs: owner"),
            "Creates an issue."
        );
        assert_eq!(summary(""), "");
        let long = summary(&"many words, ".repeat(100));
        assert!(
            long.chars().count() <= 200 && long.ends_with("words, many…"),
            "{long}"
        );
        assert_eq!(summary(&"é".repeat(300)).chars().count(), 200);
    }
}
