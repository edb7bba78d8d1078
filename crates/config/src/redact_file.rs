//! Redaction of a whole file, for people who read it.
//!
//! Owns the reading of its secrets, and the two forms of a hidden one. Does not judge them
//! (`redact`). Invariant: a file that does not parse shows no long word.

use std::ops::Range;
use std::path::Path;

use moongate_edit::ConfigFile;
use moongate_telemetry::secret_look::{mask_secrets, merged_ranges};

use super::collector::ProblemCollector;
use super::parse;
use super::redact::{
    ranges_within, redact_comment, redact_line, redact_unparsed, secret_ranges_of, secret_spans,
};
use super::redact_comments::{commented_secrets, comments_of};
use super::source::FileFormat;
use super::tree::ConfigNode;

/// Redacts the secrets of a file's text. Its lines stay the same in number, and each character
/// keeps its column.
pub(super) fn redact_file(path: &Path, text: &str) -> String {
    redact_lines(path, text, redact_line, secret_ranges_of)
}

/// Replaces the secrets of a file's text by `***`. Its lines stay the same in number. An address
/// keeps its host and path.
pub fn mask_file(path: &Path, text: &str) -> String {
    redact_lines(path, text, mask_line, |tree, _| {
        secret_spans(tree)
            .into_iter()
            .map(|span| span.start..span.end)
            .collect()
    })
}

/// Redacts each line. `redact` gets the line, its first byte, and the ranges of all secrets.
fn redact_lines(
    path: &Path,
    text: &str,
    redact: fn(&str, usize, &[Range<usize>]) -> String,
    find: fn(&ConfigNode, &str) -> Vec<Range<usize>>,
) -> String {
    let mut faults = ProblemCollector::default();
    let plain = text.trim_start_matches('\u{feff}');
    // Most clients' files are JSON, whatever they are called.
    let format = FileFormat::of(path).unwrap_or(FileFormat::Json);
    let tree = parse::parse(format, plain, 0, &mut faults);
    if !faults.errors.is_empty() {
        // Without a parsed tree nobody knows the secrets.
        return plain.split_inclusive('\n').map(redact_unparsed).collect();
    }
    let comments = comments_of(format, plain);
    let found = find(&tree, plain)
        .into_iter()
        .chain(commented_secrets(format, plain, &comments));
    let secrets = merged_ranges(found.collect());
    let mut at = 0;
    let mut next = |end: usize| {
        let lines = plain[at..end].split_inclusive('\n').map(|line| {
            let start = at;
            at += line.len();
            redact(line, start, &secrets)
        });
        lines.collect::<Vec<String>>()
    };
    let mut shown = String::new();
    for comment in &comments {
        shown.extend(next(comment.start));
        shown.extend(next(comment.end).iter().map(|line| redact_comment(line)));
    }
    shown.extend(next(plain.len()));
    shown
}

/// Masks the secrets of a line that starts at byte `start`. `secrets` are merged.
fn mask_line(line: &str, start: usize, secrets: &[Range<usize>]) -> String {
    let mut out = String::new();
    let mut done = 0;
    let end = line.trim_end().len();
    let touching = ranges_within(secrets, start..start + end);
    for secret in touching
        .iter()
        .map(|secret| on_line(secret, start, end))
        .filter(|secret| !secret.is_empty())
    {
        let value = &line[secret.clone()];
        let plain = value.trim_matches(['"', '\'', ' ', '\t']);
        // A text over several lines may start with anything.
        let quoted = value
            .split_once(plain)
            .filter(|_| !plain.is_empty())
            .unwrap_or(("", ""));
        out.push_str(&line[done..secret.start]);
        out.push_str(&format!("{}{}{}", quoted.0, mask_value(plain), quoted.1));
        done = secret.end;
    }
    out + &line[done..]
}

/// Cuts a range to a line of this start and length.
fn on_line(range: &Range<usize>, start: usize, length: usize) -> Range<usize> {
    range.start.saturating_sub(start).min(length)..range.end.saturating_sub(start).min(length)
}

/// Masks a secret text. Of an address only its user, its query and its fragment are hidden.
fn mask_value(text: &str) -> String {
    const HIDDEN: &str = "***";
    let Some((scheme, rest)) = text
        .split_once("://")
        .filter(|(scheme, _)| scheme.chars().all(char::is_alphanumeric))
    else {
        return HIDDEN.to_owned();
    };
    let (base, more) = rest
        .find(['?', '#'])
        .map_or((rest, ""), |at| (&rest[..at], HIDDEN));
    let (host, path) = base.find('/').map_or((base, ""), |at| base.split_at(at));
    let (user, host) = host
        .rsplit_once('@')
        .map_or(("", host), |(_, host)| ("***@", host));
    let mark = if more.is_empty() { "" } else { "?" };
    let path = mask_secrets(&format!("{scheme}://{host}{path}"), HIDDEN);
    format!("{scheme}://{user}{}{mark}{more}", &path[scheme.len() + 3..])
}

/// Reads a file. Returns the tag of its bytes, and its text with secrets redacted.
pub fn read_redacted(path: &Path) -> Result<(String, String), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    Ok((
        file.tag().as_str().to_owned(),
        redact_file(path, file.text()),
    ))
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
        assert!(
            !masked.contains("s3cr3t")
                && masked.lines().count() == 5
                && masked.contains("B: '***'"),
            "{masked}"
        );
        assert!(!mask_file(Path::new("a.json"), "{\"token\": \"s3cr3t").contains("s3cr3t"));
    }

    #[test]
    fn secrets_in_comments_are_covered_and_words_stay() {
        let toml = "# See https://docs.example.com/guide: how it works.\n[servers.a] # the first \
                    one\nurl = 'https://a.example/mcp'\n\
                    # headers = { Authorization = \"Bearer ghp_abcdef\" }\n# headers = \
                    { X-Any = \"hush1\" }\n\
                    # was sk-1234567890abcdef before\ntimeout = '5s' # token: hush2\n";
        let shown = redact_file(Path::new("m.toml"), toml);
        for secret in ["ghp_", "hush", "sk-1234567890"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
        for kept in [
            "See https://docs.example.com/guide: how it works.",
            "# the first one",
            "# headers = {",
            "was ",
            "5s",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        assert_eq!(shown.lines().count(), toml.lines().count());
        assert_eq!(shown.chars().count(), toml.chars().count());
        let yaml = "servers:\n  a:\n    url: https://a.example/mcp\n    # headers:\n    #   X-Any: \
                    hush3\n    # retry later\n";
        let shown = redact_file(Path::new("m.yaml"), yaml);
        assert!(
            !shown.contains("hush3") && shown.contains("# retry later"),
            "{shown}"
        );
        let json = "{\n  // \"headers\": { \"Authorization\": \"Bearer hush4\" },\n  \"servers\": {} /* nothing */\n}\n";
        let shown = redact_file(Path::new("m.json"), json);
        assert!(
            !shown.contains("hush4") && shown.contains("/* nothing */"),
            "{shown}"
        );
    }
}
