//! Where a config comes from: files, environment, flags.
//!
//! Owns the texts of the files, finding them, and turning places into lines and columns. Does not parse (`parse`).
//! Invariant: a line is shown only with its secrets covered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::problem::{ProblemKind, ProblemOrigin, SourceSnippet};
use super::tree::{ConfigNode, SourceSpan};
use super::{LISTEN_PLACE, ONLY_PLACE, redact};

/// A line longer than this is shown in part.
const LINE_WIDTH_MAX: usize = 120;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Toml,
    Yaml,
    Json,
}

impl FileFormat {
    /// By the file's extension.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "toml" => Some(FileFormat::Toml),
            "yaml" | "yml" => Some(FileFormat::Yaml),
            "json" | "jsonc" | "json5" => Some(FileFormat::Json),
            _ => None,
        }
    }
}

/// One source.
#[derive(Debug)]
enum ConfigSource {
    File {
        path: PathBuf,
        text: String,
        secrets: Vec<Range<usize>>,
    },
    /// Places are indexes into the names.
    Variables(Vec<String>),
}

/// All sources, weakest first.
#[derive(Debug, Default)]
pub(super) struct ConfigSources(Vec<ConfigSource>);

impl ConfigSources {
    /// The index of the next source.
    pub(super) fn next(&self) -> usize {
        self.0.len()
    }

    pub(super) fn file(&mut self, path: &Path, text: String) -> usize {
        self.0.push(ConfigSource::File { path: path.to_owned(), text, secrets: Vec::new() });
        self.0.len() - 1
    }

    pub(super) fn variables(&mut self, names: Vec<String>) {
        self.0.push(ConfigSource::Variables(names));
    }

    /// Notes what must not be shown of a file.
    pub(super) fn set_secrets(&mut self, index: usize, tree: &ConfigNode) {
        if let Some(ConfigSource::File { secrets, .. }) = self.0.get_mut(index) {
            secrets.extend(redact::secret_places(tree).into_iter().map(|place| place.start..place.end));
        }
    }

    /// The directory of a file.
    pub(super) fn directory(&self, place: SourceSpan) -> Option<&Path> {
        match self.0.get(place.source)? {
            ConfigSource::File { path, .. } => path.parent(),
            _ => None,
        }
    }

    /// The place in words, and the line.
    pub(super) fn locate(&self, place: SourceSpan, kind: ProblemKind) -> (ProblemOrigin, Option<SourceSnippet>) {
        match self.0.get(place.source) {
            None if place == LISTEN_PLACE => (ProblemOrigin::Flag("--listen".to_owned()), None),
            None if place == ONLY_PLACE => (ProblemOrigin::Flag("--only".to_owned()), None),
            None => (ProblemOrigin::Nowhere, None),
            Some(ConfigSource::Variables(names)) => (
                names.get(place.start).map_or(ProblemOrigin::Nowhere, |name| ProblemOrigin::Variable(name.clone())),
                None,
            ),
            Some(ConfigSource::File { path, text, .. }) if text.is_empty() => {
                (ProblemOrigin::File { path: path.clone(), line: 0, column: 0 }, None)
            }
            Some(ConfigSource::File { path, text, secrets }) => {
                let start = floor(text, place.start.min(text.len()));
                let end = floor(text, place.end.clamp(start, text.len()));
                let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
                let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
                let line = text[..line_start].matches('\n').count() + 1;
                let offset = text[line_start..start].chars().count();
                let length = text[start..end.min(line_end).max(start)].chars().count().max(1);
                let mut shown = redact::redact_line(&text[line_start..line_end], line_start, secrets);
                if kind == ProblemKind::Syntax {
                    shown = redact::redact_unparsed(&shown);
                }
                let origin = ProblemOrigin::File { path: path.clone(), line, column: offset + 1 };
                (origin, Some(window(&shown, offset, length)))
            }
        }
    }
}

/// The part of a line around the problem.
fn window(line: &str, offset: usize, length: usize) -> SourceSnippet {
    let text: String = line.trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let total = text.chars().count();
    if total <= LINE_WIDTH_MAX {
        let room = (total + 1).saturating_sub(offset).max(1);
        return SourceSnippet { text, offset, length: length.min(room) };
    }
    let from = offset.saturating_sub(LINE_WIDTH_MAX / 3);
    let part: String = text.chars().skip(from).take(LINE_WIDTH_MAX).collect();
    let (before, after) = (from > 0, from + LINE_WIDTH_MAX < total);
    let shift = if before { 3 } else { 0 };
    let length = length.min(LINE_WIDTH_MAX.saturating_sub(offset - from)).max(1);
    let dots = |yes: bool| if yes { "..." } else { "" };
    SourceSnippet { text: format!("{}{part}{}", dots(before), dots(after)), offset: offset - from + shift, length }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The first config file there is, in the places where one is looked for.
///
/// `directory` is where the gateway was started; `env` gives `XDG_CONFIG_HOME` and `HOME`.
pub fn search(directory: &Path, env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let places = [Some(directory.to_owned()), home.map(|dir| dir.join("moongate")), Some("/etc/moongate".into())];
    let names = ["moongate.toml", "moongate.yaml", "moongate.yml", "moongate.json", "moongate.jsonc"];
    places.into_iter().flatten().flat_map(|dir| names.map(|name| dir.join(name))).find(|path| path.is_file())
}
