//! Logins that operators start and end on the page or over the API.
//!
//! Owns the order of their steps, and the reasons to refuse one. Does not log in
//! (`moongate_oauth`). Invariant: nothing is written before a login on another domain is confirmed.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use url::Url;

use crate::app::logins::describe_missing_folder;
use crate::app::reload::ReloadTargets;
use moongate_admin::{LoginControl, LoginRefusal, LoginRefusalReason};
use moongate_api::{LoginPhase, LoginRequest, LoginStart, LoginView, LogoutReport};
use moongate_gateway::Gateway;
use moongate_oauth::{
    BearerChallenge, FolderError, LoginDirectory, LoginError, LoginFolder, LoginState, LoginTarget,
    LogoutOutcome, OAuthSettings, ServerAuth, StartedLogin, find_login,
};
use moongate_protocol::ConnectError;
use moongate_telemetry::{Metrics, logs};
use moongate_transport::LinkError;
use moongate_transport::reaper::Reaper;
use moongate_upstream::{ConnectIdentity, ServerSettings, UpstreamRuntime, open_connection};

/// Maximum time for a server to ask for a login.
const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Logins at the servers of a running gateway.
pub(super) struct GatewayLogins {
    gateway: Arc<Gateway>,
    /// `None`: the credentials of servers come from elsewhere.
    logins: Option<Arc<LoginDirectory>>,
    /// Address that browsers come back to, without the path.
    redirect_base: Option<Url>,
    /// Runtime of connections without credentials, which servers answer with their challenge.
    anonymous: UpstreamRuntime,
}

/// Login that an operator starts or ends, with everything it needs.
struct LoginTask<'a> {
    logins: &'a LoginDirectory,
    folder: &'a LoginFolder,
    target: LoginTarget,
    settings: OAuthSettings,
}

/// Access to a server without any credential.
enum ServerAccess {
    Open,
    /// Refused. `None`: it does not say where to log in.
    Refused(Option<BearerChallenge>),
}

impl GatewayLogins {
    /// Creates the logins of a gateway that browsers come back to at this address.
    pub(super) fn new(targets: &ReloadTargets, redirect_base: Option<Url>) -> Self {
        GatewayLogins {
            gateway: targets.gateway.clone(),
            logins: targets.logins.clone(),
            redirect_base,
            // Separate metrics, because a check for a login isn't the server's own connection.
            anonymous: UpstreamRuntime::new(Arc::new(Metrics::new()), Reaper::disabled()),
        }
    }

    fn find_task(&self, server: &str) -> Result<LoginTask<'_>, LoginRefusal> {
        let logins = self.logins.as_deref();
        let found = logins.and_then(|logins| Some((logins, logins.settings_of(server)?)));
        let Some((logins, entry)) = found else {
            return Err(self.refuse_server(server));
        };
        let settings = match entry.auth {
            ServerAuth::OAuth(settings) => settings,
            ServerAuth::Command(_) => {
                return Err(no_login(format!(
                    "{server} gets its credential from a command (servers.{server}.auth), so it \
                     needs no sign-in"
                )));
            }
            ServerAuth::ClientCredentials(_) => {
                return Err(no_login(format!(
                    "{server} gets its tokens without a person (servers.{server}.auth), so it \
                     needs no sign-in"
                )));
            }
        };
        let Some(folder) = logins.folder() else {
            return Err(LoginRefusal {
                reason: LoginRefusalReason::NoFolder,
                message: describe_missing_folder(logins),
            });
        };
        Ok(LoginTask {
            logins,
            folder,
            target: entry.target,
            settings,
        })
    }

    /// Explains why a server cannot be logged in to.
    fn refuse_server(&self, server: &str) -> LoginRefusal {
        let disabled = self.gateway.disabled();
        if disabled.iter().any(|entry| entry.name == server) {
            return no_login(format!(
                "{server} is disabled: enable it before you sign in (servers.{server}.enabled)"
            ));
        }
        if let Some(settings) = self.settings(server) {
            if let Some(key) = settings.connect.credential_key() {
                return no_login(format!(
                    "the credential of {server} comes from servers.{server}.{key}: remove it \
                     there to sign in"
                ));
            }
            return no_login(format!(
                "the gateway logs in only to servers that have a `url`, so not to {server}"
            ));
        }
        LoginRefusal {
            reason: LoginRefusalReason::UnknownServer,
            message: format!("there is no server {server:?}; /api/v1/status lists them"),
        }
    }

    fn settings(&self, server: &str) -> Option<Arc<ServerSettings>> {
        let servers = self.gateway.servers();
        let found = servers.iter().find(|entry| entry.settings.name == server);
        found.map(|entry| entry.settings.clone())
    }

    async fn start(
        &self,
        server: &str,
        request: &LoginRequest,
    ) -> Result<LoginStart, LoginRefusal> {
        let LoginTask {
            logins,
            folder,
            target,
            settings,
        } = self.find_task(server)?;
        let Some(base) = &self.redirect_base else {
            return Err(LoginRefusal {
                reason: LoginRefusalReason::NoRedirect,
                message: "browsers cannot come back to this gateway after a login: set \
                          gateway.public_url, or listen on a loopback address"
                    .to_owned(),
            });
        };
        let access = self.ask_access(server).await?;
        let challenge = match &access {
            ServerAccess::Open => None,
            ServerAccess::Refused(challenge) => challenge.as_ref(),
        };
        let found = find_login(logins.fetcher(), folder, &target, &settings, challenge);
        let found = match found.await {
            // Checked last: some servers ask for a login only when a tool is called.
            Err(LoginError::NoLogin { .. }) if matches!(access, ServerAccess::Open) => {
                return Err(no_login(format!(
                    "{server} needs no login: it also answers without one"
                )));
            }
            found => found.map_err(failed)?,
        };
        let host = found.host();
        let start = LoginStart {
            url: None,
            server_host: host_of(&target.url),
            must_confirm: found.is_elsewhere && !is_confirmed(request, &host),
            host,
        };
        if start.must_confirm {
            return Ok(start);
        }
        let started = found.begin(logins.fetcher(), &settings, base).await;
        let StartedLogin { url, pending } = started.map_err(failed)?;
        in_folder(folder, move |folder| folder.put_pending(&pending)).await?;
        Ok(LoginStart {
            url: Some(url.into()),
            ..start
        })
    }

    /// Connects to a server without a credential, to get its challenge.
    async fn ask_access(&self, server: &str) -> Result<ServerAccess, LoginRefusal> {
        let Some(settings) = self.settings(server) else {
            return Err(self.refuse_server(server));
        };
        let mut settings = ServerSettings::clone(&settings);
        let limit = settings.live.connect_timeout.0.min(CHALLENGE_TIMEOUT);
        settings.live.connect_timeout.0 = limit;
        settings.live.start_timeout.0 = limit;
        let identity = ConnectIdentity::for_all(None);
        match open_connection(&settings, &self.anonymous, identity).await {
            Ok(connection) => {
                connection.link.close(Vec::new()).await;
                Ok(ServerAccess::Open)
            }
            Err(ConnectError::Link(LinkError::Status {
                status: 401 | 403,
                challenge,
                ..
            })) => {
                let challenge = challenge.as_deref().and_then(BearerChallenge::of);
                Ok(ServerAccess::Refused(challenge))
            }
            // A server may quote what it was sent.
            Err(error) => Err(failed(logs::redact(&format!(
                "{server} did not answer when it was asked for its login: {error}"
            )))),
        }
    }

    async fn end(&self, server: String) -> Result<LogoutReport, LoginRefusal> {
        let LoginTask {
            logins,
            folder,
            target,
            ..
        } = self.find_task(&server)?;
        let ended = moongate_oauth::log_out(logins.fetcher(), folder, &target).await;
        Ok(match ended.map_err(failed)? {
            LogoutOutcome::Revoked => LogoutReport::Revoked { server },
            LogoutOutcome::Forgotten => {
                let message = format!(
                    "Signed out of {server} here, but the login was not revoked there: revoke it \
                     in your account."
                );
                LogoutReport::Forgotten { server, message }
            }
            LogoutOutcome::NotLoggedIn => LogoutReport::NotSignedIn { server },
        })
    }
}

impl LoginControl for GatewayLogins {
    fn login(&self, server: &str) -> Option<LoginView> {
        let logins = self.logins.as_ref()?;
        if logins.folder().is_none() {
            // An unusable folder is a problem to show, but having no folder is a choice.
            logins.folder_problem()?;
        }
        let ServerAuth::OAuth(_) = logins.settings_of(server)?.auth else {
            return None;
        };
        // First, because it reads the file that may have the problem.
        let state = logins.login_state(server);
        let view = LoginView {
            problem: logins.problem(server).map(|problem| problem.cause),
            ..LoginView::default()
        };
        Some(match state {
            LoginState::None => view,
            LoginState::LoggedIn { expires, renews } => LoginView {
                state: LoginPhase::SignedIn,
                expires: expires.map(|at| format!("{at:.0}")),
                renews,
                ..view
            },
            LoginState::Ended => LoginView {
                state: LoginPhase::Ended,
                ..view
            },
        })
    }

    fn start_login(
        &self,
        server: String,
        request: LoginRequest,
    ) -> BoxFuture<'_, Result<LoginStart, LoginRefusal>> {
        Box::pin(async move { self.start(&server, &request).await })
    }

    fn log_out(&self, server: String) -> BoxFuture<'_, Result<LogoutReport, LoginRefusal>> {
        Box::pin(self.end(server))
    }
}

/// Returns true if a person has agreed to a login at this host.
fn is_confirmed(request: &LoginRequest, host: &str) -> bool {
    let is_other = request.host.as_ref().is_some_and(|agreed| agreed != host);
    request.confirmed && !is_other
}

fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Runs a folder operation on a thread that may block.
async fn in_folder<T: Send + 'static>(
    folder: &LoginFolder,
    work: impl FnOnce(&LoginFolder) -> Result<T, FolderError> + Send + 'static,
) -> Result<T, LoginRefusal> {
    let folder = folder.clone();
    match tokio::task::spawn_blocking(move || work(&folder)).await {
        Ok(done) => done.map_err(failed),
        Err(_) => Err(failed("the login was interrupted: start it again")),
    }
}

fn no_login(message: String) -> LoginRefusal {
    LoginRefusal {
        reason: LoginRefusalReason::NoLogin,
        message,
    }
}

fn failed(reason: impl Display) -> LoginRefusal {
    LoginRefusal {
        reason: LoginRefusalReason::Failed,
        message: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_confirmed_for_the_host_that_was_shown() {
        let request = |confirmed, host: Option<&str>| LoginRequest {
            confirmed,
            host: host.map(str::to_owned),
        };
        for (request, expected) in [
            (request(true, Some("login.example")), true),
            (request(true, None), true),
            (request(true, Some("other.example")), false),
            (request(false, Some("login.example")), false),
            (request(false, None), false),
        ] {
            let is_agreed = is_confirmed(&request, "login.example");
            assert_eq!(is_agreed, expected, "{request:?}");
        }
    }
}
