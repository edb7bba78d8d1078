//! From a plan to a running gateway, and to its orderly end.
//!
//! Owns the order of starting and stopping. Invariant: the listeners are up before anything is connected, and nothing
//! that was started is left behind.

mod state;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
use crate::auth::KeyRing;
use crate::config::{Limits, Plan};
use crate::front::{
    self, Front, Gate, GateSettings, HostRules, Inherited, ListenAddress, ListenSettings, Listener, NoPipe, PipeFront,
    RequestLimits, Service, Tls, TlsSettings,
};
use crate::gateway::{Gateway, GatewaySettings, NameRules, ViewRules};
use crate::link::guard::Guard;
use crate::revision::FrontState;
use crate::session::{Owners, Parking, ParkingSettings, ReplaySettings, SessionSettings, Sessions};
use crate::store::Store;
use crate::telemetry::{Memory, MemoryLimit, Metrics};
use crate::upstream::{Connect, Shared, State};

/// A running gateway.
pub struct App {
    /// Where clients connect.
    pub addresses: Vec<SocketAddr>,
    /// The Unix sockets where clients connect, as `unix:PATH`.
    pub sockets: Vec<String>,
    /// Where operators do.
    pub admin: Option<SocketAddr>,
    /// The Unix socket where operators do.
    pub admin_socket: Option<String>,
    /// The servers.
    pub gateway: Arc<Gateway>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    front: Arc<Front>,
    tls: Option<Arc<Tls>>,
    drain: Duration,
    shared: Arc<Shared>,
    parking: Arc<Parking>,
    sessions: Arc<Sessions>,
    store: Store,
    expiring: tokio::task::JoinHandle<()>,
    draining: CancellationToken,
    listeners: JoinSet<()>,
}

impl App {
    /// Starts everything. `program` is this binary, for the guard that ends children if we cannot; without it there
    /// is none.
    ///
    /// Fails where an address cannot be bound.
    pub async fn start(plan: Plan, program: Option<&Path>) -> anyhow::Result<App> {
        let metrics = Arc::new(Metrics::new());
        // First, since the disk may take its time.
        let store = Store::open(plan.state.clone(), metrics.clone());
        let Bound { clients: bound, admin: admin_listener } = bind(&plan).await?;
        let tls = tls(&plan, &metrics)?;
        let shared = Arc::new(Shared::kept(metrics.clone(), guard(&plan, program), store.clone()));
        let draining = CancellationToken::new();
        let (keys, access) = KeyRing::new(&plan.keys);
        let gateway = Gateway::new(gateway_settings(&plan, access), shared.clone());
        let memory = Memory::new(plan.limits.memory, &metrics);
        let front_state = front_state(&plan, &metrics, &draining, (&store, keys.owners()));
        let front = Arc::new(front(&plan, &gateway, keys, front_state, memory.clone()));
        let state = state::State::of(&front.state, &gateway, &shared, plan.catalog_age);
        state.begin(plan.state.required).await?;
        let settings = ListenSettings {
            connections: plan.limits.connections,
            head: plan.limits.head,
            read_timeout: plan.limits.read_timeout,
        };
        let mut listeners = JoinSet::new();
        let addresses = bound.iter().filter_map(Listener::address).collect();
        let sockets = bound.iter().filter(|listener| listener.is_local()).map(Listener::name).collect();
        for listener in bound {
            let local = listener.is_local();
            let listener = listener.with_tls(tls.clone());
            let service = Service::new(front::router(front.clone(), local), Some(front.clone()), local);
            listeners.spawn(listener.serve(service, settings.clone(), metrics.clone(), draining.clone(), plan.drain));
        }
        let admin = admin_listener.iter().find_map(Listener::address);
        let admin_socket = admin_listener.iter().find(|listener| listener.is_local()).map(Listener::name);
        for name in &plan.disabled {
            metrics.server_up.with_label_values(&[name, State::Disabled.name()]).set(1);
        }
        for listener in admin_listener {
            let (gateway, metrics, hosts) = (gateway.clone(), metrics.clone(), front.hosts.clone());
            let (disabled, draining) = (plan.disabled.clone(), draining.clone());
            let admin = Admin { gateway, disabled, metrics, hosts, local: listener.is_local(), draining };
            serve_admin(listener, admin, settings.clone());
        }
        let until_drained = |work: BoxFuture<'static, ()>| draining.clone().run_until_cancelled_owned(work).map(drop);
        listeners.spawn(until_drained(keep(memory, front.state.sessions.clone()).boxed()));
        if let Some(tls) = &tls {
            listeners.spawn(until_drained(tls.clone().watch().boxed()));
        }
        let parking = front.state.parking.clone();
        let expiring = tokio::spawn(parking.clone().expire_forever());
        gateway.start();
        let sessions = front.state.sessions.clone();
        let drain = plan.drain;
        Ok(App {
            front,
            drain,
            tls,
            addresses,
            sockets,
            admin,
            admin_socket,
            gateway,
            metrics,
            shared,
            parking,
            sessions,
            store,
            expiring,
            draining,
            listeners,
        })
    }

    /// A client on a pipe, at this endpoint (empty: the one over everything).
    pub fn pipe(&self, endpoint: &str, credentials: &http::HeaderMap) -> Result<PipeFront, NoPipe> {
        self.front.pipe(endpoint, credentials, self.drain)
    }

    /// Looks at the certificate's files now, instead of within ten seconds: for a signal, or a reload of the config.
    pub async fn reload_certificate(&self) {
        if let Some(tls) = self.tls.clone() {
            let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
        }
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
        // Now, not at the end: a process that takes over has clients already.
        self.sessions.keep_all();
        self.store.close().await;
        while self.listeners.join_next().await.is_some() {}
        // Nobody can come back for them any more; their servers hear that they are cancelled.
        self.expiring.abort();
        self.parking.clear();
        self.gateway.stop().await;
        self.shared.closed().await;
        let shared = self.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.guard.stop()).await;
    }
}

/// The admin listener answers until the very end: probes must see that we drain.
fn serve_admin(listener: Listener, admin: Admin, settings: ListenSettings) {
    let (local, metrics) = (admin.local, admin.metrics.clone());
    let service = Service::new(admin::router(Arc::new(admin)), None, local);
    tokio::spawn(listener.serve(service, settings, metrics, CancellationToken::new(), Duration::ZERO));
}

fn tls(plan: &Plan, metrics: &Arc<Metrics>) -> anyhow::Result<Option<Arc<Tls>>> {
    let load = |settings: &TlsSettings| Tls::load(settings.clone(), metrics.clone());
    let loaded = plan.tls.as_ref().map(load).transpose();
    loaded.map_err(|e| anyhow::anyhow!("gateway.tls.{}: {}", e.setting, e.message))
}

/// Everything that is listened on.
struct Bound {
    clients: Vec<Listener>,
    admin: Vec<Listener>,
}

async fn bind(plan: &Plan) -> anyhow::Result<Bound> {
    let mut inherited = Inherited::from_env().context("the sockets of the service manager cannot be used")?;
    let all = plan.listen.iter().map(|address| (address, "listen")).chain(plan.admin.iter().map(|a| (a, "admin")));
    let mut all: Vec<_> = all.collect();
    // What is named goes to who named it, before the rest goes to who takes all.
    all.sort_by_key(|(address, _)| **address == ListenAddress::Inherited(None));
    let mut bound = Bound { clients: Vec::new(), admin: Vec::new() };
    for (address, setting) in all {
        let opened = Listener::open(address, &plan.sockets, &mut inherited).await;
        let opened = opened.with_context(|| format!("cannot listen on {address} (gateway.{setting})"))?;
        for listener in &opened {
            let open = listener.address().is_some_and(|address| ListenAddress::Tcp(address).is_open());
            if setting == "listen" && open && plan.keys.is_empty() {
                let name = listener.name();
                anyhow::bail!("{name} can be reached from other machines, but there are no [[auth.keys]]: add a key");
            }
        }
        if setting == "listen" { bound.clients.extend(opened) } else { bound.admin.extend(opened) }
    }
    if inherited.left() > 0 {
        tracing::warn!(
            "{} sockets of the service manager are not used: gateway.listen = \"systemd\"",
            inherited.left()
        );
    }
    Ok(bound)
}

/// Looks after what may not grow, until the gateway drains.
async fn keep(memory: Arc<Memory>, sessions: Arc<Sessions>) {
    tokio::join!(memory.watch(), sessions.reap_forever());
}

fn gate(plan: &Plan, memory: Arc<Memory>) -> Gate {
    let Limits { calls, calls_per_key, rate, .. } = plan.limits;
    Gate::new(GateSettings { calls, calls_per_key, rate }, &plan.keys, memory)
}

fn front(plan: &Plan, gateway: &Arc<Gateway>, keys: KeyRing, state: FrontState, memory: Arc<Memory>) -> Front {
    let Limits { body, read_timeout, batch, .. } = plan.limits;
    let limits = RequestLimits { body, read_timeout, batch };
    let (hosts, gate, state) = (hosts(plan), gate(plan, memory), Arc::new(state));
    Front { endpoints: gateway.endpoints(), keys, state, hosts, limits, gate }
}

/// A gateway without listeners or processes: its requests and its servers come another way.
pub struct Core {
    /// The servers; nothing is connected before [`Gateway::start`].
    pub gateway: Arc<Gateway>,
    /// What answers clients' requests.
    pub front: Arc<Front>,
}

impl Core {
    /// Everything between the listeners and the links.
    pub fn new(plan: &Plan, shared: Arc<Shared>) -> Self {
        let (keys, access) = KeyRing::new(&plan.keys);
        let memory = Memory::new(MemoryLimit::None, &shared.metrics);
        let store = Store::memory();
        let state = front_state(plan, &shared.metrics, &CancellationToken::new(), (&store, keys.owners()));
        let gateway = Gateway::new(gateway_settings(plan, access), shared);
        let front = front(plan, &gateway, keys, state, memory);
        Core { gateway, front: Arc::new(front) }
    }
}

/// Only children need a guard.
fn guard(plan: &Plan, program: Option<&Path>) -> Guard {
    let children = plan.servers.iter().any(|server| matches!(server.connect, Connect::Stdio { .. }));
    match program.filter(|_| children).map(Guard::start) {
        Some(Ok(guard)) => guard,
        Some(Err(e)) => {
            tracing::warn!("the guard cannot be started; children may outlive a kill -9 of the gateway: {e}");
            Guard::none()
        }
        None => Guard::none(),
    }
}

fn gateway_settings(plan: &Plan, access: crate::policy::AccessTable) -> GatewaySettings {
    let views = plan.views.iter().cloned().map(|v| ViewRules { name: v.name, servers: v.servers, tools: v.tools });
    GatewaySettings {
        names: NameRules { separator: plan.names.separator.clone(), max_length: plan.names.max_length },
        servers: plan.servers.clone(),
        views: views.collect(),
        access,
    }
}

fn front_state(
    plan: &Plan,
    metrics: &Arc<Metrics>,
    draining: &CancellationToken,
    (store, owners): (&Store, Owners),
) -> FrontState {
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
    let mut forwarded = Vec::new();
    for server in &plan.servers {
        if let Connect::Http { forward_headers, .. } = &server.connect {
            forwarded.extend(forward_headers.iter().map(|(from, _)| from.clone()));
        }
    }
    forwarded.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    forwarded.dedup();
    let parking = ParkingSettings { max: plan.limits.parked, life: plan.ask_timeout };
    FrontState {
        parking: Arc::new(Parking::new(parking, metrics.clone())),
        seal: Arc::default(),
        ask_timeout: plan.ask_timeout,
        sessions: Arc::new(Sessions::kept(sessions, metrics.clone(), store.clone(), owners)),
        metrics: metrics.clone(),
        keep_alive: plan.keep_alive,
        streams_max: plan.limits.streams,
        subscriptions: limits.subscriptions,
        forwarded,
        stream_time: limits.stream_time,
        draining: draining.clone(),
    }
}

fn hosts(plan: &Plan) -> HostRules {
    let own = plan.public_url.as_ref().and_then(|url| url.host_str()).map(str::to_owned);
    let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let mut hosts = lower(&plan.allowed_hosts);
    hosts.extend(own);
    HostRules { hosts, origins: lower(&plan.allowed_origins) }
}
