//! Sources of a config: files, environment, flags.
//!
//! Owns the texts of the files, the search for them, and line and column numbers. Does not parse
//! (`parse`). Invariant: a line is shown only with its secrets redacted.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use moongate_edit::{FileTag, Format};
use moongate_platform::Platform;
use moongate_telemetry::plain_text::is_invisible;
use moongate_telemetry::secret_look::merged_ranges;

use super::problem::{ProblemKind, ProblemOrigin, SourceSnippet};
use super::redact;
use super::tree::{ConfigNode, SourceSpan};

/// Source number of the flags, after all others. The spans below stand for their names.
const FLAGS: usize = usize::MAX - 1;
pub(super) const LISTEN_SPAN: SourceSpan = SourceSpan {
    source: FLAGS,
    start: 0,
    end: 0,
};
pub(super) const ONLY_SPAN: SourceSpan = SourceSpan {
    source: FLAGS,
    start: 1,
    end: 1,
};

/// Limit of a shown line in characters. Longer ones are cut.
const LINE_WIDTH_MAX: usize = 120;
/// Bytes up to which a line that does not parse is redacted as a whole. Of a longer one every word
/// is covered.
const LINE_MAX: usize = 4096;

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Toml,
    Yaml,
    Json,
}

impl FileFormat {
    /// Tells the format by the file's extension.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(FileFormat::Toml),
            "yaml" | "yml" => Some(FileFormat::Yaml),
            "json" | "jsonc" | "json5" => Some(FileFormat::Json),
            _ => None,
        }
    }

    /// Same format, for edits.
    pub(super) fn of_edits(self) -> Format {
        match self {
            FileFormat::Toml => Format::Toml,
            FileFormat::Yaml => Format::Yaml,
            FileFormat::Json => Format::Json,
        }
    }
}

/// Source of a part of the config.
#[derive(Debug)]
enum ConfigSource {
    File {
        path: PathBuf,
        text: String,
        /// Tag of the file's bytes.
        tag: String,
        /// Ranges of its secrets, sorted and apart.
        secrets: Vec<Range<usize>>,
        /// Offsets at which its lines start, once somebody asked for a line.
        lines: OnceCell<Vec<usize>>,
    },
    /// Environment variables. Spans are indexes into the names.
    Variables(Vec<String>),
}

/// Sources of a config, weakest first.
#[derive(Debug, Default)]
pub(super) struct ConfigSources(Vec<ConfigSource>);

impl ConfigSources {
    /// Returns the index of the next source.
    pub(super) fn next(&self) -> usize {
        self.0.len()
    }

    pub(super) fn file(&mut self, path: &Path, text: String) -> usize {
        let tag = String::new();
        let secrets = Vec::new();
        let lines = OnceCell::new();
        self.0.push(ConfigSource::File {
            path: path.to_owned(),
            text,
            tag,
            secrets,
            lines,
        });
        self.0.len() - 1
    }

    /// Notes the tag of a file's bytes, which are not always those of its text.
    pub(super) fn set_tag(&mut self, index: usize, tag_of_bytes: &FileTag) {
        if let Some(ConfigSource::File { tag, .. }) = self.0.get_mut(index) {
            tag_of_bytes.as_str().clone_into(tag);
        }
    }

    /// Returns path and tag of each file. Files are the first sources.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, String)> {
        self.0.iter().map_while(|source| match source {
            ConfigSource::File { path, tag, .. } => Some((path.as_path(), tag.clone())),
            ConfigSource::Variables(_) => None,
        })
    }

    /// Returns the offsets at which the lines of each file start.
    pub(super) fn line_starts(&self) -> Vec<Vec<usize>> {
        let files = self.0.iter().map_while(|source| match source {
            ConfigSource::File { text, lines, .. } => {
                Some(lines.get_or_init(|| line_starts(text)).clone())
            }
            ConfigSource::Variables(_) => None,
        });
        files.collect()
    }

    pub(super) fn variables(&mut self, names: Vec<String>) {
        self.0.push(ConfigSource::Variables(names));
    }

    /// Remembers the secret parts of a file.
    pub(super) fn set_secrets(&mut self, index: usize, tree: &ConfigNode) {
        if let Some(ConfigSource::File { secrets, text, .. }) = self.0.get_mut(index) {
            *secrets = merged_ranges(redact::secret_ranges_of(tree, text));
        }
    }

    /// Directory of a file.
    pub(super) fn directory(&self, span: SourceSpan) -> Option<&Path> {
        match self.0.get(span.source)? {
            ConfigSource::File { path, .. } => path.parent(),
            _ => None,
        }
    }

    /// Finds the variable that a value comes from.
    pub(super) fn variable_at(&self, span: SourceSpan) -> Option<&str> {
        match self.0.get(span.source)? {
            ConfigSource::Variables(names) => names.get(span.start).map(String::as_str),
            ConfigSource::File { .. } => None,
        }
    }

    /// Finds the origin of a span.
    pub(super) fn origin(&self, span: SourceSpan) -> ProblemOrigin {
        self.locate(span, ProblemKind::Value).0
    }

    /// Finds the origin of a span, and its line. The cost grows with the text before the span on
    /// its line.
    pub(super) fn locate(
        &self,
        span: SourceSpan,
        kind: ProblemKind,
    ) -> (ProblemOrigin, Option<SourceSnippet>) {
        match self.0.get(span.source) {
            None if span == LISTEN_SPAN => (ProblemOrigin::Flag("--listen".to_owned()), None),
            None if span == ONLY_SPAN => (ProblemOrigin::Flag("--only".to_owned()), None),
            None => (ProblemOrigin::Nowhere, None),
            Some(ConfigSource::Variables(names)) => (
                names
                    .get(span.start)
                    .map_or(ProblemOrigin::Nowhere, |name| {
                        ProblemOrigin::Variable(name.clone())
                    }),
                None,
            ),
            // A file that could not be read has no text either.
            Some(ConfigSource::File { path, text, .. }) if text.is_empty() => (
                ProblemOrigin::File {
                    path: path.clone(),
                    line: 0,
                    column: 0,
                },
                None,
            ),
            Some(ConfigSource::File {
                path,
                text,
                secrets,
                lines,
                ..
            }) => {
                let start = char_floor(text, span.start.min(text.len()));
                let end = char_floor(text, span.end.clamp(start, text.len()));
                let lines = lines.get_or_init(|| line_starts(text));
                let line = lines.partition_point(|line| *line <= start);
                let line_start = lines[line - 1];
                let line_end = lines.get(line).map_or(text.len(), |next| next - 1);
                let shown = LineSpan {
                    line: &text[line_start..line_end],
                    line_start,
                    at: start - line_start,
                };
                let length = text[start..end.min(line_end).max(start)]
                    .chars()
                    .count()
                    .max(1);
                let column = shown.line[..shown.at].chars().count() + 1;
                let origin = ProblemOrigin::File {
                    path: path.clone(),
                    line,
                    column,
                };
                (
                    origin,
                    Some(shown.snippet(column - 1, length, kind, secrets)),
                )
            }
        }
    }
}

/// Returns the offsets at which the lines of a text start.
fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .collect()
}

/// Span on a line.
struct LineSpan<'a> {
    line: &'a str,
    line_start: usize,
    /// Byte of the line.
    at: usize,
}

impl LineSpan<'_> {
    /// Cuts the line to the part around the span, and redacts that. A text of one line may have
    /// megabytes.
    fn snippet(
        &self,
        offset: usize,
        length: usize,
        kind: ProblemKind,
        secrets: &[Range<usize>],
    ) -> SourceSnippet {
        let line = self.line.trim_end();
        let at = self.at.min(line.len());
        // A third of the width before the problem shows its context.
        let from = chars_before(line, at, LINE_WIDTH_MAX / 3);
        let is_short = line.len() <= LINE_MAX && line.chars().count() <= LINE_WIDTH_MAX;
        let (from, to) = if is_short {
            (0, line.len())
        } else {
            (from, chars_after(line, from, LINE_WIDTH_MAX))
        };
        let mut shown = redact::redact_line(&line[from..to], self.line_start + from, secrets);
        // Without a parsed tree nobody knows the secrets of the line, so every long word may be
        // one.
        if kind == ProblemKind::Syntax && line.len() <= LINE_MAX {
            let whole =
                redact::redact_unparsed(&redact::redact_line(line, self.line_start, secrets));
            let skipped = line[..from].chars().count();
            shown = whole
                .chars()
                .skip(skipped)
                .take(line[from..to].chars().count())
                .collect();
        } else if kind == ProblemKind::Syntax {
            shown = redact::redact_words(&shown);
        }
        // A control character in a config must not reach the terminal.
        let text: String = shown
            .chars()
            .map(|c| if c == '\t' || is_invisible(c) { ' ' } else { c })
            .collect();
        if is_short {
            let room = (text.chars().count() + 1).saturating_sub(offset).max(1);
            return SourceSnippet {
                text,
                offset,
                length: length.min(room),
            };
        }
        let before = if from > 0 { "..." } else { "" };
        let after = if to < line.len() { "..." } else { "" };
        let offset = line[from..at].chars().count();
        let length = length.min(LINE_WIDTH_MAX.saturating_sub(offset)).max(1);
        SourceSnippet {
            text: format!("{before}{text}{after}"),
            offset: offset + before.len(),
            length,
        }
    }
}

/// Position so many characters before a byte.
fn chars_before(text: &str, at: usize, count: usize) -> usize {
    text[..at]
        .char_indices()
        .rev()
        .take(count)
        .last()
        .map_or(at, |(at, _)| at)
}

/// Position so many characters behind a byte.
fn chars_after(text: &str, at: usize, count: usize) -> usize {
    text[at..]
        .char_indices()
        .nth(count)
        .map_or(text.len(), |(after, _)| at + after)
}

// A parser may report a byte inside of a character.
fn char_floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns the usual directories of config files, in the order of search.
fn config_directories(
    directory: &Path,
    env: &BTreeMap<String, String>,
    platform: Platform,
) -> Vec<PathBuf> {
    // No folder of the whole system on Windows: every user may create one in `ProgramData`.
    let systems = (!platform.app_data_folders).then(|| PathBuf::from("/etc"));
    let below = [users_directory(env, platform), systems]
        .into_iter()
        .flatten()
        .map(|dir| dir.join("moongate"));
    std::iter::once(directory.to_owned()).chain(below).collect()
}

/// Returns the directory of the user's settings.
fn users_directory(env: &BTreeMap<String, String>, platform: Platform) -> Option<PathBuf> {
    match platform.app_data_folders {
        true => path_variable(env, "APPDATA"),
        false => path_variable(env, "XDG_CONFIG_HOME")
            .or_else(|| Some(path_variable(env, "HOME")?.join(".config"))),
    }
}

fn path_variable(env: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    env.get(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns the file for a user's first config, in a folder that [`search`] covers.
pub fn users_file(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    Some(users_directory(env, Platform::CURRENT)?.join("moongate/moongate.toml"))
}

/// Finds the first config file in the usual folders.
///
/// The gateway was started in `directory`. `env` gives `XDG_CONFIG_HOME` and `HOME`, on Windows
/// `APPDATA`.
pub fn search(directory: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let folders = config_directories(directory, env, Platform::CURRENT);
    let names = [
        "moongate.toml",
        "moongate.yaml",
        "moongate.yml",
        "moongate.json",
        "moongate.jsonc",
    ];
    folders
        .into_iter()
        .flat_map(|dir| names.map(|name| dir.join(name)))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_are_searched_in_the_folders_of_the_system() {
        let home = ("HOME", "/home/ada");
        let app_data = ("APPDATA", "C:/ada");
        let xdg = ("XDG_CONFIG_HOME", "/xdg");
        for (env, platform, expected) in [
            (
                &[home, app_data][..],
                Platform::LINUX,
                &[".", "/home/ada/.config/moongate", "/etc/moongate"][..],
            ),
            (
                &[home, app_data][..],
                Platform::WINDOWS,
                &[".", "C:/ada/moongate"][..],
            ),
            (
                &[home, app_data, xdg][..],
                Platform::LINUX,
                &[".", "/xdg/moongate", "/etc/moongate"][..],
            ),
            (&[][..], Platform::LINUX, &[".", "/etc/moongate"][..]),
        ] {
            let variables = env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            let found = config_directories(Path::new("."), &variables, platform);
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(found, expected, "{env:?}");
        }
    }
}
