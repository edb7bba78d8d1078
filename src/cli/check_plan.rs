//! `moongate check --plan`: the effect of another config. Owns how it is printed.
//!
//! Does not decide what differs (`app`) or who may do what (`gateway`). Invariant: data goes to
//! standard output. Exit code 0 means that the config can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use moongate_api::{
    ApiError, ConfigDifference, ConfigFile, ConfigView, PlanReport, ToolAccessChange,
};
use serde::Serialize;

use crate::app::diff_plans;
use crate::cli::admin_client::AdminClient;
use crate::cli::process::{environment, print_message, report_error, report_unusable};
use moongate_access::auth::{KeyHash, KeySettings};
use moongate_config::{ConfigProblems, LoadOptions, Plan};

/// How the plan is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PlanFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Difference between two configs, and the rules of keys that change.
#[derive(Serialize)]
struct PlanComparison {
    changes: ConfigDifference,
    rules: Vec<KeyRuleChange>,
}

/// Change of a key's rules. A key that is new has none before, and one that is gone has none after.
#[derive(Serialize)]
struct KeyRuleChange {
    key: String,
    before: Option<KeyRules>,
    after: Option<KeyRules>,
    new_secret: bool,
}

/// Rules of a key.
#[derive(Clone, PartialEq, Serialize)]
struct KeyRules {
    tools: Vec<String>,
    views: Option<Vec<String>>,
    expires: Option<String>,
}

impl KeyRules {
    fn of(key: &KeySettings) -> Self {
        let expires = key.expires.map(|at| at.to_string());
        KeyRules {
            tools: key.tools.patterns().to_vec(),
            views: key.views.clone(),
            expires,
        }
    }

    /// Returns the rules in one line.
    fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Prints the changes that a reload would make. The running gateway computes them: it knows its
/// files and its tools.
pub(super) async fn plan_of_running(
    admin: &AdminClient,
    format: PlanFormat,
) -> anyhow::Result<ExitCode> {
    let answer = admin
        .send_request("GET", "/api/v1/plan", Duration::from_secs(60))
        .await?;
    match answer.read() {
        Ok(PlanReport::Fine { changes, keys }) => {
            let text = describe_access(&changes, &keys);
            Ok(print(&PlanReport::Fine { changes, keys }, text, format))
        }
        // Another config than a usable one is bad usage, with the exit code of `check` itself.
        Ok(PlanReport::Refused { message }) => {
            print_message(message.trim_end());
            Ok(ExitCode::from(2))
        }
        Err(_) => {
            let message = answer.read::<ApiError>()?.message;
            anyhow::bail!(
                "{}",
                if message.is_empty() {
                    "this gateway does not support this command"
                } else {
                    &message
                }
            )
        }
    }
}

/// Prints the difference between the running gateway's config and a candidate. The files are those
/// that the gateway names, so both are read with the variables that are set here.
pub(super) async fn plan_of_candidate(
    admin: &AdminClient,
    candidate: Vec<PathBuf>,
    revisions: &[&str],
    format: PlanFormat,
) -> anyhow::Result<ExitCode> {
    let answer = admin
        .send_request("GET", "/api/v1/config", Duration::from_secs(10))
        .await?;
    let files: Vec<ConfigFile> = answer.read::<ConfigView>()?.state.files;
    if answer.status != 200 || files.is_empty() {
        let message = answer.error().message;
        anyhow::bail!(
            "{}",
            if message.is_empty() {
                "the running gateway has no config file"
            } else {
                &message
            }
        );
    }
    for file in &files {
        let is_same = moongate_config::read_redacted(Path::new(&file.path))
            .is_ok_and(|(tag, _)| tag == file.etag);
        if !is_same {
            let path = &file.path;
            print_message(&format!(
                "{path} has changed since the gateway read it; the current file is compared"
            ));
        }
    }
    Ok(plan_between(
        files
            .into_iter()
            .map(|file| PathBuf::from(file.path))
            .collect(),
        candidate,
        revisions,
        format,
    ))
}

/// Prints the difference between two configs, without a gateway.
pub(super) fn plan_between(
    old: Vec<PathBuf>,
    new: Vec<PathBuf>,
    revisions: &[&str],
    format: PlanFormat,
) -> ExitCode {
    match load_plan(old, revisions).and_then(|old| Ok((old, load_plan(new, revisions)?))) {
        Err(problems) => report_unusable(&problems),
        Ok((old, new)) => {
            let compared = PlanComparison {
                changes: diff_plans(&old, &new),
                rules: rules(&old, &new),
            };
            let text = describe_rules(&compared);
            print(&compared, text, format)
        }
    }
}

fn load_plan(paths: Vec<PathBuf>, revisions: &[&str]) -> Result<Plan, ConfigProblems> {
    let options = LoadOptions {
        paths,
        env: environment(),
        revisions,
        ..LoadOptions::default()
    };
    moongate_config::load(&options).map(|loaded| loaded.plan)
}

/// Returns the rules and the hash of each key, by its name.
fn described_keys(plan: &Plan) -> BTreeMap<String, (KeyRules, KeyHash)> {
    plan.auth
        .keys
        .iter()
        .map(|key| (key.name.clone(), (KeyRules::of(key), key.hash)))
        .collect()
}

/// Lists the new rules of each key whose rules change.
fn rules(old: &Plan, new: &Plan) -> Vec<KeyRuleChange> {
    // A new secret alone is a change, too: the hashes are compared with the rules.
    let old = described_keys(old);
    let new = described_keys(new);
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name));
    let changes = changed.map(|name| {
        let before = old.get(name);
        let after = new.get(name);
        let new_secret = before
            .zip(after)
            .is_some_and(|(before, after)| before.1 != after.1);
        KeyRuleChange {
            key: name.clone(),
            before: before.map(|(rules, _)| rules.clone()),
            after: after.map(|(rules, _)| rules.clone()),
            new_secret,
        }
    });
    changes.collect()
}

fn print(body: &impl Serialize, words: String, format: PlanFormat) -> ExitCode {
    let mut text = match format {
        PlanFormat::Json => serde_json::to_string_pretty(body).unwrap_or_default(),
        PlanFormat::Text => words,
    };
    text.push('\n');
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => report_error(&e.into()),
    }
}

/// Returns the parts of a difference, a line each.
pub(super) fn describe_changes(changes: &ConfigDifference) -> String {
    let parts = [
        (&changes.added, "servers that are connected"),
        (&changes.removed, "servers that end after their calls"),
        (
            &changes.replaced,
            "servers that get a new connection, while the old one serves",
        ),
        (&changes.changed, "servers that change in place"),
        (&changes.settings, "settings"),
        (&changes.needs_restart, "needs a restart of the gateway"),
    ];
    let filled = parts.into_iter().filter(|(names, _)| !names.is_empty());
    let lines: Vec<String> = filled
        .map(|(names, what)| format!("{what}: {}", names.join(", ")))
        .collect();
    if lines.is_empty() {
        "nothing is different".to_owned()
    } else {
        lines.join("\n")
    }
}

/// Describes changes with the tools that each key gains and loses.
fn describe_access(changes: &ConfigDifference, keys: &[ToolAccessChange]) -> String {
    let mut out = describe_changes(changes);
    for change in keys {
        let who = change
            .key
            .as_ref()
            .map_or("clients without a key".to_owned(), |name| {
                format!("key {name}")
            });
        for (verb, mark, tools) in [("gains", '+', &change.gains), ("loses", '-', &change.loses)] {
            if !tools.is_empty() {
                out += &format!("\n{who} {verb} {}:", tools.len());
                tools
                    .iter()
                    .for_each(|tool| out += &format!("\n  {mark} {tool}"));
            }
        }
    }
    if !changes.added.is_empty() {
        out.push_str("\nthe tools of added servers are known once they are connected");
    }
    out
}

/// Describes changes with the rules of each key that change.
fn describe_rules(compared: &PlanComparison) -> String {
    let mut out = describe_changes(&compared.changes);
    for KeyRuleChange {
        key, before, after, ..
    } in &compared.rules
    {
        out += &match (before, after) {
            (None, None) => String::new(),
            (None, Some(after)) => format!("\nkey {key} is new: {}", after.line()),
            (Some(_), None) => format!("\nkey {key} is removed, and its sessions end"),
            (Some(before), Some(after)) if before == after => {
                format!("\nkey {key} has a new secret, so its sessions end")
            }
            (Some(before), Some(after)) => {
                format!("\nkey {key}: {}\n  becomes {}", before.line(), after.line())
            }
        };
    }
    out
}
