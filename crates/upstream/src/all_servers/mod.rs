//! Runtime that all servers share: metrics, reaper, store, subscriptions, certificates, proxies.
//! Owns what is loaded once for all. Does not know any single server. Invariant: certificates and
//! the environment are read on first use.

pub(crate) mod demand_counter;
pub(crate) mod owner_subscriptions;
pub(crate) mod poll_turns;
pub(crate) mod session_store;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::all_servers::owner_subscriptions::OwnerSubscriptions;
use crate::all_servers::poll_turns::PollTurns;
use crate::all_servers::session_store::UpstreamSessionStore;
use crate::settings::{ConnectTarget, ServerSettings};
use moongate_model::PrincipalKey;
use moongate_session::store::{StateStore, StoredRows};
use moongate_telemetry::{MemoryBudget, Metrics};
use moongate_transport::credential_source::{
    CredentialDirectory, CredentialSource, CredentialTarget,
};
use moongate_transport::proxy::{ProxyAddress, ProxyChoice, ProxyEnvironment};
use moongate_transport::reaper::Reaper;
use moongate_transport::trust::{self, CaFile};
use moongate_transport::{LinkError, MemoryPipe};

/// Longest time to end sessions at servers when the gateway stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Runtime that all servers share.
pub struct UpstreamRuntime {
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Process that ends children if the gateway cannot.
    pub reaper: Arc<Reaper>,
    /// Budget that the servers' messages take their memory from.
    pub memory: Arc<MemoryBudget>,
    /// Store that outlives the process.
    pub store: StateStore,
    /// Tasks that end sessions at servers.
    pub closing: TaskTracker,
    /// Subscriptions of clients, for their dedicated connections.
    pub subscriptions: Arc<OwnerSubscriptions>,
    /// Sessions at servers that are persisted for the next process.
    pub(crate) session_store: Arc<UpstreamSessionStore>,
    /// Turns of polls of servers that announce no changes.
    pub(crate) poll_turns: PollTurns,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
    roots: OnceLock<rustls::RootCertStore>,
    proxies: OnceLock<ProxyEnvironment>,
    /// Dialer that replaces all transports, if there is one.
    pub(crate) dialer: Option<ServerDialer>,
    /// Directory of credentials that the config does not have.
    credentials: Option<Arc<dyn CredentialDirectory>>,
}

/// Function that opens a pipe to the server of this name: its output and its input.
pub type ServerDialer = Arc<dyn Fn(&str) -> Result<MemoryPipe, LinkError> + Send + Sync>;

impl UpstreamRuntime {
    /// Creates the context with a store in memory.
    pub fn new(metrics: Arc<Metrics>, reaper: Reaper) -> Self {
        UpstreamRuntime::with_store(metrics, reaper, StateStore::memory())
    }

    /// Creates the context with a store that outlives the process.
    pub fn with_store(metrics: Arc<Metrics>, reaper: Reaper, store: StateStore) -> Self {
        UpstreamRuntime {
            memory: MemoryBudget::unlimited(&metrics),
            metrics,
            reaper: Arc::new(reaper),
            store,
            closing: TaskTracker::new(),
            subscriptions: Arc::default(),
            session_store: Arc::default(),
            poll_turns: PollTurns::default(),
            tls: OnceLock::new(),
            roots: OnceLock::new(),
            proxies: OnceLock::new(),
            dialer: None,
            credentials: None,
        }
    }

    /// Takes the memory of the servers' messages from this budget.
    #[must_use]
    pub fn with_memory(self, memory: Arc<MemoryBudget>) -> Self {
        UpstreamRuntime { memory, ..self }
    }

    /// Sends servers the credentials of this directory.
    #[must_use]
    pub fn with_credentials(self, credentials: Option<Arc<dyn CredentialDirectory>>) -> Self {
        UpstreamRuntime {
            credentials,
            ..self
        }
    }

    /// Returns true if credentials are kept somewhere, such as those of logins.
    pub(crate) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// Returns the source of a server's credential, for a connection of one person or of several.
    /// Only requests over HTTP carry one.
    pub(crate) fn find_credentials(
        &self,
        settings: &ServerSettings,
        person: Option<&PrincipalKey>,
    ) -> Option<Arc<dyn CredentialSource>> {
        let ConnectTarget::Http { url, .. } = &settings.connect else {
            return None;
        };
        let target = CredentialTarget {
            server: &settings.name,
            url,
            person,
        };
        self.credentials.as_ref()?.find_source(&target)
    }

    /// Restores the persisted sessions of a previous process.
    pub fn restore(&self, rows: StoredRows) {
        self.session_store.restore(rows);
    }

    /// Waits until servers know that their sessions have ended, at most `CLOSE_TIMEOUT`.
    pub async fn wait_closed(&self) {
        // A tracker's `wait` ends only once it is closed, even if it has no task.
        self.closing.close();
        // A server that does not answer must not delay the exit. It ends such sessions after its
        // own timeout.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.closing.wait()).await;
    }

    /// Replaces all configured transports by pipes of the dialer. A server with a URL speaks HTTP
    /// over its pipe.
    #[must_use]
    pub fn with_dialer(self, dialer: ServerDialer) -> Self {
        UpstreamRuntime {
            dialer: Some(dialer),
            ..self
        }
    }

    /// Replaces the system's certificates by this TLS configuration.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        match tls {
            Some(tls) => UpstreamRuntime {
                tls: OnceLock::from(tls),
                ..self
            },
            None => self,
        }
    }

    /// Returns the TLS configuration of a server. Certificates are read on first use, since the
    /// system's take a while.
    pub(crate) fn tls(&self, ca: Option<&CaFile>) -> Arc<rustls::ClientConfig> {
        match ca {
            Some(ca) => ca.tls_config(|| self.system_roots()),
            None => self
                .tls
                .get_or_init(|| trust::client_config(self.system_roots()))
                .clone(),
        }
    }

    fn system_roots(&self) -> rustls::RootCertStore {
        self.roots.get_or_init(trust::system_roots).clone()
    }

    /// Returns the proxy on the path to a server. The environment is read on first use.
    pub(crate) fn proxy(&self, url: &url::Url, choice: &ProxyChoice) -> Option<ProxyAddress> {
        match choice {
            ProxyChoice::Fixed(proxy) => Some(proxy.clone()),
            ProxyChoice::Direct => None,
            ProxyChoice::Environment => {
                self.proxies.get_or_init(ProxyEnvironment::read).choose(url)
            }
        }
    }
}
