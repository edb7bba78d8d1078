//! Input schemas that model APIs refuse: with `oneOf`, `anyOf` or `allOf` at the top. Pure
//! functions.
//!
//! Owns the compatible form of such a schema. Does not decide who gets it (`endpoint_lists.rs`).
//! Invariant: the compatible form accepts the same arguments, by the rules of the JSON Schema
//! dialects that know `if` and `else`.

use std::collections::BTreeSet;

use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// Keywords that are refused.
const COMBINERS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords of a condition.
const CONDITIONALS: [&str; 3] = ["if", "then", "else"];
/// Keywords that describe values without restricting them.
const ANNOTATIONS: [&str; 8] = [
    "title",
    "description",
    "$comment",
    "examples",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
];
/// Keywords that depend on their position or their neighbours, in ways that are not followed here.
const POSITION_KEYWORDS: [&str; 9] = [
    "\"#/allOf",
    "\"#/anyOf",
    "\"#/oneOf",
    "\"$id\"",
    "\"$anchor\"",
    "\"$dynamicRef\"",
    "\"$recursiveRef\"",
    "\"unevaluatedProperties\"",
    "\"unevaluatedItems\"",
];
/// Dialects without `if`.
const OLD_DIALECTS: [&str; 3] = ["draft-03", "draft-04", "draft-06"];
/// Maximum depth of references, and of combiners within combiners.
const DEPTH_MAX: usize = 8;

/// Style of tools' input schemas in lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaStyle {
    /// Unchanged, as the servers wrote them.
    #[default]
    AsIs,
    /// Without combining keywords at the top, where the same arguments can be described otherwise.
    Compatible,
}

/// Combining schema of one tool.
pub(super) struct CombinedSchema {
    /// Combining keywords at the top of its schema.
    pub(super) keywords: Vec<&'static str>,
    /// Schema without them, if there is one that accepts the same.
    pub(super) compatible: Option<RawJson>,
}

/// Inspects the input schema of a tool. Returns `None` if no keyword at its top is refused.
pub(super) fn inspect_schema(definition: &JsonObject) -> Option<CombinedSchema> {
    let schema = definition.get("inputSchema")?;
    // Most schemas have none anywhere, so they cost only one scan.
    memchr::memmem::find(schema.bytes(), b"Of\"")?;
    let schema = schema.as_object()?;
    let keywords: Vec<&'static str> = COMBINERS
        .into_iter()
        .filter(|key| schema.get(key).is_some())
        .collect();
    (!keywords.is_empty()).then(|| CombinedSchema {
        keywords,
        compatible: compatible(&schema).map(|schema| schema.to_raw()),
    })
}

/// Returns the definition with another schema.
pub(super) fn with_schema(definition: &RawJson, schema: &RawJson) -> Option<RawJson> {
    let mut definition = definition.as_object()?;
    definition.set(ByteString::literal("inputSchema"), schema.clone());
    Some(definition.to_raw())
}

pub(super) fn compatible(schema: &JsonObject) -> Option<JsonObject> {
    let text = schema.bytes();
    // References to the top, and keywords that depend on their position, would change their meaning
    // when moved.
    if schema.get("$ref").is_some()
        || POSITION_KEYWORDS
            .iter()
            .any(|keyword| memchr::memmem::find(&text, keyword.as_bytes()).is_some())
    {
        return None;
    }
    let mut base = schema.clone();
    // Each pass merges one keyword, and a merged branch may bring another one.
    for _ in 0..DEPTH_MAX {
        let merged = COMBINERS
            .into_iter()
            .find_map(|key| merge_keyword(&base, key, schema));
        let Some(merged) = merged else { break };
        base = merged;
    }
    if COMBINERS.iter().all(|key| base.get(key).is_none()) {
        return Some(base);
    }
    // Old dialects ignore `if`, so that such a schema would accept anything.
    let dialect = schema.get_string("$schema");
    let is_old =
        dialect.is_some_and(|dialect| OLD_DIALECTS.iter().any(|old| dialect.contains(old)));
    (!is_old).then(|| move_under_if(base, schema))
}

/// Merges one keyword into the schema, if possible.
fn merge_keyword(base: &JsonObject, key: &'static str, root: &JsonObject) -> Option<JsonObject> {
    let branches = branches(base.get(key)?, root)?;
    let mut merged = base.clone();
    merged.remove(key);
    let same = branches.windows(2).all(|pair| pair[0] == pair[1]);
    match key {
        // An empty branch accepts everything, so the keyword restricts nothing.
        "anyOf" if branches.iter().any(JsonObject::is_empty) => return Some(merged),
        "allOf" => {}
        "anyOf" if same => {}
        // A single branch means the same under every keyword.
        _ if branches.len() == 1 => {}
        _ => return None,
    }
    for branch in &branches {
        merge(&mut merged, branch)?;
    }
    Some(merged)
}

/// Returns the branches of a keyword, with references followed. Returns `None` if one of them is
/// not an object.
fn branches(value: &RawJson, root: &JsonObject) -> Option<Vec<JsonObject>> {
    let all = value.as_array()?;
    if all.is_empty() {
        return None;
    }
    all.iter()
        .map(|raw| match &raw.bytes()[..] {
            // `true` is the schema that accepts everything.
            b"true" => Some(JsonObject::new()),
            _ => follow_reference(raw.as_object()?, root),
        })
        .collect()
}

/// Resolves a branch that is only a reference into the same schema.
fn follow_reference(mut branch: JsonObject, root: &JsonObject) -> Option<JsonObject> {
    for _ in 0..DEPTH_MAX {
        let Some(reference) = branch.get("$ref") else {
            return Some(branch);
        };
        let reference = reference.as_text()?;
        // Keywords next to `$ref` have their own meaning, except annotations.
        if branch
            .iter()
            .any(|(key, _)| key.as_str() != "$ref" && !ANNOTATIONS.contains(&key.as_str()))
        {
            return None;
        }
        let (table, name) = reference.strip_prefix("#/")?.split_once('/')?;
        // Escapes in the name are not decoded here.
        if !matches!(table, "$defs" | "definitions") || name.contains(['/', '~', '%']) {
            return None;
        }
        branch = root.get_object(table)?.get_object(name)?;
    }
    None
}

/// Returns true if properties that a schema does not name are restricted.
fn is_closed(schema: &JsonObject) -> bool {
    schema
        .get("additionalProperties")
        .is_some_and(|rule| !matches!(&rule.bytes()[..], b"true" | b"{}"))
}

fn has_patterns(schema: &JsonObject) -> bool {
    schema.get("patternProperties").is_some()
}

fn has_condition(schema: &JsonObject) -> bool {
    CONDITIONALS.iter().any(|key| schema.get(key).is_some())
}

fn properties(schema: &JsonObject) -> JsonObject {
    schema.get_object("properties").unwrap_or_default()
}

fn is_named_by(names: &JsonObject, other: &JsonObject) -> bool {
    names.iter().all(|(name, _)| other.get(name).is_some())
}

/// Merges the restrictions of a branch into a schema. Returns `None` if both have a keyword that
/// cannot be stated once.
fn merge(base: &mut JsonObject, branch: &JsonObject) -> Option<()> {
    let ours = properties(base);
    let theirs = properties(branch);
    // A closed schema restricts properties that it does not name, so the other one must not name
    // more.
    if is_closed(base) && (!is_named_by(&theirs, &ours) || has_patterns(branch))
        || is_closed(branch) && (!is_named_by(&ours, &theirs) || has_patterns(base))
    {
        return None;
    }
    // A schema has room for one condition only.
    if has_condition(base) && has_condition(branch) {
        return None;
    }
    for (key, value) in branch.iter() {
        match key.as_str() {
            "$schema" | "$defs" | "definitions" | "$ref" => return None,
            "properties" => base.set(
                ByteString::literal("properties"),
                both_properties(&ours, &value.as_object()?).to_raw(),
            ),
            "required" => base.set(
                ByteString::literal("required"),
                RawJson::from_value(
                    &names_in(base)?
                        .union(&names_in(branch)?)
                        .collect::<Vec<_>>(),
                ),
            ),
            "additionalProperties" if !is_closed(branch) => {}
            "additionalProperties" if !is_closed(base) => base.set(key.clone(), value.clone()),
            "title" | "description" if base.get(key).is_none() => {
                base.set(key.clone(), value.clone())
            }
            word if ANNOTATIONS.contains(&word) => {}
            word => match base.get(word) {
                None => base.set(key.clone(), value.clone()),
                Some(same) if same == value => {}
                Some(_) => return None,
            },
        }
    }
    Some(())
}

fn both_properties(ours: &JsonObject, theirs: &JsonObject) -> JsonObject {
    let mut all = ours.clone();
    for (name, rule) in theirs.iter() {
        let both = match ours.get(name) {
            // Both rules must hold.
            Some(known) if known != rule => JsonObject::new()
                .with("allOf", RawJson::array([known, rule].into_iter()))
                .to_raw(),
            _ => rule.clone(),
        };
        all.set(name.clone(), both);
    }
    all
}

/// Returns the names in `required`. Returns `None` if it is not a list of names.
fn names_in(schema: &JsonObject) -> Option<BTreeSet<String>> {
    schema
        .get("required")
        .map_or(Some(BTreeSet::new()), |names| names.parse_as().ok())
}

/// Moves the remaining keywords below an `if` whose `else` refuses everything. The same arguments
/// stay valid. Rules about properties that follow from the keywords are also shown at the top,
/// where models see them.
fn move_under_if(mut base: JsonObject, root: &JsonObject) -> JsonObject {
    let mut condition = JsonObject::new();
    for key in COMBINERS.into_iter().chain(CONDITIONALS) {
        if let Some(value) = base.remove(key) {
            condition.set(ByteString::literal(key), value);
        }
    }
    for key in COMBINERS {
        let Some(branches) = condition.get(key).and_then(|value| branches(value, root)) else {
            continue;
        };
        if !is_closed(&base) {
            let shown = visible_properties(&properties(&base), &branches, key == "allOf");
            if !shown.is_empty() {
                base.set(ByteString::literal("properties"), shown.to_raw());
            }
        }
        let needed: Option<Vec<BTreeSet<String>>> = branches.iter().map(names_in).collect();
        // `allOf` requires the names of every branch. The other keywords require only names that
        // all branches share.
        let needed: BTreeSet<String> = needed
            .and_then(|all| {
                all.into_iter().reduce(|a, b| match key {
                    "allOf" => a.union(&b).cloned().collect(),
                    _ => a.intersection(&b).cloned().collect(),
                })
            })
            .unwrap_or_default();
        if let Some(known) = names_in(&base)
            && !needed.is_subset(&known)
        {
            base.set(
                ByteString::literal("required"),
                RawJson::from_value(&known.union(&needed).collect::<Vec<_>>()),
            );
        }
    }
    base.set(ByteString::literal("if"), condition.to_raw());
    // `not` with an empty schema refuses everything.
    base.set(
        ByteString::literal("else"),
        RawJson::literal(r#"{"not":{}}"#),
    );
    base
}

/// Returns the properties, with those of the branches as far as their rules follow from the
/// branches.
fn visible_properties(known: &JsonObject, branches: &[JsonObject], is_all: bool) -> JsonObject {
    let mut all = known.clone();
    let named: Vec<JsonObject> = branches.iter().map(properties).collect();
    for (name, rule) in named.iter().flat_map(JsonObject::iter) {
        if all.get(name).is_some() {
            continue;
        }
        let rules: Vec<&RawJson> = named
            .iter()
            .filter_map(|properties| properties.get(name))
            .collect();
        let follows = if is_all {
            rule.clone()
        } else if branches
            .iter()
            .all(|branch| properties(branch).get(name).is_some() || forbids_others(branch))
        {
            match rules.iter().all(|other| *other == rule) {
                true => rule.clone(),
                false => JsonObject::new()
                    .with("anyOf", RawJson::array(rules.into_iter()))
                    .to_raw(),
            }
        } else {
            // Another branch does not restrict it: only its description holds for all.
            let description = rule
                .as_object()
                .and_then(|rule| rule.get("description").cloned());
            description.map_or(RawJson::literal("{}"), |text| {
                JsonObject::new().with("description", text).to_raw()
            })
        };
        all.set(name.clone(), follows);
    }
    all
}

/// Returns true if a schema forbids properties that it does not name.
fn forbids_others(schema: &JsonObject) -> bool {
    let rule = schema.get("additionalProperties");
    rule.is_some_and(|rule| &rule.bytes()[..] == b"false") && !has_patterns(schema)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Map, Value, json};

    use super::*;

    fn rewritten(schema: &Value) -> Option<Value> {
        let schema = JsonObject::parse(Bytes::from(schema.to_string())).unwrap();
        compatible(&schema).map(|schema| serde_json::from_slice(&schema.bytes()).unwrap())
    }

    /// Validates against the part of JSON Schema that the schemas here use.
    fn accepts(schema: &Value, value: &Value, root: &Value) -> bool {
        let Some(schema) = schema.as_object() else {
            return schema.as_bool().unwrap();
        };
        let object = value.as_object();
        let kind = schema
            .get("type")
            .is_none_or(|kind| match kind.as_str().unwrap() {
                "object" => value.is_object(),
                "string" => value.is_string(),
                "integer" => value.is_i64(),
                other => panic!("{other}"),
            });
        let rules = schema.get("properties").and_then(Value::as_object);
        let members = object.is_none_or(|object| {
            let more = schema.get("additionalProperties");
            object.iter().all(|(name, value)| {
                match rules.and_then(|rules| rules.get(name)).or(more) {
                    Some(rule) => accepts(rule, value, root),
                    None => true,
                }
            })
        });
        let required = object.is_none_or(|object| {
            schema.get("required").is_none_or(|names| {
                let mut names = names.as_array().unwrap().iter();
                names.all(|name| object.contains_key(name.as_str().unwrap()))
            })
        });
        let condition = schema.get("if").is_none_or(|condition| {
            let branch = if accepts(condition, value, root) {
                "then"
            } else {
                "else"
            };
            schema
                .get(branch)
                .is_none_or(|branch| accepts(branch, value, root))
        });
        let reference = schema.get("$ref").is_none_or(|reference| {
            accepts(
                root.pointer(&reference.as_str().unwrap()[1..]).unwrap(),
                value,
                root,
            )
        });
        kind && members
            && required
            && condition
            && reference
            && schema.get("const").is_none_or(|only| only == value)
            && schema
                .get("not")
                .is_none_or(|not| !accepts(not, value, root))
            && schema
                .get("minProperties")
                .is_none_or(|n| object.is_none_or(|o| o.len() as u64 >= n.as_u64().unwrap()))
            && accepting(schema, "allOf", value, root).is_none_or(|(count, all)| count == all)
            && accepting(schema, "anyOf", value, root).is_none_or(|(count, _)| count > 0)
            && accepting(schema, "oneOf", value, root).is_none_or(|(count, _)| count == 1)
    }

    /// Counts the branches of a keyword that accept a value, and all of them.
    fn accepting(
        schema: &Map<String, Value>,
        key: &str,
        value: &Value,
        root: &Value,
    ) -> Option<(usize, usize)> {
        let branches = schema.get(key)?.as_array()?;
        let count = branches.iter().filter(|s| accepts(s, value, root)).count();
        Some((count, branches.len()))
    }

    /// Returns arguments of every kind that the schemas here can distinguish.
    fn arguments() -> Vec<Value> {
        let values = [
            Value::Null,
            json!("x"),
            json!("y"),
            json!(1),
            json!({"x": 1}),
        ];
        let mut all = vec![json!({})];
        for name in ["a", "b", "c", "kind"] {
            for before in all.clone() {
                for value in &values[1..] {
                    let mut object = before.clone();
                    object[name] = value.clone();
                    all.push(object);
                }
            }
        }
        all
    }

    fn schemas() -> Vec<Value> {
        let a = json!({"type": "string"});
        let b = json!({"type": "integer"});
        vec![
            json!({"type": "object",
                "allOf": [{"properties": {"a": a}, "required": ["a"]}, {"properties": {"b": b}}]}),
            json!({"type": "object", "properties": {"a": a},
                "allOf": [{"properties": {"a": {"const": "x"}}}]}),
            json!({"type": "object", "properties": {"a": a}, "required": ["a"],
                "allOf": [{"required": ["b"]}, true]}),
            json!({"type": "object", "properties": {"a": a, "b": b}, "additionalProperties": false,
                "allOf": [{"required": ["b"]}]}),
            json!({"type": "object",
                "allOf": [{"properties": {"a": a}, "additionalProperties": false},
                    {"properties": {"b": b}}]}),
            json!({"type": "object",
                "allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]}),
            json!({"type": "object", "allOf": [{"minProperties": 1}, {"minProperties": 2}]}),
            json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"type": "object", "properties": {"a": a}, "anyOf": [{}, {"required": ["b"]}]}),
            json!({"type": "object", "anyOf": [{"properties": {"a": a}, "required": ["a"]}]}),
            json!({"type": "object",
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c"]}]}),
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["a"]}]}),
            json!({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["a"]}]}),
            json!({"type": "object", "oneOf": [
                {"properties": {"kind": {"const": "x"}, "a": a}, "required": ["kind", "a"]},
                {"properties": {"kind": {"const": "y"}, "b": b}, "required": ["kind", "b"]}]}),
            json!({"type": "object", "anyOf": [
                {"properties": {"kind": {"const": "x"}, "a": a}, "required": ["kind"],
                    "additionalProperties": false},
                {"properties": {"kind": {"const": "y"}, "b": b}, "required": ["kind"],
                    "additionalProperties": false}]}),
            json!({"type": "object", "additionalProperties": {"type": "string"},
                "anyOf": [{"properties": {"a": b}}, {"required": ["b"]}]}),
            json!({"type": "object",
                "anyOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y", "description": "b"}],
                "$defs": {"x": {"properties": {"a": a}, "required": ["a"]},
                    "y": {"properties": {"a": b}, "required": ["a"]}}}),
            json!({"type": "object", "allOf": [{"$ref": "#/definitions/x"}],
                "definitions": {"x": {"required": ["c"]}}}),
            json!({"type": "object", "allOf": [{"required": ["a"]}],
                "anyOf": [{"required": ["b"]}, {"required": ["c"]}],
                "oneOf": [{"properties": {"kind": {"const": "x"}}},
                    {"properties": {"b": b}, "required": ["b"]}]}),
            json!({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]},
                "else": {"required": ["c"]},
                "anyOf": [{"required": ["kind"]}, {"properties": {"a": {"const": "x"}}}]}),
            json!({"type": "object",
                "allOf": [{"if": {"required": ["a"]}, "then": {"required": ["b"]}},
                    {"if": {"required": ["b"]}, "then": {"required": ["c"]}}]}),
            json!({"type": "object", "allOf": [false]}),
            json!({"type": "object", "anyOf": [false, {"required": ["a"]}]}),
        ]
    }

    #[test]
    fn rewritten_schemas_accept_the_same_values() {
        let arguments = arguments();
        for schema in schemas() {
            let other = rewritten(&schema).unwrap_or_else(|| panic!("{schema}"));
            for key in COMBINERS {
                assert!(other.get(key).is_none(), "{schema} became {other}");
            }
            for value in &arguments {
                let before = accepts(&schema, value, &schema);
                let after = accepts(&other, value, &other);
                assert_eq!(before, after, "{value}: {schema} became {other}");
            }
        }
    }

    #[test]
    fn mergeable_schemas_are_merged() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "allOf": [{"properties": {"b": {"type": "integer"}}, "required": ["b"]},
                {"anyOf": [{"minProperties": 1}]}]});
        let merged = json!({"type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "required": ["a", "b"], "minProperties": 1});
        assert_eq!(rewritten(&schema), Some(merged));
    }

    #[test]
    fn a_model_sees_the_properties_of_all_branches() {
        let schema = json!({"type": "object", "oneOf": [
            {"properties": {"kind": {"const": "x"},
                "a": {"type": "string", "description": "the a"}}, "required": ["kind", "a"]},
            {"properties": {"kind": {"const": "y"}}, "required": ["kind"]}]});
        let other = rewritten(&schema).unwrap();
        assert_eq!(
            other["properties"]["kind"],
            json!({"anyOf": [{"const": "x"}, {"const": "y"}]})
        );
        assert_eq!(other["properties"]["a"], json!({"description": "the a"}));
        assert_eq!(other["required"], json!(["kind"]));
    }

    #[test]
    fn schemas_without_an_equivalent_stay() {
        let all = json!([{"required": ["a"]}, {"required": ["b"]}]);
        for schema in [
            json!({"type": "object", "anyOf": all, "unevaluatedProperties": false}),
            json!({"type": "object", "anyOf": all,
                "$schema": "http://json-schema.org/draft-04/schema#"}),
            json!({"type": "object", "anyOf": all, "properties": {"c": {"$ref": "#/anyOf/0"}}}),
            json!({"type": "object", "anyOf": all, "$ref": "#/$defs/x", "$defs": {"x": {}}}),
            json!({"type": "object", "anyOf": all, "$id": "https://example.com/x"}),
        ] {
            assert_eq!(rewritten(&schema), None, "{schema}");
        }
        let plain = JsonObject::parse(Bytes::from_static(
            br#"{"inputSchema":{"properties":{"a":{"anyOf":[{}]}}}}"#,
        ));
        assert!(inspect_schema(&plain.unwrap()).is_none());
    }
}
