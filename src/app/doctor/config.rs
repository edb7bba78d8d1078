//! Checks of the config.
//!
//! Owns the codes of its problems. Does not find problems (`moongate-config`). Invariant: nothing is written.

use moongate_config::{ConfigProblem, ProblemKind, SettingPlaces};
use moongate_platform::private_file;

use super::codes::{CodeSeverity, DoctorCode};
use super::examined::ExaminedGateway;
use super::finding::{DoctorFinding, FileRepair, place};

/// Packages that their authors archived, with what replaces each. The repository servers-archived of modelcontextprotocol
/// has those of its scope.
const ARCHIVED: [(&str, &str); 12] = [
    ("@modelcontextprotocol/server-github", "https://api.githubcopilot.com/mcp/"),
    ("@modelcontextprotocol/server-gitlab", "GitLab's own server"),
    ("@modelcontextprotocol/server-slack", "Slack's own server"),
    ("@modelcontextprotocol/server-postgres", "a maintained server for PostgreSQL"),
    ("@modelcontextprotocol/server-redis", "Redis' own server"),
    ("@modelcontextprotocol/server-puppeteer", "@playwright/mcp"),
    ("@modelcontextprotocol/server-brave-search", "@brave/brave-search-mcp-server"),
    ("@modelcontextprotocol/server-gdrive", "a maintained server for Google Drive"),
    ("@modelcontextprotocol/server-google-maps", "a maintained server for Google Maps"),
    ("@modelcontextprotocol/server-everart", "nothing known"),
    ("mcp-server-sentry", "https://mcp.sentry.dev/mcp"),
    ("mcp-server-sqlite", "a maintained server for SQLite"),
];

/// Looks for problems of the config.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    if gateway.options.paths.is_empty() {
        found.push(DoctorFinding::new(
            DoctorCode::NoConfig,
            "no config was found: only a demo is served",
            "moongate add NAME URL",
        ));
    }
    match &gateway.loaded {
        Err(problems) => {
            found.extend(problems.errors.iter().map(|problem| of_problem(problem, CodeSeverity::Broken)));
            found.extend(problems.warnings.iter().map(|problem| of_problem(problem, CodeSeverity::Warning)));
        }
        Ok(loaded) => {
            found.extend(loaded.failed.iter().map(|problem| of_problem(problem, CodeSeverity::Broken)));
            let warnings = loaded.warnings.iter().chain(&loaded.advice);
            found.extend(warnings.map(|problem| of_problem(problem, CodeSeverity::Warning)));
        }
    }
    found.extend(secrets(gateway));
    found.extend(archived_packages(gateway));
    let needed = gateway.changes["needs_restart"].as_array().into_iter().flatten().filter_map(|key| key.as_str());
    found.extend(needed.map(|key| {
        DoctorFinding::new(
            DoctorCode::NeedsRestart,
            format!("`{key}` changed after the gateway started"),
            "restart the gateway",
        )
    }));
    found
}

fn of_problem(problem: &ConfigProblem, severity: CodeSeverity) -> DoctorFinding {
    let code = match problem.kind {
        ProblemKind::Syntax => DoctorCode::ConfigSyntax,
        ProblemKind::UnknownKey => DoctorCode::UnknownKey,
        ProblemKind::Reference => DoctorCode::UnsetReference,
        ProblemKind::Access => DoctorCode::OpenFile,
        ProblemKind::Package => DoctorCode::UnpinnedPackage,
        ProblemKind::OpenListener => DoctorCode::OpenWithoutKeys,
        ProblemKind::Type
        | ProblemKind::Value
        | ProblemKind::Missing
        | ProblemKind::Conflict
        | ProblemKind::Unavailable => DoctorCode::InvalidConfig,
    };
    DoctorFinding::of_problem(code, severity, problem)
}

/// Finds secrets in the files, and files with secrets that others can read.
fn secrets(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    // Files that do not parse have a finding already.
    let Ok(places) = SettingPlaces::read(&gateway.options) else { return Vec::new() };
    let (mut found, mut files) = (Vec::new(), Vec::new());
    for secret in places.literal_secrets() {
        let moongate_config::ProblemOrigin::File { path, line, .. } = secret.origin else { continue };
        let message = format!("`{}` is a secret, written into the file", secret.key);
        let fix = "write `${NAME}`, and set the variable where the gateway starts";
        let finding = DoctorFinding::new(DoctorCode::LiteralSecret, message, fix);
        let server = secret.key.strip_prefix("servers.").and_then(|rest| rest.split('.').next()).map(str::to_owned);
        found.push(DoctorFinding { place: Some(place(&path, line)), server, ..finding });
        if !files.contains(&path) {
            files.push(path);
        }
    }
    for path in files.into_iter().filter(|path| private_file::is_readable_by_others(path)) {
        let repair = FileRepair::MakePrivate(path.clone());
        let message = format!("{} has secrets, and others can read it", path.display());
        let finding = DoctorFinding::new(DoctorCode::OpenFile, message, repair.command());
        found.push(DoctorFinding { repair: Some(repair), ..finding });
    }
    found
}

fn archived_packages(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    for (name, _, args) in gateway.programs() {
        for (package, successor) in ARCHIVED {
            let is_it = |arg: &String| {
                // `@` begins a version of npm, and `=` one of Python. A longer name is another package.
                arg.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with(['@', '=']))
            };
            if args.iter().any(is_it) {
                let message = format!("server {name} runs {package}, which is archived");
                let fix = format!("use {successor} instead");
                found.push(DoctorFinding::new(DoctorCode::ArchivedPackage, message, fix).about(name));
            }
        }
    }
    found
}
