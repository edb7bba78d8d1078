//! Checks of servers, by their states.
//!
//! Owns the code of each state. Does not connect (`cli/doctor/gather.rs`). Invariant: a server has
//! one finding about its connection at most.

use moongate_api::{FindingSeverity, ServerCondition, ServerStatus};
use moongate_model::{UpstreamState, login_command, login_sentence};
use moongate_oauth::ServerAuth;
use moongate_upstream::ConnectTarget;

use super::codes::DoctorCode;
use super::examined::ExaminedGateway;
use super::finding::DoctorFinding;

/// Number of lines of a program's stderr that are quoted.
const QUOTED_LINES: usize = 3;
/// Number of items or rules that a finding names.
const LISTED_MAX: usize = 5;
/// Tokens from which the tools are called costly.
const TOKENS_MAX: u64 = 10_000;

/// Looks for problems of servers.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found: Vec<DoctorFinding> = gateway
        .states
        .iter()
        .filter_map(|server| check_connection(gateway, server))
        .collect();
    for server in gateway
        .states
        .iter()
        .filter(|server| !server.findings.left_out.is_empty())
    {
        let message = format!(
            "server {}: {} left out: {}",
            server.name(),
            server.findings.left_out.len(),
            server.findings.left_out.join("; ")
        );
        let fix = format!(
            "report it to the server's author; `moongate tools --server {}` shows its own list",
            server.name()
        );
        found.push(
            DoctorFinding::new(DoctorCode::ItemsLeftOut, message, fix).for_server(server.name()),
        );
    }
    for server in &gateway.states {
        found.extend(check_names(server));
        found.extend(check_rules(
            Some(server),
            &server.findings.unmatched_filters,
        ));
    }
    found.extend(check_rules(None, &gateway.unmatched_filters));
    found.extend(check_context(&gateway.states));
    found
}

/// Returns a finding about items that have another name or another definition here.
fn check_names(server: &ServerStatus) -> Option<DoctorFinding> {
    let changed: Vec<&str> = server
        .findings
        .names
        .iter()
        .chain(&server.findings.mended)
        .map(String::as_str)
        .collect();
    let message = format!(
        "server {}: {} items look different here: {}",
        server.name(),
        changed.len(),
        first_texts(&changed)
    );
    let fix = format!(
        "call them by the names that `moongate tools` shows, or set `servers.{}.tools.rename`",
        server.name()
    );
    (!changed.is_empty()).then(|| {
        DoctorFinding::new(DoctorCode::ItemsChanged, message, fix).for_server(server.name())
    })
}

/// Returns a finding about rules that match nothing. `None` for those of views and keys.
fn check_rules(server: Option<&ServerStatus>, rules: &[String]) -> Option<DoctorFinding> {
    let shown = first_texts(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    let of = server.map_or_else(
        || "views and keys".to_owned(),
        |server| format!("server {}", server.name()),
    );
    let message = format!("{of}: rules that match nothing: {shown}");
    let fix = "correct the pattern, or remove it; patterns match the server's own names";
    let finding =
        (!rules.is_empty()).then(|| DoctorFinding::new(DoctorCode::UnmatchedRule, message, fix));
    finding.map(|finding| match server {
        Some(server) => finding.for_server(server.name()),
        None => finding,
    })
}

/// Lists the first few texts, and counts the rest.
fn first_texts(texts: &[&str]) -> String {
    let first = texts
        .iter()
        .take(LISTED_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join("; ");
    match texts.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

fn check_connection(gateway: &ExaminedGateway, server: &ServerStatus) -> Option<DoctorFinding> {
    let settings = gateway
        .servers()
        .find(|settings| settings.name == server.name());
    judge_connection(settings.map(|settings| &settings.connect), server)
}

/// Judges the connection of a server. `None` if nothing is wrong with it.
pub(super) fn judge_connection(
    connect: Option<&ConnectTarget>,
    server: &ServerStatus,
) -> Option<DoctorFinding> {
    let name = server.name();
    let ServerCondition { state, reason, .. } = &server.condition;
    // The reason of each handshake without an answer names the setting.
    let is_slow = reason.contains("start_timeout");
    // A server that has just started is not judged: it may be fine in a moment.
    let is_judged = matches!(
        state,
        UpstreamState::Failed
            | UpstreamState::BackingOff
            | UpstreamState::NeedsLogin
            | UpstreamState::Degraded
    );
    if !(is_judged || is_slow && *state == UpstreamState::Starting) {
        return None;
    }
    // The running gateway knows it where the config cannot be used here.
    let is_program = match connect {
        Some(connect) => matches!(connect, ConnectTarget::Stdio { .. }),
        None => server.identity.transport.as_deref() == Some("stdio"),
    };
    let finding = match connect {
        // Its entry has its own finding.
        Some(ConnectTarget::Misconfigured { .. }) => return None,
        _ if server.condition.needs_login => login_finding(name),
        _ if is_slow => {
            let fix = format!(
                "correct the command or the URL of `servers.{name}`, or raise \
                 `servers.{name}.start_timeout`"
            );
            let severity = if is_judged {
                FindingSeverity::Broken
            } else {
                FindingSeverity::Warning
            };
            DoctorFinding {
                severity,
                ..connection_finding(server, DoctorCode::SlowStart, fix)
            }
        }
        _ if is_program && reason.contains("command not found") => {
            let fix = format!("install it, or set `servers.{name}.command` to its full path");
            connection_finding(server, DoctorCode::CommandNotFound, fix)
        }
        _ if is_program => {
            let fix = format!(
                "correct `servers.{name}` as the program's output says, then run `moongate restart \
                 {name}`"
            );
            let message = format!("server {name}: {reason}{}", last_lines(server));
            DoctorFinding::new(DoctorCode::ProgramEnds, message, fix)
        }
        Some(ConnectTarget::Http { headers, auth, .. }) if *state == UpstreamState::NeedsLogin => {
            let verb = if headers.is_empty() { "add" } else { "check" };
            let fix = match auth {
                ServerAuth::Command(_) | ServerAuth::ClientCredentials(_) => {
                    format!("check `servers.{name}.auth`")
                }
                ServerAuth::OAuth(_) => format!("{verb} `servers.{name}.headers`"),
            };
            connection_finding(server, DoctorCode::LoginRefused, fix)
        }
        _ => {
            let fix = format!("start that server, or correct `servers.{name}`: its URL or address");
            connection_finding(server, DoctorCode::Unreachable, fix)
        }
    };
    Some(finding.for_server(name))
}

/// Creates the finding about a server that `moongate login` helps.
fn login_finding(server: &str) -> DoctorFinding {
    let fix = format!("run `{}`", login_command(server));
    DoctorFinding::new(DoctorCode::LoginNeeded, login_sentence(server), fix)
}

/// Creates a finding that gives the reason of a server's state.
fn connection_finding(server: &ServerStatus, code: DoctorCode, fix: String) -> DoctorFinding {
    let message = format!("server {}: {}", server.name(), server.condition.reason);
    DoctorFinding::new(code, message, fix)
}

/// Quotes the last lines that a program wrote, each once.
fn last_lines(server: &ServerStatus) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in server.condition.stderr.iter().rev() {
        // A program that is started again and again repeats itself, and the reason quotes a line,
        // too.
        if lines.len() < QUOTED_LINES
            && !lines.contains(&line.as_str())
            && !server.condition.reason.contains(line.trim())
        {
            lines.insert(0, line);
        }
    }
    if lines.is_empty() {
        String::new()
    } else {
        format!("; its last lines: {}", lines.join(" | "))
    }
}

fn check_context(servers: &[ServerStatus]) -> Option<DoctorFinding> {
    let total: u64 = servers.iter().map(|server| server.counters.tokens).sum();
    let largest = servers
        .iter()
        .max_by_key(|server| server.counters.tokens)
        .filter(|_| total > TOKENS_MAX)?;
    let message = format!(
        "the tools cost about {total} tokens in every conversation; {} has {}",
        largest.name(),
        largest.counters.tokens
    );
    let fix = format!(
        "moongate disable {} TOOL, a view with fewer tools (`[views.NAME]`), or search mode \
         (`discovery = \"search\"`)",
        largest.name()
    );
    Some(DoctorFinding::new(DoctorCode::LargeContext, message, fix))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::HeaderValue;
    use http::header::AUTHORIZATION;
    use moongate_oauth::CommandSettings;
    use moongate_upstream::{HttpTransport, NetworkSettings};

    use super::*;

    fn target(credential: Option<&'static str>) -> ConnectTarget {
        ConnectTarget::Http {
            url: url::Url::parse("https://mcp.linear.app/mcp").unwrap(),
            socket: None,
            transport: HttpTransport::Auto,
            headers: credential
                .map(|value| (AUTHORIZATION, HeaderValue::from_static(value)))
                .into_iter()
                .collect(),
            forward_headers: Vec::new(),
            auth: ServerAuth::default(),
            network: NetworkSettings::default(),
        }
    }

    fn refused(reason: &str) -> ServerStatus {
        let mut server = ServerStatus::default();
        server.identity.name = "linear".to_owned();
        server.condition.state = UpstreamState::NeedsLogin;
        server.condition.reason = reason.to_owned();
        server
    }

    #[test]
    fn a_server_that_needs_a_login_has_the_command_as_its_fix() {
        let mut server = refused(&login_sentence("linear"));
        server.condition.needs_login = true;
        let target = target(None);
        // Without its entry the running gateway still knows what it needs.
        for connect in [Some(&target), None] {
            let finding = judge_connection(connect, &server).unwrap();
            assert_eq!(finding.code, DoctorCode::LoginNeeded);
            assert_eq!(
                finding.message,
                "linear needs a login: moongate login linear"
            );
            assert_eq!(finding.fix, "run `moongate login linear`");
        }
    }

    #[test]
    fn a_refused_header_and_a_403_are_not_a_login() {
        let server = refused("HTTP status 403");
        let mut by_command = target(None);
        if let ConnectTarget::Http { auth, .. } = &mut by_command {
            *auth = ServerAuth::Command(CommandSettings {
                command: "gh".to_owned(),
                args: Vec::new(),
                env: Vec::new(),
                ttl: std::time::Duration::from_secs(600),
            });
        }
        for (target, fix) in [
            (target(Some("Bearer x")), "check `servers.linear.headers`"),
            (target(None), "add `servers.linear.headers`"),
            (by_command, "check `servers.linear.auth`"),
        ] {
            let finding = judge_connection(Some(&target), &server).unwrap();
            assert_eq!(finding.code, DoctorCode::LoginRefused);
            assert_eq!(finding.message, "server linear: HTTP status 403");
            assert_eq!(finding.fix, fix);
        }
    }
}
