//! Parts of a config's texts that are secret.
//!
//! Owns the choice between a whole text and parts of it. Does not know looks
//! (`moongate_telemetry::secret_look`). Invariant: a value in doubt is secret, and a URL keeps its
//! host and plain segments.

use std::ops::Range;

use moongate_telemetry::secret_look::{merged_ranges, secret_ranges};
use moongate_telemetry::secret_names::{has_secret_part, sounds_secret};

use super::harmless_value::{has_plain_name, is_count, is_harmless, is_path};
use super::json_members::secret_members;
use super::redact::{ARGUMENTS, SECRET_TABLES, is_only_reference};
use super::tree::ConfigPath;

/// Flags behind which a header comes.
const HEADER_FLAGS: [&str; 3] = ["-H", "--header", "--headers"];
/// Flags behind which a user and a password come.
const USER_FLAGS: [&str; 3] = ["-u", "--user", "--proxy-user"];
/// Maps of servers, whose names aren't settings.
const SERVER_MAPS: [&str; 5] = [
    "servers",
    "mcpServers",
    "mcp_servers",
    "context_servers",
    "mcp",
];

/// Returns the secret parts of the text at a path, in their order. `before` is the item before it
/// in its list.
pub(super) fn secret_parts(
    path: &ConfigPath,
    text: &str,
    before: Option<&str>,
) -> Vec<Range<usize>> {
    let steps = path.steps();
    // Codex names a variable by such a key.
    if is_only_reference(text) || steps.last().is_some_and(|key| key.ends_with("_env_var")) {
        return Vec::new();
    }
    let list = steps.iter().rev().nth(1).copied().unwrap_or_default();
    let is_argument = ARGUMENTS.contains(&list) || matches!(steps.last(), Some(&"command"));
    if is_argument && before.is_some_and(|flag| names_next(flag, text))
        || is_whole_secret(&steps, text)
    {
        return std::iter::once(0..text.len()).collect();
    }
    let mut found = secret_ranges(text);
    if is_argument || is_in_secret_table(&steps) {
        found.extend(argument_parts(text, before));
        let members = secret_members(text).into_iter();
        found.extend(members.filter(|part| !is_only_reference(&text[part.clone()])));
    }
    merged_ranges(found)
}

/// Replaces the secret parts of a text. `None` if there is none.
pub(super) fn mask_text(
    path: &ConfigPath,
    text: &str,
    before: Option<&str>,
    mask: &str,
) -> Option<String> {
    let parts = secret_parts(path, text, before);
    let mut out = String::new();
    let mut done = 0;
    for part in &parts {
        out += &text[done..part.start];
        out += mask;
        done = part.end;
    }
    (!parts.is_empty()).then(|| out + &text[done..])
}

/// Returns true for a flag whose value, the next word, is secret.
fn names_next(flag: &str, value: &str) -> bool {
    let is_location = has_plain_name(flag) && is_path(value);
    flag.starts_with('-')
        && sounds_secret(flag)
        && !flag.contains(['=', ':'])
        && !is_location
        && !is_count(flag, value)
}

/// Returns true for a text that is secret as a whole, by the names on its path.
fn is_whole_secret(steps: &[&str], text: &str) -> bool {
    let Some((name, tables)) = steps.split_last() else {
        return false;
    };
    let is_address = is_url(text);
    // Such a name says where a secret is, and not what it is.
    let is_location = has_plain_name(name) && (is_path(text) || is_address) || is_count(name, text);
    let tables = match tables {
        // A server's name isn't a setting.
        [map, _, rest @ ..] if SERVER_MAPS.contains(map) => rest,
        tables => tables,
    };
    let is_below = tables.iter().any(|step| has_secret_part(step));
    let is_server = matches!(steps, [map, _] if SERVER_MAPS.contains(map));
    let is_value = is_in_secret_table(steps)
        && (sounds_secret(name) || !is_address && !is_harmless(name, text));
    // URLs of proxies often have no scheme.
    let is_proxy = *name == "proxy" && text.contains('@') && !is_address;
    matches!(steps, ["auth" | "admin", "keys", _, "key"])
        || is_below
        || is_proxy
        || !is_location && !is_server && (has_secret_part(name) || is_value)
}

fn is_in_secret_table(steps: &[&str]) -> bool {
    steps
        .split_last()
        .is_some_and(|(_, tables)| tables.iter().any(|table| SECRET_TABLES.contains(table)))
}

/// Returns true for a URL and nothing else. Its secret parts are known.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !rest.contains(|c: char| c.is_whitespace() || c == ';')
}

/// Finds the secrets of an argument, or of the words of a command line.
fn argument_parts(text: &str, before: Option<&str>) -> Vec<Range<usize>> {
    let whole = argument_part(text, before);
    if whole.is_some() || !text.contains([' ', ';']) {
        return whole.into_iter().collect();
    }
    let mut found = Vec::new();
    let mut at = 0;
    let mut last = before;
    for word in text.split([' ', ';']) {
        let plain = word.trim_matches(['"', '\'']);
        let start = at + word.find(plain).unwrap_or_default();
        let is_named = last.is_some_and(|flag| names_next(flag, plain)) && !plain.is_empty();
        let part = if is_named {
            Some(0..plain.len())
        } else {
            argument_part(plain, last)
        };
        found.extend(part.map(|part| start + part.start..start + part.end));
        (at, last) = (at + word.len() + 1, Some(plain));
    }
    found
}

/// Finds the secret of one argument. The value of `--env=NAME=value` has a name, too.
fn argument_part(text: &str, before: Option<&str>) -> Option<Range<usize>> {
    named_part(text, before).or_else(|| part_in_value(text))
}

fn part_in_value(text: &str) -> Option<Range<usize>> {
    let (flag, value) = text
        .split_once('=')
        .filter(|(flag, _)| flag.starts_with('-'))?;
    let start = flag.len() + 1;
    named_part(value, Some(flag)).map(|part| start + part.start..start + part.end)
}

/// Returns the rest of a text from a byte, without blanks before it. `None` if it has no secret.
fn secret_from(text: &str, start: usize) -> Option<Range<usize>> {
    let value = &text[start..];
    let start = start + value.len() - value.trim_start().len();
    let is_secret = !value.trim().is_empty() && !is_only_reference(value.trim());
    is_secret.then_some(start..text.len())
}

/// Finds the secret of `--token=x`, `Authorization: x`, `-pPASS`, or `user:password` behind `-u`.
fn named_part(text: &str, before: Option<&str>) -> Option<Range<usize>> {
    if let Some(password) = text.strip_prefix("-p").filter(|rest| is_password(rest)) {
        return secret_from(text, text.len() - password.len());
    }
    let at = text.find(['=', ':'])?;
    let name = text[..at].trim_start_matches('-');
    let rest = &text[at + 1..];
    let is_header =
        before.is_some_and(|flag| HEADER_FLAGS.contains(&flag)) && !is_harmless(name, rest);
    let is_user = before.is_some_and(|flag| USER_FLAGS.contains(&flag));
    let is_named =
        sounds_secret(name) && !name.contains(['/', '@', '.']) && !rest.starts_with("//");
    let is_location = has_plain_name(name) && is_path(rest) || is_count(name, rest);
    (is_named && !is_location || is_header || is_user)
        .then(|| secret_from(text, at + 1))
        .flatten()
}

/// Returns true for the password of `-pPASS`, as database clients have it. `-path` is a word, and
/// `-p8080` a port.
fn is_password(rest: &str) -> bool {
    let is_port = rest
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'));
    let is_word = rest
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let names = rest.split(['=', ':']).next().unwrap_or_default();
    let is_flag = names.len() < rest.len()
        && names
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    !(is_port || is_flag || is_path(rest)) && (!is_word || sounds_secret(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(steps: &[&str], text: &str, before: Option<&str>) -> String {
        let path = ConfigPath::of(&[&["servers", "a"], steps].concat());
        mask_text(&path, text, before, "***").unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn arguments_with_two_names_are_masked_behind_the_second() {
        for (text, expected) in [
            ("--env=PGPASSWORD=hunter2", "--env=PGPASSWORD=***"),
            ("--header=X-Api-Key: hunter2", "--header=X-Api-Key: ***"),
            (
                "--header=Authorization: Bearer hunter2",
                "--header=Authorization: ***",
            ),
            ("--header=X-Acme: hunter2", "--header=X-Acme: ***"),
            ("-H=X-Acme:hunter2", "-H=X-Acme:***"),
            ("-e=API_TOKEN=hunter2", "-e=API_TOKEN=***"),
            ("--user=me:hunter2", "--user=me:***"),
            (
                "--conn=Server=db;Database=x;Password=hunter2",
                "--conn=Server=db;Database=x;Password=***",
            ),
            ("--env=LOG_LEVEL=debug", "--env=LOG_LEVEL=debug"),
            (
                r#"{"client_id":"a","client_secret":"hunter2"}"#,
                r#"{"client_id":"a","client_secret":"***"}"#,
            ),
            (r#"{"a":"b","token":"${T}"}"#, r#"{"a":"b","token":"${T}"}"#),
            ("--header=Accept: text/html", "--header=Accept: text/html"),
            (
                "--mount=type=bind,source=/keys",
                "--mount=type=bind,source=/keys",
            ),
            (
                "--image=registry.example/token:1.2",
                "--image=registry.example/token:1.2",
            ),
        ] {
            assert_eq!(masked(&["args", "[0]"], text, None), expected);
        }
    }

    #[test]
    fn a_plain_name_hides_no_password_in_its_value() {
        for (name, text, expected) in [
            ("X", "admin:hunter2 https://h/", "***"),
            ("X", "https://h/ admin:hunter2", "***"),
            ("X", "https://h.example/mcp", "https://h.example/mcp"),
            (
                "DATABASE_URL",
                "postgres://u:pa/ss@h/d",
                "postgres://***@h/d",
            ),
            ("DATABASE_URL", "host=db password=hunter2", "***"),
            (
                "JDBC_URL",
                "jdbc:sqlserver://db:1433;user=sa;password=Hunter22!",
                "***",
            ),
            (
                "DATA_FILE",
                "/data/x;AccountKey=abc+/d==",
                "/data/x;AccountKey=***",
            ),
            ("API_URL", "https://h.example/v1", "https://h.example/v1"),
        ] {
            assert_eq!(masked(&["env", name], text, None), expected);
        }
    }
}
