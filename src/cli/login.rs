//! `moongate login`: logs in to servers with the browser. Owns its flags, its order and its texts.
//!
//! Does not speak OAuth (`moongate_oauth`) or wait (`login/wait.rs`). Invariant: it prints no token
//! and no code, and it works with and without a running gateway.

mod answer_listener;
mod input_lines;
mod redirect;
mod start_page;
mod unregistered;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{StreamExt, stream};
use moongate_config::Plan;
use moongate_oauth::{
    BearerChallenge, FoundLogin, LoginDirectory, LoginError, LoginFolder, LoginServer, LoginState,
    OAuthSettings, ServerAuth, StartedLogin, find_login,
};
use moongate_protocol::ConnectError;
use moongate_telemetry::{Metrics, logs};
use moongate_transport::LinkError;
use moongate_transport::credential_source::{AuthChallenge, CredentialDirectory};
use moongate_transport::fetcher::Fetcher;
use moongate_transport::reaper::Reaper;
use moongate_upstream::{ConnectIdentity, ConnectTarget, ServerSettings, UpstreamRuntime};
use tokio::time::timeout;

use crate::app::logins::logins_of;
use crate::app::probe::ProbeFailure;
use crate::cli::bridge_target::{bridge_config, bridge_server};
use crate::cli::client::probe_with;
use crate::cli::process::{
    BAD_CONFIG, CONFIG_VARIABLE, is_config_flag_given, load_options, print_message, report_error,
    report_unusable, runtime,
};
use crate::cli::server_choice::find_server;
use input_lines::{InputLines, can_ask};
use redirect::RedirectPlace;
use start_page::StartPage;
use unregistered::{ClientOffer, offer_client};
use wait::LoginWait;

/// Time limit for connecting to a server once.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Servers that are checked at the same time.
const TOGETHER_MAX: usize = 8;

/// Flags of `login`.
#[derive(Clone, Debug, clap::Args)]
pub struct LoginArgs {
    /// The servers' names in the config; omit them to log in to all servers that need it
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Log in to this URL instead, for `moongate stdio --url URL`
    #[arg(long, value_name = "URL", conflicts_with = "servers")]
    url: Option<String>,
    /// Do not ask before a login on a different site from the server
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print the address without opening a browser
    #[arg(long)]
    no_browser: bool,
    /// The config with the servers; repeat the flag to let later files override earlier ones
    #[arg(long, short, value_name = "PATH", env = CONFIG_VARIABLE)]
    config: Vec<PathBuf>,
}

/// Logs in to servers. Returns exit code 0 if all logins work, 1 if one failed, 2 for a server that
/// the config does not have.
pub fn run(args: &LoginArgs) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error),
    };
    // No signal is caught: Ctrl-C ends the process at once.
    let end = runtime.block_on(log_in(args));
    // A blocking read of stdin cannot be cancelled, so dropping the runtime would wait for the next
    // line.
    runtime.shutdown_background();
    match end {
        Ok(code) => code,
        Err(error) => report_error(&error),
    }
}

async fn log_in(args: &LoginArgs) -> anyhow::Result<ExitCode> {
    // The command prints what is worth knowing.
    logs::start("off", false);
    let plan = match load_plan(args) {
        Ok(plan) => plan,
        Err(code) => return Ok(code),
    };
    // All names are checked before the first login.
    let named: Result<Vec<&ServerSettings>, String> = args
        .servers
        .iter()
        .map(|name| find_server(&plan, name))
        .collect();
    let mut servers = match named {
        Ok(servers) => servers,
        Err(error) => {
            print_message(&format!("error: {error}"));
            return Ok(ExitCode::from(BAD_CONFIG));
        }
    };
    let logins = logins_of(&plan)?;
    let folder = logins.folder().context(
        "there is no folder to keep logins in: set `gateway.state_dir`, and remove \
         `gateway.state = \"memory\"`",
    )?;
    if args.url.is_some() {
        servers = plan.servers.iter().collect();
    } else if servers.is_empty() {
        servers = servers_without_login(&plan, &logins).await;
        if servers.is_empty() {
            print_message("no server needs a login");
        }
    }
    let mut command = LoginCommand {
        args,
        plan: &plan,
        logins: &logins,
        folder,
        input: InputLines::default(),
    };
    let mut code = ExitCode::SUCCESS;
    for server in servers {
        // One after the other, because each needs the person, and may need the same port.
        match command.log_in_to(server).await {
            Ok(LoginEnd::Done) => {}
            Ok(LoginEnd::Unfinished) => code = ExitCode::FAILURE,
            Err(error) => {
                let text = logs::one_line(&logs::redact(&format!("{error:#}")));
                print_message(&format!("error: {text}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    // Checking a server may have started a renewal, which would be lost if the process exited now.
    logins.settle().await;
    Ok(code)
}

/// Loads the config with the servers, or the one of a bridge to a URL. Fails with the exit code,
/// once the problem is printed.
fn load_plan(args: &LoginArgs) -> Result<Plan, ExitCode> {
    let Some(url) = &args.url else {
        let loaded = moongate_config::load(&load_options(&args.config));
        return loaded
            .map(|loaded| loaded.plan)
            .map_err(|problems| report_unusable(&problems));
    };
    let refuse = |message: String| {
        print_message(&format!("error: {message}"));
        ExitCode::from(BAD_CONFIG)
    };
    // The variable may be set for other commands. Only the flag shows intent.
    if is_config_flag_given(&args.config) {
        let message = "--config has no effect with --url: a bridge has no config";
        return Err(refuse(message.to_owned()));
    }
    let server = bridge_server(url, None).map_err(refuse)?;
    let mut plan = match bridge_config() {
        Ok(loaded) => loaded.plan,
        Err(problems) => return Err(report_unusable(&problems)),
    };
    plan.servers = vec![server];
    Ok(plan)
}

/// Finds the servers that refuse their current credentials.
async fn servers_without_login<'a>(
    plan: &'a Plan,
    logins: &Arc<LoginDirectory>,
) -> Vec<&'a ServerSettings> {
    let candidates = plan.servers.iter().filter(|server| {
        let settings = logins.settings_of(&server.name);
        settings.is_some_and(|server| matches!(server.auth, ServerAuth::OAuth(_)))
    });
    let checks = candidates.map(|server| async move {
        let credentials: Arc<dyn CredentialDirectory> = logins.clone();
        let end = probe_with(server, PROBE_TIMEOUT, Some(credentials)).await;
        (server, end)
    });
    // Reported in the order of the config, whoever answers first.
    let checked: Vec<_> = stream::iter(checks).buffered(TOGETHER_MAX).collect().await;
    let mut found = Vec::new();
    for (server, end) in checked {
        match end {
            Err(failure) if is_refusal(&failure) => found.push(server),
            Err(failure) => {
                let text = describe_failure(&failure);
                print_message(&format!("{}: not checked: {text}", server.name));
            }
            Ok(_) => {}
        }
    }
    found
}

/// End of a login that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginEnd {
    Done,
    /// The person has to continue, and has been told how.
    Unfinished,
}

/// Command that runs logins one after the other.
struct LoginCommand<'a> {
    args: &'a LoginArgs,
    plan: &'a Plan,
    logins: &'a Arc<LoginDirectory>,
    folder: &'a LoginFolder,
    input: InputLines,
}

impl LoginCommand<'_> {
    /// Logs in to one server, and reports its state afterwards.
    async fn log_in_to(&mut self, settings: &ServerSettings) -> anyhow::Result<LoginEnd> {
        let name = &settings.name;
        let server = self.login_server(settings)?;
        let oauth = match &server.auth {
            ServerAuth::OAuth(oauth) => oauth,
            ServerAuth::Command(_) => {
                bail!("the credential of {name} comes from the command in `servers.{name}.auth`")
            }
            ServerAuth::ClientCredentials(_) => bail!(
                "{name} gets its tokens without a person, as `servers.{name}.auth` says; run \
                 `moongate doctor` to check that"
            ),
        };
        let access = find_challenge(settings).await?;
        let place = RedirectPlace::choose(self.plan).await?;
        let challenge = access.challenge();
        let found = match self.find(&server, oauth, challenge.as_ref()).await {
            // Checked last: some servers ask for a login only when a tool is called.
            Err(error) if access.is_open() && is_no_login(&error) => {
                print_message(&format!("{name} needs no login"));
                return Ok(LoginEnd::Done);
            }
            found => found?,
        };
        // Before a client is registered there.
        self.check_host(&server, &found).await?;
        let started = match self.begin(&server, oauth, found, &place).await? {
            Ok(started) => started,
            Err(ClientOffer::Written) => return Ok(LoginEnd::Unfinished),
            Err(ClientOffer::NotWritten) => bail!("not logged in to {name}"),
        };
        self.finish(&server, started, place).await?;
        self.report(settings).await?;
        Ok(LoginEnd::Done)
    }

    /// Returns how a server gets its credential. Fails if a login would not be used.
    fn login_server(&self, settings: &ServerSettings) -> anyhow::Result<LoginServer> {
        let name = &settings.name;
        if let Some(server) = self.logins.settings_of(name) {
            return Ok(server);
        }
        if let Some(key) = settings.connect.credential_key() {
            bail!(
                "the credential of {name} comes from `{key}` in the config: remove it there to \
                 log in"
            );
        }
        match &settings.connect {
            ConnectTarget::Http { .. } => {
                bail!("{name} is behind a Unix socket, where a login is not possible")
            }
            ConnectTarget::Stdio { .. }
            | ConnectTarget::Socket(_)
            | ConnectTarget::Misconfigured { .. } => {
                bail!("{name} has no `url`, so it cannot be logged in to")
            }
        }
    }

    /// Finds where to log in.
    async fn find(
        &self,
        server: &LoginServer,
        settings: &OAuthSettings,
        challenge: Option<&BearerChallenge>,
    ) -> anyhow::Result<FoundLogin> {
        let fetcher = self.logins.fetcher();
        let found = find_login(fetcher, self.folder, &server.target, settings, challenge);
        Ok(found.await?)
    }

    /// Starts a login. Returns the outcome of the offer if the person has to register a client
    /// first.
    async fn begin(
        &mut self,
        server: &LoginServer,
        settings: &OAuthSettings,
        found: FoundLogin,
        place: &RedirectPlace,
    ) -> anyhow::Result<Result<StartedLogin, ClientOffer>> {
        let begun = found.begin(self.logins.fetcher(), settings, &place.base);
        match begun.await {
            Ok(started) => Ok(Ok(started)),
            Err(error) => {
                let (LoginError::NoRegistration { issuer, .. }
                | LoginError::RegistrationRefused { issuer, .. }) = &error
                else {
                    return Err(error.into());
                };
                if self.args.url.is_some() {
                    bail!(
                        "the login at --url needs a client that is registered by hand, for which a \
                         bridge has no setting: add the URL with `moongate add`, and start \
                         `moongate stdio` without --url"
                    );
                }
                print_message(&error.to_string());
                let config = &self.args.config;
                let offer = offer_client(server, issuer, config, &mut self.input).await?;
                Ok(Err(offer))
            }
        }
    }

    /// Asks whether a login on a different site from the server is intended.
    async fn check_host(&mut self, server: &LoginServer, found: &FoundLogin) -> anyhow::Result<()> {
        print_message(&format!(
            "{} asks for a login at {}.",
            server.target.server,
            found.page_host()
        ));
        if !found.is_elsewhere || self.args.yes {
            return Ok(());
        }
        let site = host_of(&server.target.url);
        let question = question_of(site, &found.host(), found.moved_from.as_deref());
        if !can_ask() {
            bail!("{question} There is no terminal to ask on: pass --yes if this is intended");
        }
        match self.input.confirm(&question).await? {
            true => Ok(()),
            false => bail!("not logged in to {}", server.target.server),
        }
    }

    /// Opens the browser, and waits until the login has its tokens.
    async fn finish(
        &mut self,
        server: &LoginServer,
        started: StartedLogin,
        place: RedirectPlace,
    ) -> anyhow::Result<()> {
        let StartedLogin { url, pending } = started;
        self.folder.put_pending(&pending)?;
        let known = self.folder.grant_version(&server.target)?;
        let path = pending.client.redirect.path();
        // Before the browser opens, because it may come back at once.
        let mut opened = url.to_string();
        let listener = place.socket.map(|socket| {
            // Other users of this machine see what a browser is started with.
            let start = StartPage::new(url.clone());
            opened = start.address(socket.address());
            socket.serve(path, Some(start))
        });
        if self.args.no_browser {
            print_message("Open this address in a browser:");
        } else {
            print_message("Opening your browser. If nothing opens, go to:");
            tokio::spawn(async move {
                // The address is on the screen, whatever happens here.
                let _ = moongate_platform::browser::open(&opened).await;
            });
        }
        print_message(&format!("  {url}"));
        if let Some(address) = place.stranger {
            print_message(&format!(
                "{address} is in use by a program that does not seem to be a gateway but will \
                 get the answer."
            ));
        }
        print_message(
            "Waiting. If your browser ends on a page that does not load, paste its address here.",
        );
        let fetcher: &Fetcher = self.logins.fetcher();
        let wait = LoginWait::new((fetcher, self.folder), &pending, listener, known);
        wait.at(place.address).run(&mut self.input).await
    }

    /// Connects with the new credential, and reports the server.
    async fn report(&self, settings: &ServerSettings) -> anyhow::Result<()> {
        let name = &settings.name;
        let credentials: Arc<dyn CredentialDirectory> = self.logins.clone();
        let probed = probe_with(settings, PROBE_TIMEOUT, Some(credentials)).await;
        let answer = match probed {
            Ok(answer) => answer,
            Err(failure) if is_refusal(&failure) => bail!(
                "{name} does not accept its new login: {}",
                describe_failure(&failure)
            ),
            Err(failure) => {
                let text = describe_failure(&failure);
                print_message(&format!(
                    "Logged in to {name}, which does not work yet: {text}"
                ));
                return Ok(());
            }
        };
        let tools = match answer.tools {
            1 => "1 tool".to_owned(),
            number => format!("{number} tools"),
        };
        let life = describe_life(self.logins.login_state(name));
        print_message(&format!("Logged in to {name}: ready, {tools}.{life}"));
        Ok(())
    }
}

/// Returns the question that asks whether a server may get access from a host.
fn question_of(site: &str, host: &str, moved_from: Option<&str>) -> String {
    let question = format!("{site} will get the access that {host} grants. Continue?");
    match moved_from {
        Some(before) => {
            format!("The previous login was at {before}, this one is at {host}. {question}")
        }
        None => question,
    }
}

/// Returns how long a login lasts, as a sentence after another one.
fn describe_life(state: LoginState) -> String {
    match state {
        LoginState::LoggedIn { renews: true, .. } => " The login renews itself.".to_owned(),
        LoginState::LoggedIn {
            expires: Some(end), ..
        } => format!(" The login lasts until {end:.0}."),
        LoginState::LoggedIn { expires: None, .. } | LoginState::None | LoginState::Ended => {
            String::new()
        }
    }
}

/// Access to a server without any credential.
enum ServerAccess {
    Open,
    Refused(Option<AuthChallenge>),
}

impl ServerAccess {
    fn is_open(&self) -> bool {
        matches!(self, ServerAccess::Open)
    }

    /// Returns the challenge of a refusal, if it has one.
    fn challenge(&self) -> Option<BearerChallenge> {
        match self {
            ServerAccess::Open => None,
            ServerAccess::Refused(challenge) => challenge.as_ref().and_then(BearerChallenge::of),
        }
    }
}

/// True if nothing says where to log in.
fn is_no_login(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<LoginError>();
    matches!(error, Some(LoginError::NoLogin { .. }))
}

/// Connects to a server without a login, to get its challenge.
async fn find_challenge(settings: &ServerSettings) -> anyhow::Result<ServerAccess> {
    let shared = UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled());
    let identity = ConnectIdentity::for_all(None);
    let opening = moongate_upstream::open_connection(settings, &shared, identity);
    let name = &settings.name;
    let Ok(opened) = timeout(PROBE_TIMEOUT, opening).await else {
        bail!("{name} did not answer within {PROBE_TIMEOUT:?}");
    };
    match opened {
        Ok(active) => {
            active.link.close(Vec::new()).await;
            Ok(ServerAccess::Open)
        }
        Err(ConnectError::Link(LinkError::Status {
            status: 401 | 403,
            challenge,
            ..
        })) => Ok(ServerAccess::Refused(challenge.map(|challenge| *challenge))),
        Err(error) => bail!("{name}: {error}"),
    }
}

/// True if a server refused the credential, or the lack of one.
fn is_refusal(failure: &ProbeFailure) -> bool {
    matches!(
        failure,
        ProbeFailure::Connect(ConnectError::Link(LinkError::Status {
            status: 401 | 403,
            ..
        }))
    )
}

fn describe_failure(failure: &ProbeFailure) -> String {
    let text = match failure {
        ProbeFailure::Connect(error) => error.to_string(),
        ProbeFailure::List(message) => format!("it does not list its tools: {message}"),
        ProbeFailure::Late => format!("no answer within {PROBE_TIMEOUT:?}"),
    };
    // A server may quote what it was sent.
    logs::one_line(&logs::redact(&text))
}

fn host_of(url: &url::Url) -> &str {
    url.host_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_issuer_to_set_is_not_hidden_as_a_credential() {
        let error = LoginError::MixedMetadata {
            server: "linear".to_owned(),
            host: "auth.example".to_owned(),
            published: Some("https://honest.example".to_owned()),
        };
        let text = error.to_string();
        assert!(text.ends_with("`servers.linear.auth.issuer` to \"https://honest.example\""));
        assert_eq!(logs::redact(&text), text);
    }

    #[test]
    fn a_question_names_the_hosts_of_a_login_that_has_moved() {
        assert_eq!(
            question_of("mcp.example", "new.example", None),
            "mcp.example will get the access that new.example grants. Continue?"
        );
        assert_eq!(
            question_of("mcp.example", "new.example", Some("old.example")),
            "The previous login was at old.example, this one is at new.example. mcp.example will \
             get the access that new.example grants. Continue?"
        );
    }

    #[test]
    fn the_life_of_a_login_is_one_sentence() {
        let end = "2026-11-28T10:00:00.5Z".parse().unwrap();
        let logged_in = |expires, renews| LoginState::LoggedIn { expires, renews };
        for (state, expected) in [
            (logged_in(Some(end), true), " The login renews itself."),
            (logged_in(None, true), " The login renews itself."),
            (
                logged_in(Some(end), false),
                " The login lasts until 2026-11-28T10:00:00Z.",
            ),
            (logged_in(None, false), ""),
            (LoginState::None, ""),
        ] {
            assert_eq!(describe_life(state), expected);
        }
    }

    #[test]
    fn only_refusals_ask_for_a_login() {
        let status = |status| {
            ProbeFailure::Connect(ConnectError::Link(LinkError::Status {
                status,
                hint: String::new(),
                message: None,
                retry_after: None,
                challenge: None,
            }))
        };
        assert!(is_refusal(&status(401)) && is_refusal(&status(403)));
        for other in [
            status(404),
            status(503),
            ProbeFailure::Late,
            ProbeFailure::List("x".to_owned()),
        ] {
            assert!(!is_refusal(&other), "{other:?}");
        }
    }
}
