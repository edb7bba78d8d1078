//! Files that the declarations of the keys give, and tests that they are up to date.
//!
//! Owns the schema of the checks, `config/full.toml` and the tables of `docs/reference/config.md`
//! and `limits.md`. Does not write the text around the tables. Invariant: with `UPDATE_EXPECTED`
//! set, one run writes them all.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::file::ConfigFile;
use super::schema::ConfigSchema;

/// Tables of a config whose limits are on `docs/reference/limits.md`.
const LIMIT_TABLES: [&str; 2] = ["limits", "defaults"];

/// Column of the comments in `config/full.toml`, and the width of a line.
const COMMENT: usize = 32;
const WIDTH: usize = 120;

/// Compares a file of the repository with its derived text. With `UPDATE_EXPECTED` set it writes
/// the file.
fn compare(path: &str, derive: impl FnOnce(&str) -> String) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    let derived = derive(&text);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        return std::fs::write(&path, derived).unwrap();
    }
    let how = "keys have changed: UPDATE_EXPECTED=1 cargo test -p moongate-config derived";
    let differs = text
        .lines()
        .zip(derived.lines())
        .find(|(old, new)| old != new);
    assert!(text == derived, "{}: {how}\n{differs:#?}", path.display());
}

#[test]
fn the_file_is_what_is_derived() {
    compare("crates/config/src/schema.json", |_| {
        serde_json::to_string_pretty(&schema()).unwrap() + "\n"
    });
    // The checks read the text that was compiled in.
    assert!(
        std::env::var_os("UPDATE_EXPECTED").is_some()
            || ConfigSchema::read().into_value() == schema()
    );
}

#[test]
fn the_page_of_the_config_is_what_is_derived() {
    let root = schema();
    compare("docs/reference/config.md", |page| {
        let with_tables = sections(page).into_iter().map(|section| {
            let heading = section.lines().next().unwrap_or_default();
            let name = heading.split('`').nth(1).unwrap_or_default();
            match KeyTable::find(&root, name) {
                Some(table) => {
                    replace_rows(section, "| key | type | default | meaning |", &table.rows())
                }
                None => section.to_owned(),
            }
        });
        with_tables.collect()
    });
}

#[test]
fn the_page_of_limits_is_what_is_derived() {
    let root = schema();
    compare("docs/reference/limits.md", |page| {
        let with_tables = sections(page).into_iter().map(|section| {
            let heading = section.lines().next().unwrap_or_default();
            let name = LIMIT_TABLES
                .into_iter()
                .find(|name| heading.contains(&format!("`[{name}]`")));
            match name.and_then(|name| KeyTable::find(&root, name)) {
                Some(table) => replace_rows(
                    section,
                    "| setting | default | metric | at the limit |",
                    &table.limit_rows(),
                ),
                None => section.to_owned(),
            }
        });
        with_tables.collect()
    });
}

#[test]
fn each_limit_declares_its_metric_and_what_happens_there() {
    let root = schema();
    let problems: Vec<String> = LIMIT_TABLES
        .into_iter()
        .filter_map(|name| KeyTable::find(&root, name))
        .flat_map(|table| table.incomplete_limits())
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_full_example_is_what_is_derived() {
    let root = schema();
    compare("config/full.toml", |text| {
        let mut out = String::new();
        let mut is_derived = false;
        for line in text.split_inclusive('\n') {
            let header = line
                .strip_prefix('[')
                .and_then(|rest| rest.split(']').next());
            if let Some(table) = header
                .filter(|name| !name.contains('.'))
                .and_then(|name| KeyTable::find(&root, name))
            {
                is_derived = true;
                out += line;
                out += &table.example();
            // An example that is written by hand may follow.
            } else if line.trim().is_empty() || line.starts_with('[') || line.starts_with("# [") {
                is_derived = false;
            }
            if !is_derived {
                out += line;
            }
        }
        out
    });
}

/// Derives the schema. Removes the nulls of optional fields (no config writes `null`), and closes
/// tables to unknown keys.
fn schema() -> Value {
    let derived = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<ConfigFile>();
    let mut derived = derived.to_value();
    for table in DEFAULTED {
        let keys = derived["$defs"][table]["properties"].as_object_mut();
        for key in keys.into_iter().flat_map(Map::values_mut) {
            key.as_object_mut().map(|key| key.shift_remove("default"));
        }
    }
    tidy(&mut derived);
    derived
}

/// Tables of a server whose keys have their defaults in `[defaults]`, so not in themselves.
const DEFAULTED: [&str; 7] = [
    "Server",
    "ServerOptions",
    "Backoff",
    "Retry",
    "Breaker",
    "Ping",
    "WebSocketPing",
];

fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            object.values_mut().for_each(tidy);
            tidy_object(object);
        }
        _ => {}
    }
}

fn tidy_object(object: &mut Map<String, Value>) {
    if object
        .get("default")
        .is_some_and(|default| default.is_null())
    {
        object.shift_remove("default");
    }
    object.get_mut("default").into_iter().for_each(drop_nulls);
    // A paragraph of a doc comment is one line, however wide the source is.
    if let Some(Value::String(text)) = object.get_mut("description") {
        let paragraphs: Vec<String> = text.split("\n\n").map(|p| p.replace('\n', " ")).collect();
        *text = paragraphs.join("\n\n");
    }
    // Numbers of the plan are as wide as the machine's, which the file need not know.
    if object
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint"))
    {
        object.insert("format".to_owned(), "uint64".into());
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.shift_remove("anyOf");
            object.extend(only);
        }
    }
    if object.get("properties").is_some_and(Value::is_object)
        && !object.contains_key("additionalProperties")
    {
        object.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

fn drop_nulls(value: &mut Value) {
    if let Value::Object(object) = value {
        object.retain(|_, value| !value.is_null());
        object.values_mut().for_each(drop_nulls);
    }
}

/// Parts of a page, each from its heading on.
fn sections(page: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = page.match_indices("\n## ").map(|(at, _)| at + 1).collect();
    starts.insert(0, 0);
    starts.push(page.len());
    starts
        .windows(2)
        .map(|pair| &page[pair[0]..pair[1]])
        .collect()
}

/// Replaces the rows of the table with this header.
fn replace_rows(section: &str, header: &str, rows: &str) -> String {
    let Some((before, table)) = section.split_once(header) else {
        return section.to_owned();
    };
    let (rule, rest) = table
        .strip_prefix('\n')
        .and_then(|table| table.split_once('\n'))
        .unwrap();
    let after = rest.find("\n\n").map_or("", |at| &rest[at + 1..]);
    // A table at the end of a page has no empty line after it.
    let after = if after.is_empty() && !rest.starts_with('|') {
        rest
    } else {
        after
    };
    format!("{before}{header}\n{rule}\n{rows}{after}")
}

/// Keys of one table of a config.
struct KeyTable<'a> {
    root: &'a Value,
    name: &'a str,
    rule: &'a Value,
    default: &'a Value,
    needs_restart: bool,
}

impl<'a> KeyTable<'a> {
    /// Finds a table by the name that a heading has: `[gateway]`, `gateway.tls`, `[[auth.keys]]`,
    /// or `ping` of a server.
    fn find(root: &'a Value, name: &'a str) -> Option<Self> {
        let name = name.trim_matches(['[', ']']);
        let steps: Vec<&str> = name.split('.').collect();
        let is_own = root["properties"][steps[0]].is_object();
        let mut table = KeyTable {
            root,
            name,
            rule: root,
            default: &Value::Null,
            needs_restart: false,
        };
        for step in (if is_own {
            [].iter()
        } else {
            ["defaults"].iter()
        })
        .chain(&steps)
        {
            let declared = match *step {
                "NAME" => &table.rule["additionalProperties"],
                key => &table.rule["properties"][key],
            };
            table.needs_restart |= needs_restart(declared);
            let default = &table.default[step];
            table.default = if default.is_null() {
                &declared["default"]
            } else {
                default
            };
            table.rule = table.deref(declared);
            if table.rule["items"].is_object() {
                table.rule = table.deref(&table.rule["items"]);
            }
        }
        table.rule["properties"].is_object().then_some(table)
    }

    fn deref(&self, rule: &'a Value) -> &'a Value {
        rule["$ref"]
            .as_str()
            .map_or(rule, |name| self.root.pointer(&name[1..]).unwrap())
    }

    /// Keys with their rules, as they are declared. Lists of tables have their own table.
    fn keys(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let shared = &self.root["$defs"]["ServerOptions"]["properties"];
        let is_server = self.name == "servers.NAME";
        let keys = self.rule["properties"].as_object().into_iter().flatten();
        let keys: Vec<_> = keys
            .filter(|(_, rule)| !self.is_table_list(rule))
            .filter(|(key, _)| !(is_server && shared[*key].is_object()))
            .collect();
        keys.into_iter()
    }

    fn is_table_list(&self, rule: &'a Value) -> bool {
        rule["items"].is_object() && self.deref(&rule["items"])["properties"].is_object()
    }

    fn rows(&self) -> String {
        self.keys().map(|(key, rule)| self.row(key, rule)).collect()
    }

    fn row(&self, key: &str, rule: &'a Value) -> String {
        let mark = if self.needs_restart || needs_restart(rule) {
            " ↻"
        } else {
            ""
        };
        let default = self.cell(key, rule);
        let kind = self.kind(rule);
        format!(
            "| `{key}`{mark} | {kind} | {default} | {} |\n",
            meaning(rule)
        )
    }

    fn limit_rows(&self) -> String {
        let rows = self.keys().filter_map(|(key, rule)| {
            let at_limit = at_limit(rule)?;
            // An empty cell rather than no row: `incomplete_limits` names the key.
            let metrics = metrics_of_limit(rule).unwrap_or_default();
            Some(format!(
                "| `{key}` | {} | {metrics} | {} |\n",
                self.cell(key, rule),
                at_limit.trim_end_matches('.').replace('\n', " ")
            ))
        });
        rows.collect()
    }

    /// Names the limits whose row would lack something, and what to declare.
    fn incomplete_limits(&self) -> Vec<String> {
        let incomplete = self.keys().filter_map(|(key, rule)| {
            let missing = match (at_limit(rule), metrics_of_limit(rule)) {
                (Some(_), None) => "`x-metric`, or `x-no-metric` with the reason",
                (None, Some(_)) => "\"At the limit: \" in its doc comment",
                // The table has nothing but limits.
                (None, None) if self.name == "limits" => "\"At the limit: \" and `x-metric`",
                _ => return None,
            };
            Some(format!("{}.{key} lacks {missing}", self.name))
        });
        incomplete.collect()
    }

    /// Default of a key: that of its table, or its own in a table that has none. Tables have theirs
    /// in their own rows.
    fn cell(&self, key: &str, rule: &Value) -> String {
        let default = match &self.default[key] {
            Value::Null => &rule["default"],
            default => default,
        };
        match default {
            Value::Null | Value::Object(_) => String::new(),
            default => format!("`{default}`"),
        }
    }

    fn kind(&self, declared: &'a Value) -> String {
        if let Some(choices) = declared["anyOf"].as_array() {
            return choices
                .iter()
                .map(|choice| match choice["type"] == "boolean" {
                    true => "`false`".to_owned(),
                    false => self.kind(choice),
                })
                .collect::<Vec<_>>()
                .join(" or ");
        }
        let rule = self.deref(declared);
        let words = rule["oneOf"]
            .as_array()
            .map(|all| all.iter().map(|one| &one["const"]).collect::<Vec<_>>());
        if let Some(words) = words.or(rule["enum"].as_array().map(|all| all.iter().collect())) {
            return words
                .iter()
                .map(|word| format!("`{word}`"))
                .collect::<Vec<_>>()
                .join(", ");
        }
        match (
            rule["x-unit"].as_str(),
            rule["type"].as_str(),
            rule["anyOf"].is_array(),
        ) {
            (Some(unit), ..) => unit,
            (_, _, true) => return self.kind(rule),
            (_, Some("string"), _) => "text",
            (_, Some("boolean"), _) => "switch",
            (_, Some("integer"), _) => "number",
            (_, Some("array"), _) => "list",
            _ => "table",
        }
        .to_owned()
    }

    /// Lines of `config/full.toml`: each key with its default, or with an example behind a comment
    /// mark.
    fn example(&self) -> String {
        let mut out = String::new();
        for (key, rule) in self.keys() {
            let default = &self.default[key];
            let line = match default {
                Value::Null => format!("# {key} = {}", self.toml(rule, &self.sample(rule))),
                default => format!("{key} = {}", self.toml(rule, default)),
            };
            // A long line has its comment below it.
            let mut line = if line.len() < COMMENT {
                line
            } else {
                line + "\n"
            };
            for part in wrapped(&meaning(rule)) {
                out += &line;
                let column = if line.ends_with('\n') { 0 } else { line.len() };
                out += &format!("{:1$}# {part}\n", "", COMMENT - column);
                line.clear();
            }
        }
        out
    }

    /// Example of a key without a default, and of a table the examples of its keys.
    fn sample(&self, declared: &'a Value) -> Value {
        let keys = self.deref(declared)["properties"].as_object();
        match keys {
            Some(keys) => keys
                .iter()
                .map(|(key, rule)| (key.clone(), self.sample(rule)))
                .collect(),
            None => declared["examples"][0].clone(),
        }
    }

    /// Value as TOML. A table has all its keys, with nothing for those that have no default.
    fn toml(&self, declared: &'a Value, value: &Value) -> String {
        let Some(keys) = self.deref(declared)["properties"].as_object() else {
            return value.to_string();
        };
        let entries = keys.iter().filter_map(|(key, rule)| {
            let value = match (&value[key], self.kind(rule).as_str()) {
                (Value::Null, "list") => "[]".to_owned(),
                (Value::Null, "table") => "{}".to_owned(),
                (Value::Null, _) => return None,
                (value, _) => value.to_string(),
            };
            Some(format!("{key} = {value}"))
        });
        format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
    }
}

fn needs_restart(rule: &Value) -> bool {
    rule["x-reload"] == "restart"
}

/// Text about what happens at a limit. `None` for a key that isn't one.
fn at_limit(rule: &Value) -> Option<&str> {
    let description = rule["description"].as_str()?;
    Some(description.split_once("At the limit: ")?.1)
}

/// Metrics that show a limit at work, or the declared reason why none does.
fn metrics_of_limit(rule: &Value) -> Option<String> {
    if let Some(reason) = rule["x-no-metric"].as_str() {
        return Some(format!("none: {reason}"));
    }
    let names = rule["x-metric"].as_array()?.iter();
    let names: Vec<String> = names
        .filter_map(Value::as_str)
        .map(|name| format!("`{name}`"))
        .collect();
    Some(names.join(", ")).filter(|names| !names.is_empty())
}

/// First paragraph of a key's description.
fn meaning(rule: &Value) -> String {
    rule["description"]
        .as_str()
        .unwrap_or_default()
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .replace('\n', " ")
}

/// Breaks a comment into lines.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            line.push_str(word);
        } else if COMMENT + 2 + line.chars().count() + 1 + word.chars().count() <= WIDTH {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
