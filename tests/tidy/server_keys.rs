//! Readers of the keys of a server.
//!
//! Owns which code has to use which keys. Does not judge what it does with them. Invariant: a key
//! that is declared, parsed and then used by nobody fails a test that names it.

use super::source::{SourceFile, sources};
use super::{assert_none, lines};

/// Struct of keys, and the code that has to use each of them.
struct KeyStruct {
    /// File of the declaration.
    file: &'static str,
    name: &'static str,
    /// Names that its users have for such a struct.
    holders: &'static [&'static str],
    /// Folders of its users.
    readers: &'static [&'static str],
}

const CONFIG: &str = "crates/config/src/server_keys.rs";
const OPTIONS: &str = "crates/upstream/src/options.rs";
const SUPERVISION: &str = "crates/upstream/src/supervision_options.rs";

/// Code that resolves keys.
const RESOLVERS: &[&str] = &["crates/config/src/resolve/"];
/// Code that runs servers. The page and the status only show their settings.
const RUNNERS: &[&str] = &["crates/upstream/src/", "crates/gateway/src/"];

/// Declares how the keys of a struct are read.
const fn keys(
    file: &'static str,
    name: &'static str,
    holders: &'static [&'static str],
    readers: &'static [&'static str],
) -> KeyStruct {
    KeyStruct {
        file,
        name,
        holders,
        readers,
    }
}

const STRUCTS: [KeyStruct; 11] = [
    keys(CONFIG, "Server", &["server"], RESOLVERS),
    keys(CONFIG, "ServerOptions", &["options"], RESOLVERS),
    keys(CONFIG, "ServerLogin", &["login"], RESOLVERS),
    keys(OPTIONS, "LiveOptions", &["live"], RUNNERS),
    keys(OPTIONS, "ConnectionOptions", &["options"], RUNNERS),
    keys(OPTIONS, "ListOptions", &["lists", "limits"], RUNNERS),
    keys(SUPERVISION, "BackoffSettings", &["backoff"], RUNNERS),
    keys(SUPERVISION, "RetrySettings", &["retry"], RUNNERS),
    keys(SUPERVISION, "BreakerSettings", &["settings"], RUNNERS),
    keys(SUPERVISION, "PingSettings", &["ping"], RUNNERS),
    keys(SUPERVISION, "WebSocketPingSettings", &["settings"], RUNNERS),
];

// The compiler does not find such a key: the comparison of two configs and the writing of one read
// every field, by derived code.
#[test]
fn each_key_of_a_server_is_read() {
    let sources = sources();
    let problems: Vec<String> = STRUCTS
        .iter()
        .flat_map(|declared| unread_keys(declared, &sources))
        .collect();
    assert_none(&problems);
}

/// Names the keys of a struct that none of its users reads.
fn unread_keys(declared: &KeyStruct, sources: &[SourceFile]) -> Vec<String> {
    let users: Vec<String> = sources
        .iter()
        .filter(|source| !source.is_test)
        .filter(|source| {
            declared
                .readers
                .iter()
                .any(|it| source.path.starts_with(it))
        })
        .map(|source| joined(&source.bare))
        .collect();
    let fields = fields(declared, sources);
    assert!(!fields.is_empty(), "{} was found", declared.name);
    fields
        .iter()
        .filter(|field| !users.iter().any(|code| is_read(declared, field, code)))
        .map(|field| {
            format!(
                "{}: nothing in {} reads `{field}` of {}; see \
                 docs/contributing/adding-a-server-key.md, step 5",
                declared.file,
                declared.readers.join(" or "),
                declared.name
            )
        })
        .collect()
}

/// Joins the lines of code, so that each access is in one piece.
fn joined(code: &str) -> String {
    let words: Vec<&str> = code.split_whitespace().collect();
    words.join(" ").replace(" .", ".")
}

/// Lists the fields of a struct.
fn fields(declared: &KeyStruct, sources: &[SourceFile]) -> Vec<String> {
    let opening = format!("struct {} {{", declared.name);
    sources
        .iter()
        .filter(|source| source.path == declared.file)
        .flat_map(lines)
        .map(|(_, line)| line)
        .skip_while(|line| !line.ends_with(&opening))
        .skip(1)
        .take_while(|line| *line != "}")
        .filter(|line| line.starts_with("pub"))
        .filter_map(|line| Some(line.split_once(':')?.0.rsplit(' ').next()?.to_owned()))
        .collect()
}

/// True if joined code reads a field: `live.queue`, or a pattern of the struct.
fn is_read(declared: &KeyStruct, field: &str, code: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let is_access = |holder: &&str| {
        let access = format!("{holder}.{field}");
        code.match_indices(&access).any(|(at, _)| {
            let after = code[at + access.len()..].chars().next();
            // `backoff.min(…)` would be a function.
            !code[..at].ends_with(is_name) && !after.is_some_and(|c| is_name(c) || c == '(')
        })
    };
    let pattern = format!("let {} {{", declared.name);
    let is_bound = |rest: &str| {
        let members = rest.split('}').next().unwrap_or_default();
        members.split(',').any(|member| {
            let (name, bound) = member.split_once(':').unwrap_or((member, member));
            name.trim() == field && bound.trim() != "_"
        })
    };
    declared.holders.iter().any(is_access) || code.split(&pattern).skip(1).any(is_bound)
}
