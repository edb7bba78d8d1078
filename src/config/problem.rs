//! What is wrong with a config: collected while it is read, shown all at once.
//!
//! Owns the problems and how they look. Does not decide what is a problem. Invariant: nothing secret is in a problem:
//! messages do not quote expanded values, and the line that is shown has its secrets covered.

use std::fmt;
use std::path::PathBuf;

use super::source::ConfigSources;
use super::tree::{ConfigPath, SourceSpan};

/// What sort of problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file cannot be read, or is not TOML, YAML or JSON.
    Syntax,
    /// A key that does not exist.
    UnknownKey,
    /// A value of the wrong type.
    Type,
    /// A value that is not allowed.
    Value,
    /// Something that is needed is not there.
    Missing,
    /// Settings that do not go together.
    Conflict,
    /// A variable or a file that a value refers to does not exist.
    Reference,
    /// A key or value that exists in Moongate's design, but not in this version.
    Unavailable,
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemOrigin {
    /// In a file. Lines and columns count from one; columns are characters. Line 0: the file as a whole.
    File {
        /// As it was given.
        path: PathBuf,
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// In an environment variable.
    Variable(String),
    /// In a flag.
    Flag(String),
    /// In no place in particular.
    Nowhere,
}

/// The line that a problem is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSnippet {
    /// The line's text, secrets covered; only a part of a very long line.
    pub text: String,
    /// Characters before the problem.
    pub offset: usize,
    /// Length of the problem in characters; at least one.
    pub length: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// What sort of problem it is.
    pub kind: ProblemKind,
    /// Where it is.
    pub origin: ProblemOrigin,
    /// The line it is on, if it is in a file.
    pub snippet: Option<SourceSnippet>,
    /// What is wrong.
    pub message: String,
    /// How to put it right.
    pub fix: String,
    /// The server whose entry it is in; `None`: the problem is the gateway's own.
    pub server: Option<String>,
}

/// Everything that is wrong with a config, and what is merely odd about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblems {
    /// Why it cannot be used; at least one, in the order of the sources.
    pub errors: Vec<ConfigProblem>,
    /// What works, but probably not as meant.
    pub warnings: Vec<ConfigProblem>,
    /// The files that were read, and those that values refer to as far as that was seen: what to watch for a change.
    pub files: Vec<PathBuf>,
}

/// A problem while the config is still being read: its place is not resolved yet.
#[derive(Clone, Debug)]
pub(super) struct PlacedProblem {
    pub(super) kind: ProblemKind,
    pub(super) span: SourceSpan,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) server: Option<String>,
}

/// The faults found so far.
#[derive(Debug, Default)]
pub(super) struct ProblemCollector {
    pub(super) errors: Vec<PlacedProblem>,
    pub(super) warnings: Vec<PlacedProblem>,
    /// Owner of the next fault.
    server: Option<String>,
}

impl ProblemCollector {
    /// Names the setting that the next fault is about: a fault in a server's entry is that server's.
    pub(super) fn about(&mut self, path: &ConfigPath) -> &mut Self {
        self.server = path.server().map(str::to_owned);
        self
    }

    pub(super) fn error(
        &mut self,
        kind: ProblemKind,
        place: SourceSpan,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let server = self.server.take();
        self.errors.push(PlacedProblem { kind, span: place, message: message.into(), fix: fix.into(), server });
    }

    pub(super) fn warn(
        &mut self,
        kind: ProblemKind,
        place: SourceSpan,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let server = self.server.take();
        self.warnings.push(PlacedProblem { kind, span: place, message: message.into(), fix: fix.into(), server });
    }

    /// Resolves places; in the order of the sources, and each problem once.
    pub(super) fn finish(self, sources: &ConfigSources) -> ConfigProblems {
        let resolve = |mut faults: Vec<PlacedProblem>| {
            faults.sort_by_key(|fault| (fault.span.source, fault.span.start));
            let mut problems: Vec<ConfigProblem> = Vec::new();
            for fault in faults {
                let (origin, snippet) = sources.locate(fault.span, fault.kind);
                let PlacedProblem { kind, message, fix, server, .. } = fault;
                let problem = ConfigProblem { kind, origin, snippet, message, fix, server };
                // After one error of syntax, a parser has more to say about the same place.
                let again = problem.kind == ProblemKind::Syntax
                    && problems
                        .last()
                        .is_some_and(|last| (last.kind, &last.origin) == (ProblemKind::Syntax, &problem.origin));
                if !again && !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
            problems
        };
        ConfigProblems { errors: resolve(self.errors), warnings: resolve(self.warnings), files: Vec::new() }
    }
}

impl ConfigProblem {
    /// The problem as a person reads it, several lines, under a word such as `error`.
    pub fn render(&self, word: &str) -> String {
        let mut out = format!("{word}: {}\n", self.message);
        let gutter = match (&self.origin, &self.snippet) {
            (ProblemOrigin::File { line, .. }, Some(_)) => " ".repeat(line.to_string().len()),
            _ => " ".to_owned(),
        };
        match &self.origin {
            ProblemOrigin::File { path, line: 0, .. } => out += &format!("{gutter}--> {}\n", path.display()),
            ProblemOrigin::File { path, line, column } => {
                out += &format!("{gutter}--> {}:{line}:{column}\n", path.display());
            }
            ProblemOrigin::Variable(name) => out += &format!("{gutter}--> environment variable {name}\n"),
            ProblemOrigin::Flag(name) => out += &format!("{gutter}--> flag {name}\n"),
            ProblemOrigin::Nowhere => {}
        }
        if let (ProblemOrigin::File { line, .. }, Some(snippet)) = (&self.origin, &self.snippet) {
            out += &format!("{gutter} |\n{line} | {}\n", snippet.text);
            out += &format!("{gutter} | {}{}\n", " ".repeat(snippet.offset), "^".repeat(snippet.length));
        }
        out += &format!("{gutter} = fix: {}\n", self.fix);
        out
    }
}

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.warnings {
            writeln!(f, "{}", problem.render("warning"))?;
        }
        for problem in &self.errors {
            writeln!(f, "{}", problem.render("error"))?;
        }
        match self.errors.len() {
            1 => f.write_str("1 problem in the config\n"),
            count => writeln!(f, "{count} problems in the config"),
        }
    }
}

impl std::error::Error for ConfigProblems {}
