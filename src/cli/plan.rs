//! `moongate check --plan`: the effect of another config. Owns how it is printed.
//!
//! Does not decide what differs (`app`) or who may do what (`gateway`). Invariant: data goes to standard output. Exit
//! code 0 means that the config can be used.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use crate::app::diff_plans;
use crate::app::doctor::RunningFile;
use crate::cli::admin::AdminClient;
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

/// Prints the changes that a reload would make. The running gateway computes them: it knows its files and its tools.
pub(super) async fn plan_of_running(admin: &AdminClient, format: PlanFormat) -> anyhow::Result<ExitCode> {
    let answer = admin.send_request("GET", "/api/v1/plan", Duration::from_secs(60)).await?;
    let body = answer.json()?;
    match (answer.status, body["outcome"].as_str()) {
        (200, Some("fine")) => Ok(print(&body, format)),
        // Another config than a usable one is bad usage, with the exit code of `check` itself.
        (_, Some("refused")) => {
            print_message(body["message"].as_str().unwrap_or_default().trim_end());
            Ok(ExitCode::from(2))
        }
        _ => anyhow::bail!("{}", body["message"].as_str().unwrap_or("this gateway cannot say")),
    }
}

/// Prints the difference between the running gateway's config and a candidate. The files are those that the gateway
/// names, so both are read with the variables that are set here.
pub(super) async fn plan_of_candidate(
    admin: &AdminClient,
    candidate: Vec<PathBuf>,
    revisions: &[&str],
    format: PlanFormat,
) -> anyhow::Result<ExitCode> {
    let answer = admin.send_request("GET", "/api/v1/config", Duration::from_secs(10)).await?;
    let body = answer.json()?;
    let files: Vec<RunningFile> = serde_json::from_value(body["files"].clone()).unwrap_or_default();
    if answer.status != 200 || files.is_empty() {
        anyhow::bail!("{}", body["message"].as_str().unwrap_or("the running gateway has no config file"));
    }
    for file in &files {
        let is_same = moongate_config::read_redacted(&file.path).is_ok_and(|(tag, _)| tag == file.etag);
        if !is_same {
            let path = file.path.display();
            print_message(&format!("{path} was changed since the gateway read it; the file as it is now is compared"));
        }
    }
    Ok(plan_between(files.into_iter().map(|file| file.path).collect(), candidate, revisions, format))
}

/// Prints the difference between two configs, without a gateway.
pub(super) fn plan_between(old: Vec<PathBuf>, new: Vec<PathBuf>, revisions: &[&str], format: PlanFormat) -> ExitCode {
    let load = |paths: Vec<PathBuf>| -> Result<Plan, ConfigProblems> {
        let options = LoadOptions { paths, env: environment(), revisions, ..LoadOptions::default() };
        moongate_config::load(&options).map(|loaded| loaded.plan)
    };
    match load(old).and_then(|old| Ok((old, load(new)?))) {
        Err(problems) => report_unusable(&problems),
        Ok((old, new)) => print(&json!({ "changes": diff_plans(&old, &new), "rules": rules(&old, &new) }), format),
    }
}

/// Lists the new rules of each key whose rules change.
fn rules(old: &Plan, new: &Plan) -> Vec<Value> {
    let described = |plan: &Plan| -> BTreeMap<String, (Value, KeyHash)> {
        let key = |key: &KeySettings| {
            let expires = key.expires.map(|at| at.to_string());
            let rules = json!({ "tools": key.tools.patterns(), "views": key.views, "expires": expires });
            // A new secret alone is a change, too: the hashes are compared with the rules.
            (key.name.clone(), (rules, key.hash))
        };
        plan.auth.keys.iter().map(key).collect()
    };
    let (old, new) = (described(old), described(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let entry = |name: &String| {
        let (before, after) = (old.get(name), new.get(name));
        let secret = before.zip(after).is_some_and(|(before, after)| before.1 != after.1);
        json!({ "key": name, "before": before.map(|b| &b.0), "after": after.map(|a| &a.0), "new_secret": secret })
    };
    changed.map(entry).collect()
}

fn print(body: &Value, format: PlanFormat) -> ExitCode {
    let mut text = match format {
        PlanFormat::Json => serde_json::to_string_pretty(body).unwrap_or_default(),
        PlanFormat::Text => described(body),
    };
    text.push('\n');
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => report_error(&e.into()),
    }
}

/// Returns the parts of a difference, a line each.
pub(super) fn changes(changes: &Value) -> String {
    let parts = [
        ("added", "servers that are connected"),
        ("removed", "servers that end after their calls"),
        ("replaced", "servers that get a new connection, while the old one serves"),
        ("changed", "servers that change in place"),
        ("settings", "settings"),
        ("needs_restart", "needs a restart of the gateway"),
    ];
    let mut lines = Vec::new();
    for (key, what) in parts {
        let names = list(&changes[key]);
        if !names.is_empty() {
            lines.push(format!("{what}: {}", names.join(", ")));
        }
    }
    if lines.is_empty() { "nothing is different".to_owned() } else { lines.join("\n") }
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn described(body: &Value) -> String {
    let mut out = changes(&body["changes"]);
    let who = |key: &Value| key.as_str().map_or("whoever has no key".to_owned(), |name| format!("key {name}"));
    for change in body["keys"].as_array().into_iter().flatten() {
        for (verb, mark) in [("gains", '+'), ("loses", '-')] {
            let tools = list(&change[verb]);
            if !tools.is_empty() {
                // A write to a `String` does not fail.
                let _ = write!(out, "\n{} {verb} {}:", who(&change["key"]), tools.len());
                tools.iter().for_each(|tool| {
                    let _ = write!(out, "\n  {mark} {tool}");
                });
            }
        }
    }
    if body["keys"].is_array() && !list(&body["changes"]["added"]).is_empty() {
        out.push_str("\nthe tools of added servers are known once they are connected");
    }
    for change in body["rules"].as_array().into_iter().flatten() {
        let (key, before, after) = (who(&change["key"]), &change["before"], &change["after"]);
        let _ = match (before.is_null(), after.is_null()) {
            (true, _) => write!(out, "\n{key} is new: {after}"),
            (_, true) => write!(out, "\n{key} is gone, and its sessions end"),
            _ if before == after => write!(out, "\n{key} is another secret: its sessions end"),
            _ => write!(out, "\n{key}: {before}\n  becomes {after}"),
        };
    }
    out
}
