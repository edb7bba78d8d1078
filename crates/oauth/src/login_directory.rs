//! Directory of the credentials for a gateway's servers: logins, commands and client tokens.
//!
//! Owns which server has which source, and notices logins that appear or disappear. Does not renew
//! credentials (`grant_source.rs` and other sources). Invariant: a source is found by name and
//! URL together, so a server whose URL has changed never gets its old credential.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use moongate_transport::credential_source::{
    CredentialDirectory, CredentialSource, CredentialTarget,
};
use moongate_transport::fetcher::Fetcher;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::task::TaskTracker;

use crate::client_token_source::ClientTokenSource;
use crate::command_source::CommandSource;
use crate::grant_source::{GrantSource, LoginFacts};
use crate::login_folder::LoginFolder;
use crate::login_problem::{LoginProblem, LoginProblemKind};
use crate::settings::{LoginTarget, ServerAuth};
use crate::token_endpoint::REFRESH_MAX;

/// Pause between two checks of the folder.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for renewals before the process exits: enough for a slow server and the write that
/// follows.
const SETTLE_MAX: Duration = REFRESH_MAX.saturating_add(Duration::from_secs(10));

/// Logins of a gateway's servers.
pub struct LoginDirectory {
    folder: Option<LoginFolder>,
    /// Reason why the folder cannot be used, if there is one.
    folder_problem: Option<String>,
    fetcher: Arc<Fetcher>,
    servers: ArcSwap<ServerMap>,
    /// Logins as last reported.
    reported: Mutex<BTreeMap<LoginTarget, Option<LoginFacts>>>,
    replaced: Notify,
    /// Renewals whose request has been sent.
    renewals: TaskTracker,
}

type ServerMap = BTreeMap<String, ServerEntry>;

/// Server with a credential.
#[derive(Clone, Debug, PartialEq)]
pub struct LoginServer {
    /// Server and its URL.
    pub target: LoginTarget,
    /// Source of its credential.
    pub auth: ServerAuth,
}

/// State of a server's login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    /// There is none.
    None,
    /// There is one.
    LoggedIn {
        /// Time at which its token expires, if known.
        expires: Option<Timestamp>,
        /// True if it renews itself.
        renews: bool,
    },
    /// It has ended, and only a new login helps.
    Ended,
}

struct ServerEntry {
    server: LoginServer,
    source: EntrySource,
}

#[derive(Clone)]
enum EntrySource {
    /// Logins cannot be stored.
    Missing,
    Grant(Arc<GrantSource>),
    /// No person logs in: a command prints the credential, or a client gets it for itself.
    Automatic(Arc<dyn CredentialSource>),
}

impl LoginDirectory {
    /// Creates a directory without servers. Without a folder, logins cannot be stored, and only
    /// sources without a person work.
    pub fn new(folder: Option<LoginFolder>, fetcher: Arc<Fetcher>) -> Self {
        LoginDirectory {
            folder,
            folder_problem: None,
            fetcher,
            servers: ArcSwap::default(),
            reported: Mutex::default(),
            replaced: Notify::new(),
            renewals: TaskTracker::new(),
        }
    }

    /// Sets the reason why the folder cannot be used.
    #[must_use]
    pub fn with_folder_problem(self, problem: Option<String>) -> Self {
        LoginDirectory {
            folder_problem: problem,
            ..self
        }
    }

    /// Creates a directory of other servers in the same folder. Settling this one also waits for
    /// the other's renewals.
    pub fn of_others(&self, servers: Vec<LoginServer>) -> LoginDirectory {
        let others = LoginDirectory {
            folder_problem: self.folder_problem.clone(),
            renewals: self.renewals.clone(),
            ..LoginDirectory::new(self.folder.clone(), self.fetcher.clone())
        };
        others.replace(servers);
        others
    }

    /// Waits until every renewal that was sent is on disk, and lets no new one start. The process
    /// calls this before it exits, because the authorization server may have replaced the refresh
    /// token, and only the response has the new one.
    pub async fn settle(&self) {
        self.renewals.close();
        if timeout(SETTLE_MAX, self.renewals.wait()).await.is_err() {
            tracing::warn!(wait = ?SETTLE_MAX, "login renewal given up");
        }
    }

    /// Switches to the servers of a config. Unchanged sources stay, along with what they hold in
    /// memory. Blocks while it reads the grants of new servers.
    pub fn replace(&self, servers: Vec<LoginServer>) {
        let mut reported = self.reported.lock();
        let before = self.servers.load_full();
        let entries = servers.into_iter().map(|server| {
            let name = server.target.server.clone();
            let source = self.source_for(&server, before.get(&name));
            (name, ServerEntry { server, source })
        });
        let entries: ServerMap = entries.collect();
        let logins = entries.values().filter_map(|entry| {
            let EntrySource::Grant(source) = &entry.source else {
                return None;
            };
            let target = &entry.server.target;
            let facts = match reported.get(target) {
                Some(facts) => *facts,
                None => source.facts(),
            };
            Some((target.clone(), facts))
        });
        *reported = logins.collect();
        self.servers.store(Arc::new(entries));
        self.replaced.notify_one();
    }

    /// Returns the source for a server. Reuses the old one if nothing that it uses has changed.
    fn source_for(&self, server: &LoginServer, before: Option<&ServerEntry>) -> EntrySource {
        let before = before.filter(|entry| entry.server.target == server.target);
        match (&server.auth, before) {
            // OAuth settings apply to the next login. An existing grant stays as it was issued.
            (ServerAuth::OAuth(_), Some(entry)) if entry.source.is_grant() => entry.source.clone(),
            (ServerAuth::Command(_) | ServerAuth::ClientCredentials(_), Some(entry))
                if entry.server.auth == server.auth =>
            {
                entry.source.clone()
            }
            (ServerAuth::OAuth(_), _) => self.new_grant_source(&server.target),
            (ServerAuth::Command(settings), _) => {
                let name = server.target.server.clone();
                EntrySource::Automatic(Arc::new(CommandSource::new(name, settings.clone())))
            }
            (ServerAuth::ClientCredentials(settings), _) => {
                let (target, settings) = (server.target.clone(), settings.clone());
                let source = ClientTokenSource::new(target, settings, self.fetcher.clone());
                EntrySource::Automatic(Arc::new(source))
            }
        }
    }

    fn new_grant_source(&self, target: &LoginTarget) -> EntrySource {
        let Some(folder) = &self.folder else {
            return EntrySource::Missing;
        };
        let fetcher = self.fetcher.clone();
        let renewals = self.renewals.clone();
        let source = GrantSource::new(folder.clone(), fetcher, target.clone(), renewals);
        EntrySource::Grant(Arc::new(source))
    }

    /// Returns the folder of logins.
    pub fn folder(&self) -> Option<&LoginFolder> {
        self.folder.as_ref()
    }

    /// Returns the reason why the folder cannot be used, if there is one.
    pub fn folder_problem(&self) -> Option<&str> {
        self.folder_problem.as_deref()
    }

    /// Returns the fetcher that logins use.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Returns the settings of a server.
    pub fn settings_of(&self, server: &str) -> Option<LoginServer> {
        let servers = self.servers.load();
        servers.get(server).map(|entry| entry.server.clone())
    }

    /// Returns the state of a server's login. Servers that no person logs in to have none.
    pub fn login_state(&self, server: &str) -> LoginState {
        let Some(source) = self.grant_source(server) else {
            return LoginState::None;
        };
        source.reload();
        match source.facts() {
            None => LoginState::None,
            Some(facts) if facts.is_over => LoginState::Ended,
            Some(facts) => LoginState::LoggedIn {
                expires: facts.expires,
                renews: facts.renews,
            },
        }
    }

    /// Returns what keeps a server's login from being read, renewed or written to disk.
    pub fn problem(&self, server: &str) -> Option<LoginProblem> {
        self.problem_of(&self.servers.load().get(server)?.source)
    }

    /// Returns the problems of all servers. Blocks while it reads their files.
    pub fn problems(&self) -> Vec<(String, LoginProblem)> {
        let servers = self.servers.load();
        let problems = servers.iter().filter_map(|(name, entry)| {
            if let EntrySource::Grant(source) = &entry.source {
                source.reload();
            }
            Some((name.clone(), self.problem_of(&entry.source)?))
        });
        problems.collect()
    }

    fn problem_of(&self, source: &EntrySource) -> Option<LoginProblem> {
        match source {
            EntrySource::Grant(source) => source.problem(),
            EntrySource::Missing => self.folder_problem.clone().map(|cause| LoginProblem {
                kind: LoginProblemKind::Folder,
                cause,
            }),
            EntrySource::Automatic(_) => None,
        }
    }

    fn grant_source(&self, server: &str) -> Option<Arc<GrantSource>> {
        match &self.servers.load().get(server)?.source {
            EntrySource::Grant(source) => Some(source.clone()),
            EntrySource::Missing | EntrySource::Automatic(_) => None,
        }
    }

    /// Waits until logins appear or disappear, or a refused token can be tried again. Returns the
    /// servers, and ignores renewals. Checks the folder once a second, since other processes write
    /// there.
    pub async fn changed(&self) -> Vec<String> {
        let mut ticks = interval(POLL_PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sources = self.grant_sources();
            if sources.is_empty() {
                self.replaced.notified().await;
                continue;
            }
            let reading = spawn_blocking(move || {
                for source in sources {
                    source.reload();
                }
            });
            // A panic in one check does not affect the others, and the next check comes soon.
            let _ = reading.await;
            let changed = self.report_changes();
            if !changed.is_empty() {
                return changed;
            }
        }
    }

    fn grant_sources(&self) -> Vec<Arc<GrantSource>> {
        let servers = self.servers.load();
        let sources = servers.values().filter_map(|entry| match &entry.source {
            EntrySource::Grant(source) => Some(source.clone()),
            EntrySource::Missing | EntrySource::Automatic(_) => None,
        });
        sources.collect()
    }

    /// Compares the logins with those last reported.
    fn report_changes(&self) -> Vec<String> {
        let mut reported = self.reported.lock();
        let mut changed = Vec::new();
        for (name, entry) in self.servers.load().iter() {
            let EntrySource::Grant(source) = &entry.source else {
                continue;
            };
            let facts = source.facts();
            let before = reported.insert(entry.server.target.clone(), facts);
            if is_change(before.flatten().as_ref(), facts.as_ref()) || source.take_retry() {
                changed.push(name.clone());
            }
        }
        changed
    }
}

impl CredentialDirectory for LoginDirectory {
    fn find_source(&self, target: &CredentialTarget<'_>) -> Option<Arc<dyn CredentialSource>> {
        // A login is the operator's, so a connection for one person uses it, too.
        let servers = self.servers.load();
        let entry = servers.get(target.server)?;
        if entry.server.target.url != *target.url {
            return None;
        }
        match &entry.source {
            EntrySource::Missing => None,
            EntrySource::Automatic(source) => Some(source.clone()),
            EntrySource::Grant(source) => {
                source.reload();
                // Without a login, requests cost no more than without this directory.
                let found = source.has_login().then(|| source.clone());
                found.map(|source| source as Arc<dyn CredentialSource>)
            }
        }
    }
}

impl EntrySource {
    fn is_grant(&self) -> bool {
        match self {
            EntrySource::Grant(_) => true,
            EntrySource::Missing | EntrySource::Automatic(_) => false,
        }
    }
}

/// Returns true if a login appeared, disappeared, ended, or was replaced.
fn is_change(before: Option<&LoginFacts>, now: Option<&LoginFacts>) -> bool {
    match (before, now) {
        (None, None) => false,
        (Some(before), Some(now)) => before.is_followed_by_another(now),
        (None, Some(_)) | (Some(_), None) => true,
    }
}

#[cfg(test)]
mod tests;
