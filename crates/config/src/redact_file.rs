//! Redaction of a whole file, for people who look at it.
//!
//! Owns the reading of its secrets, and the two forms of a hidden one. Does not judge them (`redact`). Invariant: a file
//! that does not parse shows no long word.

use std::ops::Range;
use std::path::Path;

use moongate_edit::ConfigFile;

use super::collector::ProblemCollector;
use super::parse;
use super::redact::{redact_line, redact_unparsed, secret_places};
use super::source::FileFormat;

/// Redacts the secrets of a file's text. Its lines stay the same in number, and each character keeps its column.
pub(super) fn redact_file(path: &Path, text: &str) -> String {
    redact_lines(path, text, redact_line)
}

/// Replaces the secrets of a file's text by `***`. Its lines stay the same in number. An address keeps its host and path.
pub fn mask_file(path: &Path, text: &str) -> String {
    redact_lines(path, text, mask_line)
}

/// Redacts each line. `redact` gets the line, its first byte, and the places of all secrets.
fn redact_lines(path: &Path, text: &str, redact: fn(&str, usize, &[Range<usize>]) -> String) -> String {
    let mut faults = ProblemCollector::default();
    let plain = text.trim_start_matches('\u{feff}');
    // Most clients' files are JSON, whatever they are called.
    let format = FileFormat::of(path).unwrap_or(FileFormat::Json);
    let tree = parse::parse(format, plain, 0, &mut faults);
    let places = || secret_places(&tree).into_iter().map(|place| place.start..place.end).collect::<Vec<_>>();
    let secrets = faults.errors.is_empty().then(places);
    let mut start = 0;
    let redact = |line: &str| {
        let shown = match &secrets {
            Some(secrets) => redact(line, start, secrets),
            // Without a parsed tree nobody knows the secrets.
            None => redact_unparsed(line),
        };
        start += line.len();
        shown
    };
    plain.split_inclusive('\n').map(redact).collect()
}

/// Masks the secrets of a line that starts at byte `start`.
fn mask_line(line: &str, start: usize, secrets: &[Range<usize>]) -> String {
    let (mut out, mut done) = (String::new(), 0);
    let end = line.trim_end().len();
    let mut inside: Vec<Range<usize>> = secrets
        .iter()
        .map(|secret| secret.start.saturating_sub(start).min(end)..secret.end.saturating_sub(start).min(end))
        .filter(|secret| !secret.is_empty())
        .collect();
    inside.sort_by_key(|secret| secret.start);
    for secret in inside {
        let value = &line[secret.clone()];
        let plain = value.trim_matches(['"', '\'', ' ', '\t']);
        // A text over several lines may begin with anything.
        let quoted = value.split_once(plain).filter(|_| !plain.is_empty()).unwrap_or(("", ""));
        out.push_str(&line[done..secret.start]);
        out.push_str(&format!("{}{}{}", quoted.0, mask_value(plain), quoted.1));
        done = secret.end;
    }
    out + &line[done..]
}

/// Masks a secret text. Of an address only its user, its query and its fragment are hidden.
fn mask_value(text: &str) -> String {
    const HIDDEN: &str = "***";
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| scheme.chars().all(char::is_alphanumeric))
    else {
        return HIDDEN.to_owned();
    };
    let (place, more) = rest.find(['?', '#']).map_or((rest, ""), |at| (&rest[..at], HIDDEN));
    let (host, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let (user, host) = host.rsplit_once('@').map_or(("", host), |(_, host)| ("***@", host));
    let mark = if more.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{host}{path}{mark}{more}")
}

/// Reads a file. Returns the tag of its bytes, and its text with secrets redacted.
pub fn read_redacted(path: &Path) -> Result<(String, String), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    Ok((file.tag().as_str().to_owned(), redact_file(path, file.text())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_and_references_and_hosts_are_not() {
        let text = r#"{"mcpServers": {"a": {"url": "https://me:s3cr3t@x.example/mcp?token=s3cr3t", "headers":
            {"Authorization": "Bearer ${KEY}", "X": "Bearer s3cr3t"}, "env": {"DB": "postgres://u:s3cr3t@h/d"}}},
            "inputs": [{"id": "key", "password": true}], "bearer_token_env_var": "NAME"}"#;
        let shown = r#"{"mcpServers": {"a": {"url": "https://***@x.example/mcp?***", "headers":
            {"Authorization": "Bearer ${KEY}", "X": "***"}, "env": {"DB": "postgres://***@h/d"}}},
            "inputs": [{"id": "key", "password": true}], "bearer_token_env_var": "NAME"}"#;
        assert_eq!(mask_file(Path::new("a.json"), text), shown);
        let yaml = "env:\n  KEY: |\n    s3cr3t one\n    s3cr3t two\n  B: 's3cr3t'\n";
        let masked = mask_file(Path::new("a.yaml"), yaml);
        assert!(!masked.contains("s3cr3t") && masked.lines().count() == 5 && masked.contains("B: '***'"), "{masked}");
        assert!(!mask_file(Path::new("a.json"), "{\"token\": \"s3cr3t").contains("s3cr3t"));
    }
}
