//! Values of variables and headers that say nothing about a login.
//!
//! Owns their looks and their names. Does not know secrets (`redact`). Invariant: a word that could be a password is not
//! harmless by its look.

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
/// First words of names of models.
const MODELS: [&str; 30] = [
    "gpt",
    "o1",
    "o3",
    "o4",
    "chatgpt",
    "claude",
    "gemini",
    "gemma",
    "llama",
    "codellama",
    "mistral",
    "mixtral",
    "ministral",
    "codestral",
    "qwen",
    "qwen2",
    "qwen3",
    "deepseek",
    "phi",
    "grok",
    "command",
    "kimi",
    "glm",
    "nova",
    "titan",
    "whisper",
    "dall",
    "text",
    "nomic",
    "bge",
];

/// Returns true if a name ends in a word such as `path` or `model`.
pub(super) fn has_plain_name(name: &str) -> bool {
    let last = name.rsplit(['_', '-', '.', ' ']).next().unwrap_or_default().to_ascii_lowercase();
    NAMES.contains(&last.as_str())
}

/// Returns true if a value of this name says nothing about a login.
pub(super) fn is_harmless(name: &str, value: &str) -> bool {
    let value = value.trim();
    let has_look = is_path(value) || is_word(value) || is_number(value) || is_uuid(value) || is_commit(value);
    let is_named = is_version(value) || is_host(value) || is_model(value);
    secret_ranges(value).is_empty() && (has_look || is_named || has_plain_name(name))
}

/// Returns true for the path of a file: absolute, relative to the home or to a folder, or on a drive.
pub(super) fn is_path(value: &str) -> bool {
    let drive = value.as_bytes().get(1..3).is_some_and(|rest| rest[0] == b':' && matches!(rest[1], b'\\' | b'/'));
    ["/", "~/", "./", "../"].iter().any(|start| value.starts_with(start)) || drive || matches!(value, "~" | "." | "..")
}

/// Returns true for a number of tokens that a model may use.
pub(super) fn is_count(name: &str, value: &str) -> bool {
    name.to_ascii_lowercase().contains("tokens") && value.len() <= 7 && value.bytes().all(|byte| byte.is_ascii_digit())
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

/// Returns true for a version, alone or behind the name of a package: `1.2.3-rc.1`, `v20`, `@scope/name@^4.5`, `a==1.0`.
fn is_version(value: &str) -> bool {
    let behind = value.rsplit_once(['@', '=']).map_or(value, |(_, version)| version);
    let number = behind.trim_start_matches(['^', '~', '>', '<', '=', 'v']);
    let main = number.split(['-', '+']).next().unwrap_or_default();
    let is_numeric = |part: &str| !part.is_empty() && part.len() <= 8 && part.bytes().all(|byte| byte.is_ascii_digit());
    let dotted = main.split('.').all(is_numeric) && (main.contains('.') || behind.starts_with('v'));
    dotted && number.len() <= 40
}

/// Returns true for a host by name or address, with or without a port.
fn is_host(value: &str) -> bool {
    let (host, port) = value.rsplit_once(':').unwrap_or((value, "0"));
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.len() <= 32 && label.bytes().all(plain)
    };
    let labels: Vec<&str> = host.split('.').collect();
    let ends_in_word =
        labels.last().is_some_and(|label| label.len() >= 2 && label.bytes().all(|b| b.is_ascii_lowercase()));
    let is_name = labels.len() >= 2 && ends_in_word || host == "localhost";
    let is_address = host.parse::<std::net::Ipv4Addr>().is_ok();
    port.parse::<u16>().is_ok() && labels.iter().all(|label| is_label(label)) && (is_name || is_address)
}

/// Returns true for the name of a model, with or without its maker: `claude-sonnet-4-5`, `meta/llama-3.1-8b`.
fn is_model(value: &str) -> bool {
    let name = value.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let (family, rest) = name.split_at(name.find(['-', ':', '.']).unwrap_or(name.len()));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'/' | b'_');
    MODELS.contains(&family) && rest.len() > 1 && value.bytes().all(plain)
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
            ("X", "api.example.com:8443"),
            ("X", "claude-sonnet-4-5-20250929"),
            ("X", "text-embedding-3-large"),
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
        ] {
            assert!(!is_harmless(name, value), "{name} {value}");
        }
    }
}
