//! Logins from start to finish, and logouts, as the commands, the page and the callback run them.
//!
//! Owns the order of the steps. Does not open a browser or listen. Invariant: a code is used once,
//! after all checks, and a grant is on disk before anything reports it.

use std::time::Duration;

use jiff::Timestamp;
use moongate_transport::fetcher::Fetcher;
use url::{Host, Url};

use crate::authorization_request::{
    PendingLogin, authorization_url, random_text, redirect_address,
};
use crate::authorization_response::AuthorizationResponse;
use crate::authorization_server::AuthorizationServer;
use crate::challenge::BearerChallenge;
use crate::discovery::{DiscoveryOutcome, discover};
use crate::folder_error::FolderError;
use crate::grant::LoginGrant;
use crate::login_error::LoginError;
use crate::login_folder::{LoginFolder, RefreshLock};
use crate::registration::choose_client;
use crate::scope::{EarlierScope, ScopeChoice, ScopeSources};
use crate::settings::{LoginTarget, OAuthSettings};
use crate::token_endpoint::{TokenSet, exchange_code, revoke};
use crate::untrusted_url;

/// Login that was found and that a person may have to agree to. Nothing has been registered for it.
#[derive(Debug)]
pub struct FoundLogin {
    /// True if the login is on a different domain from the server, or from the previous login. The
    /// caller asks before it continues.
    pub is_elsewhere: bool,
    /// Host of the previous login's authorization server, if this one is on another domain.
    pub moved_from: Option<String>,
    discovered: DiscoveryOutcome,
    scope: ScopeChoice,
}

/// Login that a person has to continue in the browser.
#[derive(Debug)]
pub struct StartedLogin {
    /// Address to open.
    pub url: Url,
    /// Waiting login. The caller stores it before anybody opens the address.
    pub pending: PendingLogin,
}

impl FoundLogin {
    /// Returns the host of the page that the person logs in on.
    pub fn page_host(&self) -> String {
        untrusted_url::host(&self.discovered.server.authorization_endpoint)
    }

    /// Returns the host that a person agrees to: that of the new authorization server if the login
    /// has moved, else that of the page to open.
    pub fn host(&self) -> String {
        match self.moved_from {
            Some(_) => untrusted_url::host(&self.discovered.server.issuer),
            None => self.page_host(),
        }
    }

    /// Starts the login: chooses the client, which may register it, and makes `state` and PKCE.
    /// Writes nothing: the caller puts `pending` into the folder.
    ///
    /// # Errors
    /// The login has no client.
    pub async fn begin(
        self,
        fetcher: &Fetcher,
        settings: &OAuthSettings,
        redirect_base: &Url,
    ) -> Result<StartedLogin, LoginError> {
        let DiscoveryOutcome {
            target,
            server,
            resource,
            ..
        } = &self.discovered;
        let redirect = redirect_address(redirect_base, &server.issuer);
        let asked = self.scope.asked.as_deref();
        let client = choose_client(fetcher, &self.discovered, settings, &redirect, asked).await?;
        let pending = PendingLogin {
            target_server: target.server.clone(),
            target_url: target.url.clone(),
            state: random_text(),
            verifier: random_text(),
            issuer: server.issuer.clone(),
            iss: server.iss.clone(),
            iss_required: server.iss_supported,
            token_endpoint: server.token_endpoint.clone(),
            revocation_endpoint: server.revocation_endpoint.clone(),
            client,
            scope_asked: self.scope.asked.clone(),
            resource: resource.clone(),
            started: Timestamp::now(),
            step_ups: self.scope.step_ups,
        };
        let page = &server.authorization_endpoint;
        Ok(StartedLogin {
            url: authorization_url(page, &pending, &settings.params),
            pending,
        })
    }
}

/// Result of a logout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutOutcome {
    /// There was no login.
    NotLoggedIn,
    /// The authorization server has revoked the login, and it is forgotten.
    Revoked,
    /// The login is forgotten, but the authorization server did not revoke it.
    Forgotten,
}

/// Earlier login at the same server, as far as the next one needs it.
struct EarlierLogin {
    grant: Option<LoginGrant>,
    /// Scope that calls needed beyond that of the login.
    wanted_scope: Option<String>,
}

impl EarlierLogin {
    /// Reads the login. A damaged one counts as missing.
    fn read(folder: &LoginFolder, target: &LoginTarget) -> Result<Self, FolderError> {
        let grant = match folder.read_grant(target) {
            Err(FolderError::Damaged { .. }) => None,
            read => read?,
        };
        Ok(EarlierLogin {
            grant,
            wanted_scope: folder.wanted_scope(target)?,
        })
    }
}

/// Finds where to log in to a server and which scope to ask for, including any that calls have
/// needed since the last login. Registers nothing.
///
/// # Errors
/// The server cannot be logged in to, or not in this way.
pub async fn find_login(
    fetcher: &Fetcher,
    folder: &LoginFolder,
    target: &LoginTarget,
    settings: &OAuthSettings,
    challenge: Option<&BearerChallenge>,
) -> Result<FoundLogin, LoginError> {
    let named = target.clone();
    let earlier = in_folder(folder, move |folder| EarlierLogin::read(folder, &named)).await?;
    let before = earlier.grant.as_ref();
    let wanted = earlier.wanted_scope.as_deref();
    let stepped_up = wanted.map(|scope| BearerChallenge::with_wanted(challenge, scope));
    let challenge = stepped_up.as_ref().or(challenge);
    let pin = pinned_issuer(settings, before);
    let discovered = discover(fetcher, target, settings, pin, challenge).await?;
    let scope = match choose_scope(&discovered, settings, challenge, before) {
        Ok(scope) => scope,
        Err(limit) => {
            // Reported once. If it stayed, it would refuse every later login, even one without that
            // scope.
            let named = target.clone();
            in_folder(folder, move |folder| folder.forget_wanted_scope(&named)).await?;
            return Err(limit);
        }
    };
    let AuthorizationServer {
        issuer,
        authorization_endpoint,
        ..
    } = &discovered.server;
    let moved_from = before
        .filter(|before| are_apart(&before.issuer, issuer))
        .map(|before| untrusted_url::host(&before.issuer));
    Ok(FoundLogin {
        is_elsewhere: are_apart(authorization_endpoint, &target.url) || moved_from.is_some(),
        moved_from,
        discovered,
        scope,
    })
}

/// Issuer that the config's client belongs to: the one of its first login.
fn pinned_issuer<'a>(settings: &OAuthSettings, before: Option<&'a LoginGrant>) -> Option<&'a Url> {
    let is_same = |before: &&LoginGrant| settings.client_id.as_ref() == Some(&before.client.id);
    before.filter(is_same).map(|before| &before.issuer)
}

fn choose_scope(
    discovered: &DiscoveryOutcome,
    settings: &OAuthSettings,
    challenge: Option<&BearerChallenge>,
    before: Option<&LoginGrant>,
) -> Result<ScopeChoice, LoginError> {
    let issuer = &discovered.server.issuer;
    // Scopes of one authorization server mean nothing at another.
    let before = before.filter(|before| before.issuer == *issuer);
    let sources = ScopeSources {
        configured: settings.scopes.as_deref(),
        challenge,
        resource: discovered.scopes_supported.as_deref(),
        server: discovered.server.scopes_supported.as_deref(),
        before: before.map(|before| EarlierScope {
            asked: before.scope_asked.as_deref(),
            step_ups: before.step_ups,
        }),
    };
    sources.choose().map_err(|_| LoginError::StepUpLimit {
        server: discovered.target.server.clone(),
        host: untrusted_url::host(issuer),
    })
}

/// True if two URLs do not belong together: their hosts differ, and neither is below the other.
fn are_apart(one: &Url, other: &Url) -> bool {
    let (Some(Host::Domain(one)), Some(Host::Domain(other))) = (one.host(), other.host()) else {
        return one.host() != other.host();
    };
    let one = one.trim_end_matches('.');
    let other = other.trim_end_matches('.');
    one != other && !is_below(one, other) && !is_below(other, one)
}

/// True if a host is below a domain, which must not be a top-level one.
fn is_below(host: &str, domain: &str) -> bool {
    let rest = host.strip_suffix(domain);
    domain.contains('.') && rest.is_some_and(|rest| rest.ends_with('.'))
}

/// Completes a login with its answer: takes the waiting login, exchanges the code and writes the
/// grant. Returns the server that the login is for.
///
/// `callback_path` is the path that the answer came to. `None`: it was pasted.
///
/// # Errors
/// The answer is not for a waiting login, or the authorization server issued no tokens.
pub async fn finish_login(
    fetcher: &Fetcher,
    folder: &LoginFolder,
    response: &AuthorizationResponse,
    callback_path: Option<&str>,
) -> Result<LoginTarget, LoginError> {
    let state = response.state().ok_or(LoginError::UnknownState)?.to_owned();
    let lock = lock_waiting(folder, state.clone()).await?;
    let asked = state.clone();
    let taken = in_folder(folder, move |folder| folder.take_pending(&asked)).await?;
    let pending = taken.ok_or(LoginError::UnknownState)?;
    let taken = TakenLogin { pending, lock };
    let ended = taken.finish(fetcher, folder, response, callback_path).await;
    if let Err(error) = &ended {
        // The command that started the login may be another process, and would otherwise keep
        // waiting.
        let reason = error.to_string();
        let _ = in_folder(folder, move |folder| folder.put_failure(&state, &reason)).await;
    }
    ended
}

/// Login that was taken for its answer.
struct TakenLogin {
    pending: PendingLogin,
    lock: RefreshLock,
}

impl TakenLogin {
    /// Exchanges the code of an answer, and writes the grant.
    async fn finish(
        self,
        fetcher: &Fetcher,
        folder: &LoginFolder,
        response: &AuthorizationResponse,
        callback_path: Option<&str>,
    ) -> Result<LoginTarget, LoginError> {
        let TakenLogin { pending, lock } = self;
        let code = match callback_path {
            Some(path) => response.check(&pending, path),
            None => response.check_pasted(&pending),
        }?;
        let target = pending.target();
        let obtained = Timestamp::now();
        let exchanged = exchange_code(fetcher, &pending, &code).await;
        let tokens = exchanged.map_err(|failure| LoginError::Token {
            server: target.server.clone(),
            failure,
        })?;
        let grant = grant_of(pending, tokens, obtained);
        let (named, written) = (target.clone(), grant.clone());
        let stored = in_folder(folder, move |folder| {
            // One that cannot be read cannot be revoked either.
            let replaced = folder.read_grant(&named).unwrap_or_default();
            folder.write_grant(&named, &written)?;
            // The login has asked for this scope. If the file stays, the next login asks for it
            // again.
            let _ = folder.forget_wanted_scope(&named);
            Ok(replaced)
        })
        .await;
        drop(lock);
        match stored {
            Ok(replaced) => {
                if let Some(replaced) = replaced.filter(|replaced| may_revoke(replaced, &grant)) {
                    revoke_in_time(fetcher, &target, &replaced).await;
                }
                Ok(target)
            }
            Err(failure) => {
                // Nobody will know these tokens, which are valid for longer than this attempt
                // takes.
                revoke_in_time(fetcher, &target, &grant).await;
                Err(failure)
            }
        }
    }
}

/// Returns true if a login can be revoked without harm to the one that has replaced it.
///
/// With any one token, some authorization servers revoke everything that a person granted to its
/// client (RFC 7009, section 2.1, leaves that to them). If both logins share a client, it keeps its
/// tokens.
fn may_revoke(replaced: &LoginGrant, by: &LoginGrant) -> bool {
    replaced.issuer != by.issuer || replaced.client.id != by.client.id
}

/// Locks the refresh of the login that an answer is for, because a refresh of the previous login
/// must not overwrite it. This happens before the answer is taken, so the answer can come again if
/// the lock is not available.
async fn lock_waiting(folder: &LoginFolder, state: String) -> Result<RefreshLock, LoginError> {
    let lock = in_folder(folder, move |folder| match folder.peek_pending(&state) {
        Ok(Some(pending)) => folder.lock_refresh(&pending.target()).map(Some),
        Ok(None) => Ok(None),
        // It is removed, so it is an error only once.
        Err(damaged @ FolderError::DamagedPending { .. }) => {
            folder.take_pending(&state)?;
            Err(damaged)
        }
        Err(failure) => Err(failure),
    });
    lock.await?.ok_or(LoginError::UnknownState)
}

fn grant_of(pending: PendingLogin, tokens: TokenSet, obtained: Timestamp) -> LoginGrant {
    LoginGrant {
        issuer: pending.issuer,
        token_endpoint: pending.token_endpoint,
        revocation_endpoint: pending.revocation_endpoint,
        client: pending.client,
        scope_asked: pending.scope_asked,
        resource: pending.resource,
        expires: tokens.expires_at(obtained),
        access: tokens.access,
        refresh: tokens.refresh,
        obtained,
        renewal: 0,
        ended: false,
        step_ups: pending.step_ups,
    }
}

/// Longest wait for an authorization server to revoke a login.
const REVOKE_PATIENCE: Duration = Duration::from_secs(8);

/// Revokes a login at its authorization server, if that can be reached, and forgets it.
///
/// # Errors
/// The login files cannot be used.
pub async fn log_out(
    fetcher: &Fetcher,
    folder: &LoginFolder,
    target: &LoginTarget,
) -> Result<LogoutOutcome, LoginError> {
    let locked = target.clone();
    let is_stored = move |folder: &LoginFolder| Ok(folder.grant_version(&locked)?.is_some());
    if !in_folder(folder, is_stored).await? {
        return Ok(LogoutOutcome::NotLoggedIn);
    }
    // A refresh that is under way would write the login back.
    let locked = target.clone();
    let lock = in_folder(folder, move |folder| folder.lock_refresh(&locked)).await?;
    let read = target.clone();
    let grant = match in_folder(folder, move |folder| folder.read_grant(&read)).await {
        Ok(grant) => grant,
        // It can't be revoked, but it can be removed.
        Err(LoginError::Folder(FolderError::Damaged { .. })) => None,
        Err(error) => return Err(error),
    };
    let is_revoked = match &grant {
        Some(grant) => revoke_in_time(fetcher, target, grant).await,
        None => false,
    };
    let removed = target.clone();
    let was_there = in_folder(folder, move |folder| folder.remove_grant(&removed)).await?;
    drop(lock);
    Ok(match (was_there, is_revoked) {
        (false, _) => LogoutOutcome::NotLoggedIn,
        (true, true) => LogoutOutcome::Revoked,
        (true, false) => LogoutOutcome::Forgotten,
    })
}

/// Revokes a login, if its authorization server answers in time. Returns true if it did.
async fn revoke_in_time(fetcher: &Fetcher, target: &LoginTarget, grant: &LoginGrant) -> bool {
    let revoked = tokio::time::timeout(REVOKE_PATIENCE, revoke(fetcher, target, grant)).await;
    revoked.is_ok_and(|revoked| revoked.is_ok())
}

/// Runs a folder operation on a thread that may block.
async fn in_folder<T: Send + 'static>(
    folder: &LoginFolder,
    work: impl FnOnce(&LoginFolder) -> Result<T, FolderError> + Send + 'static,
) -> Result<T, LoginError> {
    let folder = folder.clone();
    match tokio::task::spawn_blocking(move || work(&folder)).await {
        Ok(done) => Ok(done?),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(LoginError::Interrupted),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_login_is_elsewhere_unless_one_host_is_the_other_or_below_it() {
        for (one, other, expected) in [
            (
                "https://mcp.linear.app/mcp",
                "https://mcp.linear.app/authorize",
                false,
            ),
            ("https://mcp.linear.app", "https://linear.app", false),
            ("https://linear.app.", "https://mcp.linear.app", false),
            ("https://localhost:1", "http://localhost:2", false),
            ("http://127.0.0.1:1", "http://127.0.0.1:2", false),
            ("https://mcp.linear.app", "https://auth.linear.app", true),
            ("https://evil-linear.app", "https://linear.app", true),
            (
                "https://linear.app.evil.example",
                "https://linear.app",
                true,
            ),
            ("https://mcp.app", "https://app", true),
            ("https://a.localhost", "https://localhost", true),
            ("http://127.0.0.1", "http://127.0.0.2", true),
            ("http://127.0.0.1", "http://localhost", true),
            ("http://1.127.0.0.1.example", "http://127.0.0.1", true),
            ("http://[::1]", "http://[::2]", true),
        ] {
            assert_eq!(are_apart(&url(one), &url(other)), expected, "{one} {other}");
            assert_eq!(are_apart(&url(other), &url(one)), expected, "{other} {one}");
        }
    }
}
