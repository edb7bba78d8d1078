//! Findings of `moongate doctor`.
//!
//! Owns their order and their printed form. Does not look for them. Invariant: a finding names the
//! command or the line that fixes it.

use std::path::PathBuf;

use moongate_api::{Finding, FindingSeverity};
use moongate_config::ConfigProblem;
use moongate_config::edit::ConfigOperation;
use moongate_telemetry::logs;

use super::codes::DoctorCode;

/// Thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DoctorFinding {
    pub(crate) code: DoctorCode,
    pub(crate) severity: FindingSeverity,
    /// Server that it is about.
    pub(crate) server: Option<String>,
    pub(crate) message: String,
    /// Location in a file, if there is one.
    pub(crate) place: Option<String>,
    pub(crate) fix: String,
    pub(crate) repair: Option<FileRepair>,
}

/// Repair that is safe to make.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FileRepair {
    /// Takes a file's access away from all others.
    MakePrivate(PathBuf),
    /// Edits the config.
    EditConfig(ConfigOperation),
}

impl DoctorFinding {
    pub(crate) fn new(
        code: DoctorCode,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        DoctorFinding {
            code,
            severity: code.info().severity,
            server: None,
            // A reason of a server may span lines, which would look like further findings.
            message: logs::one_line(&message.into()),
            place: None,
            fix: fix.into(),
            repair: None,
        }
    }

    /// Creates the finding of a problem of the config.
    pub(crate) fn of_problem(
        code: DoctorCode,
        severity: FindingSeverity,
        problem: &ConfigProblem,
    ) -> Self {
        let place = problem.origin.location();
        let server = problem.server.clone();
        DoctorFinding {
            severity,
            server,
            place,
            ..DoctorFinding::new(code, &problem.message, &problem.fix)
        }
    }

    pub(crate) fn for_server(self, server: &str) -> Self {
        DoctorFinding {
            server: Some(server.to_owned()),
            ..self
        }
    }

    /// Reads a finding of a running gateway. `None` for a code of another version.
    pub(crate) fn of_row(row: Finding) -> Option<Self> {
        let code = DoctorCode::of_id(&row.code)?;
        Some(DoctorFinding {
            severity: row.severity,
            server: row.server,
            place: row.place,
            ..DoctorFinding::new(code, row.message, row.fix)
        })
    }

    /// Returns true if variables or the PATH decide, which each process has for itself.
    pub(super) fn is_of_environment(&self) -> bool {
        matches!(
            self.code,
            DoctorCode::UnsetReference | DoctorCode::CommandNotFound
        )
    }

    /// Returns the finding as programs read it.
    pub(crate) fn row(&self) -> Finding {
        let info = self.code.info();
        Finding {
            code: info.id.to_owned(),
            severity: self.severity,
            title: info.title.to_owned(),
            server: self.server.clone(),
            message: self.message.clone(),
            place: self.place.clone(),
            why: info.why.to_owned(),
            fix: self.fix.clone(),
            remedy: info.fix.to_owned(),
            can_fix: self.repair.is_some(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let info = self.code.info();
        let place = self
            .place
            .as_ref()
            .map(|place| format!("  {place}"))
            .unwrap_or_default();
        let can = if self.repair.is_some() {
            "  (`moongate doctor --fix` does it)"
        } else {
            ""
        };
        let head = format!(
            "{} {}: {}{place}",
            info.id,
            self.severity.name(),
            self.message
        );
        format!("{head}\n  why: {}\n  fix: {}{can}\n", info.why, self.fix)
    }
}
