//! Start of a gateway from its plan, and its orderly stop.
//!
//! Owns the order of starting and stopping. Does not serve requests. Invariant: the listeners are
//! up before any server is connected, and everything that was started is stopped.

mod background_tasks;
mod broker_parts;
mod connection_slots;
pub(crate) mod configured_servers;
pub(crate) mod doctor;
mod file_digests;
mod listeners;
pub(crate) mod logins;
mod login_parts;
mod logins_control;
mod metadata_address;
mod people_control;
mod plan_diff;
mod plan_settings;
pub(crate) mod probe;
mod reload;
mod persistence;
mod auth_methods;
mod watch_files;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::auth_methods::open_methods;
use crate::app::background_tasks::BackgroundTasks;
use crate::app::broker_parts::PeopleLogins;
use crate::app::listeners::listener_names;
use crate::app::logins::follow_logins;
use crate::app::persistence::PersistentState;
use crate::app::plan_settings::{
    admission_settings, downstream_state, gateway_settings, guard_children, hosts, request_limits,
};
use crate::app::reload::ReloadTargets;
use moongate_access::auth::AuthMethods;
use moongate_access::policy::AccessTable;
use moongate_broker::recheck_forever;
use moongate_config::Plan;
use moongate_gateway::Gateway;
use moongate_jsonrpc::json::ByteString;
use moongate_listener::{
    AdmissionControl, ListenerState, ListenerTls, SharedListenerState, StallDetector,
    StdioConnection, StdioRefused,
};
use moongate_protocol::DownstreamState;
use moongate_session::Sessions;
use moongate_session::store::StateStore;
use moongate_telemetry::{DroppedItem, GatewayMemory, MemoryLimit, Metrics};
use moongate_transport::reaper::Reaper;
use moongate_upstream::UpstreamRuntime;

pub use login_parts::LoginParts;
pub use plan_diff::diff_plans;
pub use reload::{ConfigReloader, ReloadOutcome, ReloadPreview, ReloadSource};

/// Running gateway.
pub struct GatewayApp {
    /// Addresses of the client listeners.
    pub addresses: Vec<SocketAddr>,
    /// Unix sockets of the client listeners, as `unix:PATH`.
    pub sockets: Vec<String>,
    /// Addresses of the listeners for newline-delimited messages.
    pub line_addresses: Vec<SocketAddr>,
    /// Address of the admin listener.
    pub admin: Option<SocketAddr>,
    /// Unix socket of the admin listener.
    pub admin_socket: Option<String>,
    /// Gateway with its servers.
    pub gateway: Arc<Gateway>,
    /// Metrics of this gateway.
    pub metrics: Arc<Metrics>,
    /// Reloader of the configuration.
    pub reloader: Arc<ConfigReloader>,
    drain: Duration,
    store: StateStore,
    tasks: BackgroundTasks,
}

impl GatewayApp {
    /// Starts a gateway whose configuration is not reloaded.
    pub async fn start(plan: Plan, program: Option<&Path>) -> anyhow::Result<GatewayApp> {
        GatewayApp::start_from(plan, None, program).await
    }

    /// Starts a gateway. `source` is the origin of the plan. `program` is this binary; it is
    /// started as the reaper of children, and without it there is none.
    ///
    /// Fails if an address cannot be bound.
    pub async fn start_from(
        plan: Plan,
        source: Option<ReloadSource>,
        program: Option<&Path>,
    ) -> anyhow::Result<GatewayApp> {
        GatewayApp::start_with(plan, source, program, LoginParts::default()).await
    }

    /// Starts a gateway with these parts of a login.
    pub async fn start_with(
        plan: Plan,
        source: Option<ReloadSource>,
        program: Option<&Path>,
        login: LoginParts,
    ) -> anyhow::Result<GatewayApp> {
        let metrics = Arc::new(Metrics::new());
        // First, since opening the state on disk may take a while.
        let store = StateStore::open(plan.state.clone(), metrics.clone());
        // Bound before anything is started: a port in use must fail the start without side effects.
        let bound = listeners::bind(&plan, &login).await?;
        let (login, logins) = login.with_logins_of(&plan, bound.addresses()).await?;
        let people = PeopleLogins::open(&plan, &login, bound.addresses(), &store, &metrics).await?;
        let login = login.with_people(people.routes());
        let open_listener = bound.open_client_listener(&login);
        // A broken certificate must fail the start, too, and likewise without side effects.
        let tls = tls(&plan, &metrics)?;
        let memory = GatewayMemory::new(plan.limits.memory_limit(), &metrics);
        let shared = upstream_runtime(&metrics, &store, &memory, &login);
        // Before any server: the first child registers with the reaper already.
        guard_children(&plan, program, &shared.reaper);
        let draining = CancellationToken::new();
        let (auth, access) = open_methods(&plan, &login, bound.addresses(), &people);
        let gateway = Gateway::new(
            gateway_settings(&plan, access.clone()),
            auth.principals().clone(),
            shared.clone(),
        );
        let downstream_state = downstream_state(&plan, &metrics, &draining, &store, &memory.budget);
        let state = listener_state(
            &plan,
            &gateway,
            (&auth, &access),
            downstream_state,
            memory.clone(),
        );
        let shared_state: SharedListenerState = Arc::new(ArcSwap::from_pointee(state));
        let catalog_age = plan.times.catalog_age.0;
        let persistent = PersistentState::from_parts(&shared_state, &gateway, &shared, catalog_age);
        let persistent = persistent.with_broker(people.broker.clone());
        // Before the first request is accepted: clients expect their sessions. The wait for a slow
        // disk is bounded.
        persistent.begin(plan.state.required).await?;
        let watches_files = source.is_some();
        let targets = ReloadTargets {
            program: program.map(Path::to_owned),
            gateway: gateway.clone(),
            listener_state: shared_state.clone(),
            shared: shared.clone(),
            tls,
            open_listener,
            admin_access: Arc::new(ArcSwap::from_pointee(plan.admin_access.clone())),
            sign_in: Arc::default(),
            logins,
            broker: people.broker,
        };
        let reloader = ConfigReloader::new(plan.clone(), source, targets);
        let (addresses, sockets) = listener_names(&bound.clients);
        let (line_addresses, _) = listener_names(&bound.lines);
        let (admins, admin_sockets) = listener_names(&bound.admin);
        let served = bound.serve(&plan, &reloader, &draining, &login.people);
        let mut tasks = start_tasks(draining, served, &reloader, memory);
        // Servers are connected last, so that listeners and probes answer meanwhile.
        gateway.start();
        if watches_files {
            tasks.watch_files(reloader.clone()).await;
        }
        Ok(GatewayApp {
            drain: plan.times.drain.0,
            admin: admins.into_iter().next(),
            admin_socket: admin_sockets.into_iter().next(),
            reloader,
            addresses,
            sockets,
            line_addresses,
            gateway,
            metrics,
            store,
            tasks,
        })
    }

    /// Opens a client on standard streams, at this endpoint. An empty name is the endpoint over all
    /// servers.
    pub fn pipe(
        &self,
        endpoint: &str,
        credentials: &http::HeaderMap,
    ) -> Result<StdioConnection, StdioRefused> {
        self.reloader.targets.listener_state.load_full().open_stdio(
            endpoint,
            credentials,
            self.drain,
        )
    }

    /// Reads the certificate files now, instead of within ten seconds. A configuration reload does
    /// this, too.
    pub async fn reload_certificate(&self) {
        self.reloader.reload_certificate().await;
    }

    /// True if clients connect by HTTPS.
    pub fn is_secure(&self) -> bool {
        self.reloader.targets.tls.is_some()
    }

    /// Refuses new requests from now on. [`GatewayApp::stop`] waits for the running ones.
    pub fn drain(&self) {
        self.tasks.begin_drain();
    }

    /// Stops in order: refuses requests, ends streams, lets calls finish within the drain time,
    /// stops the servers.
    pub async fn stop(mut self) {
        self.tasks.begin_drain();
        // A reload during the stop would connect servers again.
        self.tasks.stop_watching();
        let targets = &self.reloader.targets;
        let downstream = targets.listener_state.load().downstream.clone();
        // Before the drain: a process that takes over already has clients.
        downstream.sessions.persist_all();
        if let Some(broker) = &targets.broker {
            broker.settle().await;
        }
        // Closed before the drain: the next process may be waiting for the lock on the file.
        self.store.close().await;
        self.tasks.join().await;
        // Parked calls have no client any more; their servers get a cancellation.
        downstream.parked_calls.clear();
        self.gateway.stop().await;
        targets.shared.wait_closed().await;
        // Once nothing is sent any more. The end of the process would lose a new refresh token.
        if let Some(logins) = &targets.logins {
            logins.settle().await;
        }
        // The reaper's exit is awaited with a blocking call.
        let shared = targets.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.reaper.stop()).await;
    }
}

/// Creates what the connections to servers share. Nothing is connected.
fn upstream_runtime(
    metrics: &Arc<Metrics>,
    store: &StateStore,
    memory: &GatewayMemory,
    login: &LoginParts,
) -> Arc<UpstreamRuntime> {
    let shared = UpstreamRuntime::with_store(metrics.clone(), Reaper::disabled(), store.clone());
    let shared = shared
        .with_memory(memory.budget.clone())
        .with_credentials(login.credentials.clone());
    Arc::new(shared)
}

fn tls(plan: &Plan, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<ListenerTls>>> {
    let loaded = plan
        .tls
        .as_ref()
        .map(|settings| ListenerTls::load(settings.clone(), metrics.clone()));
    loaded
        .transpose()
        .map_err(|e| anyhow::anyhow!("gateway.tls.{}: {}", e.setting, e.message))
}

/// Starts the tasks that run as long as the listeners.
fn start_tasks(
    draining: CancellationToken,
    listeners: JoinSet<()>,
    reloader: &Arc<ConfigReloader>,
    memory: GatewayMemory,
) -> BackgroundTasks {
    let targets = &reloader.targets;
    let downstream = targets.listener_state.load().downstream.clone();
    let stop = draining.clone();
    let mut tasks = BackgroundTasks::start(draining, listeners, downstream.parked_calls.clone());
    tasks.spawn_until_drained(enforce_limits(
        memory,
        downstream.sessions.clone(),
        targets.gateway.clone(),
    ));
    tasks.spawn_until_drained(reloader.clone().end_expired_keys());
    if let Some(tls) = targets.tls.clone() {
        tasks.spawn_until_drained(tls.watch());
    }
    if let Some(logins) = targets.logins.clone() {
        tasks.spawn_until_drained(follow_logins(logins, targets.gateway.clone(), stop));
    }
    if let Some(broker) = targets.broker.clone() {
        tasks.spawn_until_drained(recheck_forever(broker));
    }
    tasks
}

/// Enforces the memory limit and expires sessions until the gateway drains.
async fn enforce_limits(memory: GatewayMemory, sessions: Arc<Sessions>, gateway: Arc<Gateway>) {
    let watching = memory.watch.watch(|| {
        memory.budget.relieve();
    });
    // A dedicated connection keeps sending messages that only a session in memory receives.
    let expiring =
        sessions.expire_forever(|session: &ByteString| gateway.has_dedicated_connection(session));
    tokio::join!(watching, expiring);
}

fn listener_state(
    plan: &Plan,
    gateway: &Arc<Gateway>,
    (auth, access): (&Arc<AuthMethods>, &AccessTable),
    downstream: DownstreamState,
    memory: GatewayMemory,
) -> ListenerState {
    let hosts = hosts(plan);
    let limits = request_limits(plan);
    let downstream = Arc::new(downstream);
    let stall_detector = StallDetector::new(
        plan.limits.write_timeout.0,
        downstream
            .metrics
            .calls
            .dropped
            .series(DroppedItem::UnreadResponse),
    );
    // In the order of what an end costs: nothing was started for a body that arrives.
    let admission = AdmissionControl::new(
        admission_settings(plan),
        access,
        auth.principals(),
        memory.clone(),
    );
    memory.budget.relieved_by(downstream.parked_calls.clone());
    memory.budget.relieved_by(stall_detector.clone());
    let refused_keys = Arc::default();
    ListenerState {
        endpoints: gateway.endpoints(),
        auth: auth.clone(),
        downstream,
        hosts,
        limits,
        admission,
        stall_detector,
        refused_keys,
    }
}

/// Creates the gateway of a plan, and its methods of authentication. Nothing is started or
/// connected.
pub fn gateway_at_rest(plan: &Plan) -> (Arc<Gateway>, Arc<AuthMethods>) {
    let shared = Arc::new(UpstreamRuntime::new(
        Arc::new(Metrics::new()),
        Reaper::disabled(),
    ));
    let (auth, access) = AuthMethods::new(&plan.auth);
    (
        Gateway::new(
            gateway_settings(plan, access),
            auth.principals().clone(),
            shared,
        ),
        auth,
    )
}

/// Gateway without listeners or processes, whose requests and servers are supplied by the caller.
pub struct GatewayCore {
    /// Gateway with its servers; none is connected before [`Gateway::start`].
    pub gateway: Arc<Gateway>,
    /// State of the request handlers.
    pub shared_state: SharedListenerState,
    /// Reloader of the configuration.
    pub reloader: Arc<ConfigReloader>,
    /// Cancelled when new requests are refused.
    pub draining: CancellationToken,
}

impl GatewayCore {
    /// Builds everything between the listeners and the links.
    pub fn new(plan: &Plan, shared: Arc<UpstreamRuntime>) -> Self {
        GatewayCore::with_methods(plan, shared, AuthMethods::new(&plan.auth))
    }

    /// Builds it with these methods of authentication.
    pub fn with_methods(
        plan: &Plan,
        shared: Arc<UpstreamRuntime>,
        (auth, access): (Arc<AuthMethods>, AccessTable),
    ) -> Self {
        auth.principals().set_people_max(plan.limits.principals);
        let memory = GatewayMemory::new(MemoryLimit::None, &shared.metrics);
        let store = StateStore::memory();
        let draining = CancellationToken::new();
        let downstream = downstream_state(plan, &shared.metrics, &draining, &store, &memory.budget);
        let gateway = Gateway::new(
            gateway_settings(plan, access.clone()),
            auth.principals().clone(),
            shared.clone(),
        );
        let state = listener_state(plan, &gateway, (&auth, &access), downstream, memory);
        let shared_state: SharedListenerState = Arc::new(ArcSwap::from_pointee(state));
        let program = None;
        let tls = None;
        let open_listener = None;
        let admin_access = Arc::new(ArcSwap::from_pointee(plan.admin_access.clone()));
        let targets = ReloadTargets {
            program,
            gateway: gateway.clone(),
            listener_state: shared_state.clone(),
            shared,
            tls,
            open_listener,
            admin_access,
            sign_in: Arc::default(),
            logins: None,
            broker: None,
        };
        let reloader = ConfigReloader::new(plan.clone(), None, targets);
        GatewayCore {
            gateway,
            shared_state,
            reloader,
            draining,
        }
    }
}
