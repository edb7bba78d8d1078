//! Tests of entries in clients' files.
//!
//! Owns small texts and what they become. Does not read files. Invariant: each row is a line that a
//! client takes.

use super::super::super::parse;
use super::super::super::source::FileFormat;
use super::*;

#[test]
fn many_variables_and_many_references_are_read_once_each() {
    // Names times parts of arguments are billions here.
    let env: Vec<String> = (0..40_000).map(|n| format!(r#""V{n}": "v""#)).collect();
    let dollars = "$$".repeat(200_000);
    let openings = "${".repeat(200_000);
    let text = format!(
        r#"{{"mcpServers": {{"a": {{"command": "a", "args": ["{dollars}", "{openings}", "${{V7}}"], "env": {{{}}}}}}}}}"#,
        env.join(",")
    );
    let mut faults = ProblemCollector::default();
    let mut tree = parse::parse(FileFormat::Json, &text, 0, &mut faults);
    super::super::normalise(&mut tree, None, &mut faults);
    let args = tree
        .at(&ConfigPath::of(&["servers", "a", "args"]))
        .map(|args| args.value.clone());
    let Some(ConfigValue::List(args)) = args else {
        panic!("no arguments")
    };
    // No client has an escape for a dollar sign, so each of them is one character.
    assert!(args[0].as_text() == Some(&*dollars.replace('$', "$$")));
    assert!(args[1].as_text() == Some(&*openings.replace('$', "$$")));
    assert_eq!(args[2].as_text(), Some("$${V7}"));
}

#[test]
fn many_credentials_are_added_once_each() {
    // Pairs of names are billions here.
    let names: Vec<String> = (0..60_000)
        .map(|n| format!(r#""X-{n}": "V", "x-{n}": "W""#))
        .collect();
    let text = format!(
        r#"{{"mcp_servers": {{"a": {{"url": "http://a", "env_http_headers": {{{}}}}}}}}}"#,
        names.join(",")
    );
    let mut faults = ProblemCollector::default();
    let mut tree = parse::parse(FileFormat::Json, &text, 0, &mut faults);
    super::super::normalise(&mut tree, None, &mut faults);
    let headers = tree
        .at(&ConfigPath::of(&["servers", "a", "headers"]))
        .and_then(ConfigNode::as_table);
    assert_eq!(headers.map(BTreeMap::len), Some(60_000));
}
