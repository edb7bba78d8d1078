//! Values of variables and headers that say nothing about a login.
//!
//! Owns their forms and their names. Does not know secrets (`redact`). Invariant: a word that could
//! be a password is not harmless by its form.

use moongate_telemetry::secret_look::{is_uuid, secret_ranges};

/// Last words of names whose values people write by hand, and that no login has.
const NAMES: [&str; 39] = [
    "path",
    "dir",
    "directory",
    "folder",
    "file",
    "files",
    "home",
    "root",
    "host",
    "hostname",
    "port",
    "url",
    "uri",
    "endpoint",
    "region",
    "zone",
    "version",
    "model",
    "level",
    "mode",
    "env",
    "environment",
    "timeout",
    "lang",
    "language",
    "locale",
    "tz",
    "timezone",
    "format",
    "branch",
    "commit",
    "sha",
    "revision",
    "image",
    "id",
    "accept",
    "agent",
    "type",
    "encoding",
];
/// Words that are a setting by themselves.
const WORDS: [&str; 32] = [
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "none",
    "null",
    "auto",
    "default",
    "all",
    "trace",
    "debug",
    "info",
    "warn",
    "warning",
    "error",
    "production",
    "development",
    "staging",
    "test",
    "local",
    "stdio",
    "http",
    "https",
    "sse",
    "json",
    "text",
    "yaml",
    "utf-8",
    "en",
    "latest",
];
/// Last words of names whose values have spaces and signs: `Accept: text/html; q=0.9`.
const WORDY_NAMES: [&str; 5] = ["accept", "agent", "type", "encoding", "language"];

/// Returns true if a name ends in a word such as `path` or `model`.
pub(super) fn has_plain_name(name: &str) -> bool {
    NAMES.contains(&last_word(name).as_str())
}

fn last_word(name: &str) -> String {
    name.rsplit(['_', '-', '.', ' '])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// Returns true if a value of this name says nothing about a login.
pub(super) fn is_harmless(name: &str, value: &str) -> bool {
    let value = value.trim();
    let has_look =
        is_path(value) || is_word(value) || is_number(value) || is_uuid(value) || is_commit(value);
    secret_ranges(value).is_empty()
        && (has_look || is_version(value) || has_plain_name(name) && is_plain(name, value))
}

/// Returns true for a value that says one thing. One that has parts may have a password among them.
fn is_plain(name: &str, value: &str) -> bool {
    let is_wordy = WORDY_NAMES.contains(&last_word(name).as_str());
    !value.contains('@') && (is_wordy || !value.contains([';', ' ', '=']))
}

/// Returns true for the path of a file: absolute, relative to the home or to a folder, or on a
/// drive.
pub(super) fn is_path(value: &str) -> bool {
    let drive = value
        .as_bytes()
        .get(1..3)
        .is_some_and(|rest| rest[0] == b':' && matches!(rest[1], b'\\' | b'/'));
    ["/", "~/", "./", "../"]
        .iter()
        .any(|start| value.starts_with(start))
        || drive
        || matches!(value, "~" | "." | "..")
}

/// Returns true for a number of tokens that a model may use.
pub(super) fn is_count(name: &str, value: &str) -> bool {
    name.to_ascii_lowercase().contains("tokens")
        && value.len() <= 7
        && value.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(value: &str) -> bool {
    value.is_empty() || WORDS.contains(&value.to_ascii_lowercase().as_str())
}

/// Returns true for a number that is too short to be a secret: a port, a count, a share.
fn is_number(value: &str) -> bool {
    value.len() <= 5 && value.parse::<f64>().is_ok()
}

fn is_commit(value: &str) -> bool {
    value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true for a version, alone or behind the name of a package: `1.2.3-rc.1`, `v20`,
/// `@scope/name@^4.5`, `a==1.0`.
fn is_version(value: &str) -> bool {
    let behind = value
        .rsplit_once(['@', '='])
        .map_or(value, |(_, version)| version);
    let number = behind.trim_start_matches(['^', '~', '>', '<', '=', 'v']);
    let main = number.split(['-', '+']).next().unwrap_or_default();
    let dotted =
        main.split('.').all(is_short_number) && (main.contains('.') || behind.starts_with('v'));
    dotted && number.len() <= 40
}

fn is_short_number(part: &str) -> bool {
    !part.is_empty() && part.len() <= 8 && part.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_harmless_by_its_look_or_its_name() {
        for (name, value) in [
            ("MEMORY_FILE_PATH", "data/memory.json"),
            ("X", "/data/memory.json"),
            ("X", "C:\\data"),
            ("X", "550e8400-e29b-41d4-a716-446655440000"),
            ("X", "1.2.3-rc.1"),
            ("X", "@scope/name@^4.5.0"),
            ("API_HOST", "api.example.com:8443"),
            ("X-Model", "claude-sonnet-4-5-20250929"),
            ("MODEL", "text-embedding-3-large"),
            ("USER_AGENT", "acme/1.0 (linux; x64)"),
            ("Accept", "application/json, text/event-stream;q=0.9"),
            ("LOG", "debug"),
            ("PORT", "8080"),
            ("TEAM_ID", "T01234567"),
        ] {
            assert!(is_harmless(name, value), "{name} {value}");
        }
        for (name, value) in [
            ("X", "hush"),
            ("PUB", "hush-pub"),
            ("X", "s3cr3t-1"),
            ("X", "12345678"),
            ("X", "hunter.2"),
            ("FILE", "ghp_0123456789abcdefABCDEF"),
            ("X", "/api/sk-ant-0123456789abcdefABCDEF"),
            ("X-Auth", "nova-hunter2"),
            ("LOGIN", "hunter.rabbit"),
            ("DATABASE_URL", "host=db user=app password=hunter2"),
            ("DATABASE_URL", "user:hunter2@tcp(db:3306)/app"),
            ("REDIS_URL", ":hunter2@redis:6379"),
            ("DB_URL", "jdbc:oracle:thin:scott/tiger@h:1521/x"),
            (
                "JDBC_URL",
                "jdbc:sqlserver://db:1433;user=sa;password=Hunter22!",
            ),
            ("USER_AGENT", "me:hunter2@x"),
        ] {
            assert!(!is_harmless(name, value), "{name} {value}");
        }
    }
}
