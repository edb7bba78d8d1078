//! Masks of secrets: a hundred values that nobody may see, and a hundred that people need to see.
//!
//! `tests/masks/` has both, one a line: kind, place and text, and of a secret the part that is
//! hidden. Each is looked for in the import, in `check --print`, in the API and on the page.

use std::process::Command;

use serde_json::{Map, Value, json};

use crate::harness::{HttpClient, Setup};

/// Harmless values that may be hidden.
const HIDDEN_MAX: usize = 2;

/// Value of a corpus.
struct MaskedValue {
    name: String,
    entry: Value,
    /// Text that is a secret, or that people need to see.
    text: String,
}

/// Reads a corpus, each value as a server of its own. None of them runs.
fn read(corpus: &str) -> Vec<MaskedValue> {
    let lines: Vec<Vec<&str>> = corpus
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let value = |(at, line): (usize, &Vec<&str>)| {
        let [_, place, text, ..] = line[..] else {
            panic!("{line:?}")
        };
        let program =
            |key: &str, value: Value| json!({ "command": "program", "enabled": false, key: value });
        let remote = json!({ "url": "https://mcp.example.com/mcp", "enabled": false });
        let mut own = None;
        let entry = match place {
            "url" | "query" => json!({ "url": text, "enabled": false }),
            "args" => {
                own = text.split(' ').next_back();
                program("args", text.split(' ').collect())
            }
            "env" => {
                let (name, value) = text.split_once('=').unwrap();
                own = Some(value);
                program("env", json!({ name: value }))
            }
            "headers" => {
                let (name, value) = text.split_once(": ").unwrap();
                own = Some(value);
                let mut entry = remote.clone();
                entry["headers"] = json!({ name: value });
                entry
            }
            _ => panic!("{line:?}"),
        };
        let text = line.get(3).copied().or(own).unwrap_or(text).to_owned();
        MaskedValue {
            name: format!("s{at}"),
            entry,
            text,
        }
    };
    lines.iter().enumerate().map(value).collect()
}

fn run(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_moongate"))
        .args(args)
        .env_remove("MOONGATE_CONFIG")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Reads the object that a command printed, perhaps with warnings around it.
fn first_object(out: &str) -> Value {
    let start = out.find('{').unwrap_or_else(|| panic!("{out}"));
    serde_json::Deserializer::from_str(&out[start..])
        .into_iter()
        .next()
        .unwrap()
        .unwrap()
}

fn without_entities(html: &str) -> String {
    html.replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns what each of the four ways shows of each value.
async fn shown(values: &[MaskedValue]) -> Vec<(&'static str, Vec<String>)> {
    let servers: Map<String, Value> = values
        .iter()
        .map(|value| (value.name.clone(), value.entry.clone()))
        .collect();
    let setup = Setup::new();
    let config = setup.path("moongate.json");
    let listen = json!({ "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": "memory" });
    let text = json!({ "gateway": listen, "servers": servers }).to_string();
    std::fs::write(&config, &text).unwrap();
    let file = config.to_str().unwrap().to_owned();
    let empty = setup.path("empty.toml");
    std::fs::write(&empty, "[gateway]\n").unwrap();
    let args = [
        "import",
        &file,
        "--dry-run",
        "--format",
        "json",
        "--config",
        empty.to_str().unwrap(),
    ];
    let imported = first_object(&run(&args));
    let rows = imported["servers"]
        .as_array()
        .unwrap_or_else(|| panic!("{imported}"))
        .clone();
    let printed = first_object(&run(&["check", "--print", "--config", &file]));
    let gateway = crate::harness::Process::of(&config, tempfile::tempdir().unwrap()).await;
    let config_text = gateway.admin("/api/v1/config").await.text_body();
    let status = gateway.admin("/api/v1/status").await.json();
    let admin = gateway.admin_url().await;
    let mut import = Vec::new();
    let mut print = Vec::new();
    let mut of_api = Vec::new();
    let mut page = Vec::new();
    for value in values {
        let row = rows
            .iter()
            .find(|row| row["name"] == *value.name)
            .unwrap_or_else(|| panic!("{}", value.name));
        import.push(unescaped(&row.to_string()));
        print.push(unescaped(&printed["servers"][&value.name].to_string()));
        let body =
            json!({ "text": json!({ "servers": { &value.name: value.entry } }).to_string() })
                .to_string();
        let url = format!("{admin}/api/v1/servers/preview");
        let preview = HttpClient::new()
            .send("POST", &url, &[("content-type", "application/json")], body)
            .await;
        // Of the config and the status, only what is about this value counts.
        let about = [
            entry_of(&config_text, &value.name),
            status_of(&status, &value.name),
        ];
        of_api.push(unescaped(&preview.text_body()) + &about.map(|text| unescaped(&text)).concat());
        let path = format!("/servers/{}?tab=settings", value.name);
        let html = gateway.admin(&path).await.text_body();
        page.push(unescaped(&without_entities(&html)));
    }
    vec![
        ("import", import),
        ("check --print", print),
        ("API", of_api),
        ("page", page),
    ]
}

/// Cuts the entry of a server out of the text of a config, which is one line in a text of JSON.
fn entry_of(text: &str, name: &str) -> String {
    let text = unescaped(text);
    let from = text
        .find(&format!("\"{name}\":{{"))
        .unwrap_or_else(|| panic!("{name} is in {text}"));
    let end = text[from..]
        .find("}}")
        .or_else(|| text[from..].find('}'))
        .map_or(text.len(), |at| from + at);
    text[from..end].to_owned()
}

/// Returns what the status has of a server that is switched off.
fn status_of(status: &Value, name: &str) -> String {
    let lists = status
        .as_object()
        .into_iter()
        .flat_map(Map::values)
        .filter_map(Value::as_array);
    let found: Vec<String> = lists
        .flatten()
        .filter(|item| item["name"] == name || **item == *name)
        .map(Value::to_string)
        .collect();
    assert!(!found.is_empty(), "{name} is in {status}");
    found.concat()
}

fn unescaped(text: &str) -> String {
    text.replace("\\\"", "\"")
        .replace("\\\\", "\\")
        .replace("$$", "$")
}

#[tokio::test]
async fn no_secret_of_a_hundred_is_shown() {
    let values = read(include_str!("../masks/secrets.tsv"));
    assert!(values.len() >= 100);
    for (way, shown) in shown(&values).await {
        let leaked: Vec<String> = values
            .iter()
            .zip(&shown)
            .filter(|(value, shown)| shown.contains(&value.text))
            .map(|(value, _)| value.entry.to_string())
            .collect();
        assert!(leaked.is_empty(), "{way} shows {leaked:#?}");
    }
}

#[tokio::test]
async fn at_most_two_of_a_hundred_harmless_values_are_hidden() {
    let values = read(include_str!("../masks/harmless.tsv"));
    assert!(values.len() >= 100);
    for (way, shown) in shown(&values).await {
        let hidden: Vec<String> = values
            .iter()
            .zip(&shown)
            .filter(|(value, shown)| !shown.contains(&unescaped(&value.text)))
            .map(|(value, _)| value.entry.to_string())
            .collect();
        assert!(hidden.len() <= HIDDEN_MAX, "{way} hides {hidden:#?}");
    }
}
