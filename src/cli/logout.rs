//! `moongate logout`: ends logins at servers. Owns its flags, its question and its texts.
//!
//! Does not revoke (`moongate_oauth`). Invariant: it never ends a login that another config may use
//! without a yes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use moongate_config::Plan;
use moongate_oauth::{
    LoginDirectory, LoginFolder, LoginTarget, LogoutOutcome, StoredLogins, log_out,
};
use moongate_telemetry::logs;
use moongate_upstream::ConnectTarget;

use crate::app::logins::logins_of;
use crate::cli::confirm::{can_ask, confirm};
use crate::cli::process::{
    BAD_CONFIG, CONFIG_VARIABLE, load_options, print_message, report_unusable,
};
use crate::cli::server_choice::find_server;

/// Flags of `logout`.
#[derive(Clone, Debug, clap::Args)]
pub struct LogoutArgs {
    /// The servers' names in the config
    #[arg(value_name = "SERVER", required_unless_present = "all")]
    servers: Vec<String>,
    /// End every login in the state folder, including those of other configs
    #[arg(long, conflicts_with = "servers")]
    all: bool,
    /// Do not ask before ending logins that another config may use
    #[arg(long, short = 'y')]
    yes: bool,
    /// The config with the servers; repeat the flag to let later files override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
}

/// Ends logins. Returns exit code 0 if they are gone, 1 if one is not, 2 for a server that has
/// neither an entry in the config nor a login.
pub async fn run(args: LogoutArgs) -> anyhow::Result<ExitCode> {
    // The command prints what is worth knowing.
    logs::start("off", false);
    let plan = match moongate_config::load(&load_options(&args.config)) {
        Ok(loaded) => loaded.plan,
        Err(problems) => return Ok(report_unusable(&problems)),
    };
    let logins = logins_of(&plan)?;
    let choice = match LogoutChoice::make(&args, &plan, logins.folder())? {
        Ok(choice) => choice,
        Err(error) => {
            print_message(&format!("error: {error}"));
            return Ok(ExitCode::from(BAD_CONFIG));
        }
    };
    let folder = logins
        .folder()
        .context("there is no login folder: see `gateway.state_dir`")?;
    if !choice.is_agreed(args.yes)? {
        return Ok(ExitCode::FAILURE);
    }
    Ok(choice.log_out(&logins, folder).await)
}

/// Logins to end.
#[derive(Debug, Default)]
struct LogoutChoice {
    targets: Vec<LoginTarget>,
    /// Servers that cannot have a login.
    without_login: Vec<String>,
    /// Files that cannot be opened.
    damaged: Vec<PathBuf>,
    /// Question about logins that another config may use.
    question: Option<String>,
}

impl LogoutChoice {
    /// Finds the logins that the flags name. The inner error explains a name that is unknown.
    fn make(
        args: &LogoutArgs,
        plan: &Plan,
        folder: Option<&LoginFolder>,
    ) -> anyhow::Result<Result<Self, String>> {
        if args.all {
            return Ok(Ok(LogoutChoice::of_all(stored_in(folder)?)));
        }
        let mut choice = LogoutChoice::default();
        let mut unsure = Vec::new();
        for name in &args.servers {
            let error = match LogoutServer::find(plan, name) {
                Ok(server) => {
                    match server.target() {
                        Some(target) => choice.targets.push(target),
                        None => choice.without_login.push(name.clone()),
                    }
                    continue;
                }
                Err(error) => error,
            };
            let mut found = stored_in(folder)?.targets;
            found.retain(|target| target.server == *name);
            if found.is_empty() {
                return Ok(Err(error));
            }
            unsure.extend(found);
        }
        if !unsure.is_empty() {
            choice.question = Some(format!(
                "This config does not have these servers. Another one with the same state folder \
                 may use their logins:\n{}Log out?",
                lines_of(&unsure)
            ));
        }
        choice.targets.extend(unsure);
        Ok(Ok(choice))
    }

    /// Chooses all logins of a folder.
    fn of_all(stored: StoredLogins) -> Self {
        let StoredLogins { targets, damaged } = stored;
        if targets.is_empty() && damaged.is_empty() {
            return LogoutChoice::default();
        }
        let damaged_lines: String = damaged
            .iter()
            .map(|path| format!("  {} (damaged)\n", path.display()))
            .collect();
        let question = format!(
            "This ends these logins for every config with this state folder:\n{}{damaged_lines}\
             Log out of all?",
            lines_of(&targets)
        );
        LogoutChoice {
            targets,
            damaged,
            question: Some(question),
            ..LogoutChoice::default()
        }
    }

    /// Asks the question, if there is one.
    fn is_agreed(&self, is_sure: bool) -> anyhow::Result<bool> {
        match &self.question {
            None => Ok(true),
            Some(_) if is_sure => Ok(true),
            Some(question) if can_ask() => confirm(question),
            Some(question) => {
                bail!("{question} There is no terminal to ask on: pass --yes if this is intended")
            }
        }
    }

    /// Ends the logins, and prints how each ended.
    async fn log_out(self, logins: &LoginDirectory, folder: &LoginFolder) -> ExitCode {
        let mut code = ExitCode::SUCCESS;
        if self.targets.is_empty() && self.damaged.is_empty() && self.without_login.is_empty() {
            print_message("there are no logins");
        }
        for name in &self.without_login {
            print_message(&describe_outcome(name, LogoutOutcome::NotLoggedIn, ""));
        }
        for target in &self.targets {
            if let Err(error) = log_out_of(target, logins, folder).await {
                print_message(&format!("error: {}: {error:#}", target.server));
                code = ExitCode::FAILURE;
            }
        }
        for path in &self.damaged {
            let path_text = path.display();
            match folder.remove_damaged(path) {
                Ok(_) => print_message(&format!("{path_text}: removed, but nothing was revoked.")),
                Err(error) => {
                    print_message(&format!("error: {error}"));
                    code = ExitCode::FAILURE;
                }
            }
        }
        for other in self.others_in(folder) {
            print_message(&format!(
                "{}: its login for {} remains; `moongate logout --all` ends every login.",
                other.server,
                shown_url(&other)
            ));
        }
        code
    }

    /// Finds logins with the same names for other URLs.
    fn others_in(&self, folder: &LoginFolder) -> Vec<LoginTarget> {
        // Only a hint, because whatever fails here was reported above.
        let mut others = folder.stored_logins().unwrap_or_default().targets;
        others.retain(|stored| {
            let is_named = |target: &LoginTarget| target.server == stored.server;
            self.targets.iter().any(is_named) && !self.targets.contains(stored)
        });
        others
    }
}

/// Lists the logins of a folder, if there is one.
fn stored_in(folder: Option<&LoginFolder>) -> anyhow::Result<StoredLogins> {
    match folder {
        Some(folder) => Ok(folder.stored_logins()?),
        None => Ok(StoredLogins::default()),
    }
}

/// Lists logins, one per line.
fn lines_of(targets: &[LoginTarget]) -> String {
    targets
        .iter()
        .map(|target| format!("  {} at {}\n", target.server, shown_url(target)))
        .collect()
}

/// Returns a login's URL without its query, which may contain a key.
fn shown_url(target: &LoginTarget) -> String {
    let mut url = target.url.clone();
    url.set_query(None);
    url.set_fragment(None);
    logs::redact(url.as_str())
}

/// Server whose login ends.
struct LogoutServer<'a> {
    name: &'a str,
    connect: &'a ConnectTarget,
}

impl<'a> LogoutServer<'a> {
    /// Finds a server, which may be disabled. Fails with a message for people.
    fn find(plan: &'a Plan, name: &str) -> Result<Self, String> {
        let Some(disabled) = plan.disabled.iter().find(|server| server.name == name) else {
            let server = find_server(plan, name)?;
            return Ok(LogoutServer {
                name: &server.name,
                connect: &server.connect,
            });
        };
        match &disabled.target {
            Some(connect) if !has_reference(connect) => Ok(LogoutServer {
                name: &disabled.name,
                connect,
            }),
            Some(_) | None => Err(format!(
                "{name} is disabled, and its URL is not known until it is enabled: run \
                 `moongate enable {name}` first"
            )),
        }
    }
}

impl LogoutServer<'_> {
    /// Returns the target of a login at the server. `None` if the server has no URL. The login may
    /// date from a time when the server had another credential.
    fn target(&self) -> Option<LoginTarget> {
        let ConnectTarget::Http { url, .. } = self.connect else {
            return None;
        };
        Some(LoginTarget {
            server: self.name.to_owned(),
            url: url.clone(),
        })
    }
}

/// True if a URL may contain a reference, as those of disabled servers do. The login would then be
/// looked up under the wrong URL. In a path, the brace is percent-encoded.
fn has_reference(connect: &ConnectTarget) -> bool {
    let ConnectTarget::Http { url, .. } = connect else {
        return false;
    };
    let url = url.as_str();
    url.contains("${") || url.contains("$%7B")
}

/// Ends one login.
async fn log_out_of(
    target: &LoginTarget,
    logins: &LoginDirectory,
    folder: &LoginFolder,
) -> anyhow::Result<()> {
    // Before the logout, which forgets it. A damaged login can be removed, too.
    let grant = folder.read_grant(target).unwrap_or_default();
    let issuer = grant.map_or_else(|| target.url.clone(), |grant| grant.issuer);
    let outcome = log_out(logins.fetcher(), folder, target).await?;
    let host = issuer.host_str().unwrap_or_default();
    print_message(&describe_outcome(&target.server, outcome, host));
    Ok(())
}

/// Describes a logout. `host` is the authorization server's.
fn describe_outcome(server: &str, outcome: LogoutOutcome, host: &str) -> String {
    match outcome {
        LogoutOutcome::NotLoggedIn => format!("{server}: not logged in."),
        LogoutOutcome::Revoked => format!("Logged out of {server}."),
        LogoutOutcome::Forgotten => {
            format!("{server}: the login was deleted here, but {host} did not revoke it.")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use moongate_config::LoadOptions;

    use super::*;
    use crate::app::logins::fixtures::{grant_of, pending_login};

    fn plan(servers: &str) -> Plan {
        let file = PathBuf::from("moongate.toml");
        let options = LoadOptions {
            texts: BTreeMap::from([(file.clone(), servers.to_owned())]),
            ..LoadOptions::of_files(vec![file], BTreeMap::new())
        };
        moongate_config::load(&options).unwrap().plan
    }

    #[test]
    fn a_disabled_server_is_found_if_its_url_is_known() {
        let off = |url: &str| plan(&format!("[servers.a]\nurl = '{url}'\nenabled = false\n"));
        let known = off("https://a.example/mcp");
        let found = LogoutServer::find(&known, "a").ok().unwrap();
        let ConnectTarget::Http { url, .. } = found.connect else {
            panic!("the server has a URL");
        };
        assert_eq!(found.name, "a");
        assert_eq!(url.as_str(), "https://a.example/mcp");
        for url in [
            "https://a.example/${PART}/mcp",
            "https://a.example/mcp?x=${PART}",
            "https://${HOST}/mcp",
            "${WHOLE}",
        ] {
            let error = LogoutServer::find(&off(url), "a").err().unwrap();
            assert!(error.contains("its URL is not known"), "{url}: {error}");
            assert!(error.contains("`moongate enable a`"), "{url}: {error}");
        }
    }

    fn target(server: &str, url: &str) -> LoginTarget {
        LoginTarget {
            server: server.to_owned(),
            url: url.parse().unwrap(),
        }
    }

    /// Folder with logins for these servers.
    fn folder_with(targets: &[LoginTarget]) -> (tempfile::TempDir, LoginFolder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = LoginFolder::open(dir.path()).unwrap();
        let grant = grant_of(&pending_login("state"), 0);
        for target in targets {
            folder.write_grant(target, &grant).unwrap();
        }
        (dir, folder)
    }

    fn args(servers: &[&str]) -> LogoutArgs {
        LogoutArgs {
            servers: servers.iter().map(|&name| name.to_owned()).collect(),
            all: servers.is_empty(),
            yes: false,
            config: Vec::new(),
        }
    }

    #[test]
    fn only_logins_of_this_config_end_without_a_question() {
        let here = target("a", "https://a.example/mcp");
        let elsewhere = target("a", "https://other.example/mcp?key=hush");
        let removed = target("b", "https://b.example/mcp");
        let stored = [here.clone(), elsewhere.clone(), removed.clone()];
        let (_dir, folder) = folder_with(&stored);
        let plan = plan("[servers.a]\nurl = 'https://a.example/mcp'\n");
        let make = |args: &LogoutArgs| LogoutChoice::make(args, &plan, Some(&folder)).unwrap();
        let own = make(&args(&["a"])).unwrap();
        assert_eq!(own.targets, std::slice::from_ref(&here));
        assert_eq!(own.question, None);
        assert_eq!(own.others_in(&folder), [elsewhere]);
        let gone = make(&args(&["a", "b"])).unwrap();
        assert_eq!(gone.targets, [here, removed]);
        let question = gone.question.unwrap();
        assert!(
            question.contains("b at https://b.example/mcp"),
            "{question}"
        );
        assert!(!question.contains("a at"), "{question}");
        let error = make(&args(&["c"])).unwrap_err();
        assert!(error.contains("there is no server"), "{error}");
        let all = make(&args(&[])).unwrap();
        assert_eq!(all.targets, stored);
        let question = all.question.unwrap();
        assert!(
            question.contains("a at https://other.example/mcp\n"),
            "{question}"
        );
    }

    #[test]
    fn each_outcome_is_one_sentence() {
        for (outcome, expected) in [
            (LogoutOutcome::NotLoggedIn, "linear: not logged in."),
            (LogoutOutcome::Revoked, "Logged out of linear."),
            (
                LogoutOutcome::Forgotten,
                "linear: the login was deleted here, but mcp.linear.app did not revoke it.",
            ),
        ] {
            let found = describe_outcome("linear", outcome, "mcp.linear.app");
            assert_eq!(found, expected);
        }
    }
}
