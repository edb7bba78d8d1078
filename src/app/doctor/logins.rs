//! Checks of logins.
//!
//! Owns the remedy of each kind of problem. Does not read files (`moongate_oauth`). Invariant: a
//! folder that no login can use has one finding.

use moongate_model::login_command;
use moongate_oauth::LoginProblemKind;
use moongate_telemetry::logs;

use super::codes::DoctorCode;
use super::examined::{ExaminedGateway, LoginTrouble};
use super::finding::DoctorFinding;

/// Looks for problems of logins. A running gateway knows its own.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let of_gateway = gateway.of_gateway.iter().flatten();
    let of_gateway = of_gateway.filter(|finding| {
        matches!(
            finding.code,
            DoctorCode::LoginProblem | DoctorCode::CompanyLogin
        )
    });
    of_gateway
        .cloned()
        .chain(judge_all(&gateway.login_problems))
        .chain(
            gateway
                .people_findings
                .iter()
                .map(|cause| judge_company(cause)),
        )
        .collect()
}

/// Judges problems. Servers may share one of the folder.
fn judge_all(troubles: &[LoginTrouble]) -> Vec<DoctorFinding> {
    let mut found: Vec<DoctorFinding> = Vec::new();
    for (number, trouble) in troubles.iter().enumerate() {
        let is_same = |other: &LoginTrouble| other.problem == trouble.problem;
        if troubles[..number].iter().any(is_same) {
            continue;
        }
        found.push(judge(trouble));
    }
    found
}

/// Judges a problem of the company's login.
fn judge_company(cause: &str) -> DoctorFinding {
    let message = format!("company's login: {}", logs::redact(cause));
    let fix = DoctorCode::CompanyLogin.info().fix;
    DoctorFinding::new(DoctorCode::CompanyLogin, message, fix)
}

fn judge(trouble: &LoginTrouble) -> DoctorFinding {
    let LoginTrouble { server, problem } = trouble;
    let name = server.as_deref().unwrap_or("NAME");
    let command = login_command(name);
    let fix = match problem.kind {
        LoginProblemKind::Folder => {
            "do what the message says: this user must be able to read and write \
             `gateway.state_dir`, and the disk needs space"
                .to_owned()
        }
        LoginProblemKind::Damaged => {
            format!("run `{command}`, which replaces it, or restore `gateway.state_dir`")
        }
        LoginProblemKind::MemoryOnly => "free space on the disk, or make `gateway.state_dir` \
                                         writable, before the gateway ends; it then writes the \
                                         login by itself"
            .to_owned(),
        LoginProblemKind::Renewal => {
            format!("wait if the authorization server is down, else run `{command}`")
        }
    };
    let cause = logs::redact(&problem.cause);
    match server {
        Some(server) => {
            let message = format!("login of {server}: {cause}");
            DoctorFinding::new(DoctorCode::LoginProblem, message, fix).for_server(server)
        }
        None => DoctorFinding::new(DoctorCode::LoginProblem, cause, fix),
    }
}

#[cfg(test)]
mod tests {
    use moongate_oauth::LoginProblem;

    use super::*;

    fn trouble(server: &str, kind: LoginProblemKind, cause: &str) -> LoginTrouble {
        LoginTrouble {
            server: Some(server.to_owned()),
            problem: LoginProblem {
                kind,
                cause: cause.to_owned(),
            },
        }
    }

    #[test]
    fn each_kind_of_problem_has_its_own_fix() {
        for (kind, fix) in [
            (LoginProblemKind::Folder, "`gateway.state_dir`"),
            (LoginProblemKind::Damaged, "`moongate login linear`"),
            (LoginProblemKind::MemoryOnly, "before the gateway ends"),
            (LoginProblemKind::Renewal, "`moongate login linear`"),
        ] {
            let finding = judge(&trouble("linear", kind, "a cause"));
            assert_eq!(finding.code, DoctorCode::LoginProblem);
            assert_eq!(finding.message, "login of linear: a cause");
            assert_eq!(finding.server.as_deref(), Some("linear"));
            assert!(finding.fix.contains(fix), "{}", finding.fix);
        }
    }

    #[test]
    fn a_problem_of_the_company_login_belongs_to_no_server() {
        let finding = judge_company("the organisation `example` has another id");
        assert_eq!(finding.code, DoctorCode::CompanyLogin);
        assert_eq!(finding.server, None);
        assert!(finding.message.ends_with("has another id"));
    }

    #[test]
    fn servers_that_share_a_problem_have_one_finding() {
        let troubles = [
            trouble("a", LoginProblemKind::Folder, "the folder is closed"),
            trouble("b", LoginProblemKind::Folder, "the folder is closed"),
            trouble("b", LoginProblemKind::Renewal, "the server is down"),
        ];
        assert_eq!(judge_all(&troubles).len(), 2);
    }
}
