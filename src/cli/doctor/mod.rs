//! `moongate doctor`: what is wrong with the config, this machine, the gateway, its servers and its
//! clients. Owns the flags, the order of the findings, the repairs of `--fix` and the exit code.
//!
//! Does not look for problems itself (`app/doctor/`, `clients.rs`). Invariant: without `--fix`,
//! nothing is written.

mod clients;
mod gather;

use moongate_api::{Finding, FindingSeverity};
use std::io::Write;
use std::process::ExitCode;

use moongate_config::edit::prepare_edit;
use moongate_config::{LoadOptions, nearest};
use moongate_telemetry::logs;
use serde::Serialize;

use crate::app::doctor::{
    self, DoctorCode, DoctorFinding, ExaminedGateway, FileRepair, RunningGateway,
};
use crate::cli::admin_client::GatewayArgs;
use crate::cli::config_edit::{show_edit, write_edit};
use crate::cli::confirm::{can_ask, confirm};
use crate::cli::process::{BAD_CONFIG, print_message};

/// Flags of `doctor`.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// Only findings about this server
    server: Option<String>,
    /// Also list checks that passed
    #[arg(long)]
    all: bool,
    /// Make safe repairs, after showing each one
    #[arg(long)]
    fix: bool,
    /// Do not ask before a repair
    #[arg(long, short = 'y', requires = "fix")]
    yes: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: DoctorFormat,
    #[command(flatten)]
    gateway: GatewayArgs,
}

/// How the findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum DoctorFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Looks for problems. Returns exit code 1 if something is broken.
pub async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    // The findings say it all.
    logs::start("off", false);
    let gateway = gather::gather(&args.gateway).await?;
    let mut found = run_checks(&gateway);
    let unasked = unasked_gateway(&gateway, &found);
    // Before the repairs, which are of this server only, too.
    if let Some(server) = &args.server {
        if let Err(message) = check_name(&gateway, server) {
            print_message(&format!("error: {message}"));
            return Ok(ExitCode::from(BAD_CONFIG));
        }
        // A config that cannot be used at all costs this server, too.
        let is_of_all =
            |finding: &DoctorFinding| gateway.loaded.is_err() && finding.server.is_none();
        found.retain(|finding| finding.server.as_ref() == Some(server) || is_of_all(finding));
    }
    let is_unasked = args.fix && !args.yes && !can_ask();
    if args.fix && !is_unasked {
        found = repair(found, &args.gateway.load_options(), args.yes)?;
    }
    std::io::stdout().write_all(render(&found, &args).as_bytes())?;
    unasked.into_iter().for_each(print_message);
    let broken = count_findings(&found, FindingSeverity::Broken);
    let warnings = count_findings(&found, FindingSeverity::Warning);
    match (broken, warnings) {
        // Not on stdout, where a program reads JSON.
        (0, 0) => print_message("nothing is wrong"),
        _ => print_message(&format!("{broken} broken, {warnings} to check")),
    }
    if is_unasked && found.iter().any(|finding| finding.repair.is_some()) {
        print_message(
            "nothing was repaired, since nobody can confirm it here: `--fix --yes` repairs without \
             asking",
        );
    }
    Ok(if broken > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn count_findings(found: &[DoctorFinding], severity: FindingSeverity) -> usize {
    found
        .iter()
        .filter(|finding| finding.severity == severity)
        .count()
}

/// Returns a line that says what was checked in place of a running gateway.
fn unasked_gateway(gateway: &ExaminedGateway, found: &[DoctorFinding]) -> Option<&'static str> {
    // Those findings say more about what is there.
    let is_reported = found.iter().any(|finding| {
        matches!(
            finding.code,
            DoctorCode::PortTaken | DoctorCode::AdminUnreachable
        )
    });
    match gateway.answer {
        RunningGateway::None(_) if is_reported => None,
        RunningGateway::None(_) if gateway.addresses.is_none() => {
            Some("the config does not say where a gateway would run, so no server was checked")
        }
        RunningGateway::None(_) if gateway.loaded.is_err() => Some(
            "no gateway is running here and the config cannot be used, so no server was checked",
        ),
        RunningGateway::None(_) => {
            Some("no gateway is running here, so each server was connected once")
        }
        RunningGateway::Running | RunningGateway::Refused(_) => None,
    }
}

/// Refuses the name of a server that is not there. A broken config does not show all names.
fn check_name(gateway: &ExaminedGateway, server: &str) -> Result<(), String> {
    let names = gateway.server_names();
    if names.contains(&server) || gateway.loaded.is_err() {
        return Ok(());
    }
    Err(match nearest(server, &names) {
        Some(near) => format!("there is no server {server:?}; did you mean `{near}`?"),
        None if names.is_empty() => format!("there is no server {server:?}; the config has none"),
        None => format!(
            "there is no server {server:?}; the config has {}",
            names.join(", ")
        ),
    })
}

/// Runs all checks. The worst findings come first.
fn run_checks(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = doctor::run_checks(gateway);
    found.extend(clients::check(gateway));
    doctor::sort(&mut found);
    found
}

/// Makes the safe repairs, each after showing it. Returns the findings that are left.
fn repair(
    found: Vec<DoctorFinding>,
    options: &LoadOptions<'_>,
    is_confirmed: bool,
) -> anyhow::Result<Vec<DoctorFinding>> {
    let mut left = Vec::new();
    for finding in found {
        let done = match &finding.repair {
            None => false,
            Some(repair) => {
                print_message(&format!("{}: {}", finding.code.info().id, finding.message));
                make_repair(repair, options, is_confirmed)?
            }
        };
        if !done {
            left.push(finding);
        }
    }
    Ok(left)
}

/// Question before a repair.
const QUESTION: &str = "Do this?";

/// Shows a repair, asks, and makes it. Returns false if it was not made.
fn make_repair(
    repair: &FileRepair,
    options: &LoadOptions<'_>,
    is_confirmed: bool,
) -> anyhow::Result<bool> {
    match repair {
        FileRepair::MakePrivate(path) => {
            print_message(&format!("  chmod 600 {}", path.display()));
            let is_wanted = is_confirmed || confirm(QUESTION)?;
            if is_wanted {
                moongate_platform::private_file::make_private(path)?;
            }
            Ok(is_wanted)
        }
        FileRepair::EditConfig(operation) => {
            // Prepared only now: the repair before may have changed the same file.
            let prepared = match prepare_edit(options, None, std::slice::from_ref(operation)) {
                Ok(prepared) => prepared,
                Err(error) => {
                    print_message(&format!("  cannot be done here: {error}"));
                    return Ok(false);
                }
            };
            show_edit(&prepared);
            let is_wanted = is_confirmed || confirm(QUESTION)?;
            if is_wanted {
                write_edit(prepared)?;
            }
            Ok(is_wanted)
        }
    }
}

/// Findings for programs, with the codes that are not the case.
#[derive(Serialize)]
struct DoctorReport {
    findings: Vec<Finding>,
    fine: Vec<&'static str>,
}

fn render(found: &[DoctorFinding], args: &DoctorArgs) -> String {
    let fine = DoctorCode::ALL
        .iter()
        .filter(|code| args.all && !found.iter().any(|finding| finding.code == **code));
    match args.format {
        DoctorFormat::Json => {
            let report = DoctorReport {
                findings: found.iter().map(DoctorFinding::row).collect(),
                fine: fine.map(|code| code.info().id).collect(),
            };
            serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
        }
        DoctorFormat::Text => {
            let fine = fine
                .map(|code| format!("{} does not apply: {}\n", code.info().id, code.info().title));
            found.iter().map(DoctorFinding::text).chain(fine).collect()
        }
    }
}
