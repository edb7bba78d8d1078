//! The official suite: what a revision requires, a run of it, and what the run says.
//!
//! Scenarios are compared, not checks: many checks are about what did not happen, and pass where
//! nothing does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use super::peers::{MOONGATE, ProgramHome};

/// A run of one set takes seconds; one that hangs takes the suite's own limit for each scenario.
const RUN: Duration = Duration::from_secs(280);
/// The suite's limit for a scenario, in milliseconds.
const SCENARIO_MS: &str = "20000";
/// The same for a client, which has to start first.
const CLIENT_MS: &str = "60000";

/// What a revision requires, as the suite ships it.
#[derive(Deserialize)]
pub(crate) struct Requirements {
    pub(crate) server: Vec<String>,
    client: Vec<String>,
    not_scored: Vec<NotScored>,
}

#[derive(Deserialize)]
struct NotScored {
    scenario: String,
    leg: String,
}

impl Requirements {
    pub(crate) fn of(home: &ProgramHome, revision: &str) -> Requirements {
        let path = home
            .suite()
            .join("requirements")
            .join(format!("{revision}.yaml"));
        let text = std::fs::read_to_string(&path).expect("the suite's requirements");
        serde_saphyr::from_str(&text).expect("the suite's requirements are YAML")
    }

    pub(crate) fn not_scored(&self, leg: &str) -> Vec<String> {
        self.not_scored
            .iter()
            .filter(|one| one.leg == leg)
            .map(|one| one.scenario.clone())
            .collect()
    }
}

/// A check of the suite.
#[derive(Deserialize)]
struct SuiteCheck {
    id: String,
    status: String,
    #[serde(rename = "errorMessage")]
    error: Option<String>,
    description: Option<String>,
}

/// What a scenario came to.
pub(crate) struct ScenarioOutcome {
    pub(crate) scenario: String,
    pub(crate) scored: bool,
    /// Ids of the checks that failed, each once; an empty list for a scenario that passed.
    pub(crate) failed: Vec<String>,
    /// Ids of the checks that only warn, each once.
    pub(crate) warned: Vec<String>,
    /// For a person who has to find out why: messages, and where the suite's report is.
    pub(crate) why: String,
}

/// One requirement set, run.
pub(crate) struct SuiteReport {
    pub(crate) revision: &'static str,
    pub(crate) outcomes: Vec<ScenarioOutcome>,
    /// What else was wrong: with the suite's end, or a client's.
    pub(crate) wrong: Vec<String>,
}

impl SuiteReport {
    /// Reads the reports that a run left in `dir`.
    pub(crate) fn read(
        revision: &'static str,
        scored: &[String],
        not_scored: &[String],
        dir: &Path,
    ) -> SuiteReport {
        let mut checks = BTreeMap::new();
        collect(dir, dir, &mut checks);
        let of = |scenario: &String, scored| outcome(scenario, scored, checks.get(scenario));
        let outcomes = scored
            .iter()
            .map(|one| of(one, true))
            .chain(not_scored.iter().map(|one| of(one, false)));
        SuiteReport {
            revision,
            outcomes: outcomes.collect(),
            wrong: Vec::new(),
        }
    }

    /// Passed and run, of the scored ones or of the others.
    pub(crate) fn tally(&self, scored: bool) -> String {
        let all = || {
            self.outcomes
                .iter()
                .filter(|outcome| outcome.scored == scored)
        };
        if all().next().is_none() {
            return "-".to_owned();
        }
        format!(
            "{}/{}",
            all().filter(|outcome| outcome.failed.is_empty()).count(),
            all().count()
        )
    }

    /// Nothing was run of this set.
    pub(crate) fn none(revision: &'static str) -> SuiteReport {
        SuiteReport {
            revision,
            outcomes: Vec::new(),
            wrong: Vec::new(),
        }
    }
}

fn outcome(
    scenario: &str,
    scored: bool,
    found: Option<&(PathBuf, Vec<SuiteCheck>)>,
) -> ScenarioOutcome {
    let mut failed = Vec::new();
    let mut warned = Vec::new();
    let mut why = String::new();
    match found {
        None => failed.push("not run".to_owned()),
        Some((path, checks)) => {
            for check in checks.iter().filter(|check| check.status == "FAILURE") {
                let text = check
                    .error
                    .as_deref()
                    .or(check.description.as_deref())
                    .unwrap_or_default();
                let _ = writeln!(why, "    {}: {text}", check.id);
                if !failed.contains(&check.id) {
                    failed.push(check.id.clone());
                }
            }
            for check in checks.iter().filter(|check| check.status == "WARNING") {
                if !warned.contains(&check.id) {
                    warned.push(check.id.clone());
                }
            }
            if failed.is_empty() && !checks.iter().any(|check| check.status == "SUCCESS") {
                failed.push("nothing succeeded".to_owned());
            }
            let _ = writeln!(why, "    see {}", path.display());
        }
    }
    ScenarioOutcome {
        scenario: scenario.to_owned(),
        scored,
        failed,
        warned,
        why,
    }
}

/// Every `checks.json`, by scenario: the directory's name without the leg and the time.
fn collect(root: &Path, dir: &Path, found: &mut BTreeMap<String, (PathBuf, Vec<SuiteCheck>)>) {
    for entry in std::fs::read_dir(dir).expect("the suite's reports") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.ends_with("checks.json") {
            let name = dir
                .strip_prefix(root)
                .expect("below")
                .to_str()
                .expect("UTF-8")
                .replace('\\', "/");
            let name = name.strip_prefix("server-").unwrap_or(&name);
            // `tools-list-2026-07-28T10-11-12-345Z`
            let name = name
                .len()
                .checked_sub("-0000-00-00T00-00-00-000Z".len())
                .map_or(name, |end| &name[..end]);
            let text = std::fs::read_to_string(&path).expect("a report");
            let checks =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            found.insert(name.to_owned(), (path, checks));
        }
    }
}

/// An empty directory for the reports of one run.
pub(crate) fn reports(gate: &str, revision: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("conformance")
        .join(format!("{gate}-{revision}"));
    if dir.exists() {
        std::fs::remove_dir_all(&dir).expect("old reports go");
    }
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// Runs what a revision requires of a server against `url`.
pub(crate) async fn server_leg(
    home: &ProgramHome,
    gate: &str,
    revision: &'static str,
    url: &str,
) -> SuiteReport {
    let required = Requirements::of(home, revision);
    let dir = reports(gate, revision);
    let mut command = suite(home);
    command
        .args([
            "server",
            "--url",
            url,
            "--requirements",
            revision,
            "--timeout",
            SCENARIO_MS,
            "-o",
        ])
        .arg(&dir);
    let output = timeout(RUN, command.output())
        .await
        .expect("the suite ends in time")
        .expect("the suite runs");
    let mut report = SuiteReport::read(
        revision,
        &required.server,
        &required.not_scored("server"),
        &dir,
    );
    let passed = report
        .outcomes
        .iter()
        .all(|outcome| !outcome.scored || outcome.failed.is_empty());
    if output.status.success() != passed {
        let stderr = String::from_utf8_lossy(&output.stderr);
        report
            .wrong
            .push(format!("the suite ended with {}\n{stderr}", output.status));
    }
    report
}

/// Runs the scenarios about tasks, which no set requires, one by one.
pub(crate) async fn task_scenarios(
    home: &ProgramHome,
    gate: &str,
    revision: &'static str,
    url: &str,
) -> SuiteReport {
    let mut scenarios = Requirements::of(home, revision).not_scored("server");
    scenarios.retain(|name| name.starts_with("tasks-"));
    assert!(
        scenarios.len() > 5,
        "the suite's scenarios about tasks: {scenarios:?}"
    );
    let dir = reports(gate, revision);
    for scenario in &scenarios {
        let mut command = suite(home);
        command.args([
            "server",
            "--url",
            url,
            "--scenario",
            scenario,
            "--spec-version",
            revision,
        ]);
        // They belong to an extension, and so to no revision.
        command
            .args(["--force", "--timeout", SCENARIO_MS, "-o"])
            .arg(&dir);
        timeout(RUN, command.output())
            .await
            .expect("the suite ends in time")
            .expect("the suite runs");
    }
    SuiteReport::read(revision, &[], &scenarios, &dir)
}

/// Scenarios of clients: those with a login, and the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientScenarios {
    Open,
    Login,
}

impl ClientScenarios {
    fn contains(self, scenario: &str) -> bool {
        let needs_login = scenario.starts_with("auth/");
        needs_login == (self == ClientScenarios::Login)
    }

    fn of(self, mut all: Vec<String>) -> Vec<String> {
        all.retain(|name| self.contains(name));
        all
    }
}

/// Runs what a revision requires of a client, with the gateway as the client.
pub(crate) async fn client_leg(
    home: &ProgramHome,
    gate: &str,
    revision: &'static str,
    scenarios: ClientScenarios,
) -> SuiteReport {
    let required = Requirements::of(home, revision);
    let scored = scenarios.of(required.client.clone());
    let not_scored = scenarios.of(required.not_scored("client"));
    let dir = reports(gate, revision);
    let (timed, others): (Vec<_>, Vec<_>) = scored
        .iter()
        .chain(&not_scored)
        .partition(|name| *name == TIMED);
    let run = |scenario: &String| client_scenario(home, scenario.clone(), revision, dir.clone());
    let mut ends: Vec<_> = stream::iter(others.into_iter().map(run))
        .buffer_unordered(CLIENTS)
        .collect()
        .await;
    // The suite measures how long the client waits: it gets the machine to itself.
    for scenario in timed {
        ends.push(run(scenario).await);
    }
    let mut report = SuiteReport::read(revision, &scored, &not_scored, &dir);
    for (scenario, output) in ends {
        report.add_client_end(&scenario, &output);
    }
    report
}

impl SuiteReport {
    /// Adds how the client of a scenario ended. One that fails although no check does is wrong.
    fn add_client_end(&mut self, scenario: &str, output: &Output) {
        let tail = output_tail(output);
        let outcome = self
            .outcomes
            .iter_mut()
            .find(|one| one.scenario == scenario);
        match outcome {
            Some(outcome) if !outcome.failed.is_empty() => outcome.why.push_str(&tail),
            Some(_) if !output.status.success() && !MAY_FAIL.contains(&scenario) => {
                let revision = self.revision;
                self.wrong.push(format!(
                    "{revision} {scenario}: no check failed, but the client did:\n{tail}"
                ));
            }
            Some(_) | None => {}
        }
    }
}

/// Scenarios of clients at once: each has a gateway of its own.
const CLIENTS: usize = 2;
/// The scenario in which the suite measures time.
const TIMED: &str = "sse-retry";
/// Scenarios in which the suite itself does not mind how the client ends: they refuse calls, or no
/// login may come of them.
const MAY_FAIL: [&str; 8] = [
    "http-invalid-tool-headers",
    "auth/scope-retry-limit",
    "auth/resource-mismatch",
    "auth/metadata-issuer-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
];

async fn client_scenario(
    home: &ProgramHome,
    scenario: String,
    revision: &str,
    dir: PathBuf,
) -> (String, Output) {
    let mut command = suite(home);
    command.args([
        "client",
        "--scenario",
        &scenario,
        "--spec-version",
        revision,
        "--timeout",
        CLIENT_MS,
        // Extensions belong to no revision.
        "--force",
        "-o",
    ]);
    // The suite splits this at its spaces.
    let driver = format!(
        "{} -B {}",
        home.python().display(),
        super::peers::scripts().join("client.py").display()
    );
    command.arg(dir).arg("--command").arg(driver);
    command
        .env("MOONGATE", MOONGATE)
        .env("REFERENCE", home.sdk().join(".github/actions/conformance"));
    let output = timeout(RUN, command.output())
        .await
        .expect("the suite ends in time")
        .expect("the suite runs");
    (scenario, output)
}

/// The end of what the suite printed, which has the client's stderr in it.
fn output_tail(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// The suite's command line.
pub(crate) fn suite(home: &ProgramHome) -> Command {
    let mut command = Command::new(home.node());
    command
        .arg(home.suite().join("dist/index.js"))
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    command
}
