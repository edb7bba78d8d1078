//! Errors of edits.
//!
//! Owns their codes, which programs compare, and their texts. Invariant: each names the server, the
//! file or the key that it is about.

use std::fmt;

use moongate_edit::WriteError;

use crate::problem::{ConfigProblem, ConfigProblems};

/// Reason why the config was not edited. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEditError {
    /// Code for programs, such as `unknown_server`.
    pub code: &'static str,
    /// Message for people.
    pub message: String,
    /// Lines to paste instead, if the file cannot be written.
    pub snippet: Option<String>,
    /// Problems that the config would have, for the code `problems`.
    pub problems: Vec<ConfigProblem>,
}

impl fmt::Display for ConfigEditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.snippet {
            Some(snippet) => write!(f, "\nPaste this instead:\n\n{}", snippet.trim_end()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ConfigEditError {}

impl ConfigEditError {
    /// Creates an error without lines to paste and without problems.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        ConfigEditError {
            code,
            message: message.into(),
            snippet: None,
            problems: Vec::new(),
        }
    }

    /// Creates the error of an edit that would break the config.
    pub(super) fn invalid(problems: &ConfigProblems) -> Self {
        Self::of_config(
            "the config would no longer be valid, so nothing was changed",
            problems,
        )
    }

    /// Creates the error of a config that was broken already.
    pub(super) fn invalid_before(problems: &ConfigProblems) -> Self {
        Self::of_config(
            "the config is already invalid, so nothing was changed; fix this first",
            problems,
        )
    }

    fn of_config(what: &str, problems: &ConfigProblems) -> Self {
        let message = format!("{what}:\n{}", problems.to_string().trim_end());
        ConfigEditError {
            problems: problems.errors.clone(),
            ..ConfigEditError::new("problems", message)
        }
    }

    /// Creates the error of an entry with these problems.
    pub(super) fn of_problems(problems: &[&ConfigProblem]) -> Self {
        let described = problems
            .iter()
            .map(|problem| format!("{}; {}", problem.message, problem.fix));
        let message = format!(
            "nothing was changed: {}",
            described.collect::<Vec<_>>().join("\n")
        );
        let problems = problems.iter().map(|problem| (*problem).clone()).collect();
        ConfigEditError {
            problems,
            ..ConfigEditError::new("problems", message)
        }
    }

    /// Adds the lines to paste, if there are any.
    pub(super) fn with_snippet(self, snippet: Option<String>) -> Self {
        ConfigEditError { snippet, ..self }
    }

    pub(super) fn from_write(error: WriteError) -> Self {
        let code = match error {
            WriteError::Changed { .. } => "changed",
            WriteError::Locked { .. } => "locked",
            WriteError::Mounted { .. } | WriteError::ReadOnly { .. } => "read_only",
            WriteError::NoSpace { .. } => "no_space",
            WriteError::NotText { .. } => "cannot_edit",
            WriteError::Io { .. } => "io",
        };
        ConfigEditError::new(code, error.to_string())
    }
}
