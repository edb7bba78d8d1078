//! Start of a gateway from its plan, and its orderly stop.
//!
//! Owns the order of starting and stopping. Does not serve requests. Invariant: the listeners are
//! up before any server is connected, and everything that was started is stopped.

mod background_tasks;
mod connection_places;
pub(crate) mod configured_servers;
pub(crate) mod doctor;
mod file_digests;
mod metadata_address;
mod plan_diff;
mod plan_settings;
pub(crate) mod probe;
mod reload;
mod persistence;
mod watch_files;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::background_tasks::BackgroundTasks;
use crate::app::connection_places::ConnectionPlaces;
use crate::app::persistence::PersistentState;
use crate::app::plan_settings::{
    admission_settings, downstream_state, gateway_settings, guard_children, hosts, request_limits,
};
use crate::app::reload::ReloadTargets;
use moongate_access::auth::{AuthMethods, Authenticator, PrincipalTable};
use moongate_access::policy::AccessTable;
use moongate_admin::{AdminState, ConfigEditor, EventFeed, Examiner, OperatorCalls, ProbeSlots};
use moongate_config::Plan;
use moongate_gateway::Gateway;
use moongate_jsonrpc::json::ByteString;
use moongate_listener::{
    self, AdmissionControl, BoundListener, ConnectionLimit, ConnectionService, InheritedSockets,
    ListenAddress, ListenSettings, ListenerState, ListenerTls, PeopleRoutes, SharedListenerState,
    StallDetector, StdioConnection, StdioRefused, TlsSettings,
};
use moongate_protocol::DownstreamState;
use moongate_session::Sessions;
use moongate_session::store::StateStore;
use moongate_telemetry::{DroppedItem, GatewayMemory, MemoryLimit, Metrics};
use moongate_transport::credential_source::CredentialDirectory;
use moongate_transport::reaper::Reaper;
use moongate_upstream::UpstreamRuntime;

pub use plan_diff::diff_plans;
use reload::editor::FileEditor;
use reload::examine::GatewayExaminer;
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

/// Parts of a login that the config does not describe. There are none by default.
#[derive(Default)]
pub struct LoginParts {
    /// Principals, in which the methods intern theirs.
    pub principals: Arc<PrincipalTable>,
    /// Methods of authentication, which are asked before the keys of the config.
    pub methods: Vec<Arc<dyn Authenticator>>,
    /// Routes for people on the clients' listeners.
    pub people: PeopleRoutes,
    /// Credentials towards servers that the config does not have.
    pub credentials: Option<Arc<dyn CredentialDirectory>>,
}

impl LoginParts {
    /// Returns true if a gateway with this plan admits every caller.
    fn leaves_open(&self, plan: &Plan) -> bool {
        plan.auth.is_open() && self.methods.is_empty()
    }
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
        let bound = bind(&plan, &login).await?;
        let open_listener = bound.open_client_listener(&login);
        // A broken certificate must fail the start, too, and likewise without side effects.
        let tls = tls(&plan, &metrics)?;
        let memory = GatewayMemory::new(plan.limits.memory_limit(), &metrics);
        let shared =
            UpstreamRuntime::with_store(metrics.clone(), Reaper::disabled(), store.clone());
        let shared = shared
            .with_memory(memory.budget.clone())
            .with_credentials(login.credentials.clone());
        let shared = Arc::new(shared);
        // Before any server: the first child registers with the reaper already.
        guard_children(&plan, program, &shared.reaper);
        let draining = CancellationToken::new();
        let (auth, access) = AuthMethods::with_added(login.principals, login.methods, &plan.auth);
        let gateway = Gateway::new(
            gateway_settings(&plan, access.clone()),
            auth.principals().clone(),
            shared.clone(),
        );
        let downstream_state = downstream_state(&plan, &metrics, &draining, &store, &memory.budget);
        let listener_state = Arc::new(listener_state(
            &plan,
            &gateway,
            (&auth, &access),
            downstream_state,
            memory.clone(),
        ));
        let shared_state: SharedListenerState = Arc::new(ArcSwap::new(listener_state.clone()));
        let catalog_age = plan.times.catalog_age.0;
        let persistent = PersistentState::from_parts(&shared_state, &gateway, &shared, catalog_age);
        // Before the first request is accepted: clients expect their sessions. The wait for a slow
        // disk is bounded.
        persistent.begin(plan.state.required).await?;
        let watches_files = source.is_some();
        let targets = ReloadTargets {
            program: program.map(Path::to_owned),
            gateway: gateway.clone(),
            listener_state: shared_state.clone(),
            shared: shared.clone(),
            tls: tls.clone(),
            open_listener,
            admin_access: Arc::new(ArcSwap::from_pointee(plan.admin_access.clone())),
            sign_in: Arc::default(),
        };
        let reloader = ConfigReloader::new(plan.clone(), source, targets);
        let (addresses, sockets) = listener_names(&bound.clients);
        let (line_addresses, _) = listener_names(&bound.lines);
        let (admins, admin_sockets) = listener_names(&bound.admin);
        let listeners = bound.serve(&plan, &reloader, &draining, &login.people);
        let mut tasks = BackgroundTasks::start(
            draining,
            listeners,
            listener_state.downstream.parked_calls.clone(),
        );
        tasks.spawn_until_drained(enforce_limits(
            memory,
            listener_state.downstream.sessions.clone(),
            gateway.clone(),
        ));
        tasks.spawn_until_drained(reloader.clone().end_expired_keys());
        if let Some(tls) = tls {
            tasks.spawn_until_drained(tls.watch());
        }
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
        // A reload during the stop would connect servers anew.
        self.tasks.stop_watching();
        let targets = &self.reloader.targets;
        let downstream = targets.listener_state.load().downstream.clone();
        // Before the drain: a process that takes over already has clients.
        downstream.sessions.persist_all();
        // Closed before the drain: the next process may be waiting for the lock on the file.
        self.store.close().await;
        self.tasks.join().await;
        // Parked calls have no client any more; their servers get a cancellation.
        downstream.parked_calls.clear();
        self.gateway.stop().await;
        targets.shared.wait_closed().await;
        // The reaper's exit is awaited with a blocking call.
        let shared = targets.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.reaper.stop()).await;
    }
}

/// Returns the address that people give to clients. Empty if only sockets lead to an endpoint.
fn endpoint_url(plan: &Plan, listeners: &[BoundListener], is_secure: bool) -> String {
    let own = listener_names(listeners).0.into_iter().next();
    let scheme = if is_secure { "https" } else { "http" };
    let base = plan
        .public_url
        .as_ref()
        .map(|url| url.as_str().trim_end_matches('/').to_owned());
    base.or_else(|| own.map(|address| format!("{scheme}://{address}")))
        .map_or(String::new(), |base| format!("{base}/mcp"))
}

/// Serves the admin listener until the process ends, so that probes can observe the drain.
fn serve_admin(
    listener: BoundListener,
    admin: AdminState,
    settings: ListenSettings,
    limit: Arc<ConnectionLimit>,
) {
    let local = admin.local;
    let service = ConnectionService::new(moongate_admin::router(Arc::new(admin)), None, local);
    tokio::spawn(listener.serve(
        service,
        settings,
        limit,
        CancellationToken::new(),
        Duration::ZERO,
    ));
}

fn tls(plan: &Plan, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<ListenerTls>>> {
    let load = |settings: &TlsSettings| ListenerTls::load(settings.clone(), metrics.clone());
    let loaded = plan.tls.as_ref().map(load).transpose();
    loaded.map_err(|e| anyhow::anyhow!("gateway.tls.{}: {}", e.setting, e.message))
}

/// Bound listeners.
struct Bound {
    clients: Vec<BoundListener>,
    /// Listeners for newline-delimited messages.
    lines: Vec<BoundListener>,
    admin: Vec<BoundListener>,
}

impl Bound {
    /// Returns the name of a listener that must not be left without a method of authentication.
    fn open_client_listener(&self, login: &LoginParts) -> Option<String> {
        let open = self
            .clients
            .iter()
            .find(|listener| is_open(listener))
            .map(BoundListener::name);
        open.filter(|_| login.methods.is_empty())
    }

    /// Serves all listeners until the gateway drains.
    fn serve(
        self,
        plan: &Plan,
        reloader: &Arc<ConfigReloader>,
        draining: &CancellationToken,
        people: &PeopleRoutes,
    ) -> JoinSet<()> {
        let targets = &reloader.targets;
        let metrics = &targets.shared.metrics;
        let settings = ListenSettings {
            head: plan.limits.head.0,
            read_timeout: plan.limits.read_timeout.0,
            write_timeout: plan.limits.write_timeout.0,
        };
        let places = ConnectionPlaces::within_open_files(&plan.limits);
        let connection_limit =
            ConnectionLimit::new(places.clients, &metrics.clients.connections, metrics);
        // A separate limit, so that clients cannot lock the operators out.
        let open = &metrics.clients.admin_connections;
        let admin_limit =
            ConnectionLimit::for_operators(places.operators, &connection_limit, open, metrics);
        let endpoint_url = endpoint_url(plan, &self.clients, targets.tls.is_some());
        let probe_slots = ProbeSlots::default();
        let mut listeners = JoinSet::new();
        for listener in self.clients {
            let local = listener.is_local();
            let listener = listener.with_tls(targets.tls.clone());
            let service = ConnectionService::new(
                moongate_listener::router_with_people(
                    people.clone(),
                    targets.listener_state.clone(),
                    local,
                ),
                Some(targets.listener_state.clone()),
                local,
            );
            listeners.spawn(listener.serve(
                service,
                settings.clone(),
                connection_limit.clone(),
                draining.clone(),
                plan.times.drain.0,
            ));
        }
        for listener in self.lines {
            let shared_state = targets.listener_state.clone();
            let settings = settings.clone();
            let limit = connection_limit.clone();
            listeners.spawn(listener.serve_lines(
                shared_state,
                settings,
                limit,
                draining.clone(),
                plan.times.drain.0,
            ));
        }
        let editor: Arc<dyn ConfigEditor> = Arc::new(FileEditor::new(reloader.clone(), plan));
        let examiner: Arc<dyn Examiner> = Arc::new(GatewayExaminer {
            reloader: reloader.clone(),
        });
        for listener in self.admin {
            let admin = AdminState {
                gateway: targets.gateway.clone(),
                metrics: metrics.clone(),
                listener_state: targets.listener_state.clone(),
                local: listener.is_local(),
                access: targets.admin_access.clone(),
                endpoint_url: endpoint_url.clone(),
                is_reachable_by_others: is_open(&listener),
                reloader: reloader.clone(),
                editor: editor.clone(),
                examiner: examiner.clone(),
                draining: draining.clone(),
                events: EventFeed::new(plan.admin_limits.streams),
                operator_calls: OperatorCalls::default(),
                probe_slots: probe_slots.clone(),
                sign_in: targets.sign_in.clone(),
            };
            serve_admin(listener, admin, settings.clone(), admin_limit.clone());
        }
        listeners
    }
}

/// Returns the addresses and the Unix sockets of these listeners.
fn listener_names(listeners: &[BoundListener]) -> (Vec<SocketAddr>, Vec<String>) {
    let sockets = listeners
        .iter()
        .filter(|listener| listener.is_local())
        .map(BoundListener::name);
    (
        listeners
            .iter()
            .filter_map(BoundListener::address)
            .collect(),
        sockets.collect(),
    )
}

async fn bind(plan: &Plan, login: &LoginParts) -> anyhow::Result<Bound> {
    let mut inherited = InheritedSockets::from_env()
        .context("the sockets of the service manager cannot be used")?;
    let all = plan
        .listen
        .iter()
        .map(|address| (address, "listen"))
        .chain(plan.admin.iter().map(|a| (a, "admin")));
    let mut all: Vec<_> = all.collect();
    // Named sockets are assigned first: `Inherited(None)` takes all that remain.
    all.sort_by_key(|(address, _)| **address == ListenAddress::Inherited(None));
    let mut bound = Bound {
        clients: Vec::new(),
        lines: Vec::new(),
        admin: Vec::new(),
    };
    for (address, setting) in all {
        let opened = BoundListener::open(address, &plan.sockets, &mut inherited).await;
        let opened =
            opened.with_context(|| format!("cannot listen on {address} (gateway.{setting})"))?;
        for listener in &opened {
            // Checked here again: no config names the address of a socket that the service manager
            // opened.
            if setting == "listen" && is_open(listener) && login.leaves_open(plan) {
                let name = listener.name();
                anyhow::bail!(
                    "{name} can be reached from other machines, but there are no [[auth.keys]]: \
                     add a key"
                );
            }
        }
        // The configuration check covers the addresses that it names, but not those of the service
        // manager.
        let named = matches!(address, ListenAddress::Tcp(_));
        if setting == "admin" && !named && plan.admin_access.keys.is_empty() {
            for name in opened
                .iter()
                .filter(|listener| is_open(listener))
                .map(BoundListener::name)
            {
                tracing::warn!(
                    "{name} can be reached from other machines: without admin.keys, only probes \
                     and metrics are answered there"
                );
            }
        }
        match setting {
            "listen" if matches!(address, ListenAddress::TcpLines(_)) => bound.lines.extend(opened),
            "listen" => bound.clients.extend(opened),
            _ => bound.admin.extend(opened),
        }
    }
    if inherited.remaining() > 0 {
        tracing::warn!(
            "{} sockets of the service manager are not used: gateway.listen = \"systemd\"",
            inherited.remaining()
        );
    }
    Ok(bound)
}

/// True if other machines may reach the listener.
fn is_open(listener: &BoundListener) -> bool {
    listener
        .address()
        .is_some_and(|address| ListenAddress::Tcp(address).is_open())
}

/// Enforces the memory limit and expires sessions until the gateway drains.
async fn enforce_limits(memory: GatewayMemory, sessions: Arc<Sessions>, gateway: Arc<Gateway>) {
    // A dedicated connection keeps sending messages that only a session in memory receives.
    let must_stay = |session: &ByteString| gateway.has_dedicated_connection(session);
    let relieve = || {
        memory.budget.relieve();
    };
    tokio::join!(
        memory.watch.watch(relieve),
        sessions.expire_forever(must_stay)
    );
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
