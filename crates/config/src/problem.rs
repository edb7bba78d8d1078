//! Problems of a config, as they are shown.
//!
//! Owns their form. Does not look for problems or collect them (`collector`). Invariant: a problem
//! shows no secret: messages do not quote expanded values, and the shown line has its secrets
//! redacted.

use std::fmt;
use std::path::PathBuf;

/// Kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// File that cannot be read, or is not TOML, YAML or JSON.
    Syntax,
    /// Key that does not exist.
    UnknownKey,
    /// Setting of a client that has no meaning here.
    ClientSetting,
    /// Value of the wrong type.
    Type,
    /// Value that is not allowed.
    Value,
    /// Needed key or value that is not there.
    Missing,
    /// Settings that do not go together.
    Conflict,
    /// Reference to a variable or file that does not exist. It may exist where the gateway runs.
    Reference,
    /// File that others may write.
    Access,
    /// Package without a version.
    Package,
    /// Listener for other machines without keys.
    OpenListener,
    /// Key or value of Moongate's design that this version does not have.
    Unavailable,
}

/// Origin of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemOrigin {
    /// File. Lines and columns count from one, columns in characters. Line 0 is the file as a
    /// whole.
    File {
        /// Path as given.
        path: PathBuf,
        /// Line number.
        line: usize,
        /// Column number.
        column: usize,
    },
    /// Environment variable.
    Variable(String),
    /// Flag of the command line.
    Flag(String),
    /// No particular location.
    Nowhere,
}

impl ProblemOrigin {
    /// Names the location for people, such as `moongate.toml:14`. `None` if there isn't one.
    pub fn location(&self) -> Option<String> {
        match self {
            ProblemOrigin::File { path, line: 0, .. } => Some(path.display().to_string()),
            ProblemOrigin::File { path, line, .. } => Some(format!("{}:{line}", path.display())),
            ProblemOrigin::Variable(name) => Some(format!("variable {name}")),
            ProblemOrigin::Flag(name) => Some(format!("flag {name}")),
            ProblemOrigin::Nowhere => None,
        }
    }
}

/// Line that a problem is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSnippet {
    /// Text of the line with secrets redacted. A very long line is cut.
    pub text: String,
    /// Characters before the problem.
    pub offset: usize,
    /// Length of the problem in characters, at least one.
    pub length: usize,
}

/// Problem of a config, ready to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Origin of the problem.
    pub origin: ProblemOrigin,
    /// Line of the problem, if it is in a file.
    pub snippet: Option<SourceSnippet>,
    /// Message: the fact that is wrong.
    pub message: String,
    /// Fix: the way to correct it.
    pub fix: String,
    /// Server whose entry has the problem. `None` for a problem of the gateway itself.
    pub server: Option<String>,
}

/// Errors and warnings of a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblems {
    /// Errors, in the order of the sources. At least one.
    pub errors: Vec<ConfigProblem>,
    /// Settings that work, but probably not as meant.
    pub warnings: Vec<ConfigProblem>,
    /// Files to watch for a change: those that were read, and those that values refer to, as far as
    /// found.
    pub files: Vec<PathBuf>,
}

impl ConfigProblem {
    /// Renders the problem for a person, in several lines, under a word such as `error`.
    pub fn render(&self, word: &str) -> String {
        let mut out = format!("{word}: {}\n", self.message);
        // As wide as the line number, so that the bars are below each other.
        let gutter = match (&self.origin, &self.snippet) {
            (ProblemOrigin::File { line, .. }, Some(_)) => " ".repeat(line.to_string().len()),
            _ => " ".to_owned(),
        };
        match &self.origin {
            ProblemOrigin::File { path, line: 0, .. } => {
                out += &format!("{gutter}--> {}\n", path.display())
            }
            ProblemOrigin::File { path, line, column } => {
                out += &format!("{gutter}--> {}:{line}:{column}\n", path.display());
            }
            ProblemOrigin::Variable(name) => {
                out += &format!("{gutter}--> environment variable {name}\n")
            }
            ProblemOrigin::Flag(name) => out += &format!("{gutter}--> flag {name}\n"),
            ProblemOrigin::Nowhere => {}
        }
        if let (ProblemOrigin::File { line, .. }, Some(snippet)) = (&self.origin, &self.snippet) {
            out += &format!("{gutter} |\n{line} | {}\n", snippet.text);
            out += &format!(
                "{gutter} | {}{}\n",
                " ".repeat(snippet.offset),
                "^".repeat(snippet.length)
            );
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
