//! Servers described by a `server.json`, the format of the MCP registry.
//!
//! Owns its reading, in the spellings of all its schema versions. Does not ask a registry.
//! Invariant: a secret is never invented: it becomes a reference to a variable.

use moongate_config::ParsedServer;
use serde_json::{Map, Value, json};

use super::client_entry::entry;

/// Arguments that the programs that run packages get anyway.
const ALWAYS: [&str; 6] = ["run", "-i", "--interactive", "--rm", "-y", "--yes"];
/// Longest value that takes the place of a hole, in bytes.
const DEFAULT_MAX: usize = 200;

/// Reads a `server.json`. `None` if the text is something else.
pub(super) fn server_of(text: &str) -> Option<ParsedServer> {
    // A client's file with its whole history is not parsed only to see that it is something else.
    if !["\"remotes\"", "\"packages\""]
        .iter()
        .any(|key| text.contains(key))
    {
        return None;
    }
    let file: Value = serde_json::from_str(text).ok()?;
    // The registry's own answers have it inside.
    let file = file
        .get("server")
        .filter(|inner| inner.is_object())
        .unwrap_or(&file);
    let name = file.get("name")?.as_str()?;
    let mut settings = match (first_item(file, "remotes"), first_item(file, "packages")) {
        // A remote server needs no program on this machine, so it wins over a package.
        (Some(remote), _) => of_remote(remote)?,
        (None, Some(package)) => of_package(package)?,
        (None, None) => return None,
    };
    let short = name.rsplit('/').next().unwrap_or(name);
    let legal = moongate_config::legal_server_name(short).unwrap_or_else(|| "server".to_owned());
    if let Some(title) = file.get("title").and_then(Value::as_str) {
        settings.insert("title".to_owned(), Value::from(title));
    }
    Some(entry(&legal, settings))
}

fn first_item<'a>(file: &'a Value, key: &str) -> Option<&'a Value> {
    file.get(key)?.as_array()?.first()
}

/// Text under one of two spellings of a key.
fn text<'a>(value: &'a Value, snake: &str, camel: &str) -> Option<&'a str> {
    value.get(snake).or_else(|| value.get(camel))?.as_str()
}

fn items<'a>(value: &'a Value, snake: &str, camel: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(snake)
        .or_else(|| value.get(camel))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn of_remote(remote: &Value) -> Option<Map<String, Value>> {
    let url = filled(remote.get("url")?.as_str()?, remote);
    let mut out = Map::from_iter([("url".to_owned(), Value::from(url))]);
    if text(remote, "transport_type", "type") == Some("sse")
        || text(remote, "type", "transportType") == Some("sse")
    {
        out.insert("type".to_owned(), Value::from("sse"));
    }
    let headers: Map<String, Value> = items(remote, "headers", "headers")
        .filter_map(input)
        .collect();
    if !headers.is_empty() {
        out.insert("headers".to_owned(), Value::Object(headers));
    }
    Some(out)
}

fn of_package(package: &Value) -> Option<Map<String, Value>> {
    let identifier = text(package, "identifier", "name")?;
    let version = package.get("version").and_then(Value::as_str);
    let kind = text(package, "registry_type", "registryType")
        .or_else(|| text(package, "registry_name", "registryName"))?;
    let hint = text(package, "runtime_hint", "runtimeHint");
    let (command, first) = match kind {
        "npm" => (runtime(hint, "npx", "bunx"), vec!["-y"]),
        "pypi" => (runtime(hint, "uvx", "pipx"), Vec::new()),
        // `-i` keeps standard input open, which the stdio transport needs. `--rm` leaves no
        // container behind.
        "oci" | "docker" => (runtime(hint, "docker", "podman"), vec!["run", "-i", "--rm"]),
        _ => return None,
    };
    // Bun asks nobody, and pipx runs a package by a word.
    let first = match command {
        "bunx" => Vec::new(),
        "pipx" => vec!["run"],
        _ => first,
    };
    let mut args: Vec<String> = first.into_iter().map(str::to_owned).collect();
    let runtime_arguments: Vec<String> =
        arguments(package, "runtime_arguments", "runtimeArguments").collect();
    args.extend(
        runtime_arguments
            .into_iter()
            .filter(|word| !ALWAYS.contains(&word.as_str())),
    );
    let env: Map<String, Value> = items(package, "environment_variables", "environmentVariables")
        .filter_map(input)
        .collect();
    let in_container = matches!(command, "docker" | "podman");
    if in_container {
        // A container does not inherit the environment. A name without a value passes on the one
        // that we set.
        env.keys()
            .for_each(|name| args.extend(["-e".to_owned(), name.clone()]));
    }
    let mark = match command {
        "pipx" => "==",
        _ if in_container => ":",
        _ => "@",
    };
    args.push(match version {
        Some(version) => format!("{identifier}{mark}{version}"),
        None => identifier.to_owned(),
    });
    args.extend(arguments(package, "package_arguments", "packageArguments"));
    let mut out = Map::from_iter([
        ("command".to_owned(), json!(command)),
        ("args".to_owned(), json!(args)),
    ]);
    if !env.is_empty() {
        out.insert("env".to_owned(), Value::Object(env));
    }
    Some(out)
}

/// Chooses the program that runs a package: the usual one, unless the hint names the other.
fn runtime(hint: Option<&str>, usual: &'static str, other: &'static str) -> &'static str {
    if hint == Some(other) { other } else { usual }
}

/// Words of a list of arguments. A value that the user must give becomes a reference.
fn arguments<'a>(
    package: &'a Value,
    snake: &'a str,
    camel: &'a str,
) -> impl Iterator<Item = String> + 'a {
    items(package, snake, camel).flat_map(|argument| {
        let name = argument
            .get("name")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let value = argument
            .get("value")
            .or_else(|| argument.get("default"))
            .and_then(Value::as_str)
            .map(|value| filled(value, argument));
        let hint = text(argument, "value_hint", "valueHint")
            .map(|hint| format!("${{{}}}", variable(hint)));
        name.into_iter().chain(value.or(hint))
    })
}

/// Header or variable with its value. One that the user must give becomes a reference.
fn input(input: &Value) -> Option<(String, Value)> {
    let name = input.get("name")?.as_str()?;
    let value = input
        .get("value")
        .or_else(|| input.get("default"))
        .and_then(Value::as_str);
    let value = value.map(|value| filled(value, input));
    let required = text(input, "is_required", "isRequired").is_some()
        || [input.get("is_required"), input.get("isRequired")].contains(&Some(&Value::Bool(true)));
    let default = if required { "" } else { ":-" };
    Some((
        name.to_owned(),
        Value::from(value.unwrap_or_else(|| format!("${{{}{default}}}", variable(name)))),
    ))
}

/// `https://{tenant}.example`, `Bearer {token}`, `type=bind,src={from},dst={to}`: their variables
/// are the user's, and `owner` may declare them.
fn filled(value: &str, owner: &Value) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some((start, (hole, end))) = rest
        .split_once('{')
        .and_then(|(a, b)| Some((a, b.split_once('}')?)))
    {
        out.push_str(start);
        match start.ends_with('$') {
            true => out.push_str(&format!("{{{hole}}}")),
            false => out.push_str(&hole_text(hole, owner)),
        }
        rest = end;
    }
    out + rest
}

/// Returns what takes the place of a hole: its fixed value, or a reference with its default.
fn hole_text(hole: &str, owner: &Value) -> String {
    let declared = owner
        .get("variables")
        .and_then(|variables| variables.get(hole));
    let plain_text = |key: &str| {
        declared
            .and_then(|input| input.get(key)?.as_str())
            // Such a text could end the reference or open another one, and a long one could take
            // the place of each of many holes.
            .filter(|text| text.len() <= DEFAULT_MAX && !text.contains(['$', '{', '}']))
    };
    match (plain_text("value"), plain_text("default")) {
        (Some(value), _) => value.to_owned(),
        (None, Some(default)) => format!("${{{}:-{default}}}", variable(hole)),
        (None, None) => format!("${{{}}}", variable(hole)),
    }
}

fn variable(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}
