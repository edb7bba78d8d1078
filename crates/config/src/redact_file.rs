//! Redaction of a whole file, for people who look at it.
//!
//! Owns the reading of its secrets. Does not judge them (`redact`). Invariant: a file that does not parse shows no long
//! word.

use std::ops::Range;
use std::path::Path;

use moongate_edit::ConfigFile;

use super::collector::ProblemCollector;
use super::parse;
use super::redact::{redact_line, redact_unparsed, secret_places};
use super::source::FileFormat;

/// Redacts the secrets of a file's text. Its lines stay the same in number.
pub(super) fn redact_file(path: &Path, text: &str) -> String {
    let mut faults = ProblemCollector::default();
    let plain = text.trim_start_matches('\u{feff}');
    let secrets: Option<Vec<Range<usize>>> = FileFormat::of(path).map(|format| {
        let tree = parse::parse(format, plain, 0, &mut faults);
        secret_places(&tree).into_iter().map(|place| place.start..place.end).collect()
    });
    let secrets = secrets.filter(|_| faults.errors.is_empty());
    let mut start = 0;
    let redact = |line: &str| {
        let shown = match &secrets {
            Some(secrets) => redact_line(line, start, secrets),
            // Without a parsed tree nobody knows the secrets.
            None => redact_unparsed(line),
        };
        start += line.len();
        shown
    };
    plain.split_inclusive('\n').map(redact).collect()
}

/// Reads a file. Returns the tag of its bytes, and its text with secrets redacted.
pub fn read_redacted(path: &Path) -> Result<(String, String), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    Ok((file.tag().as_str().to_owned(), redact_file(path, file.text())))
}
