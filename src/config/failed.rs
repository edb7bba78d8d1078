//! Servers whose entries have problems.
//!
//! Puts a server that fails, with its reason, in the place of each. Does not decide how much a problem costs (`load`).
//! Invariant: nothing of an entry with a problem is used, so that no rule of it can be half there.

use super::names;
use super::plan::Plan;
use super::problem::{Origin, Problem};
use crate::upstream::{Connect, ServerSettings};

/// Problems of one server that its reason quotes.
const QUOTED: usize = 3;

/// Replaces each enabled server of the problems by one that fails.
pub(super) fn replace(plan: &mut Plan, problems: &[Problem]) {
    let mut names: Vec<&str> = problems.iter().filter_map(|problem| problem.server.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !plan.disabled.iter().any(|disabled| disabled == name));
    for name in names {
        plan.servers.retain(|server| server.name != name);
        let own: Vec<&Problem> = problems.iter().filter(|problem| problem.server.as_deref() == Some(name)).collect();
        let connect = Connect::Misconfigured { reason: reason(&own) };
        let name = names::free(name, |name| plan.servers.iter().any(|server| server.name == name));
        plan.servers.push(ServerSettings::new(name, connect));
    }
    plan.servers.sort_by(|a, b| a.name.cmp(&b.name));
}

/// The problems in one line, for the status.
fn reason(problems: &[&Problem]) -> String {
    let told = problems.iter().take(QUOTED).map(|problem| {
        let place = match &problem.origin {
            Origin::File { path, line, .. } => format!(" ({}:{line})", path.display()),
            Origin::Variable(name) => format!(" (environment variable {name})"),
            Origin::Flag(name) => format!(" (flag {name})"),
            Origin::Nowhere => String::new(),
        };
        format!("{}{place}: {}", problem.message, problem.fix)
    });
    let mut told: Vec<String> = told.collect();
    if problems.len() > QUOTED {
        told.push(format!("{} more; `moongate check` shows them all", problems.len() - QUOTED));
    }
    format!("its entry in the config cannot be used: {}", told.join("; "))
}
