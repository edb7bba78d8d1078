//! Checks of a config, of this machine, of the gateway and of its servers.
//!
//! Owns the codes and their order. Does not look at clients' files (`cli/doctor/`), and does not
//! connect. Invariant: nothing is changed.

mod codes;
mod config;
mod environment;
mod examined;
mod finding;
mod listening;
mod logins;
mod running_config;
mod servers;

use moongate_api::FindingSeverity;
use moongate_api::{ServerStatus, StatusHint};
use moongate_gateway::RunningServer;

pub(crate) use codes::DoctorCode;
pub(crate) use examined::{ExaminedGateway, LoginTrouble, RunningGateway, statuses_of};
pub(crate) use finding::{DoctorFinding, FileRepair};
pub(crate) use running_config::is_same;

/// Runs the checks.
pub(crate) fn run_checks(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = config::check(gateway);
    found.extend(running_config::check(gateway));
    found.extend(listening::check(gateway));
    found.extend(environment::check(gateway));
    found.extend(logins::check(gateway));
    judge_environment(gateway, &mut found);
    let unstartable: Vec<Option<String>> = found
        .iter()
        .filter(|finding| finding.is_of_environment())
        .map(|it| it.server.clone())
        .collect();
    // A program that is not there cannot start either: one finding is enough.
    found.extend(servers::check(gateway).into_iter().filter(|finding| {
        let is_same_cause = matches!(
            finding.code,
            DoctorCode::ProgramEnds | DoctorCode::Unreachable | DoctorCode::CommandNotFound
        );
        !is_same_cause || !unstartable.contains(&finding.server)
    }));
    found
}

/// Returns what would help a server that does not work.
pub(crate) fn server_hint(server: &RunningServer) -> Option<StatusHint> {
    let status = server.status();
    let mut shown = ServerStatus::default();
    shown.identity.name.clone_from(&server.settings.name);
    shown.condition.state = status.state;
    shown.condition.reason.clone_from(&status.reason);
    shown.condition.needs_login = status.needs_login;
    let finding = servers::judge_connection(Some(&server.settings.connect), &shown)?;
    Some(StatusHint {
        code: finding.code.info().id.to_owned(),
        text: finding.fix,
    })
}

/// Lets the gateway judge its own variables and its own PATH, which differ from those of a shell.
fn judge_environment(gateway: &ExaminedGateway, found: &mut Vec<DoctorFinding>) {
    if let Some(of_gateway) = &gateway.of_gateway {
        found.retain(|finding| !finding.is_of_environment());
        found.extend(
            of_gateway
                .iter()
                .filter(|finding| finding.is_of_environment())
                .cloned(),
        );
    } else if matches!(gateway.answer, RunningGateway::Refused(_)) {
        for finding in found
            .iter_mut()
            .filter(|finding| finding.is_of_environment())
        {
            finding.severity = FindingSeverity::Warning;
            finding.message += " here; the running gateway may have it";
        }
    }
}

/// Sorts findings, the worst first.
pub(crate) fn sort(found: &mut [DoctorFinding]) {
    found.sort_by_key(|finding| (finding.severity, finding.code));
}
