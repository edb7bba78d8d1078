//! The reference is complete, and nothing on it is made up: keys, metrics, commands, messages,
//! routes of the API and members of the status.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{DemoGateway, MOONGATE, read};

/// The part of a page below this heading, up to the next of its level.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n"))?;
    rest.split("\n## ").next()
}

/// The rows of all tables: what each cell says.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// What stands in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn moongate(args: &[&str]) -> String {
    let output = Command::new(MOONGATE).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Everything below `src/` and `crates/`, with string literals in one piece.
fn sources() -> String {
    fn add(dir: &Path, out: &mut String) {
        let Ok(entries) = std::fs::read_dir(dir) else {
            return;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                add(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push_str(
                    std::fs::read_to_string(path)
                        .unwrap()
                        .split("#[cfg(test)]\nmod tests")
                        .next()
                        .unwrap(),
                );
            }
        }
    }
    let mut text = String::new();
    ["src", "crates"]
        .iter()
        .for_each(|dir| add(&Path::new(env!("CARGO_MANIFEST_DIR")).join(dir), &mut text));
    let mut pieces = text.split("\\\n");
    pieces.next().unwrap_or_default().to_owned() + &pieces.map(str::trim_start).collect::<String>()
}

// === config ===

/// The tables of a schema by the heading that they have on the page, with each key's rule and
/// default.
fn tables(schema: &Value) -> BTreeMap<String, BTreeMap<String, Value>> {
    fn visit(
        root: &Value,
        rule: &Value,
        path: &str,
        default: &Value,
        out: &mut BTreeMap<String, BTreeMap<String, Value>>,
    ) {
        let rule = match rule["$ref"].as_str() {
            Some(reference) => root.pointer(&reference[1..]).unwrap(),
            None => rule,
        };
        if rule["items"].is_object() {
            visit(
                root,
                &rule["items"],
                &format!("[{path}]"),
                &Value::Null,
                out,
            );
        }
        if rule["additionalProperties"].is_object() {
            visit(
                root,
                &rule["additionalProperties"],
                &format!("{path}.NAME"),
                &Value::Null,
                out,
            );
        }
        for (key, rule) in rule["properties"].as_object().into_iter().flatten() {
            let default = if default[key].is_null() {
                &rule["default"]
            } else {
                &default[key]
            };
            out.entry(path.to_owned())
                .or_default()
                .insert(key.clone(), default.clone());
            let below = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            visit(root, rule, &below, default, out);
        }
    }
    let mut found = BTreeMap::new();
    visit(schema, schema, "", &Value::Null, &mut found);
    found.remove("");
    // What a server may have, `[defaults]` has too, with its default.
    let mut tables = BTreeMap::new();
    for (path, keys) in found {
        tables.entry(heading(&path)).or_insert(keys);
    }
    tables
}

/// `gateway` stands below `[gateway]`, and what a server may have stands below its own name.
fn heading(path: &str) -> String {
    // A table in each item of a list is written with the list's name alone.
    if let Some((list, own)) = path.split_once("].") {
        return format!("`{}.{own}]`", list.trim_start_matches('[')).replacen('`', "`[", 1);
    }
    match path
        .strip_prefix("defaults.")
        .or(path.strip_prefix("servers.NAME."))
    {
        // The gateway has a table of this name, too.
        Some("auth") => format!("`{path}`"),
        Some(own) => format!("`{own}`"),
        None if path.starts_with('[') || !path.contains('.') || path.ends_with(".NAME") => {
            format!("`[{path}]`")
        }
        None => format!("`{path}`"),
    }
}

#[test]
fn every_key_is_on_the_page_of_the_config_with_its_default() {
    let schema: Value = serde_json::from_str(&moongate(&["schema"])).unwrap();
    let page = read("docs/reference/config.md");
    let mut problems = Vec::new();
    let mut checked = 0;
    let tables = tables(&schema);
    for (heading, keys) in &tables {
        let shared = ["`tools`", "`resources`", "`prompts`"].contains(&heading.as_str());
        let shown = if shared {
            "`tools`, `resources`, `prompts`"
        } else {
            heading
        };
        let rows = rows(section(&page, shown).unwrap_or_default());
        let row = |key: &String| {
            rows.iter()
                .find(|row| quoted(row[0]).contains(&key.as_str()))
        };
        for (key, default) in keys {
            let elsewhere =
                heading == "`[servers.NAME]`" && tables["`[defaults]`"].contains_key(key);
            let a_table = tables.contains_key(&format!(
                "`[[{}.{key}]]`",
                heading.trim_matches(['`', '[', ']'])
            ));
            let Some(row) = row(key) else {
                if !elsewhere && !a_table {
                    problems.push(format!("{heading} {key} is missing"));
                }
                continue;
            };
            checked += 1;
            // Another name of a key, as files of clients have it.
            let [_, kind, written, meaning] = row[..] else {
                continue;
            };
            let default = if default.is_null() || default.is_object() {
                String::new()
            } else {
                format!("`{default}`")
            };
            if kind.is_empty() || meaning.is_empty() || written != default {
                problems.push(format!(
                    "{heading} {key}: the default is {default:?}; the page: {row:?}"
                ));
            }
        }
        for row in rows
            .iter()
            .filter(|row| !quoted(row[0]).iter().all(|key| keys.contains_key(*key)))
        {
            problems.push(format!("{heading} has no key {}", row[0]));
        }
    }
    assert!(checked > 120, "keys were found: {checked}");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

// === metrics ===

/// Labels of a metric's first series, without the bound of a bucket.
fn labels_of<'a>(scraped: &'a str, name: &str) -> BTreeSet<&'a str> {
    let series = scraped
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(['{', '_']));
    let found = series
        .and_then(|line| line.split_once('}'))
        .map_or("", |(labels, _)| labels.split('{').next_back().unwrap());
    found
        .split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(label, _)| label)
        .filter(|l| *l != "le")
        .collect()
}

#[test]
fn every_metric_is_on_the_page_with_its_type_and_labels() {
    let demo = DemoGateway::start();
    let calls = "moongate call demo__add a=1 b=2\nmoongate call demo__nothing || true\nmoongate \
                 restart demo";
    assert!(demo.run(calls).0);
    let (success, scraped) = demo.run("curl -sf http://127.0.0.1:9090/metrics");
    assert!(success, "{scraped}");
    let page = read("docs/reference/metrics.md");
    let known: BTreeMap<&str, Vec<&str>> = rows(&page)
        .into_iter()
        .filter(|row| row.len() == 4)
        .map(|row| (quoted(row[0])[0], row))
        .collect();
    let call_labels = rows(
        section(&page, "Calls")
            .unwrap()
            .split("\n### ")
            .next()
            .unwrap(),
    )
    .into_iter()
    .filter(|row| row.len() == 2);
    let call_labels: BTreeSet<&str> = call_labels.map(|row| quoted(row[0])[0]).collect();
    let mut problems = Vec::new();
    for (name, kind) in scraped
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
    {
        let Some(row) = known.get(name) else {
            problems.push(format!("{name} is missing"));
            continue;
        };
        let mut labels: BTreeSet<&str> = quoted(row[2]).into_iter().collect();
        if row[2] == "see below" {
            labels.clone_from(&call_labels);
        }
        let found = labels_of(&scraped, name);
        if row[1] != kind || labels != found || row[3].is_empty() {
            problems.push(format!(
                "{name} is a {kind} with {found:?}; the page: {row:?}"
            ));
        }
    }
    // Those whose first series has not come yet are literals in the sources.
    let sources = sources();
    let literal = |text: &str| text.starts_with("moongate_") || text.starts_with("process_");
    let named =
        |text: &&str| literal(text) && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    // A cookie, which is no metric (`crates/admin/src/cookie.rs`).
    let unknown = |name: &&str| !known.contains_key(name) && *name != "moongate_admin";
    for name in sources.split('"').filter(named).filter(unknown) {
        problems.push(format!("{name} is missing"));
    }
    let exists = |name: &str| {
        scraped.contains(&format!("# TYPE {name} ")) || sources.contains(&format!("\"{name}\""))
    };
    problems.extend(
        known
            .keys()
            .filter(|name| !exists(name))
            .map(|name| format!("there is no {name}")),
    );
    assert!(known.len() > 50, "metrics were found: {}", known.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

// === commands ===

/// The long flags that a help lists, without those of every command.
fn flags(help: &str) -> BTreeSet<String> {
    let listed = help
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'));
    let words = listed
        .flat_map(|line| line.split([' ', ',']).take(3))
        .filter(|word| word.starts_with("--"));
    words
        .filter(|word| word.len() > 2 && !["--help", "--version"].contains(word))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_and_flag_is_on_the_page() {
    let page = read("docs/reference/commands.md");
    let help = moongate(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let list = list.split("\n\n").next().unwrap();
    let commands: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let mut problems = Vec::new();
    let mut checked = 0;
    for command in commands
        .iter()
        .copied()
        .filter(|command| *command != "help")
    {
        let help = if command == "key" {
            moongate(&["key", "new", "--help"])
        } else {
            moongate(&[command, "--help"])
        };
        let Some(own) = section(&page, command) else {
            problems.push(format!("{command} has no section"));
            continue;
        };
        if !page.contains(&format!("| [`{command}`](#{command}) |")) {
            problems.push(format!("{command} is not in the table"));
        }
        // "It takes the flags of [`reload`](#reload)."
        let others = own
            .split("the flags of [`")
            .skip(1)
            .filter_map(|rest| section(&page, rest.split('`').next()?));
        let text = others.fold(own.to_owned(), |text, other| text + other);
        let written: BTreeSet<String> = quoted(&text)
            .iter()
            .filter_map(|text| {
                text.split(' ')
                    .next()
                    .filter(|word| word.starts_with("--") && word.len() > 2)
            })
            .map(str::to_owned)
            .collect();
        let known = flags(&help);
        checked += known.len();
        problems.extend(
            known
                .difference(&written)
                .map(|flag| format!("{command} {flag} is missing")),
        );
        problems.extend(
            written
                .difference(&known)
                .map(|flag| format!("{command} has no {flag}")),
        );
    }
    assert!(
        commands.len() > 15 && checked > 60,
        "commands were found: {commands:?}, {checked}"
    );
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

// === log events and the status ===

/// The errors, warnings and infos of the sources: each level, and its message with `…` for what
/// varies.
fn logged_events(sources: &str) -> Vec<(&'static str, String)> {
    let calls = ["error", "warn", "info"].into_iter().flat_map(|level| {
        let name = format!("tracing::{level}!(");
        sources
            .split(&name)
            .skip(1)
            .map(move |arguments| (level, message(arguments)))
            .collect::<Vec<_>>()
    });
    calls.collect()
}

/// The message among the arguments of a log macro: the first that is a string alone.
fn message(arguments: &str) -> String {
    let mut depth = 0;
    let mut is_string = false;
    let mut is_start = true;
    for (at, c) in arguments.char_indices() {
        match c {
            '"' if is_start && depth == 0 => {
                let literal = arguments[at + 1..].replace("\\\"", "'");
                let pieces = literal.split('"').next().unwrap_or_default().split('{');
                let pieces: Vec<&str> = pieces
                    .enumerate()
                    .map(|(n, piece)| {
                        if n == 0 {
                            piece
                        } else {
                            piece.split_once('}').unwrap().1
                        }
                    })
                    .collect();
                return pieces.join("…");
            }
            '"' => is_string = !is_string,
            _ if is_string => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        assert!(depth >= 0, "no message in {:?}", &arguments[..at]);
        is_start = c == ',' && depth == 0 && !is_string || is_start && c.is_whitespace();
    }
    panic!("no end of {arguments:?}")
}

/// True if a row names this message. A row may leave out what follows a message, and may shorten
/// what varies.
fn names(row: &str, message: &str) -> bool {
    let beginning = row
        .strip_suffix('…')
        .filter(|beginning| !beginning.is_empty());
    let rest = message
        .strip_prefix(row)
        .map(|rest| rest.is_empty() || [":", " (", " ="].iter().any(|c| rest.starts_with(c)));
    rest == Some(true) || beginning.is_some_and(|beginning| message.starts_with(beginning))
}

#[test]
fn every_logged_message_is_on_the_page_of_the_log() {
    let page = read("docs/reference/log-events.md");
    let rows: Vec<_> = rows(&page)
        .into_iter()
        .map(|row| (row[1], quoted(row[0])[0]))
        .collect();
    let sources = sources();
    let events = logged_events(&sources);
    let is_missing = |(level, message): &&(&str, String)| {
        !rows
            .iter()
            .any(|row| row.0 == *level && names(row.1, message))
    };
    let missing: Vec<_> = events.iter().filter(is_missing).collect();
    // An imported macro, or `event!`, would escape this test.
    for name in ["error!", "warn!", "info!", "event!"] {
        let hidden = sources.match_indices(name).find(|(at, _)| {
            let before = &sources[..*at];
            let is_macro = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            is_macro && (name == "event!" || !before.ends_with("tracing::"))
        });
        assert_eq!(
            hidden, None,
            "log with `tracing::error!(`, `tracing::warn!(` or `tracing::info!(`"
        );
    }
    assert!(events.len() > 60, "messages were found: {}", events.len());
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
}

#[test]
fn messages_are_found_among_the_arguments() {
    let arguments = r#"target: "a::b", x = f("(", 1), "{} of \"it\" {n:?} failed", g(2))"#;
    assert_eq!(message(arguments), "… of 'it' … failed");
    assert!(
        names("a failed", "a failed: …")
            && names("a …", "a b")
            && !names("a", "a b")
            && !names("…", "a")
    );
}

#[test]
fn every_message_on_the_page_of_the_log_exists() {
    let page = read("docs/reference/log-events.md");
    let sources = sources();
    let messages: Vec<&str> = rows(&page).iter().map(|row| quoted(row[0])[0]).collect();
    let exists = |message: &&&str| {
        let mut parts = message.split('…');
        let first = parts.next().unwrap_or_default();
        (first.is_empty() || sources.contains(&format!("\"{first}")))
            && parts.all(|part| sources.contains(part))
    };
    let missing: Vec<_> = messages.iter().filter(|message| !exists(message)).collect();
    assert!(
        messages.len() > 45,
        "messages were found: {}",
        messages.len()
    );
    assert!(missing.is_empty(), "nothing logs {missing:?}");
    assert!(
        rows(&page)
            .iter()
            .all(|row| ["error", "warn", "info", "debug"].contains(&row[1]) && !row[2].is_empty())
    );
}

/// Symptoms open the items of the page. The texts in them are those of the program.
#[test]
fn every_text_on_the_page_of_troubleshooting_exists() {
    let page = read("docs/guides/troubleshooting.md");
    let sources = sources();
    let symptoms = page
        .split("\n- **")
        .skip(1)
        .map(|item| item.split(".**").next().unwrap().replace("\n  ", " "));
    let texts: Vec<String> = symptoms
        .flat_map(|symptom| {
            quoted(&symptom)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        })
        .collect();
    let exists = |text: &&String| text.split('…').all(|part| sources.contains(part.trim()));
    let missing: Vec<_> = texts.iter().filter(|text| !exists(text)).collect();
    assert!(texts.len() > 20, "texts were found: {}", texts.len());
    assert!(missing.is_empty(), "nothing says {missing:?}");
}

#[test]
fn every_member_of_the_status_is_on_the_page() {
    let demo = DemoGateway::start();
    let (success, status) = demo.run("curl -sf http://127.0.0.1:9090/api/v1/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    let members = status["servers"][0].as_object().unwrap();
    let page = read("docs/reference/admin.md");
    let rows = rows(section(&page, "Status").unwrap());
    let written: BTreeSet<&str> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    let missing: Vec<_> = members
        .keys()
        .filter(|key| *key != "name" && !written.contains(key.as_str()))
        .collect();
    let unknown: Vec<_> = written
        .iter()
        .filter(|key| !members.contains_key(**key))
        .collect();
    assert!(
        success && missing.is_empty() && unknown.is_empty(),
        "not on the page: {missing:?}; not there: {unknown:?}"
    );
}

#[test]
fn every_route_of_the_api_is_on_the_page() {
    let demo = DemoGateway::start();
    let (success, description) = demo.run("curl -sf http://127.0.0.1:9090/api/v1/openapi.json");
    assert!(success, "{description}");
    let description: Value = serde_json::from_str(&description).unwrap();
    let of_path = |(path, methods): (&String, &Value)| -> Vec<String> {
        let methods = methods
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != "parameters");
        methods
            .map(|method| format!("{} {path}", method.to_uppercase()))
            .collect()
    };
    let mut routes: BTreeSet<String> = description["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(of_path)
        .collect();
    // A sentence above the table names it.
    assert!(routes.remove("GET /api/v1/openapi.json"), "{routes:?}");
    let page = read("docs/reference/admin.md");
    let api = section(&page, "API").unwrap();
    assert!(api.contains("`GET /api/v1/openapi.json` describes all routes"));
    let rows = rows(api.split("\n### ").next().unwrap());
    let written: BTreeSet<String> = rows
        .iter()
        .map(|row| quoted(row[0])[0].to_owned())
        .collect();
    let missing: Vec<_> = routes.difference(&written).collect();
    let unknown: Vec<_> = written.difference(&routes).collect();
    assert!(
        routes.len() > 30 && rows.len() == written.len(),
        "routes were found: {routes:?}"
    );
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not on the page: {missing:?}; not there: {unknown:?}"
    );
}
