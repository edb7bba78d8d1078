//! Servers whose entries have problems.
//!
//! Replaces each of them by a server that always fails, with its reason. Does not decide the cost
//! of a problem (`load`). Invariant: nothing of an entry with a problem is used, so no rule of it
//! is half there.

use std::collections::BTreeMap;

use super::plan::Plan;
use super::problem::{ConfigProblem, ProblemKind, ProblemOrigin};
use super::server_names::UnusedNames;
use moongate_upstream::{ConnectTarget, ServerSettings};

/// Limit of problems that a server's reason quotes.
const QUOTED_MAX: usize = 3;

/// Replaces each enabled server that has a problem by one that fails.
pub(super) fn replace_failed_servers(plan: &mut Plan, problems: &[ConfigProblem]) {
    let mut failed: BTreeMap<&str, Vec<&ConfigProblem>> = BTreeMap::new();
    for problem in problems {
        problem
            .server
            .as_deref()
            .into_iter()
            .for_each(|name| failed.entry(name).or_default().push(problem));
    }
    plan.disabled
        .iter()
        .for_each(|disabled| drop(failed.remove(disabled.name.as_str())));
    plan.servers
        .retain(|server| !failed.contains_key(server.name.as_str()));
    let mut unused = UnusedNames::new(plan.servers.iter().map(|server| server.name.clone()));
    for (name, own) in failed {
        let connect = ConnectTarget::Misconfigured {
            reason: reason(&own),
        };
        // The name itself may be the problem, and clients still have to see the server.
        plan.servers
            .push(ServerSettings::new(unused.take(name), connect));
    }
    plan.servers.sort_by(|a, b| a.name.cmp(&b.name));
}

/// Joins the problems into one line for the status.
fn reason(problems: &[&ConfigProblem]) -> String {
    let messages = problems.iter().take(QUOTED_MAX).map(|problem| {
        let location = match &problem.origin {
            ProblemOrigin::File { path, line, .. } => format!(" ({}:{line})", path.display()),
            ProblemOrigin::Variable(name) => format!(" (environment variable {name})"),
            ProblemOrigin::Flag(name) => format!(" (flag {name})"),
            ProblemOrigin::Nowhere => String::new(),
        };
        format!("{}{location}: {}", shown_message(problem), problem.fix)
    });
    let mut messages: Vec<String> = messages.collect();
    if problems.len() > QUOTED_MAX {
        messages.push(format!(
            "{} more; `moongate check` shows them all",
            problems.len() - QUOTED_MAX
        ));
    }
    format!(
        "its entry in the config cannot be used: {}",
        messages.join("; ")
    )
}

/// Returns the message of a problem as a status shows it.
fn shown_message(problem: &ConfigProblem) -> String {
    // Statuses are redacted: a key such as `Authorization` before a colon would hide the name of
    // the missing variable.
    match (problem.kind, problem.message.split_once("`: ")) {
        (ProblemKind::Reference, Some((path, what))) => format!("{what} ({path}`)"),
        _ => problem.message.clone(),
    }
}
