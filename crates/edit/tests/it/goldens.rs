//! Golden edits: text before, operations, text after.
//!
//! Each file below `goldens/` is a list of cases:
//!
//! ```text
//! === name of the case
//! crlf, bom, no-end             how both texts are changed before they are used (optional)
//! set servers.a.url "x"         operations, in their order
//! < remove servers.a.url        operations that lead back from the text after to the one before (optional)
//! --- before
//! --- after                     or: --- refused: part of the message
//! ```
//!
//! A path has keys with dots between them, in quotes if need be, and `list[name=x]` for the element
//! with that name. `UPDATE_EXPECTED=1` writes the texts after; read the difference.

use std::fmt::Write as _;
use std::path::PathBuf;

use moongate_edit::{Edit, EditAction, EditError, Format, PathStep, edit};

#[derive(Default)]
struct GoldenCase {
    name: String,
    variants: Vec<String>,
    operations: Vec<String>,
    inverse: Vec<String>,
    before: String,
    after: String,
    refused: Option<String>,
}

fn parse_path(text: &str) -> Vec<PathStep> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(item) = rest.strip_prefix('[') {
            let (item, after) = item.split_once(']').unwrap();
            let (field, value) = item.split_once('=').unwrap();
            steps.push(PathStep::Item {
                field: field.to_owned(),
                value: value.to_owned(),
            });
            rest = after;
        } else if let Some(key) = rest.strip_prefix('"') {
            let (key, after) = key.split_once('"').unwrap();
            steps.push(PathStep::from(key));
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            steps.push(PathStep::from(&rest[..end]));
            rest = &rest[end..];
        }
    }
    steps
}

/// Splits off the path, which may have blanks in its quotes.
fn split_path(line: &str) -> (&str, &str) {
    let mut quoted = false;
    let end = line.find(|letter| {
        quoted ^= letter == '"';
        letter == ' ' && !quoted
    });
    end.map_or((line, ""), |end| (&line[..end], line[end..].trim()))
}

fn parse_edit(line: &str) -> Edit {
    let (verb, rest) = line.split_once(' ').unwrap();
    let (path, argument) = split_path(rest);
    let action = match verb {
        "set" => EditAction::Set(serde_json::from_str(argument).unwrap()),
        "remove" => EditAction::Remove,
        "add" => EditAction::AddItem(argument.to_owned()),
        "drop" => EditAction::RemoveItem(argument.to_owned()),
        "prune" => EditAction::RemoveIfEmpty,
        verb => panic!("no verb {verb:?}"),
    };
    Edit::new(parse_path(path), action)
}

fn run(format: Format, text: &str, lines: &[String]) -> Result<String, EditError> {
    let edits: Vec<Edit> = lines.iter().map(|line| parse_edit(line)).collect();
    edit(format, text, &edits)
}

fn parse_cases(text: &str) -> Vec<GoldenCase> {
    let mut cases: Vec<GoldenCase> = Vec::new();
    let mut part = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            cases.push(GoldenCase {
                name: name.to_owned(),
                ..GoldenCase::default()
            });
            part = "head";
            continue;
        }
        let Some(case) = cases.last_mut() else {
            continue;
        };
        match (line, part) {
            ("--- before", _) => part = "before",
            ("--- after", _) => part = "after",
            _ if line.starts_with("--- refused: ") => {
                case.refused = Some(line["--- refused: ".len()..].to_owned());
                part = "end";
            }
            (_, "before") => case.before += &format!("{line}\n"),
            (_, "after") => case.after += &format!("{line}\n"),
            (_, "head") if line.starts_with("< ") => case.inverse.push(line[2..].to_owned()),
            (_, "head")
                if line.contains(' ') && !line.contains(", ") || line.starts_with("set ") =>
            {
                case.operations.push(line.to_owned());
            }
            (_, "head") => case.variants = line.split(", ").map(str::to_owned).collect(),
            _ => assert_eq!(line, "", "stray line"),
        }
    }
    cases
}

fn write_cases(cases: &[GoldenCase]) -> String {
    let mut out = String::new();
    for case in cases {
        writeln!(out, "=== {}", case.name).unwrap();
        if !case.variants.is_empty() {
            writeln!(out, "{}", case.variants.join(", ")).unwrap();
        }
        case.operations
            .iter()
            .for_each(|line| writeln!(out, "{line}").unwrap());
        case.inverse
            .iter()
            .for_each(|line| writeln!(out, "< {line}").unwrap());
        write!(out, "--- before\n{}", case.before).unwrap();
        match &case.refused {
            Some(why) => writeln!(out, "--- refused: {why}").unwrap(),
            None => write!(out, "--- after\n{}", case.after).unwrap(),
        }
    }
    out
}

impl GoldenCase {
    fn varied(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for variant in &self.variants {
            text = match &**variant {
                "crlf" => text.replace('\n', "\r\n"),
                "bom" => format!("\u{feff}{text}"),
                "no-end" => text.trim_end_matches(['\r', '\n']).to_owned(),
                variant => panic!("no variant {variant:?}"),
            };
        }
        text
    }

    fn plain(&self, text: &str) -> String {
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        if text.is_empty() || text.ends_with('\n') {
            text
        } else {
            text + "\n"
        }
    }

    /// Makes the edits. Returns the text after, if the case holds or is to be updated.
    fn check(&self, format: Format, update: bool) -> Result<String, String> {
        let before = self.varied(&self.before);
        let result = run(format, &before, &self.operations);
        let after = match (result, &self.refused) {
            (Ok(after), None) => after,
            (Ok(after), Some(_)) => return Err(format!("was not refused:\n{after}")),
            (Err(error), Some(why)) if error.to_string().contains(why) => return Ok(String::new()),
            (Err(error), _) => return Err(format!("was refused: {error}")),
        };
        if !update && after != self.varied(&self.after) {
            return Err(format!("has another text after:\n{after}{:?}", after));
        }
        if !self.inverse.is_empty() {
            let back = run(format, &after, &self.inverse)
                .map_err(|error| format!("does not lead back: {error}"))?;
            if back != before {
                return Err(format!("leads back to another text:\n{back}{back:?}"));
            }
        }
        Ok(self.plain(&after))
    }
}

fn check_file(name: &str, format: Format, at_least: usize) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/goldens")
        .join(name);
    let mut cases = parse_cases(&std::fs::read_to_string(&path).unwrap());
    assert!(
        cases.len() >= at_least,
        "the cases were found: {}",
        cases.len()
    );
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut problems = String::new();
    for case in &mut cases {
        match case.check(format, update) {
            Ok(after) => case.after = after,
            Err(problem) => writeln!(problems, "`{}` {problem}\n", case.name).unwrap(),
        }
    }
    if update {
        std::fs::write(path, write_cases(&cases)).unwrap();
    }
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn toml_edits_give_the_golden_texts() {
    check_file("toml.txt", Format::Toml, 30);
}

#[test]
fn json_edits_give_the_golden_texts() {
    check_file("json.txt", Format::Json, 25);
}

#[test]
fn yaml_edits_give_the_golden_texts() {
    check_file("yaml.txt", Format::Yaml, 30);
}
