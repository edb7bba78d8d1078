//! From a plan to a running gateway, and to its orderly end.
//!
//! Owns the order of starting and stopping. Invariant: the listeners are up before anything is connected, and nothing
//! that was started is left behind.

mod plan_diff;
mod reload;
mod persistence;
mod watch_files;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, AdminState};
use crate::auth::ApiKeys;
use crate::config::{Plan, PlanLimits, ViewSettings};
use crate::front::{
    self, AdmissionControl, AdmissionSettings, ConnectionLimit, ConnectionService, HostRules, InheritedSockets,
    ListenAddress, ListenSettings, RequestLimits, ServerListener, ServerState, ServerTls, SharedServerState,
    StallDetector, StdioRefused, StdioServer, TlsSettings,
};
use crate::gateway::{Gateway, GatewaySettings, NameRules, ViewRules};
use crate::json::ByteString;
use crate::link::reaper::Reaper;
use crate::revision::DownstreamState;
use crate::session::{
    ParkedCallSettings, ParkedCalls, PrincipalFingerprints, ReplaySettings, SessionSettings, Sessions,
};
use crate::store::StateStore;
use crate::telemetry::{MemoryLimit, MemoryWatch, Metrics};
use crate::upstream::{ConnectTarget, UpstreamContext};

pub use plan_diff::{PlanDiff, diff_plans};
pub use reload::{ConfigReloader, ReloadOutcome, ReloadPreview, ReloadSource};

use reload::ReloadTargets;

/// A running gateway.
pub struct GatewayApp {
    /// Where clients connect.
    pub addresses: Vec<SocketAddr>,
    /// The Unix sockets where clients connect, as `unix:PATH`.
    pub sockets: Vec<String>,
    /// Where clients connect that write a message a line.
    pub line_addresses: Vec<SocketAddr>,
    /// Where operators do.
    pub admin: Option<SocketAddr>,
    /// The Unix socket where operators do.
    pub admin_socket: Option<String>,
    /// The servers.
    pub gateway: Arc<Gateway>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// To change its config.
    pub reloader: Arc<ConfigReloader>,
    fronts: SharedServerState,
    tls: Option<Arc<ServerTls>>,
    drain: Duration,
    shared: Arc<UpstreamContext>,
    parking: Arc<ParkedCalls>,
    sessions: Arc<Sessions>,
    store: StateStore,
    watching: Option<tokio::task::JoinHandle<()>>,
    expiring: tokio::task::JoinHandle<()>,
    draining: CancellationToken,
    listeners: JoinSet<()>,
}

impl GatewayApp {
    /// Starts everything, with a config that is not read again.
    pub async fn start(plan: Plan, program: Option<&Path>) -> anyhow::Result<GatewayApp> {
        GatewayApp::start_from(plan, None, program).await
    }

    /// Starts everything. `source` is where the plan came from. `program` is this binary, for the guard that ends
    /// children if we cannot; without it there is none.
    ///
    /// Fails where an address cannot be bound.
    pub async fn start_from(
        plan: Plan,
        source: Option<ReloadSource>,
        program: Option<&Path>,
    ) -> anyhow::Result<GatewayApp> {
        let metrics = Arc::new(Metrics::new());
        // First, since the disk may take its time.
        let store = StateStore::open(plan.state.clone(), metrics.clone());
        let bound = bind(&plan).await?;
        let tls = tls(&plan, &metrics)?;
        let shared = Arc::new(UpstreamContext::with_store(metrics.clone(), Reaper::disabled(), store.clone()));
        guard_children(&plan, program, &shared.reaper);
        let draining = CancellationToken::new();
        let (keys, access) = ApiKeys::new(&plan.keys);
        let gateway = Gateway::new(gateway_settings(&plan, access), shared.clone());
        let memory = MemoryWatch::new(plan.limits.memory, &metrics);
        let front_state = front_state(&plan, &metrics, &draining, (&store, keys.fingerprints()));
        let front = Arc::new(front(&plan, &gateway, keys, front_state, memory.clone()));
        let state = persistence::PersistentState::from_parts(&front.downstream, &gateway, &shared, plan.catalog_age);
        state.begin(plan.state.required).await?;
        let fronts: SharedServerState = Arc::new(ArcSwap::new(front.clone()));
        let is_read_again = source.is_some();
        let parts = ReloadTargets {
            program: program.map(Path::to_owned),
            gateway: gateway.clone(),
            server_state: fronts.clone(),
            shared: shared.clone(),
            tls: tls.clone(),
            open_listener: bound.clients.iter().find(|listener| is_open(listener)).map(ServerListener::name),
            admin_access: Arc::new(ArcSwap::from_pointee(plan.admin_access.clone())),
        };
        let reloader = ConfigReloader::new(plan.clone(), source, parts);
        let (addresses, sockets) = places(&bound.clients);
        let (line_addresses, _) = places(&bound.lines);
        let (admins, admin_sockets) = places(&bound.admin);
        let mut listeners = bound.serve(&plan, &reloader, &draining);
        let until_drained = |work: BoxFuture<'static, ()>| draining.clone().run_until_cancelled_owned(work).map(drop);
        listeners.spawn(until_drained(keep(memory, front.downstream.sessions.clone(), gateway.clone()).boxed()));
        if let Some(tls) = &tls {
            listeners.spawn(until_drained(tls.clone().watch().boxed()));
        }
        let parking = front.downstream.parked_calls.clone();
        let expiring = tokio::spawn(parking.clone().expire_forever());
        gateway.start();
        let watching = if is_read_again { Some(watch_files::start_watching(reloader.clone()).await) } else { None };
        Ok(GatewayApp {
            watching,
            sessions: front.downstream.sessions.clone(),
            drain: plan.drain,
            admin: admins.into_iter().next(),
            admin_socket: admin_sockets.into_iter().next(),
            reloader,
            fronts,
            tls,
            addresses,
            sockets,
            line_addresses,
            gateway,
            metrics,
            shared,
            parking,
            store,
            expiring,
            draining,
            listeners,
        })
    }

    /// A client on a pipe, at this endpoint (empty: the one over everything).
    pub fn pipe(&self, endpoint: &str, credentials: &http::HeaderMap) -> Result<StdioServer, StdioRefused> {
        self.fronts.load_full().open_stdio(endpoint, credentials, self.drain)
    }

    /// Looks at the certificate's files now, instead of within ten seconds; a reload of the config does that, too.
    pub async fn reload_certificate(&self) {
        self.reloader.reload_certificate().await;
    }

    /// Whether clients connect by https.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Takes no new requests from now on; [`App::stop`] waits for the end of those that there are.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Stops: no new requests, streams end, calls may finish within the drain time, then the servers are stopped.
    pub async fn stop(mut self) {
        self.draining.cancel();
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
        // Now, not at the end: a process that takes over has clients already.
        self.sessions.persist_all();
        self.store.close().await;
        while self.listeners.join_next().await.is_some() {}
        // Nobody can come back for them any more; their servers hear that they are cancelled.
        self.expiring.abort();
        self.parking.clear();
        self.gateway.stop().await;
        self.shared.wait_closed().await;
        let shared = self.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.reaper.stop()).await;
    }
}

/// The admin listener answers until the very end: probes must see that we drain.
fn serve_admin(listener: ServerListener, admin: AdminState, settings: ListenSettings, places: Arc<ConnectionLimit>) {
    let local = admin.local;
    let service = ConnectionService::new(admin::router(Arc::new(admin)), None, local);
    tokio::spawn(listener.serve(service, settings, places, CancellationToken::new(), Duration::ZERO));
}

fn tls(plan: &Plan, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<ServerTls>>> {
    let load = |settings: &TlsSettings| ServerTls::load(settings.clone(), metrics.clone());
    let loaded = plan.tls.as_ref().map(load).transpose();
    loaded.map_err(|e| anyhow::anyhow!("gateway.tls.{}: {}", e.setting, e.message))
}

/// Everything that is listened on.
struct Bound {
    clients: Vec<ServerListener>,
    /// For clients that write a message a line.
    lines: Vec<ServerListener>,
    admin: Vec<ServerListener>,
}

impl Bound {
    /// Serves all of it until the gateway drains.
    fn serve(self, plan: &Plan, reloader: &Arc<ConfigReloader>, draining: &CancellationToken) -> JoinSet<()> {
        let parts = &reloader.targets;
        let metrics = &parts.shared.metrics;
        let settings = ListenSettings {
            head: plan.limits.head,
            read_timeout: plan.limits.read_timeout,
            write_timeout: plan.limits.write_timeout,
        };
        let PlanLimits { connections, admin_connections, .. } = plan.limits;
        let places = ConnectionLimit::new(connections, &metrics.connections, metrics);
        // Of their own, so that no client can shut the operators out.
        let admin_places = ConnectionLimit::new(admin_connections, &metrics.admin_connections, metrics);
        let mut listeners = JoinSet::new();
        for listener in self.clients {
            let local = listener.is_local();
            let listener = listener.with_tls(parts.tls.clone());
            let service = ConnectionService::new(
                front::router(parts.server_state.clone(), local),
                Some(parts.server_state.clone()),
                local,
            );
            listeners.spawn(listener.serve(service, settings.clone(), places.clone(), draining.clone(), plan.drain));
        }
        for listener in self.lines {
            let (fronts, settings, places) = (parts.server_state.clone(), settings.clone(), places.clone());
            listeners.spawn(listener.serve_lines(fronts, settings, places, draining.clone(), plan.drain));
        }
        for listener in self.admin {
            let admin = AdminState {
                gateway: parts.gateway.clone(),
                metrics: metrics.clone(),
                server_state: parts.server_state.clone(),
                local: listener.is_local(),
                access: parts.admin_access.clone(),
                is_reachable_by_others: is_open(&listener),
                control: reloader.clone(),
                draining: draining.clone(),
            };
            serve_admin(listener, admin, settings.clone(), admin_places.clone());
        }
        listeners
    }
}

/// Where these are: addresses, and Unix sockets.
fn places(listeners: &[ServerListener]) -> (Vec<SocketAddr>, Vec<String>) {
    let sockets = listeners.iter().filter(|listener| listener.is_local()).map(ServerListener::name);
    (listeners.iter().filter_map(ServerListener::address).collect(), sockets.collect())
}

async fn bind(plan: &Plan) -> anyhow::Result<Bound> {
    let mut inherited = InheritedSockets::from_env().context("the sockets of the service manager cannot be used")?;
    let all = plan.listen.iter().map(|address| (address, "listen")).chain(plan.admin.iter().map(|a| (a, "admin")));
    let mut all: Vec<_> = all.collect();
    // What is named goes to who named it, before the rest goes to who takes all.
    all.sort_by_key(|(address, _)| **address == ListenAddress::Inherited(None));
    let mut bound = Bound { clients: Vec::new(), lines: Vec::new(), admin: Vec::new() };
    for (address, setting) in all {
        let opened = ServerListener::open(address, &plan.sockets, &mut inherited).await;
        let opened = opened.with_context(|| format!("cannot listen on {address} (gateway.{setting})"))?;
        for listener in &opened {
            if setting == "listen" && is_open(listener) && plan.keys.is_empty() {
                let name = listener.name();
                anyhow::bail!("{name} can be reached from other machines, but there are no [[auth.keys]]: add a key");
            }
        }
        // The check of the config knows the addresses that it names, and not those of the service manager.
        let named = matches!(address, ListenAddress::Tcp(_));
        if setting == "admin" && !named && plan.admin_access.keys.is_empty() {
            for name in opened.iter().filter(|listener| is_open(listener)).map(ServerListener::name) {
                tracing::warn!(
                    "{name} can be reached from other machines: without admin.keys, only probes and metrics are answered there"
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

/// Whether other machines may reach it.
fn is_open(listener: &ServerListener) -> bool {
    listener.address().is_some_and(|address| ListenAddress::Tcp(address).is_open())
}

/// Looks after what may not grow, until the gateway drains.
async fn keep(memory: Arc<MemoryWatch>, sessions: Arc<Sessions>, gateway: Arc<Gateway>) {
    // A connection of its own goes on saying things that only an awake session hears.
    let must_stay = |session: &ByteString| gateway.has_dedicated_connection(session);
    tokio::join!(memory.watch(), sessions.expire_forever(must_stay));
}

fn gate_settings(plan: &Plan) -> AdmissionSettings {
    let PlanLimits { calls, calls_per_key, rate, .. } = plan.limits;
    AdmissionSettings { calls, calls_per_key, rate }
}

fn front(
    plan: &Plan,
    gateway: &Arc<Gateway>,
    keys: ApiKeys,
    state: DownstreamState,
    memory: Arc<MemoryWatch>,
) -> ServerState {
    let gate = AdmissionControl::new(gate_settings(plan), &keys, &plan.keys, memory);
    let (hosts, limits, state) = (hosts(plan), request_limits(plan), Arc::new(state));
    let unread = StallDetector::new(plan.limits.write_timeout, state.metrics.dropped.with_label_values(&["unread"]));
    let refused_keys = Arc::default();
    ServerState {
        endpoints: gateway.endpoints(),
        keys,
        downstream: state,
        hosts,
        limits,
        admission: gate,
        stall_detector: unread,
        refused_keys,
    }
}

/// A gateway without listeners or processes: its requests and its servers come another way.
pub struct Core {
    /// The servers; nothing is connected before [`Gateway::start`].
    pub gateway: Arc<Gateway>,
    /// What answers clients' requests.
    pub fronts: SharedServerState,
    /// To change its config.
    pub reloader: Arc<ConfigReloader>,
    /// Cancelled when it takes no new requests any more.
    pub draining: CancellationToken,
}

impl Core {
    /// Everything between the listeners and the links.
    pub fn new(plan: &Plan, shared: Arc<UpstreamContext>) -> Self {
        let (keys, access) = ApiKeys::new(&plan.keys);
        let memory = MemoryWatch::new(MemoryLimit::None, &shared.metrics);
        let store = StateStore::memory();
        let draining = CancellationToken::new();
        let state = front_state(plan, &shared.metrics, &draining, (&store, keys.fingerprints()));
        let gateway = Gateway::new(gateway_settings(plan, access), shared.clone());
        let fronts: SharedServerState = Arc::new(ArcSwap::from_pointee(front(plan, &gateway, keys, state, memory)));
        let (program, tls, open) = (None, None, None);
        let admin_access = Arc::new(ArcSwap::from_pointee(plan.admin_access.clone()));
        let parts = ReloadTargets {
            program,
            gateway: gateway.clone(),
            server_state: fronts.clone(),
            shared,
            tls,
            open_listener: open,
            admin_access,
        };
        let reloader = ConfigReloader::new(plan.clone(), None, parts);
        Core { gateway, fronts, reloader, draining }
    }
}

/// Only children need a guard.
fn guard_children(plan: &Plan, program: Option<&Path>, guard: &Reaper) {
    let children = plan.servers.iter().any(|server| matches!(server.connect, ConnectTarget::Stdio { .. }));
    if let Some(Err(e)) = program.filter(|_| children).map(|program| guard.ensure(program)) {
        tracing::warn!("the guard cannot be started; children may outlive a kill -9 of the gateway: {e}");
    }
}

fn request_limits(plan: &Plan) -> RequestLimits {
    let limits = &plan.limits;
    RequestLimits { body: limits.body, read_timeout: limits.read_timeout, batch: limits.batch }
}

fn gateway_settings(plan: &Plan, access: crate::policy::AccessTable) -> GatewaySettings {
    let view = |v: ViewSettings| ViewRules { name: v.name, servers: v.servers, tools: v.tools, schema: v.schema };
    let views = plan.views.iter().cloned().map(view);
    GatewaySettings {
        names: NameRules { separator: plan.names.separator.clone(), max_length: plan.names.max_length },
        servers: plan.servers.clone(),
        disabled: plan.disabled.clone(),
        views: views.collect(),
        access,
        drain: plan.drain,
        call_log: plan.log.calls,
        uri_max: plan.limits.uri,
        schema: plan.schema,
    }
}

fn front_state(
    plan: &Plan,
    metrics: &Arc<Metrics>,
    draining: &CancellationToken,
    (store, owners): (&StateStore, PrincipalFingerprints),
) -> DownstreamState {
    let limits = &plan.limits;
    let replay = ReplaySettings {
        bytes: limits.replay,
        total: limits.replay_total,
        events: limits.replay_events,
        time: limits.replay_time,
    };
    let sessions = SessionSettings {
        max: limits.sessions,
        idle: limits.session_idle,
        replay,
        outbox: limits.outbox,
        outbox_total: limits.outbox_total,
        subscriptions: limits.subscriptions,
    };
    DownstreamState {
        parked_calls: Arc::new(ParkedCalls::new(parked_call_settings(plan), metrics.clone())),
        seal: Arc::default(),
        input_timeout: plan.ask_timeout,
        sessions: Arc::new(Sessions::persistent(sessions, metrics.clone(), store.clone(), owners)),
        metrics: metrics.clone(),
        keep_alive: plan.keep_alive,
        streams_max: plan.limits.streams,
        subscriptions_max: limits.subscriptions,
        forwarded_headers: forwarded(plan),
        stream_lifetime: limits.stream_time,
        timers: Arc::default(),
        draining: draining.clone(),
    }
}

/// The same after a change of the config: what is kept for clients stays.
fn front_state_of(plan: &Plan, before: &DownstreamState) -> DownstreamState {
    DownstreamState {
        parked_calls: before.parked_calls.clone(),
        seal: before.seal.clone(),
        input_timeout: plan.ask_timeout,
        sessions: before.sessions.clone(),
        metrics: before.metrics.clone(),
        keep_alive: plan.keep_alive,
        streams_max: plan.limits.streams,
        subscriptions_max: plan.limits.subscriptions,
        forwarded_headers: forwarded(plan),
        stream_lifetime: plan.limits.stream_time,
        timers: before.timers.clone(),
        draining: before.draining.clone(),
    }
}

fn parked_call_settings(plan: &Plan) -> ParkedCallSettings {
    ParkedCallSettings { max: plan.limits.parked, life: plan.ask_timeout }
}

/// The headers of clients that some server wants.
fn forwarded(plan: &Plan) -> Vec<http::HeaderName> {
    let mut forwarded = Vec::new();
    for server in &plan.servers {
        if let ConnectTarget::Http { forward_headers, .. } = &server.connect {
            forwarded.extend(forward_headers.iter().map(|(from, _)| from.clone()));
        }
    }
    forwarded.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    forwarded.dedup();
    forwarded
}

fn hosts(plan: &Plan) -> HostRules {
    let own = plan.public_url.as_ref().and_then(|url| url.host_str()).map(str::to_owned);
    let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let mut hosts = lower(&plan.allowed_hosts);
    hosts.extend(own);
    HostRules { hosts, origins: lower(&plan.allowed_origins) }
}
