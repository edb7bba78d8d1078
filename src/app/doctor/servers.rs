//! Checks of servers, by their states.
//!
//! Owns the code of each state. Does not connect (`examined.rs`). Invariant: a server has one finding about its
//! connection at most.

use moongate_upstream::ConnectTarget;

use super::codes::DoctorCode;
use super::examined::{ExaminedGateway, ServerFacts};
use super::finding::DoctorFinding;

/// Number of lines of a program's stderr that are quoted.
const QUOTED_LINES: usize = 3;
/// Tokens from which the tools are called costly.
const TOKENS_MAX: u64 = 10_000;

/// Looks for problems of servers.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found: Vec<DoctorFinding> =
        gateway.states.iter().filter_map(|server| check_connection(gateway, server)).collect();
    for server in gateway.states.iter().filter(|server| !server.left_out.is_empty()) {
        let message =
            format!("server {}: {} left out: {}", server.name, server.left_out.len(), server.left_out.join("; "));
        let fix =
            format!("report it to the server's author; `moongate tools --server {}` shows its own list", server.name);
        found.push(DoctorFinding::new(DoctorCode::ItemsLeftOut, message, fix).about(&server.name));
    }
    found.extend(check_context(&gateway.states));
    found
}

fn check_connection(gateway: &ExaminedGateway, server: &ServerFacts) -> Option<DoctorFinding> {
    // A server that is starting is not judged: it may be well in a moment.
    if !matches!(server.state.as_str(), "failed" | "backing_off" | "needs_login" | "degraded") {
        return None;
    }
    let name = server.name.as_str();
    let connect = gateway.servers().find(|settings| settings.name == name).map(|settings| &settings.connect);
    let reason = &server.reason;
    let tried = format!("moongate tools --server {name} --verbose");
    let finding = match connect {
        // Its entry has a finding of its own.
        Some(ConnectTarget::Misconfigured { .. }) => return None,
        Some(ConnectTarget::Stdio { .. }) => {
            let last = server.stderr.iter().rev().take(QUOTED_LINES).rev().cloned().collect::<Vec<_>>().join(" | ");
            let last = if last.is_empty() { last } else { format!("; its last lines: {last}") };
            DoctorFinding::new(DoctorCode::ProgramEnds, format!("server {name}: {reason}{last}"), tried)
        }
        Some(ConnectTarget::Http { headers, .. }) if server.state == "needs_login" => {
            let (code, fix) = match headers.is_empty() {
                true => (DoctorCode::LoginNeeded, format!("add `servers.{name}.headers`")),
                false => (DoctorCode::LoginRefused, format!("check `servers.{name}.headers`")),
            };
            DoctorFinding::new(code, format!("server {name}: {reason}"), fix)
        }
        _ => DoctorFinding::new(DoctorCode::Unreachable, format!("server {name}: {reason}"), tried),
    };
    Some(finding.about(name))
}

fn check_context(servers: &[ServerFacts]) -> Option<DoctorFinding> {
    let total: u64 = servers.iter().map(|server| server.tokens).sum();
    let largest = servers.iter().max_by_key(|server| server.tokens).filter(|_| total > TOKENS_MAX)?;
    let message =
        format!("the tools cost about {total} tokens in every conversation; {} has {}", largest.name, largest.tokens);
    let fix = format!(
        "moongate disable {} TOOL, a view with fewer tools (`[views.NAME]`), or search mode (`discovery = \"search\"`)",
        largest.name
    );
    Some(DoctorFinding::new(DoctorCode::LargeContext, message, fix))
}
