//! Listeners of a gateway: for clients, for newline-delimited messages, and for operators.
//!
//! Owns their binding, and what each of them serves. Does not accept connections
//! (`moongate-listener`). Invariant: no listener that other machines may reach serves MCP without a
//! method of authentication.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::connection_slots::ConnectionSlots;
use crate::app::login_parts::LoginParts;
use crate::app::logins::{PortListener, redirect_base};
use crate::app::logins_control::GatewayLogins;
use crate::app::people_control::GatewayPeople;
use crate::app::reload::editor::FileEditor;
use crate::app::reload::examine::GatewayExaminer;
use crate::app::reload::{ConfigReloader, ReloadTargets};
use moongate_admin::{
    AdminState, ConfigEditor, EventFeed, Examiner, LoginControl, OperatorCalls, PeopleControl,
    ProbeSlots,
};
use moongate_config::Plan;
use moongate_listener::{
    self, BoundListener, ConnectionLimit, ConnectionService, InheritedSockets, ListenAddress,
    ListenSettings, PeopleRoutes,
};
use url::Url;

/// Bound listeners of a gateway.
pub(super) struct GatewayListeners {
    /// Listeners for HTTP clients.
    pub(super) clients: Vec<BoundListener>,
    /// Listeners for newline-delimited messages.
    pub(super) lines: Vec<BoundListener>,
    /// Listeners for operators.
    pub(super) admin: Vec<BoundListener>,
}

impl GatewayListeners {
    /// Returns the name of a listener that must not be left without a method of authentication.
    pub(super) fn open_client_listener(&self, login: &LoginParts) -> Option<String> {
        let open = self
            .clients
            .iter()
            .find(|listener| is_open(listener))
            .map(BoundListener::name);
        open.filter(|_| login.methods.is_empty())
    }

    /// Returns the addresses of all listeners.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let all = self.clients.iter().chain(&self.lines).chain(&self.admin);
        all.filter_map(BoundListener::address).collect()
    }

    /// Creates what starts and ends logins at servers. Without an address that is known in advance,
    /// browsers come back to a bound one.
    fn login_control(&self, plan: &Plan, targets: &ReloadTargets) -> GatewayLogins {
        let redirect_base = redirect_base(plan).or_else(|| self.loopback_base(targets));
        GatewayLogins::new(targets, redirect_base)
    }

    /// Returns the first address that browsers on this machine reach.
    fn loopback_base(&self, targets: &ReloadTargets) -> Option<Url> {
        let mut addresses = self.clients.iter().filter_map(BoundListener::address);
        let address = addresses.find(|address| address.ip().is_loopback())?;
        let is_secure = targets.tls.is_some();
        let scheme = if is_secure { "https" } else { "http" };
        Url::parse(&format!("{scheme}://{address}/")).ok()
    }

    /// Serves all listeners until the gateway drains.
    pub(super) fn serve(
        self,
        plan: &Plan,
        reloader: &Arc<ConfigReloader>,
        draining: &CancellationToken,
        people: &PeopleRoutes,
    ) -> JoinSet<()> {
        let targets = &reloader.targets;
        let metrics = &targets.shared.metrics;
        let settings = listen_settings(plan);
        let places = ConnectionSlots::within_open_files(&plan.limits);
        let connection_limit =
            ConnectionLimit::new(places.clients, &metrics.clients.connections, metrics);
        // A separate limit, so that clients cannot lock the operators out.
        let open = &metrics.clients.admin_connections;
        let admin_limit =
            ConnectionLimit::for_operators(places.operators, &connection_limit, open, metrics);
        let endpoint_url = endpoint_url(plan, &self.clients, targets.tls.is_some());
        let logins: Arc<dyn LoginControl> = Arc::new(self.login_control(plan, targets));
        let probe_slots = ProbeSlots::default();
        let mut listeners = JoinSet::new();
        for listener in self.clients {
            let service = client_service(&listener, targets, people);
            let listener = listener.with_tls(targets.tls.clone());
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
        let company: Arc<dyn PeopleControl> = Arc::new(GatewayPeople::new(targets));
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
                logins: logins.clone(),
                people: company.clone(),
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

fn listen_settings(plan: &Plan) -> ListenSettings {
    ListenSettings {
        head: plan.limits.head.0,
        read_timeout: plan.limits.read_timeout.0,
        write_timeout: plan.limits.write_timeout.0,
    }
}

/// Returns the service of a listener for HTTP clients.
fn client_service(
    listener: &BoundListener,
    targets: &ReloadTargets,
    people: &PeopleRoutes,
) -> ConnectionService {
    let local = listener.is_local();
    let routes = moongate_listener::router_with_people(
        people.clone(),
        targets.listener_state.clone(),
        local,
    );
    ConnectionService::new(routes, Some(targets.listener_state.clone()), local)
}

/// Returns the addresses and the Unix sockets of these listeners.
pub(super) fn listener_names(listeners: &[BoundListener]) -> (Vec<SocketAddr>, Vec<String>) {
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

/// Binds all listeners of a plan. Fails if one would be open to callers without a key.
pub(super) async fn bind(plan: &Plan, login: &LoginParts) -> anyhow::Result<GatewayListeners> {
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
    let mut bound = GatewayListeners {
        clients: Vec::new(),
        lines: Vec::new(),
        admin: Vec::new(),
    };
    for (address, setting) in all {
        let opened = match BoundListener::open(address, &plan.sockets, &mut inherited).await {
            Ok(opened) => opened,
            Err(error) => {
                let owner = describe_waiting_login(address).await;
                return Err::<GatewayListeners, _>(error).with_context(|| {
                    format!("cannot listen on {address} (gateway.{setting}){owner}")
                });
            }
        };
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

/// Describes a `moongate login` that has the address for its answer. Empty if there is none.
async fn describe_waiting_login(address: &ListenAddress) -> &'static str {
    for local in address.local_addresses() {
        if PortListener::find(local).await == PortListener::LoginCommand {
            return ", where `moongate login` waits for the browser: finish that login or end it";
        }
    }
    ""
}

/// True if other machines may reach the listener.
fn is_open(listener: &BoundListener) -> bool {
    listener
        .address()
        .is_some_and(|address| ListenAddress::Tcp(address).is_open())
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
