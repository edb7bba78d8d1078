//! Tests of entries in clients' files.
//!
//! Owns small texts and what they become. Does not read files. Invariant: each row stands for a
//! line that a client takes.

use super::super::super::parse;
use super::super::super::source::FileFormat;
use super::*;

#[test]
fn lines_are_split_as_a_shell_does_it() {
    for (line, words) in [
        ("npx -y  x", &["npx", "-y", "x"][..]),
        (
            "a 'b c' \"d \\\"e\" f\\ g ''",
            &["a", "b c", "d \"e", "f g", ""],
        ),
        ("  a  ", &["a"]),
        // Paths on Windows.
        (
            "C:\\x\\y.js --root D:\\data",
            &["C:\\x\\y.js", "--root", "D:\\data"],
        ),
        (
            "\"C:\\Program Files\\x\\y.js\" a",
            &["C:\\Program Files\\x\\y.js", "a"],
        ),
        ("C:\\Program\\ Files\\y.js", &["C:\\Program Files\\y.js"]),
        ("C:\\\\x\\\\y", &["C:\\x\\y"]),
        ("\\\\server\\share\\y.js", &["\\\\server\\share\\y.js"]),
        (".\\bin\\y.cmd", &[".\\bin\\y.cmd"]),
        ("a\\;b \\$c", &["a;b", "$c"]),
    ] {
        assert_eq!(split(line), words, "{line}");
    }
}

#[test]
fn a_program_of_windows_is_one_word() {
    for (line, length) in [
        ("C:\\Program Files\\nodejs\\npx.cmd", Some(31)),
        ("C:\\Program Files\\nodejs\\NODE.EXE -y x.exe", Some(32)),
        ("C:/Program Files/nodejs/npx.cmd", Some(31)),
        ("\\\\server\\a b\\x.bat", Some(18)),
        ("C:\\x.exe.d\\y", None),
        ("npx -y x.exe", None),
    ] {
        assert_eq!(windows_program(line), length, "{line}");
    }
}

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
fn numbers_get_the_unit_of_their_client() {
    let text = |text: &str| Some(ConfigValue::Text(text.to_owned()));
    assert_eq!(
        with_unit(&ConfigValue::Int(60), TimeUnit::Seconds),
        text("60s")
    );
    assert_eq!(
        with_unit(&ConfigValue::Int(60_000), TimeUnit::Milliseconds),
        text("60s")
    );
    assert_eq!(
        with_unit(&ConfigValue::Int(1500), TimeUnit::Milliseconds),
        text("1500ms")
    );
    assert_eq!(
        with_unit(&ConfigValue::Float(1.5), TimeUnit::Seconds),
        text("1500ms")
    );
    assert_eq!(
        with_unit(&ConfigValue::Text("30".to_owned()), TimeUnit::Seconds),
        text("30s")
    );
    assert_eq!(
        with_unit(&ConfigValue::Text("30s".to_owned()), TimeUnit::Seconds),
        None
    );
    assert_eq!(
        with_unit(&ConfigValue::Float(f64::NAN), TimeUnit::Seconds),
        None
    );
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
