//! The table in `README.md`: what each gate is known to reach. A run that reaches anything else
//! fails.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::suite::{ScenarioOutcome, SuiteReport};

const TABLE: [&str; 2] = ["<!-- table: begin -->\n", "<!-- table: end -->"];
const WARNINGS: [&str; 2] = ["<!-- warnings: begin -->\n", "<!-- warnings: end -->"];
const FAILURES: [&str; 2] = ["<!-- failures: begin -->\n", "<!-- failures: end -->"];
/// The gate that the others are measured against.
const FIXTURE: &str = "G0";

/// A scenario that need not pass at a gate: which set it is in, its name, and why.
#[derive(Clone, Copy)]
pub(crate) struct ExcusedScenario {
    pub(crate) revision: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) why: &'static str,
}

/// What a gate is called, in the table and for files.
pub(crate) struct SuiteGate {
    /// `G1`: the first column, and what the lines below the table begin with.
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) transport: &'static str,
    /// Whether what nobody scores has to pass, too.
    pub(crate) strict: bool,
    pub(crate) excused: &'static [ExcusedScenario],
}

impl SuiteGate {
    /// Compares a run with the table, or writes it there if `UPDATE_EXPECTED` is set.
    ///
    /// # Panics
    /// If it differs, if a scored scenario fails that could pass, or if one that is not scored
    /// fails that passes at the fixture alone.
    pub(crate) fn settle(&self, reports: &[SuiteReport], log: &str) {
        let _lock = GateLock::take();
        let row = self.row(reports);
        let lines = self.failures(reports);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            let warnings = self.warnings(reports);
            write(
                &row,
                &[(FAILURES, &lines), (WARNINGS, &warnings)],
                self.name,
            );
        }
        let page = read();
        let mut wrong: Vec<String> = reports
            .iter()
            .flat_map(|report| report.wrong.clone())
            .collect();
        for report in reports {
            for outcome in report
                .outcomes
                .iter()
                .filter(|outcome| outcome.failed.is_empty())
            {
                if self.reason(report.revision, &outcome.scenario).is_some() {
                    wrong.push(format!(
                        "{} {}: passes, and is excused",
                        report.revision, outcome.scenario
                    ));
                }
            }
            for outcome in report
                .outcomes
                .iter()
                .filter(|outcome| !outcome.failed.is_empty())
            {
                if let Some(reason) = self.objection(report, outcome, &page) {
                    wrong.push(format!(
                        "{} {}: {reason}\n{}",
                        report.revision, outcome.scenario, outcome.why
                    ));
                }
            }
        }
        let known: Vec<&str> = section(&page, TABLE)
            .lines()
            .filter(|line| self.owns(line, "| "))
            .collect();
        if known != [row.as_str()] {
            wrong.push(format!("the table says {known:?}, this run {row:?}"));
        }
        let known: Vec<&str> = section(&page, FAILURES)
            .lines()
            .filter(|line| self.owns(line, "- "))
            .collect();
        for line in known
            .iter()
            .filter(|known| !lines.iter().any(|line| line == *known))
        {
            wrong.push(format!("the README says, and this run does not: {line}"));
        }
        for line in lines.iter().filter(|line| !known.contains(&line.as_str())) {
            wrong.push(format!("this run says, and the README does not: {line}"));
        }
        assert!(
            wrong.is_empty(),
            "{}\n\n--- the log's end:\n{log}",
            wrong.join("\n")
        );
    }

    fn objection(
        &self,
        report: &SuiteReport,
        outcome: &ScenarioOutcome,
        page: &str,
    ) -> Option<String> {
        if self.reason(report.revision, &outcome.scenario).is_some() {
            return None;
        }
        let checks = outcome.failed.join(", ");
        if outcome.scored || self.strict {
            return Some(format!("failed: {checks}"));
        }
        let start = format!("- {FIXTURE}, {}, not scored: ", report.revision);
        let known = section(page, FAILURES)
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .unwrap_or_default();
        let no_better = known.split(", ").any(|name| name == outcome.scenario);
        (!no_better).then(|| format!("failed, and does not at the fixture alone: {checks}"))
    }

    fn reason(&self, revision: &str, scenario: &str) -> Option<&'static str> {
        let found = self
            .excused
            .iter()
            .find(|one| one.revision == revision && one.scenario == scenario);
        found.map(|one| one.why)
    }

    /// Whether a line of the README is this gate's.
    fn owns(&self, line: &str, start: &str) -> bool {
        owns(line, start, self.name)
    }

    fn row(&self, reports: &[SuiteReport]) -> String {
        let mut row = format!("| {} | {} | {} |", self.name, self.what, self.transport);
        for scored in [true, false] {
            for report in reports {
                let _ = write!(row, " {} |", report.tally(scored));
            }
        }
        row
    }

    fn failures(&self, reports: &[SuiteReport]) -> Vec<String> {
        let mut lines = Vec::new();
        for report in reports {
            let start = format!("- {}, {}", self.name, report.revision);
            let failed = |scored| {
                report
                    .outcomes
                    .iter()
                    .filter(move |one| one.scored == scored && !one.failed.is_empty())
            };
            let told = |one: &&ScenarioOutcome| {
                one.scored || self.reason(report.revision, &one.scenario).is_some()
            };
            for outcome in failed(true).chain(failed(false)).filter(told) {
                let scored = if outcome.scored { "" } else { " (not scored)" };
                let mut line = format!(
                    "{start}, {}{scored}: {}",
                    outcome.scenario,
                    outcome.failed.join(", ")
                );
                if let Some(reason) = self.reason(report.revision, &outcome.scenario) {
                    let _ = write!(line, ". {reason}");
                }
                lines.push(line);
            }
            let untold = failed(false).filter(|one| !told(one));
            let names: Vec<&str> = untold.map(|one| one.scenario.as_str()).collect();
            if !names.is_empty() {
                lines.push(format!("{start}, not scored: {}", names.join(", ")));
            }
        }
        lines
    }
}

/// The warnings of a run: what the suite says that a server should do, and that is not counted.
impl SuiteGate {
    fn warnings(&self, reports: &[SuiteReport]) -> Vec<String> {
        let mut lines = Vec::new();
        for report in reports {
            for outcome in report.outcomes.iter().filter(|one| !one.warned.is_empty()) {
                let warned = outcome.warned.join(", ");
                lines.push(format!(
                    "- {}, {}, {}: {warned}",
                    self.name, report.revision, outcome.scenario
                ));
            }
        }
        lines
    }
}

fn owns(line: &str, start: &str, name: &str) -> bool {
    line.strip_prefix(start)
        .and_then(|rest| rest.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with([' ', ',']))
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/README.md")
}

fn read() -> String {
    std::fs::read_to_string(path()).expect("tests/conformance/README.md")
}

fn section<'a>(page: &'a str, [begin, end]: [&str; 2]) -> &'a str {
    let from = page.find(begin).expect("the README has the mark") + begin.len();
    let length = page[from..]
        .find(end)
        .expect("the README has the other mark");
    &page[from..from + length]
}

fn write(row: &str, lists: &[([&str; 2], &Vec<String>)], name: &str) {
    let mut page = read();
    let table = section(&page, TABLE);
    let head: Vec<&str> = table.lines().take(2).collect();
    let mut rows: Vec<&str> = table
        .lines()
        .skip(2)
        .filter(|line| !owns(line, "| ", name))
        .collect();
    rows.push(row);
    rows.sort_unstable();
    let new = format!("{}\n{}\n", head.join("\n"), rows.join("\n"));
    page = replaced(&page, TABLE, &new);
    for (marks, lines) in lists {
        let kept = section(&page, *marks)
            .lines()
            .filter(|line| !owns(line, "- ", name));
        let mut all: Vec<&str> = kept.chain(lines.iter().map(String::as_str)).collect();
        all.sort_unstable();
        let new: String = all.iter().map(|line| format!("{line}\n")).collect();
        page = replaced(&page, *marks, &new);
    }
    std::fs::write(path(), page).expect("the README is written");
}

fn replaced(page: &str, marks: [&str; 2], new: &str) -> String {
    let [begin, end] = marks;
    page.replace(
        &format!("{begin}{}{end}", section(page, marks)),
        &format!("{begin}{new}{end}"),
    )
}

/// One gate at a time reads and writes, whichever process it is in.
struct GateLock(File);

impl GateLock {
    fn take() -> GateLock {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance.lock");
        let file = File::create(path).expect("a lock file");
        flock(&file, FlockOperation::LockExclusive).expect("the lock");
        GateLock(file)
    }
}

impl Drop for GateLock {
    fn drop(&mut self) {
        // It ends with the file anyway.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
