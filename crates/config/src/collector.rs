//! Problems found while a config is read.
//!
//! Owns their collection and order. Does not look for problems. Invariant: problems are sorted by
//! their location, and none is there twice.

use std::collections::HashSet;

use super::problem::{ConfigProblem, ConfigProblems, ProblemKind, ProblemOrigin};
use super::source::ConfigSources;
use super::tree::{ConfigPath, SourceSpan};

/// Problems that are shown. Nobody reads more, and a text from elsewhere may have one for every
/// other byte.
const SHOWN_MAX: usize = 100;

/// Problem while the config is still being read. Its location is not resolved yet.
#[derive(Clone, Debug)]
pub(super) struct SpannedProblem {
    pub(super) kind: ProblemKind,
    pub(super) span: SourceSpan,
    pub(super) message: String,
    pub(super) fix: String,
    pub(super) server: Option<String>,
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct ProblemCollector {
    pub(super) errors: Vec<SpannedProblem>,
    pub(super) warnings: Vec<SpannedProblem>,
    /// Server that the next problem belongs to.
    server: Option<String>,
}

impl ProblemCollector {
    /// Names the setting of the next problem. A problem in a server's entry belongs to that server.
    pub(super) fn for_setting(&mut self, path: &ConfigPath) -> &mut Self {
        self.server = path.server().map(str::to_owned);
        self
    }

    pub(super) fn error(
        &mut self,
        kind: ProblemKind,
        span: SourceSpan,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        // Taken, so that a later problem without `about` does not blame this server.
        let server = self.server.take();
        self.errors.push(SpannedProblem {
            kind,
            span,
            message: message.into(),
            fix: fix.into(),
            server,
        });
    }

    pub(super) fn warn(
        &mut self,
        kind: ProblemKind,
        span: SourceSpan,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let server = self.server.take();
        self.warnings.push(SpannedProblem {
            kind,
            span,
            message: message.into(),
            fix: fix.into(),
            server,
        });
    }

    /// Resolves locations. Sorts by the order of the sources, and drops repeated problems. The
    /// first hundred are shown.
    pub(super) fn finish(self, sources: &ConfigSources) -> ConfigProblems {
        // An error costs its server, so that server has to be named even if nobody reads the error.
        let errors = resolve(self.errors, sources, |error| error.server.is_some());
        let warnings = resolve(self.warnings, sources, |_| false);
        ConfigProblems {
            errors,
            warnings,
            files: Vec::new(),
        }
    }
}

/// Resolves problems of one kind. Those that nobody would read are counted, unless they are needed.
fn resolve(
    mut faults: Vec<SpannedProblem>,
    sources: &ConfigSources,
    is_needed: fn(&SpannedProblem) -> bool,
) -> Vec<ConfigProblem> {
    // A stable sort keeps the order of the checks at one location.
    faults.sort_by_key(|fault| (fault.span.source, fault.span.start));
    let (mut problems, mut seen, mut unshown): (Vec<ConfigProblem>, _, usize) =
        (Vec::new(), HashSet::new(), 0);
    for fault in faults {
        if !seen.insert((fault.span, fault.kind, fault.message.clone())) {
            continue;
        }
        if problems.len() >= SHOWN_MAX && !is_needed(&fault) {
            unshown += 1;
            continue;
        }
        let (origin, snippet) = match problems.len() < SHOWN_MAX {
            true => sources.locate(fault.span, fault.kind),
            // A location costs as much as the text before it on its line.
            false => (ProblemOrigin::Nowhere, None),
        };
        let SpannedProblem {
            kind,
            message,
            fix,
            server,
            ..
        } = fault;
        // After one syntax error, a parser often reports more about the same location.
        let again = kind == ProblemKind::Syntax
            && problems
                .last()
                .is_some_and(|last| (last.kind, &last.origin) == (ProblemKind::Syntax, &origin));
        if !again {
            problems.push(ConfigProblem {
                kind,
                origin,
                snippet,
                message,
                fix,
                server,
            });
        }
    }
    problems.extend((unshown > 0).then(|| ConfigProblem {
        kind: ProblemKind::Value,
        origin: ProblemOrigin::Nowhere,
        snippet: None,
        message: format!("there are {unshown} more problems"),
        fix: "fix the first ones, then check again".to_owned(),
        server: None,
    }));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_problems_are_shown_and_every_server_keeps_its_own() {
        let mut faults = ProblemCollector::default();
        for at in 0..20_000 {
            let span = SourceSpan {
                source: 0,
                start: at,
                end: at + 1,
            };
            faults.error(
                ProblemKind::Conflict,
                span,
                "`a` is there twice",
                "keep one of the two",
            );
            faults.warn(ProblemKind::Value, span, "odd", "even it out");
        }
        let name = ConfigPath::of(&["servers", "last"]);
        let span = SourceSpan {
            source: 0,
            start: 50_000,
            end: 50_000,
        };
        faults
            .for_setting(&name)
            .error(ProblemKind::Value, span, "wrong", "right it");
        let mut sources = ConfigSources::default();
        sources.file(std::path::Path::new("a.json"), "x".repeat(60_000));
        let problems = faults.finish(&sources);
        assert_eq!(problems.errors.len(), 102);
        assert_eq!(problems.warnings.len(), 101);
        assert_eq!(problems.errors[100].server.as_deref(), Some("last"));
        assert_eq!(
            problems.errors[101].message,
            "there are 19900 more problems"
        );
    }
}
