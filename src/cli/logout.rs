//! `moongate logout`: ends logins at servers. Owns its flags and its words.
//!
//! Does not revoke (`moongate_oauth`). Invariant: after exit code 0 there is no login of these
//! servers on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use moongate_config::Plan;
use moongate_oauth::{LoginFolder, LoginTarget, Logins, LogoutOutcome, log_out};
use moongate_telemetry::logs;
use moongate_upstream::ConnectTarget;

use crate::app::logins::logins_of;
use crate::cli::process::{BAD_CONFIG, load_options, print_message, report_unusable};
use crate::cli::server_choice::find_server;

/// Flags of `logout`.
#[derive(Clone, Debug, clap::Args)]
pub struct LogoutArgs {
    /// The servers' names in the config
    #[arg(value_name = "SERVER", required = true)]
    servers: Vec<String>,
    /// The config with the servers; repeat the flag to let later files override earlier ones
    #[arg(
        long = "config",
        short = 'c',
        value_name = "PATH",
        env = "MOONGATE_CONFIG"
    )]
    config: Vec<PathBuf>,
}

/// Ends logins. Returns exit code 0 if they are gone, 1 if one is not, 2 for a server that the
/// config does not have.
pub async fn run(args: LogoutArgs) -> anyhow::Result<ExitCode> {
    // What is worth knowing is printed.
    logs::start("off", false);
    let plan = match moongate_config::load(&load_options(&args.config)) {
        Ok(loaded) => loaded.plan,
        Err(problems) => return Ok(report_unusable(&problems)),
    };
    let named: Result<Vec<LogoutServer<'_>>, String> = args
        .servers
        .iter()
        .map(|name| LogoutServer::find(&plan, name))
        .collect();
    let servers = match named {
        Ok(servers) => servers,
        Err(error) => {
            print_message(&format!("error: {error}"));
            return Ok(ExitCode::from(BAD_CONFIG));
        }
    };
    let logins = logins_of(&plan)?;
    let folder = logins
        .folder()
        .context("there is no folder that logins are kept in: see `gateway.state_dir`")?;
    let mut code = ExitCode::SUCCESS;
    for server in &servers {
        if let Err(error) = log_out_of(server, &logins, folder).await {
            print_message(&format!("error: {}: {error:#}", server.name));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Server whose login ends.
struct LogoutServer<'a> {
    name: &'a str,
    connect: &'a ConnectTarget,
}

impl<'a> LogoutServer<'a> {
    /// Finds a server, which may be disabled. Fails with words for people.
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
                "{name} is disabled, and its URL is not known while it is: run `moongate enable \
                 {name}` first"
            )),
        }
    }
}

/// True if a URL may have a reference, as those of disabled servers do. The login would be looked
/// for under another URL than it has. A path has the brace in percent encoding.
fn has_reference(connect: &ConnectTarget) -> bool {
    let ConnectTarget::Http { url, .. } = connect else {
        return false;
    };
    let url = url.as_str();
    url.contains("${") || url.contains("$%7B")
}

/// Ends the login at one server. It may be from a time when the server had another credential.
async fn log_out_of(
    server: &LogoutServer<'_>,
    logins: &Logins,
    folder: &LoginFolder,
) -> anyhow::Result<()> {
    let name = server.name;
    let ConnectTarget::Http { url, .. } = server.connect else {
        print_message(&describe_outcome(name, LogoutOutcome::NotLoggedIn, ""));
        return Ok(());
    };
    let target = LoginTarget {
        server: name.to_owned(),
        url: url.clone(),
    };
    // Before the logout, which forgets it. A damaged login can go, too.
    let grant = folder.read_grant(&target).unwrap_or_default();
    let issuer = grant.map_or_else(|| url.clone(), |grant| grant.issuer);
    let outcome = log_out(logins.fetcher(), folder, &target).await?;
    let host = issuer.host_str().unwrap_or_default();
    print_message(&describe_outcome(name, outcome, host));
    Ok(())
}

/// Describes a logout. `host` is that of the authorization server.
fn describe_outcome(server: &str, outcome: LogoutOutcome, host: &str) -> String {
    match outcome {
        LogoutOutcome::NotLoggedIn => format!("{server}: not logged in."),
        LogoutOutcome::Revoked => format!("Logged out of {server}."),
        LogoutOutcome::Forgotten => {
            format!("{server}: the login is forgotten here, but {host} did not revoke it.")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use moongate_config::LoadOptions;

    use super::*;

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

    #[test]
    fn each_outcome_is_one_sentence() {
        for (outcome, expected) in [
            (LogoutOutcome::NotLoggedIn, "linear: not logged in."),
            (LogoutOutcome::Revoked, "Logged out of linear."),
            (
                LogoutOutcome::Forgotten,
                "linear: the login is forgotten here, but mcp.linear.app did not revoke it.",
            ),
        ] {
            let found = describe_outcome("linear", outcome, "mcp.linear.app");
            assert_eq!(found, expected);
        }
    }
}
