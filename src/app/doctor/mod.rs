//! Checks of a config, of this machine, of the gateway and of its servers.
//!
//! Owns the codes and their order. Does not look at clients' files (`cli/doctor/`), and does not connect. Invariant:
//! nothing is changed.

mod codes;
mod config;
mod environment;
mod examined;
mod finding;
mod listening;
mod servers;

pub(crate) use codes::{CodeSeverity, DoctorCode};
pub(crate) use examined::{ExaminedGateway, RunningGateway, ServerFacts, facts_of};
pub(crate) use finding::{DoctorFinding, FileRepair};

/// Runs the checks.
pub(crate) fn look(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = config::check(gateway);
    found.extend(listening::check(gateway));
    found.extend(environment::check(gateway));
    let unstartable: Vec<Option<String>> = found
        .iter()
        .filter(|finding| finding.code == DoctorCode::CommandNotFound)
        .map(|it| it.server.clone())
        .collect();
    // A program that is not there cannot start either: one finding is enough.
    let is_known =
        |finding: &DoctorFinding| finding.code == DoctorCode::ProgramEnds && unstartable.contains(&finding.server);
    found.extend(servers::check(gateway).into_iter().filter(|finding| !is_known(finding)));
    found
}

/// Sorts findings, the worst first.
pub(crate) fn sort(found: &mut [DoctorFinding]) {
    found.sort_by_key(|finding| (finding.severity, finding.code));
}
