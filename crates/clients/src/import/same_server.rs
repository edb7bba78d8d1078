//! Comparison of two entries.
//!
//! Owns what makes them one server: the URL with its transport and headers, or the command with its
//! arguments, variables and folder. Does not choose between them (`merge`). Invariant: entries with
//! two accounts or two databases are two servers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use url::Url;

use super::client_entry::text_of;
use super::remote_bridge::RemoteBridge;
use super::runner::RunnerProgram;

type Variables = BTreeMap<String, String>;

/// Mark in a text for a variable that is not set here. No config has the character.
const HOLE: char = '\u{0}';

/// Setting that one of two entries for a server lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSetting {
    /// `headers` or `env`.
    pub table: &'static str,
    /// Name in the table, as it is written.
    pub key: String,
}

impl MissingSetting {
    /// Returns the path of the setting in its entry.
    pub fn path(&self) -> String {
        format!("{}.{}", self.table, self.key)
    }
}

/// Fact that entries for one server have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum EntryMark {
    /// URL of the server, or of the one behind a bridge.
    Url(String),
    /// Socket of the server.
    Socket(String),
    /// Command and number of arguments.
    Program(String, usize),
    /// Program with an argument that is not known here.
    OpenProgram(String, usize),
    /// Command and arguments, packages without their versions.
    CommandLine(Vec<String>),
}

/// Marks of an entry. Another one for the same server has one of the `sought` among its `own`.
#[derive(Debug, Default)]
pub(super) struct EntryMarks {
    pub(super) own: Vec<EntryMark>,
    pub(super) sought: Vec<EntryMark>,
}

impl EntryMarks {
    /// Reads the marks of an entry.
    pub(super) fn of(settings: &Map<String, Value>, variables: &Variables) -> Self {
        let mut marks = EntryMarks::default();
        let bridge = RemoteBridge::of(settings).map(|bridge| bridge.url.to_owned());
        for url in text_of(settings, "url")
            .map(|url| expanded(url, variables))
            .into_iter()
            .chain(bridge)
        {
            marks.add(EntryMark::Url(normal_url(&url)));
        }
        if let Some(socket) = socket(settings) {
            marks.add(EntryMark::Socket(socket.to_string()));
        }
        if let Some(command) = text_of(settings, "command") {
            marks.add_command(command, &words(settings), variables);
        }
        marks
    }

    fn add(&mut self, mark: EntryMark) {
        self.own.push(mark.clone());
        self.sought.push(mark);
    }

    fn add_command(&mut self, command: &str, args: &[String], variables: &Variables) {
        let runs_packages = RunnerProgram::find(command).is_some_and(RunnerProgram::runs_packages);
        let mut line = vec![command.to_owned()];
        for arg in args {
            let arg = expanded(arg, variables);
            let is_package = runs_packages && !arg.starts_with('-');
            line.push(if is_package {
                split_version(&arg).0.to_owned()
            } else {
                arg
            });
        }
        let is_open = line.iter().any(|word| word.contains(HOLE));
        let program = EntryMark::Program(command.to_owned(), args.len());
        let open_program = EntryMark::OpenProgram(command.to_owned(), args.len());
        self.own.push(program.clone());
        if is_open {
            // It may be any with as many arguments.
            self.own.push(open_program);
            self.sought.push(program);
        } else {
            self.sought.push(open_program);
            self.add(EntryMark::CommandLine(line));
        }
    }
}

/// Returns what an entry lacks of another one for the same server. `None`: they are two servers.
pub(super) fn missing_settings(
    there: &Map<String, Value>,
    found: &Map<String, Value>,
    variables: &Variables,
) -> Option<Vec<MissingSetting>> {
    if let Some((one_url, other_url)) = text_of(there, "url").zip(text_of(found, "url")) {
        let is_one_place = normal_url(&expanded(one_url, variables))
            == normal_url(&expanded(other_url, variables));
        let is_same = is_one_place
            && transports_agree(there, found)
            && headers_agree(there, found, variables);
        return is_same.then(|| lacking("headers", there, found));
    }
    if let Some(is_same) =
        is_bridge_to_other(there, found, variables).or(is_bridge_to_other(found, there, variables))
    {
        return is_same.then(Vec::new);
    }
    match text_of(there, "command").zip(text_of(found, "command")) {
        Some((one_command, other_command)) => {
            let one_folder = text_of(there, "cwd").unwrap_or_default();
            let other_folder = text_of(found, "cwd").unwrap_or_default();
            let is_same = one_command == other_command
                && args_agree(one_command, &words(there), &words(found), variables)
                // Other variables mean another account or database.
                && env_agrees(&table(there, "env"), &table(found, "env"), variables)
                // So does another folder, for a program that gets relative paths.
                && is_same_text(one_folder, other_folder, variables);
            is_same.then(|| lacking("env", there, found))
        }
        None => (socket(there).is_some() && socket(there) == socket(found)).then(Vec::new),
    }
}

/// Returns the transport that an entry insists on. A client's `http` stands for both transports of
/// HTTP.
pub(super) fn fixed_transport(settings: &Map<String, Value>) -> Option<&str> {
    let transport = text_of(settings, "transport").filter(|word| matches!(*word, "http" | "sse"));
    transport.or_else(|| text_of(settings, "type").filter(|word| *word == "sse"))
}

/// True unless two entries insist on different transports. A server with one of them fails by the
/// other.
fn transports_agree(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let fixed = fixed_transport(one).zip(fixed_transport(other));
    fixed.is_none_or(|(one, other)| one == other)
}

fn socket(entry: &Map<String, Value>) -> Option<&Value> {
    entry.get("unix").or_else(|| entry.get("tcp"))
}

/// True if an entry is a bridge to the URL of the other one. `None` unless they are a bridge and a
/// URL.
fn is_bridge_to_other(
    one: &Map<String, Value>,
    other: &Map<String, Value>,
    variables: &Variables,
) -> Option<bool> {
    let bridge = RemoteBridge::of(one)?;
    let url = other.get("url")?.as_str()?;
    // A header may be the key of another account than the one that the bridge logged in to.
    let has_headers = !table(other, "headers").is_empty();
    Some(!has_headers && normal_url(bridge.url) == normal_url(&expanded(url, variables)))
}

/// Returns the members of a table that an entry lacks.
fn lacking(
    name: &'static str,
    there: &Map<String, Value>,
    found: &Map<String, Value>,
) -> Vec<MissingSetting> {
    let known = table(there, name);
    let keys = found
        .get(name)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys);
    let missing = keys.filter(|key| !known.contains_key(&member_name(name, key)));
    missing
        .map(|key| MissingSetting {
            table: name,
            key: key.clone(),
        })
        .collect()
}

/// True if an entry refers to a variable that is not set here.
pub(super) fn has_unset(settings: &Map<String, Value>, variables: &Variables) -> bool {
    let tables = ["env", "headers"]
        .iter()
        .flat_map(|key| table(settings, key).into_values());
    let url = settings
        .get("url")
        .and_then(Value::as_str)
        .map(str::to_owned);
    words(settings)
        .into_iter()
        .chain(url)
        .chain(tables)
        .any(|text| expanded(&text, variables).contains(HOLE))
}

fn words(settings: &Map<String, Value>) -> Vec<String> {
    let args = settings
        .get("args")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    args.map(|arg| arg.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Texts of a table.
fn table(settings: &Map<String, Value>, key: &str) -> BTreeMap<String, String> {
    let members = settings
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    members
        .map(|(member, value)| {
            (
                member_name(key, member),
                value.as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

/// Name of a member as it is compared. Names of headers have no case.
fn member_name(table: &str, name: &str) -> String {
    if table == "headers" {
        name.to_lowercase()
    } else {
        name.to_owned()
    }
}

/// True if no header has two values. An entry that lacks another one's key isn't another account.
fn headers_agree(
    one: &Map<String, Value>,
    other: &Map<String, Value>,
    variables: &Variables,
) -> bool {
    let one = table(one, "headers");
    let other = table(other, "headers");
    one.iter().all(|(name, value)| {
        other
            .get(name)
            .is_none_or(|there| is_same_text(value, there, variables))
    })
}

/// True if a program gets all variables that it has already, with their values. It may get more,
/// such as a key.
fn env_agrees(
    there: &BTreeMap<String, String>,
    found: &BTreeMap<String, String>,
    variables: &Variables,
) -> bool {
    there.iter().all(|(name, value)| {
        found
            .get(name)
            .is_some_and(|found| is_same_text(value, found, variables))
    })
}

fn args_agree(command: &str, one: &[String], other: &[String], variables: &Variables) -> bool {
    let runs_packages = RunnerProgram::find(command).is_some_and(RunnerProgram::runs_packages);
    let mut pairs = one.iter().zip(other);
    one.len() == other.len()
        && pairs.all(|(one, other)| {
            is_same_text(one, other, variables) || runs_packages && is_same_package(one, other)
        })
}

/// True if two words name one package, and at least one of them leaves its version open.
fn is_same_package(one: &str, other: &str) -> bool {
    let (one, one_version) = split_version(one);
    let (other, other_version) = split_version(other);
    let is_open = [one_version, other_version]
        .iter()
        .any(|version| matches!(*version, "" | "latest"));
    one == other && !one.starts_with('-') && is_open
}

/// `@scope/name@1.2.3`, `name==1.2.3`
fn split_version(word: &str) -> (&str, &str) {
    let parts = word.split_once("==").or_else(|| word.rsplit_once('@'));
    // A scope starts with `@`, too.
    parts
        .filter(|(name, version)| !name.is_empty() && !version.contains('/'))
        .unwrap_or((word, ""))
}

/// True if two texts have one value, as far as that is known here.
fn is_same_text(one: &str, other: &str, variables: &Variables) -> bool {
    if one == other {
        return true;
    }
    let one = expanded(one, variables);
    let other = expanded(other, variables);
    match (one.split_once(HOLE), other.split_once(HOLE)) {
        (None, None) => one == other,
        (Some(open), None) => fits(open, &other),
        (None, Some(open)) => fits(open, &one),
        // Two variables are two values.
        (Some(_), Some(_)) => false,
    }
}

/// True if a text starts and ends as another one does before its first and after its last hole.
fn fits((start, rest): (&str, &str), text: &str) -> bool {
    let end = rest.rsplit(HOLE).next().unwrap_or_default();
    text.strip_prefix(start)
        .is_some_and(|text| text.ends_with(end))
}

/// Replaces the references of a text, as the config's reader does it.
fn expanded(text: &str, variables: &Variables) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let reference = after
            .strip_prefix('{')
            .and_then(|after| after.split_once('}'));
        rest = match (reference, after.strip_prefix('$')) {
            (_, Some(after)) => {
                out.push('$');
                after
            }
            (Some((reference, after)), None) => {
                let (name, default) = reference
                    .split_once(":-")
                    .map_or((reference, None), |it| (it.0, Some(it.1)));
                let value = variables
                    .get(name.strip_prefix("env:").unwrap_or(name))
                    .map(String::as_str);
                match value.or(default) {
                    Some(value) => out.push_str(value),
                    None => out.push(HOLE),
                }
                after
            }
            (None, None) => {
                out.push('$');
                after
            }
        };
    }
    out + rest
}

fn normal_url(url: &str) -> String {
    // What a variable stands for is not known here, and such a URL compares as text.
    let parsed = Url::parse(url).map(|url| url.to_string());
    parsed
        .unwrap_or_else(|_| url.to_owned())
        .trim_end_matches('/')
        .to_owned()
}
