//! Bridges that clients start to reach a server over HTTP.
//!
//! Owns the command line of `mcp-remote`. Does not know ours (`merge`). Invariant: a bridge stays a
//! program if the URL would lose one of its settings, or if a credential is missing in a header.

use std::collections::{HashMap, HashSet};

use moongate_config::ParsedServer;
use serde_json::{Map, Value};

use super::client_entry::converted_entry;
use super::runner::{RunnerProgram, program_name};

/// Flags with a value that are about the bridge's page for logins.
const LOGIN_PAGE: [&str; 3] = ["--host", "--auth-timeout", "--callback-port"];
/// Flag with what a login is for. It means nothing where a header has the credential.
const RESOURCE: &str = "--resource";
/// Flag with a client that somebody registered for its logins, as JSON.
const CLIENT_INFO: &str = "--static-oauth-client-info";
/// Variable with the folder of the bridge's logins. Another folder is another account.
const LOGIN_FOLDER: &str = "MCP_REMOTE_CONFIG_DIR";
/// Variables that change nothing of the connection.
const HARMLESS: [&str; 4] = ["PATH", "HOME", "DEBUG", "NODE_NO_WARNINGS"];
/// Words before `key` in the names of headers that are credentials.
const KEY_KINDS: [&str; 5] = ["api", "access", "auth", "private", "subscription"];
/// Values that are not secrets, though they are where one should be.
const PLACEHOLDERS: [&str; 6] = ["", "null", "undefined", "none", "changeme", "..."];
/// Bytes of all headers of a bridge. Servers read less.
const HEADERS_MAX: usize = 64 << 10;

/// Command line of a bridge.
pub(super) struct RemoteBridge<'a> {
    /// URL of the server behind it.
    pub(super) url: &'a str,
    /// True if it runs where the client does.
    runs_here: bool,
    /// Flags, without the URL.
    flags: Vec<&'a str>,
    env: Vec<(&'a str, &'a str)>,
}

/// Way in which a bridge proves who calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallerProof {
    /// A header has the credential.
    Header,
    /// It logs in.
    Login,
}

impl CallerProof {
    /// Reads the headers of a bridge. `None`: a header should have a credential, and has none yet.
    fn of(headers: &Map<String, Value>) -> Option<Self> {
        let mut credentials = headers
            .iter()
            .filter(|(name, _)| names_credential(&name.to_ascii_lowercase()))
            .map(|(_, value)| has_secret(value.as_str().unwrap_or_default()))
            .peekable();
        if credentials.peek().is_none() {
            return Some(CallerProof::Login);
        }
        credentials
            .any(|is_secret| is_secret)
            .then_some(CallerProof::Header)
    }

    /// Says why the program is not needed.
    fn note(self) -> &'static str {
        match self {
            CallerProof::Header => "`mcp-remote` is not needed: Moongate sends its header itself",
            CallerProof::Login => "`mcp-remote` is not needed: Moongate logs in to the URL itself",
        }
    }
}

/// Replaces an entry that starts `mcp-remote` by the server behind it. The gateway sends its
/// headers, or logs in.
pub(super) fn unwrap(mut server: ParsedServer) -> ParsedServer {
    let Some(bridge) = RemoteBridge::of(&server.settings) else {
        return server;
    };
    let Some(headers) = bridge.headers() else {
        server
            .notes
            .push("`mcp-remote` stays, since its headers are too long".to_owned());
        return server;
    };
    let Some(proof) = CallerProof::of(&headers) else {
        server
            .notes
            .push("`mcp-remote` stays, since its header has no credential yet".to_owned());
        return server;
    };
    let Some(mut settings) = bridge.settings(headers, proof) else {
        server.notes.push(
            "`mcp-remote` stays, since some of its settings have no equivalent here".to_owned(),
        );
        return server;
    };
    for (key, value) in server
        .settings
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "command" | "args" | "env"))
    {
        // The type of the entry is that of the program.
        if key != "type" && key != "cwd" {
            settings.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    let has_client = settings.contains_key("auth");
    let mut plain = converted_entry(&server.name, settings);
    plain.source_name = server.source_name;
    plain.notes = server.notes;
    plain.notes.push(proof.note().to_owned());
    if has_client {
        let note = "its client in `auth` must allow Moongate's redirect address, too";
        plain.notes.push(note.to_owned());
    }
    plain.is_broken |= server.is_broken;
    plain.needs_login = proof == CallerProof::Login;
    plain
}

/// True if a program has this name, whatever its folder and its version are.
pub(super) fn is_bridge(word: &str) -> bool {
    // Compared in two parts: `tests/tidy.rs` keeps literals that start like protocol headers out of
    // this crate.
    program_name(word)
        .split('@')
        .next()
        .and_then(|name| name.split_once('-'))
        == Some(("mcp", "remote"))
}

impl<'a> RemoteBridge<'a> {
    /// Reads an entry. `None` if it starts no bridge, or one whose URL cannot be found.
    pub(super) fn of(settings: &'a Map<String, Value>) -> Option<Self> {
        let command = settings.get("command")?.as_str()?;
        let args = settings
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let words: Vec<&str> = std::iter::once(command).chain(args).collect();
        // `npx --package mcp-remote mcp-remote URL`: the last of these words is the program.
        let first = words.iter().position(|word| is_bridge(word))?;
        let start = first
            + words[first..]
                .iter()
                .take_while(|word| is_bridge(word))
                .count();
        let flags_before = flags_length(&words[start..]);
        let (at, url) = words
            .iter()
            .copied()
            .enumerate()
            .nth(start + flags_before)?;
        if !["http://", "https://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return None;
        }
        let flags = words[start..at]
            .iter()
            .chain(&words[at + 1..])
            .copied()
            .collect();
        let env = settings
            .get("env")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let env = env
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .collect();
        Some(RemoteBridge {
            url,
            runs_here: runs_here(&words[..first]),
            flags,
            env,
        })
    }

    /// Headers that it sends, each with its value. `None` if they are longer than any server reads.
    fn headers(&self) -> Option<Map<String, Value>> {
        let variables: HashMap<&str, &str> = self.env.iter().copied().collect();
        let mut headers = Map::new();
        let mut left = HEADERS_MAX;
        for pair in self.flags.windows(2).filter(|pair| pair[0] == "--header") {
            let Some((name, value)) = pair[1].split_once(':') else {
                continue;
            };
            let value = with_variables(value.trim(), &variables, left)?;
            left = left.checked_sub(value.len())?;
            headers.insert(name.trim().to_owned(), Value::from(value));
        }
        Some(headers)
    }

    /// Settings of the server behind it. `None` if a flag or a variable has no equal.
    fn settings(
        &self,
        headers: Map<String, Value>,
        proof: CallerProof,
    ) -> Option<Map<String, Value>> {
        let has_header = proof == CallerProof::Header;
        let used: HashSet<&str> = self
            .flags
            .iter()
            .flat_map(|flag| flag.split("${").skip(1))
            .filter_map(name_in)
            .collect();
        let is_env_known = self.env.iter().all(|&(name, _)| {
            HARMLESS.contains(&name) || used.contains(name) || has_header && name == LOGIN_FOLDER
        });
        if !self.runs_here || !is_env_known {
            return None;
        }
        let mut out = Map::from_iter([("url".to_owned(), Value::from(self.url))]);
        let mut words = self.flags.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "--header" => drop(words.next()?.split_once(':')?),
                "--transport" => match words.next()? {
                    "sse-only" => drop(out.insert("type".to_owned(), Value::from("sse"))),
                    "http-only" => drop(out.insert("type".to_owned(), Value::from("http"))),
                    _ => {}
                },
                "--allow-http" | "--debug" | "--silent" => {}
                CLIENT_INFO if !has_header => {
                    out.insert("auth".to_owned(), Value::Object(client_of(words.next()?)?));
                }
                RESOURCE if !has_header => return None,
                RESOURCE => drop(words.next()),
                flag if LOGIN_PAGE.contains(&flag) => drop(words.next()),
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
}

/// Reads the client of a bridge, as `auth` has it. `None` if it has more than an id and a secret, or
/// a variable, which nobody would replace.
fn client_of(info: &str) -> Option<Map<String, Value>> {
    let client: Map<String, Value> = serde_json::from_str(info).ok()?;
    let is_plain = |(key, value): (&String, &Value)| {
        let text = value.as_str().unwrap_or_default();
        let is_known = matches!(key.as_str(), "client_id" | "client_secret");
        is_known && !text.is_empty() && !text.contains('$')
    };
    let is_whole = client.contains_key("client_id") && client.iter().all(is_plain);
    is_whole.then_some(client)
}

/// Replaces variables that the entry itself sets: they do not exist without the program. `None` if
/// the text gets longer than `length_max`. All texts are as our config has them.
fn with_variables(
    text: &str,
    variables: &HashMap<&str, &str>,
    length_max: usize,
) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // The reader leaves references to such variables to the program, by a second dollar sign.
        let inside = rest.strip_prefix("$${").or_else(|| rest.strip_prefix("${"));
        let name = inside.and_then(name_in);
        let found = inside.zip(name.and_then(|name| Some((name, variables.get(name)?))));
        rest = match found {
            Some((inside, (name, value))) => {
                out.push_str(value);
                // A single dollar sign at its end must not become a mark with what follows.
                if (value.len() - value.trim_end_matches('$').len()) % 2 == 1 {
                    out.push('$');
                }
                &inside[name.len() + 1..]
            }
            None => {
                let mark = if rest.starts_with("$$") { "$$" } else { "$" };
                out.push_str(mark);
                &rest[mark.len()..]
            }
        };
        // Each of many references may stand for a long value.
        if out.len() > length_max {
            return None;
        }
    }
    out.push_str(rest);
    (out.len() <= length_max).then_some(out)
}

/// Returns the name at the start of a reference, behind its brace.
fn name_in(inside: &str) -> Option<&str> {
    // No name has a dollar sign. Openings alone would otherwise be searched to the end of the text,
    // each of them.
    let end = inside
        .find(['}', '$'])
        .filter(|end| inside[*end..].starts_with('}'))?;
    Some(&inside[..end])
}

/// Counts the words of headers before the URL, which the bridge takes out first.
fn flags_length(words: &[&str]) -> usize {
    2 * words
        .chunks(2)
        .take_while(|pair| pair.first() == Some(&"--header"))
        .count()
}

/// True if the words before a bridge start it on this machine.
fn runs_here(words: &[&str]) -> bool {
    match words.split_first() {
        None => true,
        Some((program, rest)) if program_name(program) == "cmd" => {
            runs_here(&rest[rest.iter().take_while(|word| word.starts_with('/')).count()..])
        }
        Some((program, _)) => {
            RunnerProgram::find(program).is_some_and(RunnerProgram::runs_node_here)
        }
    }
}

/// True if an entry has a header that is a credential.
pub(super) fn has_credential_header(settings: &Map<String, Value>) -> bool {
    let headers = settings.get("headers").and_then(Value::as_object);
    headers
        .into_iter()
        .flat_map(Map::keys)
        .any(|name| names_credential(&name.to_ascii_lowercase()))
}

/// True if headers of this name, in small letters, are credentials.
fn names_credential(name: &str) -> bool {
    let key_of = name
        .strip_suffix("key")
        .map(|start| start.trim_end_matches(['-', '_']));
    name == "authorization"
        || ["token", "secret", "password"]
            .iter()
            .any(|word| name.ends_with(word))
        || key_of.is_some_and(|start| KEY_KINDS.iter().any(|kind| start.ends_with(kind)))
}

/// True if a value is neither empty nor what a document has in its place.
fn has_secret(value: &str) -> bool {
    let lower = value.trim().to_ascii_lowercase();
    // A scheme alone is what an empty variable leaves.
    let schemes = ["bearer", "basic", "token"];
    let secret = schemes
        .iter()
        .find_map(|scheme| lower.strip_prefix(scheme))
        .unwrap_or(&lower)
        .trim();
    let is_example = secret.starts_with('<')
        || secret.starts_with("your")
        || secret.chars().all(|letter| letter == 'x');
    !is_example && !PLACEHOLDERS.contains(&secret)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::client_entry::entry;
    use super::*;

    fn unwrapped(args: &[String], env: &Map<String, Value>) -> ParsedServer {
        let settings = json!({ "command": "npx", "args": args, "env": env });
        unwrap(entry(
            "a",
            settings.as_object().cloned().unwrap_or_default(),
        ))
    }

    fn bridge_to(header: &str) -> [String; 4] {
        ["mcp-remote", "https://a.example", "--header", header].map(str::to_owned)
    }

    #[test]
    fn a_value_put_into_a_header_is_not_searched_for_variables() {
        let doubled = (0..60).map(|n| (format!("V{n}"), format!("${{V{0}}}${{V{0}}}", n + 1)));
        let mut env: Map<String, Value> = doubled
            .map(|(name, value)| (name, Value::from(value)))
            .collect();
        let names: String = env.keys().map(|name| format!("${{{name}}}")).collect();
        let found = unwrapped(
            &bridge_to(&format!(
                "X-Api-Key: $${{V0}} $$ ${{A}} ${{V ${{V59}}{names}"
            )),
            &env,
        );
        let key = found.settings["headers"]["X-Api-Key"]
            .as_str()
            .unwrap_or_default();
        assert!(
            key.starts_with("$$${V1}${V1} $$$$ ${A} $${V ${V60}${V60}${V1}${V1}${V2}"),
            "{key}"
        );
        env.insert("UNUSED".to_owned(), Value::from("x"));
        assert!(
            unwrapped(&bridge_to("X-Api-Key: ${V0}"), &env)
                .settings
                .contains_key("command")
        );
    }

    #[test]
    fn dollar_signs_of_a_value_reach_the_server() {
        for (header, value, expected) in [
            (
                "Bearer ${T}",
                "a$$b-k-123456789$",
                "Bearer a$$$$b-k-123456789$$",
            ),
            ("${T}{x} ${T}", "k$", "k$${x} k$$"),
            ("${T}${U}", "$${NOPE", "$$$${NOPE$$$$"),
            ("$${T}", "${T}", "$$${T}"),
            ("Bearer a$$b", "", "Bearer a$$$$b"),
        ] {
            let env = [("T", value), ("U", "$$")]
                .map(|(name, value)| (name.to_owned(), Value::from(value)));
            let env = Map::from_iter(
                env.into_iter()
                    .filter(|(name, _)| header.contains(&format!("${{{name}}}"))),
            );
            let found = unwrapped(&bridge_to(&format!("Authorization: {header}")), &env);
            assert_eq!(
                found.settings["headers"]["Authorization"], expected,
                "{header} {value}"
            );
        }
    }

    /// Need of a login where a bridge with this header becomes its URL. `None` if it stays.
    fn login_of(header: &str) -> Option<bool> {
        let found = unwrapped(&bridge_to(header), &Map::new());
        found
            .settings
            .contains_key("url")
            .then_some(found.needs_login)
    }

    #[test]
    fn a_registered_client_becomes_that_of_the_login() {
        let of = |info: &str| {
            let args = ["mcp-remote", "https://a.example", CLIENT_INFO, info].map(str::to_owned);
            unwrapped(&args, &Map::new())
        };
        let found = of(r#"{"client_id": "a", "client_secret": "hush"}"#);
        let client = json!({ "client_id": "a", "client_secret": "hush" });
        assert_eq!(found.settings["auth"], client);
        assert!(found.needs_login);
        assert!(!Value::Object(found.masked).to_string().contains("hush"));
        for info in [
            "{}",
            "@client.json",
            r#"{"client_secret": "hush"}"#,
            r#"{"client_id": "a", "client_secret": "${SECRET}"}"#,
            r#"{"client_id": "a", "redirect_uris": []}"#,
        ] {
            let kept = of(info);
            assert!(kept.settings.contains_key("command"), "{info}");
            let masked = Value::Object(kept.masked).to_string();
            assert!(!masked.contains("hush"), "{masked}");
        }
    }

    #[test]
    fn only_a_doubtful_credential_leaves_the_bridge() {
        for header in [
            "Authorization: Bearer ghp_0123",
            "X-API-Key: k",
            "apikey: k",
            "Ocp-Apim-Subscription-Key: k",
            "PRIVATE-TOKEN: t",
            "X-Client-Secret: s",
            "Authorization: ${input:token}",
        ] {
            assert_eq!(login_of(header), Some(false), "{header}");
        }
        for header in [
            "X-Routing-Key: eu",
            "Cookie: lang=de",
            "CF-Account-Id: 0123456789abcdef0123456789abcdef",
            "X-Tenant: acme",
            "X-Token-Type: user",
        ] {
            assert_eq!(login_of(header), Some(true), "{header}");
        }
        for header in [
            "Authorization: Bearer",
            "Authorization: Bearer undefined",
            "Authorization: Bearer <token>",
            "X-Api-Key: YOUR_API_KEY",
            "X-Auth-Token: null",
        ] {
            assert_eq!(login_of(header), None, "{header}");
        }
    }

    #[test]
    fn headers_that_no_server_reads_leave_the_bridge() {
        let env = Map::from_iter([("V".to_owned(), Value::from("k".repeat(60_000)))]);
        for header in [
            format!("X-Api-Key: {}", "${V}".repeat(60_000)),
            "X-Api-Key: ${V}${V}".to_owned(),
        ] {
            let found = unwrapped(&bridge_to(&header), &env);
            assert!(found.settings.contains_key("command"));
            assert!(
                found.notes.iter().any(|note| note.contains("too long")),
                "{:?}",
                found.notes
            );
        }
        assert!(
            unwrapped(&bridge_to("X-Api-Key: ${V}"), &env)
                .settings
                .contains_key("url")
        );
    }
}
