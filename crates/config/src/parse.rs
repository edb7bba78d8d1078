//! Parsers of TOML, YAML and JSON into one tree.
//!
//! Owns the three parsers, which no other file names. Does not know which keys exist. Invariant:
//! equal configs in any format give equal trees, and a null value counts as absent.

use std::collections::BTreeMap;
use std::fmt;

use jsonc_parser::common::Ranged;
use moongate_edit::{TextBound, exceeded_bound};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::de::{DeTable, DeValue};

use super::collector::ProblemCollector;
use super::problem::ProblemKind;
use super::source::FileFormat;
use super::tree::{ConfigNode, ConfigValue, SourceSpan};

/// Limit of nesting. No config needs more, and recursive parsers run out of stack.
const DEPTH_MAX: usize = 32;
/// Bytes of all keys that lead to a value. Each value below a long key is judged, and named, by
/// that key.
const KEYS_MAX: usize = 2048;

/// Reads one file. Reports syntax errors, and returns the rest of the file, if there is one.
pub(super) fn parse(
    format: FileFormat,
    text: &str,
    source: usize,
    faults: &mut ProblemCollector,
) -> ConfigNode {
    let reader = FileParser { text, source };
    // Before the parsers, which have limits for parts of a text, or none at all.
    if let Some((at, bound)) = exceeded_bound(format.of_edits(), text, DEPTH_MAX) {
        let fix = match bound {
            TextBound::Nesting => "no setting is nested this deeply; remove it",
            TextBound::Aliases => "write the values out, or shorten what the aliases repeat",
        };
        faults.error(
            ProblemKind::Syntax,
            reader.span(at, at + 1),
            bound.message(),
            fix,
        );
        return ConfigNode::table(reader.whole_span());
    }
    let mut tree = match format {
        FileFormat::Toml => reader.toml(faults),
        FileFormat::Yaml => reader.yaml(faults),
        FileFormat::Json => reader.json(faults),
    };
    refuse_long_keys(&mut tree, KEYS_MAX, faults);
    tree
}

/// Takes out values to which more than `left` bytes of keys lead.
fn refuse_long_keys(node: &mut ConfigNode, left: usize, faults: &mut ProblemCollector) {
    match &mut node.value {
        ConfigValue::List(items) => items
            .iter_mut()
            .for_each(|item| refuse_long_keys(item, left, faults)),
        ConfigValue::Table(table) => table.retain(|key, child| {
            let below = left.checked_sub(key.len());
            match below {
                Some(below) => refuse_long_keys(child, below, faults),
                // A syntax error, since nobody judges what such a value has: no line of it may be
                // shown.
                None => faults.error(
                    ProblemKind::Syntax,
                    child.key,
                    "a key is too long",
                    "shorten it, or remove it",
                ),
            }
            below.is_some()
        }),
        _ => {}
    }
}

struct FileParser<'a> {
    text: &'a str,
    source: usize,
}

impl FileParser<'_> {
    fn span(&self, start: usize, end: usize) -> SourceSpan {
        SourceSpan {
            source: self.source,
            start,
            end,
        }
    }

    fn whole_span(&self) -> SourceSpan {
        self.span(0, 0)
    }

    /// Adds an entry to a table. Reports a second entry of the same name.
    fn add(
        &self,
        table: &mut BTreeMap<String, ConfigNode>,
        name: &str,
        key: SourceSpan,
        mut node: ConfigNode,
        faults: &mut ProblemCollector,
    ) {
        node.key = key;
        if table.contains_key(name) {
            faults.error(
                ProblemKind::Conflict,
                key,
                format!("`{name}` is defined twice"),
                "keep one of the two",
            );
        // A null in YAML or JSON is an absent key: TOML cannot write it.
        } else if node.value != ConfigValue::Null {
            table.insert(name.to_owned(), node);
        }
    }

    // The parser continues after an error, so one run reports them all.
    fn toml(&self, faults: &mut ProblemCollector) -> ConfigNode {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let span = error.span().unwrap_or(self.text.len()..self.text.len());
            let span = self.span(span.start, span.end);
            let message = format!("not valid TOML: {}", error.message());
            faults.error(
                ProblemKind::Syntax,
                span,
                message,
                "correct the syntax here or on the line before",
            );
        }
        ConfigNode {
            span: self.whole_span(),
            key: self.whole_span(),
            ..self.toml_table(table.get_ref(), self.whole_span(), faults)
        }
    }

    fn toml_table(
        &self,
        table: &DeTable<'_>,
        span: SourceSpan,
        faults: &mut ProblemCollector,
    ) -> ConfigNode {
        let mut out = BTreeMap::new();
        for (key, value) in table {
            let key_span = self.span(key.span().start, key.span().end);
            let node = self.toml_value(
                value.get_ref(),
                self.span(value.span().start, value.span().end),
                faults,
            );
            self.add(&mut out, key.get_ref(), key_span, node, faults);
        }
        ConfigNode::new(ConfigValue::Table(out), span)
    }

    fn toml_value(
        &self,
        value: &DeValue<'_>,
        span: SourceSpan,
        faults: &mut ProblemCollector,
    ) -> ConfigNode {
        let value = match value {
            DeValue::String(text) => ConfigValue::Text(text.clone().into_owned()),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => ConfigValue::Int(number),
                    // Too large for any setting. The check reports it, at its location.
                    Err(_) => ConfigValue::Float(f64::INFINITY),
                }
            }
            DeValue::Float(number) => {
                ConfigValue::Float(number.as_str().parse().unwrap_or(f64::NAN))
            }
            DeValue::Boolean(value) => ConfigValue::Bool(*value),
            // YAML and JSON have no dates, so a date is text in every format.
            DeValue::Datetime(time) => ConfigValue::Text(time.to_string()),
            DeValue::Array(items) => {
                let items = items.iter().map(|item| {
                    let span = self.span(item.span().start, item.span().end);
                    self.toml_value(item.get_ref(), span, faults)
                });
                ConfigValue::List(items.collect())
            }
            DeValue::Table(table) => return self.toml_table(table, span, faults),
        };
        ConfigNode::new(value, span)
    }

    fn json(&self, faults: &mut ProblemCollector) -> ConfigNode {
        // Comments and trailing commas are allowed, as in the files of editors. Names without
        // quotes are not.
        let options = jsonc_parser::ParseOptions {
            allow_loose_object_property_names: false,
            ..Default::default()
        };
        match jsonc_parser::parse_to_ast(
            self.text,
            &jsonc_parser::CollectOptions::default(),
            &options,
        ) {
            Ok(result) => match result.value {
                Some(value) => self.json_value(&value, faults),
                None => ConfigNode::table(self.whole_span()),
            },
            Err(error) => {
                let span = self.span(error.range().start, error.range().end);
                let message = format!(
                    "not valid JSON: {}",
                    decapitalised(&error.kind().to_string())
                );
                faults.error(
                    ProblemKind::Syntax,
                    span,
                    message,
                    "correct the syntax here or on the line before",
                );
                ConfigNode::table(self.whole_span())
            }
        }
    }

    fn json_value(
        &self,
        value: &jsonc_parser::ast::Value<'_>,
        faults: &mut ProblemCollector,
    ) -> ConfigNode {
        use jsonc_parser::ast::Value as Json;
        let span = self.span(value.start(), value.end());
        let value = match value {
            Json::StringLit(text) => ConfigValue::Text(text.value.clone().into_owned()),
            Json::NumberLit(number) => match number.value.parse::<i64>() {
                Ok(number) => ConfigValue::Int(number),
                Err(_) => ConfigValue::Float(number.value.parse().unwrap_or(f64::NAN)),
            },
            Json::BooleanLit(value) => ConfigValue::Bool(value.value),
            Json::NullKeyword(_) => ConfigValue::Null,
            Json::Array(list) => ConfigValue::List(
                list.elements
                    .iter()
                    .map(|item| self.json_value(item, faults))
                    .collect(),
            ),
            Json::Object(object) => {
                let mut table = BTreeMap::new();
                for property in &object.properties {
                    let key = self.span(property.name.start(), property.name.end());
                    let node = self.json_value(&property.value, faults);
                    self.add(&mut table, property.name.as_str(), key, node, faults);
                }
                ConfigValue::Table(table)
            }
        };
        ConfigNode::new(value, span)
    }

    fn yaml(&self, faults: &mut ProblemCollector) -> ConfigNode {
        // YAML 1.2: `y` and `no` are texts, as clients read them.
        let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
        let options = serde_saphyr::options! { strict_booleans: true, budget: budget };
        match serde_saphyr::from_str_with_options::<serde_saphyr::Spanned<YamlValue>>(
            self.text, options,
        ) {
            Ok(tree) => match self.yaml_value(tree, faults) {
                // An empty file is an empty config.
                ConfigNode {
                    value: ConfigValue::Null,
                    ..
                } => ConfigNode::table(self.whole_span()),
                node => node,
            },
            Err(error) => {
                let span = error
                    .location()
                    .map_or(self.whole_span(), |location| self.yaml_span(location));
                let message = format!("not valid YAML: {}", yaml_message(&error));
                faults.error(
                    ProblemKind::Syntax,
                    span,
                    message,
                    "correct the syntax here or on the line before",
                );
                ConfigNode::table(self.whole_span())
            }
        }
    }

    fn yaml_span(&self, location: serde_saphyr::Location) -> SourceSpan {
        let span = location.span();
        let start = match span.byte_offset() {
            Some(start) => saturating_usize(start),
            // Only the position in characters is known, so count them.
            None => self
                .text
                .char_indices()
                .nth(saturating_usize(span.offset()))
                .map_or(self.text.len(), |(at, _)| at),
        };
        let length = saturating_usize(span.byte_len().unwrap_or_else(|| span.len()));
        let end = start.saturating_add(length).min(self.text.len());
        // A span may include the line break after the value.
        let shown = self
            .text
            .get(start..end)
            .map_or(end, |text| start + text.trim_end().len());
        self.span(start.min(self.text.len()), shown)
    }

    fn yaml_value(
        &self,
        spanned: serde_saphyr::Spanned<YamlValue>,
        faults: &mut ProblemCollector,
    ) -> ConfigNode {
        let span = self.yaml_span(spanned.referenced);
        let value = match spanned.value {
            YamlValue::Scalar(value) => value,
            YamlValue::List(items) => ConfigValue::List(
                items
                    .into_iter()
                    .map(|item| self.yaml_value(item, faults))
                    .collect(),
            ),
            YamlValue::Table(entries) => {
                let mut table = BTreeMap::new();
                for (key, node) in entries {
                    let key_span = self.yaml_span(key.referenced);
                    let node = self.yaml_value(node, faults);
                    self.add(&mut table, &key.value, key_span, node, faults);
                }
                ConfigValue::Table(table)
            }
        };
        ConfigNode::new(value, span)
    }
}

fn saturating_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Takes the location out of an error. It is shown separately.
fn yaml_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(" at line ").next().unwrap_or_default();
    let line = match line
        .strip_prefix("error: ")
        .unwrap_or(line)
        .split_once(": ")
    {
        Some((start, rest)) if start.starts_with("line ") => rest,
        _ => line,
    };
    // The rest of that message is advice for programmers.
    decapitalised(line.split(", set ").next().unwrap_or_default())
}

fn decapitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

/// YAML value of any type.
enum YamlValue {
    Scalar(ConfigValue),
    List(Vec<serde_saphyr::Spanned<YamlValue>>),
    Table(
        Vec<(
            serde_saphyr::Spanned<String>,
            serde_saphyr::Spanned<YamlValue>,
        )>,
    ),
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(ConfigValue::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(ConfigValue::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        // Outside of every setting's range. The check reports it.
        Ok(YamlValue::Scalar(i64::try_from(value).map_or(
            ConfigValue::Float(f64::INFINITY),
            ConfigValue::Int,
        )))
    }

    fn visit_i128<E>(self, value: i128) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(i64::try_from(value).map_or(
            ConfigValue::Float(f64::INFINITY),
            ConfigValue::Int,
        )))
    }

    fn visit_u128<E>(self, value: u128) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(i64::try_from(value).map_or(
            ConfigValue::Float(f64::INFINITY),
            ConfigValue::Int,
        )))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(ConfigValue::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(ConfigValue::Text(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(ConfigValue::Null))
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Scalar(ConfigValue::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(YamlValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlValue::Table(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::super::redact::secret_ranges_of;
    use super::*;

    #[test]
    fn values_below_a_long_key_are_not_judged_by_it() {
        // Bytes of the key times values are hundreds of billions here.
        let key = "k".repeat(400_000);
        let values = vec!["1"; 400_000].join(",");
        for (format, text) in [
            (
                FileFormat::Json,
                format!("{{\"a\": {{\"{key}\": [{values}]}}, \"token\": \"x\"}}"),
            ),
            (
                FileFormat::Toml,
                format!("token = 'x'\n[a]\n{key} = [{values}]\n"),
            ),
        ] {
            let mut faults = ProblemCollector::default();
            let tree = parse(format, &text, 0, &mut faults);
            assert_eq!(secret_ranges_of(&tree, &text).len(), 1);
            assert_eq!(faults.errors.len(), 1);
            assert_eq!(faults.errors[0].kind, ProblemKind::Syntax);
            assert_eq!(&*faults.errors[0].message, "a key is too long");
        }
        // A key of half the length twice is as long.
        let half = "k".repeat(KEYS_MAX / 2);
        for (text, errors) in [
            (format!("{{\"{half}\": {{\"{half}\": 1}}}}"), 0),
            (format!("{half}.a.{half} = 1"), 1),
        ] {
            let format = if errors == 0 {
                FileFormat::Json
            } else {
                FileFormat::Toml
            };
            let mut faults = ProblemCollector::default();
            parse(format, &text, 0, &mut faults);
            assert_eq!(faults.errors.len(), errors, "{text}");
        }
    }
}
