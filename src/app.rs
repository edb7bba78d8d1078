//! From a plan to a running gateway, and to its orderly end.
//!
//! Owns the order of starting and stopping. Invariant: the listeners are up before anything is connected, and nothing
//! that was started is left behind.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
use crate::auth::KeyRing;
use crate::config::Plan;
use crate::front::{self, Front, HostRules, ListenSettings, Listener, RequestLimits, Service};
use crate::gateway::{Gateway, GatewaySettings, NameRules, ViewRules};
use crate::link::guard::Guard;
use crate::revision::FrontState;
use crate::session::{Parking, ParkingSettings, ReplaySettings, SessionSettings, Sessions};
use crate::telemetry::Metrics;
use crate::upstream::{Connect, Shared, State};

/// A running gateway.
pub struct App {
    /// Where clients connect.
    pub addresses: Vec<SocketAddr>,
    /// Where operators do.
    pub admin: Option<SocketAddr>,
    /// The servers.
    pub gateway: Arc<Gateway>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    shared: Arc<Shared>,
    parking: Arc<Parking>,
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
        let mut bound = Vec::new();
        for address in &plan.listen {
            let listener = Listener::bind(*address).await;
            bound.push(listener.with_context(|| format!("cannot listen on {address} (gateway.listen)"))?);
        }
        let admin_listener = match plan.admin {
            Some(address) => {
                let listener = Listener::bind(address).await;
                Some(listener.with_context(|| format!("cannot listen on {address} (gateway.admin)"))?)
            }
            None => None,
        };
        let metrics = Arc::new(Metrics::new());
        let shared = Arc::new(Shared::new(metrics.clone(), guard(&plan, program)));
        let draining = CancellationToken::new();
        let (keys, access) = KeyRing::new(&plan.keys);
        let gateway = Gateway::new(gateway_settings(&plan, access), shared.clone());
        let hosts = hosts(&plan);
        let front = Arc::new(Front {
            endpoints: gateway.endpoints(),
            keys,
            state: Arc::new(front_state(&plan, &metrics, &draining)),
            hosts: hosts.clone(),
            limits: RequestLimits {
                body: plan.limits.body,
                read_timeout: plan.limits.read_timeout,
                calls: plan.limits.calls,
            },
        });
        let settings = ListenSettings { connections: plan.limits.connections, read_timeout: plan.limits.read_timeout };
        let mut listeners = JoinSet::new();
        let addresses = bound.iter().map(Listener::address).collect::<std::io::Result<Vec<_>>>()?;
        for listener in bound {
            let service = Service::new(front::router(front.clone()), Some(front.clone()));
            listeners.spawn(listener.serve(service, settings.clone(), metrics.clone(), draining.clone(), plan.drain));
        }
        let admin = admin_listener.as_ref().map(Listener::address).transpose()?;
        if let Some(listener) = admin_listener {
            for name in &plan.disabled {
                metrics.server_up.with_label_values(&[name, State::Disabled.name()]).set(1);
            }
            let router = admin::router(Arc::new(Admin {
                gateway: gateway.clone(),
                disabled: plan.disabled.clone(),
                metrics: metrics.clone(),
                hosts,
                draining: draining.clone(),
            }));
            // The admin listener answers until the very end: probes must see that we drain.
            tokio::spawn(listener.serve(
                Service::new(router, None),
                settings,
                metrics.clone(),
                CancellationToken::new(),
                Duration::ZERO,
            ));
        }
        let reaping = draining.clone().run_until_cancelled_owned(front.state.sessions.clone().reap_forever());
        listeners.spawn(async move {
            let _ = reaping.await;
        });
        let parking = front.state.parking.clone();
        let expiring = tokio::spawn(parking.clone().expire_forever());
        gateway.start();
        Ok(App { addresses, admin, gateway, metrics, shared, parking, expiring, draining, listeners })
    }

    /// Stops: no new requests, streams end, calls may finish within the drain time, then the servers are stopped.
    pub async fn stop(mut self) {
        self.draining.cancel();
        while self.listeners.join_next().await.is_some() {}
        // Nobody can come back for them any more; their servers hear that they are cancelled.
        self.expiring.abort();
        self.parking.clear();
        self.gateway.stop().await;
        let shared = self.shared.clone();
        let _ = tokio::task::spawn_blocking(move || shared.guard.stop()).await;
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

fn front_state(plan: &Plan, metrics: &Arc<Metrics>, draining: &CancellationToken) -> FrontState {
    let limits = &plan.limits;
    let replay = ReplaySettings {
        bytes: limits.replay,
        total: limits.replay_total,
        events: limits.replay_events,
        time: limits.replay_time,
    };
    let sessions = SessionSettings { max: limits.sessions, idle: limits.session_idle, replay };
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
        sessions: Arc::new(Sessions::new(sessions, metrics.clone())),
        metrics: metrics.clone(),
        keep_alive: plan.keep_alive,
        streams_max: plan.limits.streams,
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
