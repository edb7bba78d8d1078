//! Form of a JSON Schema.
//!
//! Owns the mapping from a schema to fields, and its bounds. Does not validate values. Invariant:
//! fields, choices and the bytes that are read are bounded. What exceeds a bound is written as
//! JSON.

use std::collections::HashSet;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

use crate::field::{FieldChoice, FieldKind, FieldLimits, FormField};
use crate::schema::{is_a, resolve, texts};

/// Fields of a form.
const FIELDS_MAX: usize = 1000;
/// Choices of all fields of a form.
const CHOICES_MAX: usize = 2000;
/// Depth of fields within fields.
const DEPTH_MAX: usize = 8;
/// Bytes of schemas that are read for a form. References count each time.
const BYTES_MAX: usize = 8 << 20;
/// Longest text of a server in a form, in characters.
const TEXT_MAX: usize = 1000;
/// Longest single line. Longer texts get several lines.
const LINE_MAX: f64 = 200.0;
/// Names of texts that often have several lines.
const LONG_NAMES: [&str; 6] = ["body", "content", "text", "query", "sql", "code"];

/// Reads the form of an input schema. Its root is an object, or JSON if that is not understood.
pub fn read_form(schema: &JsonObject) -> FormField {
    let mut builder = FormBuilder {
        root: schema,
        fields: FIELDS_MAX,
        choices: CHOICES_MAX,
        bytes: BYTES_MAX,
    };
    let mut root = builder.field("", schema.clone(), true, 0);
    // A tool without declared arguments still takes an object.
    if matches!(root.kind, FieldKind::Json)
        && schema.get("properties").is_none()
        && schema.get("$ref").is_none()
    {
        root.kind = FieldKind::Object {
            fields: Vec::new(),
            omitted: 0,
        };
    }
    root
}

/// Rest of the bounds while a form is read.
struct FormBuilder<'a> {
    root: &'a JsonObject,
    fields: usize,
    choices: usize,
    bytes: usize,
}

impl FormBuilder<'_> {
    fn field(&mut self, name: &str, schema: JsonObject, required: bool, depth: usize) -> FormField {
        // Depth alone is not a bound: a definition that refers to itself fifty times would make
        // 50^8 fields.
        let size = schema.size_hint();
        let within = self.fields > 0 && self.bytes >= size && depth <= DEPTH_MAX;
        // Paid even beyond a bound: the field is still drawn, as JSON.
        self.fields = self.fields.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
        let mut nullable = false;
        let schema = if within {
            self.flatten(schema, &mut nullable)
        } else {
            schema
        };
        let kind = if within {
            self.kind(name, &schema, &mut nullable, depth)
        } else {
            FieldKind::Json
        };
        let examples = schema.get("examples").and_then(RawJson::as_array);
        FormField {
            name: name.to_owned(),
            title: bounded_text(&schema, "title"),
            description: bounded_text(&schema, "description"),
            default: schema.get("default").filter(|raw| !raw.is_null()).cloned(),
            example: examples.and_then(|all| all.into_iter().next()),
            limits: limits(&kind, &schema),
            kind,
            required,
            nullable,
        }
    }

    /// Follows references, and takes up branches that leave no choice.
    fn flatten(&mut self, schema: JsonObject, nullable: &mut bool) -> JsonObject {
        let mut schema = resolve(self.root, schema);
        // A branch may lead back to itself by a reference, so the loop needs its own end.
        for _ in 0..DEPTH_MAX {
            let Some((key, mut branches)) = branches(&schema) else {
                break;
            };
            let all = branches.len();
            branches.retain(|branch| branch.get_string("type").as_deref() != Some("null"));
            // In `allOf`, `null` next to another type allows no value at all, so it isn't an
            // option.
            *nullable |= branches.len() < all && key != "allOf";
            // Several branches are a choice for people. Several parts of `allOf` stay apart, too:
            // merging them needs a validator.
            let [only] = branches.as_slice() else { break };
            let only = resolve(self.root, only.clone());
            self.bytes = self.bytes.saturating_sub(only.size_hint());
            schema.remove(key);
            for (key, value) in only.iter() {
                // The outer member wins, since it describes this use: its own title or default, for
                // example.
                if schema.get(key).is_none() {
                    schema.set(key.clone(), value.clone());
                }
            }
            if self.bytes == 0 {
                break;
            }
        }
        schema
    }

    fn kind(
        &mut self,
        name: &str,
        schema: &JsonObject,
        nullable: &mut bool,
        depth: usize,
    ) -> FieldKind {
        // Before the type, which `enum` narrows: a free text would accept values that the server
        // refuses.
        if let Some(choices) = self.listed_choices(schema, nullable) {
            return choices;
        }
        let types = type_names(schema);
        *nullable |= types.iter().any(|name| name == "null");
        let types: Vec<&str> = types
            .iter()
            .map(String::as_str)
            .filter(|name| *name != "null")
            .collect();
        match types.as_slice() {
            ["string"] => text_kind(name, schema),
            ["number"] => FieldKind::Number,
            ["integer"] => FieldKind::Integer,
            ["boolean"] => FieldKind::Boolean,
            ["array"] => self.list(schema, depth),
            ["object"] => self.object(schema, depth),
            [_, _, ..] => {
                // A copy for each type keeps the other members, such as `items` and `minimum`.
                let variants = types
                    .iter()
                    .map(|name| schema.clone().with("type", RawJson::string(name)));
                self.variants(variants.collect(), depth)
            }
            [] => match branches(schema).filter(|(key, _)| *key != "allOf") {
                Some((_, mut branches)) => {
                    // `null` is a state of the field, not a form.
                    branches.retain(|branch| branch.get_string("type").as_deref() != Some("null"));
                    self.variants(branches, depth)
                }
                None if schema.get("properties").is_some() => self.object(schema, depth),
                None if schema.get("items").is_some() => self.list(schema, depth),
                _ => FieldKind::Json,
            },
            _ => FieldKind::Json,
        }
    }

    /// Reads the values that a schema lists: `enum`, `const`, or branches with a `const` each.
    fn listed_choices(&mut self, schema: &JsonObject, nullable: &mut bool) -> Option<FieldKind> {
        let mut choices: Vec<FieldChoice> =
            match branches(schema).filter(|(key, _)| *key != "allOf") {
                Some((_, branches)) => branches.iter().map(titled).collect::<Option<_>>()?,
                None => {
                    let names = texts(schema.get("enumNames"));
                    let listed = crate::schema::choices(schema).into_iter().enumerate();
                    listed
                        .map(|(n, value)| FieldChoice {
                            title: names
                                .get(n)
                                .map_or_else(|| plain_text(&value), ByteString::to_string),
                            value,
                        })
                        .collect()
                }
            };
        let all = choices.len();
        choices.retain(|choice| !choice.value.is_null());
        *nullable |= choices.len() < all;
        // Too many choices aren't a choice at all: a list that is cut would hide legal values.
        if choices.is_empty() || choices.len() > self.choices {
            return None;
        }
        self.choices -= choices.len();
        Some(FieldKind::Choice(choices))
    }

    fn object(&mut self, schema: &JsonObject, depth: usize) -> FieldKind {
        let properties = schema.get_object("properties");
        // It has more members than an object may have here.
        if properties.is_none() && schema.get("properties").is_some_and(RawJson::is_object) {
            return FieldKind::Json;
        }
        let properties = properties.unwrap_or_default();
        if properties.is_empty() {
            return match schema.get("additionalProperties") {
                Some(raw) if &raw.bytes()[..] == b"false" => FieldKind::Object {
                    fields: Vec::new(),
                    omitted: 0,
                },
                // It says that it has no members.
                None if schema.get("properties").is_some() => FieldKind::Object {
                    fields: Vec::new(),
                    omitted: 0,
                },
                rest => {
                    let values = rest.and_then(RawJson::as_object).unwrap_or_default();
                    FieldKind::Map(Box::new(self.field("", values, true, depth + 1)))
                }
            };
        }
        let required: HashSet<ByteString> = texts(schema.get("required")).into_iter().collect();
        // Required members come first, as in a signature. Else the order is the schema's.
        let (needed, others): (Vec<_>, Vec<_>) = properties
            .iter()
            .partition(|(name, _)| required.contains(*name));
        let mut fields = Vec::new();
        for (name, raw) in needed.into_iter().chain(others) {
            // Members without a field are written as JSON, all together.
            if self.fields == 0 {
                break;
            }
            fields.push(self.field(
                name,
                raw.as_object().unwrap_or_default(),
                required.contains(name),
                depth + 1,
            ));
        }
        let omitted = properties.iter().count() - fields.len();
        FieldKind::Object { fields, omitted }
    }

    fn list(&mut self, schema: &JsonObject, depth: usize) -> FieldKind {
        // Each position of a tuple has its own schema, which a list of equal items cannot show.
        if schema.get("prefixItems").is_some() {
            return FieldKind::Json;
        }
        let items = schema.get_object("items").unwrap_or_default();
        FieldKind::List(Box::new(self.field("", items, true, depth + 1)))
    }

    fn variants(&mut self, schemas: Vec<JsonObject>, depth: usize) -> FieldKind {
        // All variants or none: a form without one of them would look complete.
        if schemas.len() > self.fields {
            return FieldKind::Json;
        }
        FieldKind::Variants(
            schemas
                .into_iter()
                .map(|schema| self.field("", schema, true, depth + 1))
                .collect(),
        )
    }
}

/// Returns the branches of a schema that say what a value is, and not only which members it must
/// have.
fn branches(schema: &JsonObject) -> Option<(&'static str, Vec<JsonObject>)> {
    const TELLING: [&str; 8] = [
        "type",
        "properties",
        "items",
        "enum",
        "const",
        "$ref",
        "anyOf",
        "oneOf",
    ];
    ["anyOf", "oneOf", "allOf"].into_iter().find_map(|key| {
        let branches = schema.get(key).and_then(RawJson::as_array)?;
        let objects: Vec<JsonObject> = branches.iter().filter_map(RawJson::as_object).collect();
        // A branch such as `{"required": ["a"]}` only restricts. As a variant it would be an empty
        // form.
        let is_telling = objects
            .iter()
            .all(|branch| TELLING.iter().any(|key| branch.get(key).is_some()));
        (!objects.is_empty() && is_telling).then_some((key, objects))
    })
}

/// Returns a text of the server, cut to the length that a form shows.
fn bounded_text(schema: &JsonObject, key: &str) -> Option<String> {
    let text = schema.get_string(key)?;
    Some(text.chars().take(TEXT_MAX).collect())
}

fn titled(branch: &JsonObject) -> Option<FieldChoice> {
    let value = branch.get("const")?.clone();
    Some(FieldChoice {
        title: branch
            .get_string("title")
            .map_or_else(|| plain_text(&value), |t| t.to_string()),
        value,
    })
}

/// Returns a value as people write it.
fn plain_text(raw: &RawJson) -> String {
    raw.as_text()
        .map_or_else(|| format!("{raw:?}"), |text| text.to_string())
        .chars()
        .take(TEXT_MAX)
        .collect()
}

/// Returns the types that a schema names, or else the one that its values have.
fn type_names(schema: &JsonObject) -> Vec<String> {
    let named = schema.get("type");
    let mut names: Vec<String> = match named.and_then(RawJson::as_text) {
        Some(one) => vec![one.to_string()],
        None => texts(named).iter().map(ByteString::to_string).collect(),
    };
    // A list of values that is too long to show still shows their type.
    if names.is_empty() {
        const NAMES: [&str; 4] = ["string", "integer", "number", "boolean"];
        let first = crate::schema::choices(schema)
            .into_iter()
            .find(|value| !value.is_null());
        names.extend(first.and_then(|value| {
            NAMES
                .iter()
                .find(|name| is_a(&value, name))
                .map(|name| (*name).to_owned())
        }));
    }
    names
}

fn text_kind(name: &str, schema: &JsonObject) -> FieldKind {
    let format = schema
        .get_string("format")
        .map(|format| format.chars().take(40).collect());
    let longest = limit(schema, "maxLength");
    let name = name.to_lowercase();
    let is_named = name
        .split(|c: char| !c.is_alphanumeric())
        .any(|word| LONG_NAMES.contains(&word));
    let is_long = longest.map_or(is_named, |longest| longest > LINE_MAX);
    // A format such as a date or an address is one line, however long it may be.
    FieldKind::Text {
        is_long: is_long && format.is_none(),
        format,
    }
}

fn limits(kind: &FieldKind, schema: &JsonObject) -> FieldLimits {
    match kind {
        FieldKind::Text { .. } => FieldLimits {
            least: limit(schema, "minLength"),
            most: limit(schema, "maxLength"),
            ..FieldLimits::default()
        },
        FieldKind::List(_) => FieldLimits {
            least: limit(schema, "minItems"),
            most: limit(schema, "maxItems"),
            ..FieldLimits::default()
        },
        FieldKind::Number | FieldKind::Integer => FieldLimits {
            least: limit(schema, "minimum"),
            most: limit(schema, "maximum"),
            above: limit(schema, "exclusiveMinimum"),
            below: limit(schema, "exclusiveMaximum"),
        },
        _ => FieldLimits::default(),
    }
}

fn limit(schema: &JsonObject, key: &str) -> Option<f64> {
    schema.get(key)?.parse_as().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(json: &str) -> FormField {
        read_form(
            &RawJson::parse(json.to_owned().into())
                .unwrap()
                .as_object()
                .unwrap(),
        )
    }

    /// Writes the kinds of a form in one line.
    fn outline(field: &FormField) -> String {
        let kind = match &field.kind {
            FieldKind::Text { is_long: true, .. } => "long".to_owned(),
            FieldKind::Text {
                format: Some(format),
                ..
            } => format.clone(),
            FieldKind::Text { .. } => "text".to_owned(),
            FieldKind::Number => "number".to_owned(),
            FieldKind::Integer => "integer".to_owned(),
            FieldKind::Boolean => "boolean".to_owned(),
            FieldKind::Choice(choices) => choices
                .iter()
                .map(|c| c.title.clone())
                .collect::<Vec<_>>()
                .join("|"),
            FieldKind::Object { fields, .. } => format!("{{{}}}", outlines(fields)),
            FieldKind::Map(values) => format!("map<{}>", outline(values)),
            FieldKind::List(item) => format!("[{}]", outline(item)),
            FieldKind::Variants(variants) => format!("({})", outlines(variants)),
            FieldKind::Json => "json".to_owned(),
        };
        let name = if field.name.is_empty() {
            String::new()
        } else {
            format!("{}:", field.name)
        };
        format!("{name}{kind}{}", if field.nullable { "?" } else { "" })
    }

    fn outlines(fields: &[FormField]) -> String {
        fields.iter().map(outline).collect::<Vec<_>>().join(" ")
    }

    fn property(json: &str) -> String {
        outline(&form(&format!(
            r#"{{"type":"object","properties":{{"p":{json}}}}}"#
        )))
    }

    #[test]
    fn each_kind_of_schema_has_its_field() {
        for (schema, wanted) in [
            (r#"{"type":"string"}"#, "text"),
            (r#"{"type":"string","maxLength":201}"#, "long"),
            (r#"{"type":"string","format":"date"}"#, "date"),
            (r#"{"type":["integer","null"]}"#, "integer?"),
            (
                r#"{"anyOf":[{"type":"number"},{"type":"null"}]}"#,
                "number?",
            ),
            (r#"{"enum":["a",1,null]}"#, "a|1?"),
            (r#"{"const":"x"}"#, "x"),
            (
                r#"{"oneOf":[{"const":"r","title":"Red"},{"const":"g"}]}"#,
                "Red|g",
            ),
            (
                r#"{"type":"array","items":{"type":"object","properties":{"a":{"type":"boolean"}}}}"#,
                "[{a:boolean}]",
            ),
            (
                r#"{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]}"#,
                "(text [text])",
            ),
            (r#"{"type":["string","number"]}"#, "(text number)"),
            (
                r#"{"oneOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}"#,
                "(text integer)?",
            ),
            (r#"{"type":"object","properties":{}}"#, "{}"),
            (
                r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
                "map<text>",
            ),
            (r#"{"allOf":[{"type":"string"}],"default":"x"}"#, "text"),
            (r#"{"type":"array","prefixItems":[{}]}"#, "json"),
            ("{}", "json"),
            ("true", "json"),
        ] {
            assert_eq!(property(schema), format!("{{p:{wanted}}}"), "{schema}");
        }
        assert_eq!(
            outline(&form(r#"{"properties":{"sql_query":{"type":"string"}}}"#)),
            "{sql_query:long}"
        );
        let order = r#"{"properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3},"d":{"const":4}},"required":["d","b"]}"#;
        assert_eq!(
            outline(&form(order)),
            "{b:2 d:4 a:1 c:3}",
            "the required ones first"
        );
        assert_eq!(outline(&form(r#"{"type":"object"}"#)), "map<json>");
        assert_eq!(outline(&form("{}")), "{}");
        let constraint = r#"{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"required":["a"]}]}"#;
        assert_eq!(outline(&form(constraint)), "{a:text}");
    }

    #[test]
    fn hostile_schemas_stay_bounded() {
        fn count(field: &FormField) -> usize {
            1 + match &field.kind {
                FieldKind::Object { fields, .. } | FieldKind::Variants(fields) => {
                    fields.iter().map(count).sum()
                }
                FieldKind::Map(one) | FieldKind::List(one) => count(one),
                FieldKind::Choice(choices) => choices.len(),
                _ => 0,
            }
        }
        let many: Vec<String> = (0..10_000)
            .map(|n| format!(r#""p{n}":{{"type":"string"}}"#))
            .collect();
        let many = format!(r#"{{"type":"object","properties":{{{}}}}}"#, many.join(","));
        let again: Vec<String> = (0..50)
            .map(|n| format!(r##""p{n}":{{"$ref":"#"}}"##))
            .collect();
        let recursive = format!(
            r#"{{"type":"object","properties":{{{}}}}}"#,
            again.join(",")
        );
        let values: Vec<String> = (0..100_000).map(|n| format!(r#""v{n}""#)).collect();
        let values = format!(
            r#"{{"properties":{{"a":{{"enum":[{}]}}}}}}"#,
            values.join(",")
        );
        let cycle = r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}"##;
        let deep = format!(
            "{}{{}}{}",
            r#"{"type":"array","items":"#.repeat(100),
            "}".repeat(100)
        );
        for hostile in [&many, &recursive, &values, cycle, &deep] {
            assert!(
                count(&form(hostile)) <= FIELDS_MAX + CHOICES_MAX + 10,
                "{}",
                &hostile[..60.min(hostile.len())]
            );
        }
        assert_eq!(
            outline(&form(&values)),
            "{a:text}",
            "a long list of texts is a text"
        );
    }
}
