//! Command lines that add or start a server.
//!
//! Owns the spellings of `claude mcp add`, `codex mcp add`, `gemini mcp add` and their like, of
//! commands that start a server, and of a bare URL. Does not run anything. Invariant: a line that
//! is not understood is an error.

use moongate_config::{ParsedServer, legal_server_name, split_command};
use serde_json::{Map, Value, json};

use super::client_entry::entry;
use super::runner::{RunnerProgram, program_name};
use super::{naming, remote_bridge};

/// Flags of `mcp add` with a value that has no meaning here.
const IGNORED: [&str; 7] = [
    "-s",
    "--scope",
    "-t",
    "--transport",
    "--type",
    "--timeout",
    "--description",
];
/// Flags of `mcp add` without a value that have no meaning here. Gemini CLI declares `trust` as a
/// boolean (`packages/cli/src/commands/mcp/add.ts`).
const SWITCHES: [&str; 2] = ["--trust", "--no-trust"];
/// Flags of `mcp add` with names of tools, and the keys of an entry that have them.
/// Gemini CLI reads all words up to the next flag.
const TOOL_LISTS: [(&str, &str); 2] = [
    ("--include-tools", "includeTools"),
    ("--exclude-tools", "excludeTools"),
];

/// Reads one server a line. `None` if the text is neither a command line nor a URL.
pub(super) fn read(text: &str) -> Option<Result<Vec<ParsedServer>, String>> {
    // A line that ends with a backslash continues.
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines: Vec<Vec<String>> = joined
        .lines()
        // Documents show commands behind a prompt, and people copy that, too.
        .map(|line| split_command(line.trim().trim_start_matches("$ ")))
        .filter(|words| words.first().is_some_and(|word| !word.starts_with('#')))
        .collect();
    // One odd line makes the text something else: TOML and YAML are tried next.
    if lines.is_empty() || !lines.iter().all(|words| is_command(words)) {
        return None;
    }
    Some(lines.iter().map(|words| parse_server(words)).collect())
}

fn is_command(words: &[String]) -> bool {
    let words = &words[variables_before(words)..];
    if words.is_empty() {
        return false;
    }
    if words.get(1).is_some_and(|word| word == ADD_MCP) {
        return true;
    }
    let is_url = words.len() == 1 && (program_is_url(&words[0]));
    is_url
        || words.get(1).is_some_and(|word| word == "mcp")
        || RunnerProgram::find(&words[0]).is_some()
        || remote_bridge::is_bridge(&words[0])
}

/// Counts the words of `NAME=value` before a command.
fn variables_before(words: &[String]) -> usize {
    words.iter().take_while(|word| is_variable(word)).count()
}

fn is_variable(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn program_is_url(word: &str) -> bool {
    ["http://", "https://", "ws://", "wss://"]
        .iter()
        .any(|scheme| word.starts_with(scheme))
}

/// Flag of editors that adds a server given as JSON.
const ADD_MCP: &str = "--add-mcp";

fn parse_server(words: &[String]) -> Result<ParsedServer, String> {
    let (variables, words) = words.split_at(variables_before(words));
    let env: Map<String, Value> = variables
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    if program_is_url(&words[0]) {
        let settings = Map::from_iter([("url".to_owned(), Value::from(words[0].as_str()))]);
        return Ok(entry(&naming::name_of(&settings), settings));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runner = RunnerProgram::find(words[0]);
    match words.as_slice() {
        // Before the clients: `docker mcp gateway run` adds nothing.
        [command, args @ ..] if runner.is_some_and(|runner| !runner.starts_server(args)) => {
            Err(format!(
                "`{} {}` does not start a server",
                program_name(command),
                args.first().unwrap_or(&"")
            ))
        }
        [_, "mcp", "add-json", rest @ ..] => of_json(rest),
        [_, "mcp", "add", rest @ ..] => AddCommand::parse(rest)?.entry(),
        // An error, not a guess: `mcp list` or `mcp remove` would otherwise start as a server.
        [client, "mcp", ..] if runner.is_none() => {
            Err(format!("`{client} mcp` adds a server only with `add`"))
        }
        [_, flag, json, ..] if *flag == ADD_MCP => of_named_json(json),
        [command, args @ ..] => {
            let mut settings = program(command, args);
            if !env.is_empty() {
                settings.insert("env".to_owned(), Value::Object(env));
            }
            Ok(entry(&naming::name_of(&settings), settings))
        }
        [] => Err("the command line is empty".to_owned()),
    }
}

fn program(command: &str, args: &[&str]) -> Map<String, Value> {
    let mut settings = Map::from_iter([("command".to_owned(), json!(command))]);
    if !args.is_empty() {
        settings.insert("args".to_owned(), json!(args));
    }
    settings
}

/// `claude mcp add-json NAME '{"type": "http", ...}'`
fn of_json(words: &[&str]) -> Result<ParsedServer, String> {
    let mut plain = words.iter().enumerate().filter(|(at, word)| {
        let after_flag = at
            .checked_sub(1)
            .is_some_and(|before| IGNORED.contains(&words[before]));
        !word.starts_with('-') && !after_flag
    });
    let (Some((_, name)), Some((_, json))) = (plain.next(), plain.next()) else {
        return Err("`add-json` needs a name and a JSON object".to_owned());
    };
    let value: Value =
        serde_json::from_str(json).map_err(|e| format!("`add-json`: this is not JSON: {e}"))?;
    Ok(entry(name, value.as_object().cloned().unwrap_or_default()))
}

/// `code --add-mcp '{"name": ..., ...}'`
fn of_named_json(json: &str) -> Result<ParsedServer, String> {
    let value: Value =
        serde_json::from_str(json).map_err(|e| format!("`{ADD_MCP}`: this is not JSON: {e}"))?;
    let mut settings = value.as_object().cloned().unwrap_or_default();
    let name = settings
        .remove("name")
        .and_then(|name| name.as_str().map(str::to_owned));
    let name = name.unwrap_or_else(|| naming::name_of(&settings));
    Ok(entry(&legal_server_name(&name).unwrap_or(name), settings))
}

/// Parts of an `mcp add`.
#[derive(Debug, Default)]
struct AddCommand {
    plain: Vec<String>,
    command: Vec<String>,
    url: Option<String>,
    is_sse: bool,
    headers: Map<String, Value>,
    env: Map<String, Value>,
    /// Lists of tools, by their keys.
    tools: Map<String, Value>,
}

impl AddCommand {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut add = AddCommand::default();
        let mut words = words.iter().copied().peekable();
        while let Some(word) = words.next() {
            if word == "--" {
                add.command.extend(words.by_ref().map(str::to_owned));
                break;
            }
            // After a command, flags are the command's own.
            if !word.starts_with('-') || add.plain.len() > 1 && !program_is_url(&add.plain[1]) {
                add.plain.push(word.to_owned());
                continue;
            }
            let (flag, inline) = match word.split_once('=') {
                Some((flag, value)) if word.starts_with("--") => (flag, Some(value)),
                _ => (word, None),
            };
            if SWITCHES.contains(&flag) {
                words.next_if(|word| matches!(*word, "true" | "false"));
                continue;
            }
            add.set(flag, inline.or_else(|| words.next()))?;
            // Claude Code and Gemini CLI take any number of values behind some flags.
            while let Some(more) = words.next_if(|word| continues_values(flag, word)) {
                add.set(flag, Some(more))?;
            }
        }
        Ok(add)
    }

    fn set(&mut self, flag: &str, value: Option<&str>) -> Result<(), String> {
        let value = || value.ok_or_else(|| format!("`{flag}` needs a value"));
        match flag {
            "-H" | "--header" => {
                let header = value()?;
                // Most clients write `Name: value`. `opencode` and `amp` write `Name=value`.
                let parts = header.split_once(':').or_else(|| header.split_once('='));
                let (name, value) = parts
                    .ok_or_else(|| format!("{header:?} is not a header: write `Name: value`"))?;
                self.headers
                    .insert(name.trim().to_owned(), Value::from(value.trim()));
            }
            "-e" | "--env" => {
                let pair = value()?;
                let (name, value) = pair
                    .split_once('=')
                    .ok_or_else(|| format!("{pair:?} is not NAME=VALUE"))?;
                self.env.insert(name.to_owned(), Value::from(value));
            }
            "--url" => self.url = Some(value()?.to_owned()),
            "--bearer-token-env-var" => {
                let bearer = format!("Bearer ${{{}}}", value()?);
                self.headers
                    .insert("Authorization".to_owned(), Value::from(bearer));
            }
            "-t" | "--transport" | "--type" => self.is_sse = value()? == "sse",
            flag if IGNORED.contains(&flag) => drop(value()?),
            flag => match tool_list(flag) {
                Some(key) => self.add_tools(key, value()?),
                None => return Err(format!("the flag `{flag}` of `mcp add` is not known here")),
            },
        }
        Ok(())
    }

    fn add_tools(&mut self, key: &str, names: &str) {
        let names = names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let list = self
            .tools
            .entry(key)
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = list.as_array_mut() {
            list.extend(names.map(Value::from));
        }
    }

    fn entry(self) -> Result<ParsedServer, String> {
        let mut plain = self.plain.into_iter();
        let name = plain.next().ok_or("`mcp add` needs a name")?;
        let rest: Vec<String> = plain.chain(self.command).collect();
        let url = self
            .url
            .or_else(|| rest.first().filter(|word| program_is_url(word)).cloned());
        let mut settings = match (url, rest.split_first()) {
            (Some(url), _) => Map::from_iter([("url".to_owned(), Value::from(url))]),
            (None, Some((command, args))) => program(
                command,
                &args.iter().map(String::as_str).collect::<Vec<_>>(),
            ),
            (None, None) => {
                return Err(format!(
                    "`mcp add {name}` names neither a URL nor a command"
                ));
            }
        };
        if self.is_sse && settings.contains_key("url") {
            settings.insert("type".to_owned(), Value::from("sse"));
        }
        for (key, table) in [("headers", self.headers), ("env", self.env)] {
            if !table.is_empty() {
                settings.insert(key.to_owned(), Value::Object(table));
            }
        }
        settings.extend(self.tools);
        Ok(entry(&legal_server_name(&name).unwrap_or(name), settings))
    }
}

/// Returns the key of an entry that has the tools of a flag.
fn tool_list(flag: &str) -> Option<&'static str> {
    let list = TOOL_LISTS.iter().find(|(name, _)| *name == flag);
    list.map(|(_, key)| *key)
}

/// True if a word is another value of the flag before it. A server's name or URL isn't one.
fn continues_values(flag: &str, word: &str) -> bool {
    match flag {
        "-e" | "--env" => is_variable(word),
        "-H" | "--header" => is_header(word),
        flag => tool_list(flag).is_some() && !word.starts_with('-'),
    }
}

fn is_header(word: &str) -> bool {
    let name = word.split_once(':').map_or("", |(name, _)| name);
    !name.is_empty()
        && !program_is_url(word)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}
