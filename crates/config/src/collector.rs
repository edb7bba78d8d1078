//! Problems found while a config is read.
//!
//! Owns their collection and order. Does not look for problems. Invariant: problems are sorted by their place, and none
//! is there twice.

use super::problem::{ConfigProblem, ConfigProblems, ProblemKind};
use super::source::ConfigSources;
use super::tree::{ConfigPath, SourceSpan};

/// Problem while the config is still being read. Its place is not resolved yet.
#[derive(Clone, Debug)]
pub(super) struct PlacedProblem {
    pub(super) kind: ProblemKind,
    pub(super) span: SourceSpan,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) server: Option<String>,
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct ProblemCollector {
    pub(super) errors: Vec<PlacedProblem>,
    pub(super) warnings: Vec<PlacedProblem>,
    /// Server that the next problem belongs to.
    server: Option<String>,
}

impl ProblemCollector {
    /// Names the setting of the next problem. A problem in a server's entry belongs to that server.
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
        // Taken, so that a later problem without `about` does not blame this server.
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

    /// Resolves places. Sorts by the order of the sources, and drops repeated problems.
    pub(super) fn finish(self, sources: &ConfigSources) -> ConfigProblems {
        let resolve = |mut faults: Vec<PlacedProblem>| {
            // A stable sort keeps the order of the checks within one place.
            faults.sort_by_key(|fault| (fault.span.source, fault.span.start));
            let mut problems: Vec<ConfigProblem> = Vec::new();
            for fault in faults {
                let (origin, snippet) = sources.locate(fault.span, fault.kind);
                let PlacedProblem { kind, message, fix, server, .. } = fault;
                let problem = ConfigProblem { kind, origin, snippet, message, fix, server };
                // After one syntax error, a parser often reports more about the same place.
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
