//! Checks of the config.
//!
//! Owns the codes of its problems, the search for secrets, repeated servers and archived packages,
//! and the repairs. Does not validate the config (`moongate-config`). Invariant: nothing is
//! written.

use moongate_api::FindingSeverity;
use moongate_config::edit::{ConfigOperation, raw_entry};
use moongate_config::{
    ConfigProblem, ProblemKind, ProblemOrigin, SettingLocations, pinned_package,
};
use moongate_platform::private_file;
use moongate_upstream::ConnectTarget;
use serde_json::{Map, Value};

use super::codes::DoctorCode;
use super::examined::ExaminedGateway;
use super::finding::{DoctorFinding, FileRepair};

/// Packages that their authors archived, with what replaces each. The repository servers-archived
/// of modelcontextprotocol has those of its scope.
const ARCHIVED: [(&str, &str); 12] = [
    (
        "@modelcontextprotocol/server-github",
        "https://api.githubcopilot.com/mcp/",
    ),
    ("@modelcontextprotocol/server-gitlab", "GitLab's own server"),
    ("@modelcontextprotocol/server-slack", "Slack's own server"),
    (
        "@modelcontextprotocol/server-postgres",
        "a maintained server for PostgreSQL",
    ),
    ("@modelcontextprotocol/server-redis", "Redis' own server"),
    ("@modelcontextprotocol/server-puppeteer", "@playwright/mcp"),
    (
        "@modelcontextprotocol/server-brave-search",
        "@brave/brave-search-mcp-server",
    ),
    (
        "@modelcontextprotocol/server-gdrive",
        "a maintained server for Google Drive",
    ),
    (
        "@modelcontextprotocol/server-google-maps",
        "a maintained server for Google Maps",
    ),
    ("@modelcontextprotocol/server-everart", "nothing known"),
    ("mcp-server-sentry", "https://mcp.sentry.dev/mcp"),
    ("mcp-server-sqlite", "a maintained server for SQLite"),
];

/// Flags of programs that fetch a package, and that name it.
const PACKAGE_FLAGS: [&str; 4] = ["--package", "-p", "--from", "--spec"];

/// Looks for problems of the config.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    // A gateway that runs with a config serves more than the demo.
    let is_configured = gateway
        .running_files
        .as_ref()
        .is_some_and(|files| !files.is_empty());
    if gateway.options.paths.is_empty() && !is_configured {
        found.push(DoctorFinding::new(
            DoctorCode::NoConfig,
            "no config was found, so only a demo is served",
            "moongate add NAME URL",
        ));
    }
    match &gateway.loaded {
        Err(problems) => {
            found.extend(
                problems
                    .errors
                    .iter()
                    .map(|problem| of_problem(gateway, problem, FindingSeverity::Broken)),
            );
            found.extend(
                problems
                    .warnings
                    .iter()
                    .map(|problem| of_problem(gateway, problem, FindingSeverity::Warning)),
            );
        }
        Ok(loaded) => {
            found.extend(
                loaded
                    .failed
                    .iter()
                    .map(|problem| of_problem(gateway, problem, FindingSeverity::Broken)),
            );
            let warnings = loaded.warnings.iter().chain(&loaded.advice);
            found.extend(
                warnings.map(|problem| of_problem(gateway, problem, FindingSeverity::Warning)),
            );
        }
    }
    found.extend(secrets(gateway));
    found.extend(archived_packages(gateway));
    found.extend(same_servers(gateway));
    found.extend(gateway.changes.needs_restart.iter().map(|key| {
        DoctorFinding::new(
            DoctorCode::NeedsRestart,
            format!("`{key}` changed after the gateway started"),
            "restart the gateway",
        )
    }));
    found
}

fn of_problem(
    gateway: &ExaminedGateway,
    problem: &ConfigProblem,
    severity: FindingSeverity,
) -> DoctorFinding {
    let code = match problem.kind {
        ProblemKind::Syntax => DoctorCode::ConfigSyntax,
        ProblemKind::UnknownKey | ProblemKind::ClientSetting => DoctorCode::UnknownKey,
        ProblemKind::Reference => DoctorCode::UnsetReference,
        ProblemKind::Access => DoctorCode::OpenFile,
        ProblemKind::Package => DoctorCode::UnpinnedPackage,
        ProblemKind::OpenListener => DoctorCode::OpenWithoutKeys,
        ProblemKind::Value | ProblemKind::Missing | ProblemKind::Conflict
            if severity == FindingSeverity::Warning =>
        {
            DoctorCode::DoubtfulSetting
        }
        ProblemKind::Type
        | ProblemKind::Value
        | ProblemKind::Missing
        | ProblemKind::Conflict
        | ProblemKind::Unavailable => DoctorCode::InvalidConfig,
    };
    let finding = DoctorFinding::of_problem(code, severity, problem);
    let repair = match problem.kind {
        ProblemKind::Access => make_private(problem),
        ProblemKind::Package => problem
            .server
            .as_ref()
            .and_then(|server| pin_package(gateway, server)),
        _ => None,
    };
    DoctorFinding { repair, ..finding }
}

/// Returns the repair of a file that others may write. A folder that they may write is left to its
/// owner.
fn make_private(problem: &ConfigProblem) -> Option<FileRepair> {
    let ProblemOrigin::File { path, .. } = &problem.origin else {
        return None;
    };
    // Both have the file as their location. Only the remedy names what it changes.
    let is_about_file = problem.fix.ends_with(&path.display().to_string());
    is_about_file.then(|| FileRepair::MakePrivate(path.clone()))
}

/// Returns the edit that names a package's version, if the table of popular servers has one.
fn pin_package(gateway: &ExaminedGateway, server: &str) -> Option<FileRepair> {
    // As it is written: the loaded arguments have their references replaced.
    let entry = gateway
        .options
        .paths
        .iter()
        .rev()
        .find_map(|path| raw_entry(path, server))?;
    let mut args = entry["args"].as_array()?.clone();
    let at = args.iter().position(|arg| {
        arg.as_str()
            .is_some_and(|arg| pinned_package(arg).is_some())
    })?;
    // Behind a flag, other spellings hold for a version.
    if at
        .checked_sub(1)
        .and_then(|before| args[before].as_str())
        .is_some_and(|word| PACKAGE_FLAGS.contains(&word))
    {
        return None;
    }
    args[at] = pinned_package(args[at].as_str()?)?.into();
    let values = Map::from_iter([("args".to_owned(), Value::Array(args))]);
    Some(FileRepair::EditConfig(ConfigOperation::SetKeys {
        server: server.to_owned(),
        values,
    }))
}

/// Finds secrets in the files, and files with secrets that others can read.
fn secrets(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    // Files that do not parse have a finding already.
    let Ok(places) = SettingLocations::read(&gateway.options) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut files = Vec::new();
    for secret in places.literal_secrets() {
        let ProblemOrigin::File { path, .. } = &secret.origin else {
            continue;
        };
        let message = format!("`{}` is a secret, written into the file", secret.key);
        let fix = match secret.key.ends_with("].key") {
            true => {
                "write its `hash` in place of `key`: `moongate key new NAME` prints a key and \
                 its hash"
            }
            false => {
                "write `${NAME}`, and set the variable where the gateway starts; `moongate import \
                 --env-file FILE` does both during an import"
            }
        };
        let finding = DoctorFinding::new(DoctorCode::LiteralSecret, message, fix);
        let server = secret
            .key
            .strip_prefix("servers.")
            .and_then(|rest| rest.split('.').next())
            .map(str::to_owned);
        found.push(DoctorFinding {
            place: secret.origin.location(),
            server,
            ..finding
        });
        if !files.contains(path) {
            files.push(path.clone());
        }
    }
    for path in files
        .into_iter()
        .filter(|path| private_file::is_readable_by_others(path))
    {
        let repair = FileRepair::MakePrivate(path.clone());
        let message = format!("{} has secrets, but others can read it", path.display());
        let finding = DoctorFinding::new(
            DoctorCode::OpenFile,
            message,
            format!("chmod 600 {}", path.display()),
        );
        found.push(DoctorFinding {
            repair: Some(repair),
            ..finding
        });
    }
    found
}

/// Finds servers that are there twice. With other headers or variables it would be another account.
fn same_servers(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let servers: Vec<_> = gateway.servers().collect();
    let mut found = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        // Entries that cannot be used are alike only by their problem.
        if matches!(server.connect, ConnectTarget::Misconfigured { .. }) {
            continue;
        }
        let mut before = servers[..at].iter();
        if let Some(first) = before.find(|other| other.connect == server.connect) {
            let message = format!("{} and {} are the same server", first.name, server.name);
            let fix = format!("moongate remove {}", server.name);
            found.push(
                DoctorFinding::new(DoctorCode::SameServer, message, fix).for_server(&server.name),
            );
        }
    }
    found
}

fn names_package(arg: &str, package: &str) -> bool {
    // `@` starts a version of npm, and `=` one of Python. A longer name is another package.
    arg.strip_prefix(package)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['@', '=']))
}

fn archived_packages(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    for (name, _, args) in gateway.programs() {
        for (package, successor) in ARCHIVED {
            if args.iter().any(|arg| names_package(arg, package)) {
                let message = format!("server {name} runs {package}, which is archived");
                let fix = format!("use {successor} instead");
                found.push(
                    DoctorFinding::new(DoctorCode::ArchivedPackage, message, fix).for_server(name),
                );
            }
        }
    }
    found
}
