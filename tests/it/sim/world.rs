//! One world: a gateway, three servers, clients of two principals; from a seed to its end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moongate::app::{GatewayCore, ReloadOutcome};
use moongate_config::Plan;
use moongate_gateway::RestartOutcome;
use moongate_listener::{ConnectionService, ListenSettings};
use moongate_telemetry::Metrics;
use moongate_transport::LinkError;
use moongate_transport::reaper::Reaper;
use moongate_upstream::{MemoryPipe, UpstreamRuntime};
use tokio::task::JoinHandle;

use crate::sim::client::SimClient;
use crate::sim::http::HttpHost;
use crate::sim::link;
use crate::sim::listener_stub::{HttpHosts, ListenerStub};
use crate::sim::plans::{self, ServerPlan, SimCarrier};
use crate::sim::rng::Rng;
use crate::sim::server::ServerEra;

/// What its clients and servers share.
#[derive(Default)]
pub(crate) struct SimWorld {
    pub(crate) kinds: Vec<ServerPlan>,
    calm: AtomicBool,
    /// Whether a key was taken away at some time.
    locked: AtomicBool,
    failures: Mutex<Vec<String>>,
    /// Nonces of the calls that servers got.
    ran: Mutex<HashSet<String>>,
    /// How often each server's list changed.
    versions: Mutex<HashMap<String, u64>>,
    seen: Mutex<EventCounts>,
    /// What runs in this world, besides the gateway.
    tasks: Mutex<BTreeMap<&'static str, usize>>,
}

/// What happened, and how often.
#[derive(Default)]
pub(crate) struct EventCounts(BTreeMap<&'static str, u64>);

impl EventCounts {
    pub(crate) fn add(&mut self, other: &EventCounts) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Whether so many worlds were enough for all that can happen in one.
    pub(crate) fn assert_all_happened(&self, worlds: u64) {
        let mut all = vec![
            "a call succeeded",
            "a call failed",
            "a server broke down",
            "a server could not be reached",
            "a server stopped reading",
            "a call was never answered",
            "a call was answered late, although it was cancelled",
            "a call was answered twice",
            "a server answered another id",
            "a server said what is no message",
            "a list changed",
            "a call told of its progress",
            "a modern server asked",
            "a legacy server asked",
            "a legacy server was answered",
            "a client came back with its answer",
            "a client never came back with its answer",
            "a client did not answer",
            "a client left",
            "a client cancelled",
            "a client listened",
            "a client's connection broke",
            "a client resumed a stream",
            "a client stopped reading",
            "a client was locked out",
            "a connection was cut",
            "a connection stood still",
            "a connection broke before anything ran",
            "a connection broke after a request ran",
            "a server was slow over HTTP",
            "a server refused over HTTP",
            "a server forgot its sessions",
            "an event stream was cut",
            "a stream was resumed",
            "a stream could not be resumed",
            "a server was restarted",
            "a server could not be restarted",
            "a server was replaced",
            "a server was taken out of the config",
            "a server's limits were changed",
            "a key was taken out of the config",
            "the rules of names were changed",
        ];
        if worlds < 1000 {
            all.retain(|what| {
                ![
                    "a client resumed a stream",
                    "a stream was resumed",
                    "a stream could not be resumed",
                ]
                .contains(what)
            });
        }
        for what in all {
            assert!(
                self.0.contains_key(what),
                "it never happened that {what}: {:?}",
                self.0
            );
        }
    }
}

impl SimWorld {
    /// Whether servers behave.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Whether a principal may be without its key.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Notes what no test may let pass, from a task whose panic nobody would see.
    pub(crate) fn fail(&self, what: String) {
        self.failures.lock().unwrap().push(what);
    }

    /// Notes that a call runs; false if it did before.
    pub(crate) fn runs(&self, nonce: &str) -> bool {
        self.ran.lock().unwrap().insert(nonce.to_owned())
    }

    pub(crate) fn version(&self, server: &str) -> u64 {
        self.versions
            .lock()
            .unwrap()
            .get(server)
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn change(&self, server: &str) {
        *self
            .versions
            .lock()
            .unwrap()
            .entry(server.to_owned())
            .or_default() += 1;
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.seen.lock().unwrap().0.entry(what).or_default() += 1;
    }

    /// Runs something that has to end by itself once the gateway is gone.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        *self.tasks.lock().unwrap().entry(what).or_default() += 1;
        let world = self.clone();
        tokio::spawn(async move {
            task.await;
            *world.tasks.lock().unwrap().get_mut(what).unwrap() -= 1;
        });
    }

    fn dial(
        self: &Arc<Self>,
        name: &str,
        rng: &Mutex<Rng>,
        sites: &[Arc<HttpHost>],
    ) -> Result<MemoryPipe, LinkError> {
        let mut rng = rng.lock().unwrap().fork();
        if !self.is_calm() && rng.one_in(10) {
            self.count("a server could not be reached");
            return Err(LinkError::Unreachable("it is not there".to_owned()));
        }
        let at = self
            .kinds
            .iter()
            .position(|kind| kind.name == name)
            .unwrap();
        let kind = self.kinds[at];
        let site = sites[at].clone();
        let (ours, theirs) = link::connection(self, &mut rng, 8);
        if kind.carrier != SimCarrier::Pipe {
            self.spawn("a connection of a server", site.serve(theirs));
            let (reader, writer) = tokio::io::split(ours);
            return Ok((Box::new(reader), Box::new(writer)));
        }
        // As of a process: its input ends before its output does.
        let (writer, reader) = link::connection(self, &mut rng, 8);
        self.spawn(
            "a pipe of a server",
            link::serve(self.clone(), kind, (reader, theirs), rng),
        );
        Ok((Box::new(ours), Box::new(writer)))
    }
}

/// Runs the world of a seed to its end; gives what happened in it.
pub(crate) async fn run(seed: u64, all: &Plan) -> EventCounts {
    let mut rng = Rng::new(seed);
    let (kinds, plan) = plans::chosen(all, &mut rng);
    let world = Arc::new(SimWorld {
        kinds: kinds.clone(),
        ..SimWorld::default()
    });
    let metrics = Arc::new(Metrics::new());
    let sites: Vec<_> = kinds
        .iter()
        .map(|kind| HttpHost::new(world.clone(), *kind, rng.fork()))
        .collect();
    let dialing = {
        let world = world.clone();
        let rng = Mutex::new(rng.fork());
        Arc::new(move |name: &str| world.dial(name, &rng, &sites))
    };
    let shared =
        Arc::new(UpstreamRuntime::new(metrics.clone(), Reaper::disabled()).with_dialer(dialing));
    let core = GatewayCore::new(&plan, shared.clone());
    let house = hosts_of(&core, &plan);
    core.gateway.start();
    let parking = core.shared_state.load().downstream.parked_calls.clone();
    let sessions = core.shared_state.load().downstream.sessions.clone();
    let servers = core.gateway.clone();
    let reaping = sessions.expire_forever(move |session| servers.has_dedicated_connection(session));
    let keeping = [
        tokio::spawn(parking.expire_forever()),
        tokio::spawn(reaping),
    ];
    let living = start_clients(&world, &house, &mut rng);
    // Two of them, who know nothing of each other.
    let operating = [rng.fork(), rng.fork()].map(|rng| operate(&world, &core, &plan, rng));
    let lives = async {
        for client in living {
            if let Err(panic) = client.await {
                std::panic::resume_unwind(panic.into_panic());
            }
            let parked = metrics.inputs.parked.get();
            let sessions = metrics.clients.sessions.get();
            assert!(
                parked <= 2 && sessions <= 2,
                "P5: {parked} parked, {sessions} sessions"
            );
        }
    };
    tokio::join!(lives, futures_util::future::join_all(operating));
    world.calm.store(true, Ordering::Relaxed);
    quiet(&kinds, &metrics).await;
    recovers(&world, &house, rng.fork()).await;
    quiet(&kinds, &metrics).await;
    drop(house);
    core.draining.cancel();
    tokio::time::timeout(Duration::from_secs(60), core.gateway.stop())
        .await
        .expect("it stops");
    tokio::time::timeout(Duration::from_secs(60), shared.wait_closed())
        .await
        .expect("it stops");
    keeping.iter().for_each(JoinHandle::abort);
    drop((core, shared));
    nothing_runs(&world).await;
    let failures = std::mem::take(&mut *world.failures.lock().unwrap());
    assert!(failures.is_empty(), "{failures:#?}");
    std::mem::take(&mut *world.seen.lock().unwrap())
}

/// Ways in of a gateway over HTTP.
fn hosts_of(core: &GatewayCore, plan: &Plan) -> HttpHosts {
    let routes = moongate_listener::router(core.shared_state.clone(), false);
    HttpHosts {
        service: ConnectionService::new(routes.clone(), Some(core.shared_state.clone()), false),
        routes,
        settings: ListenSettings {
            head: plan.limits.head.0,
            read_timeout: plan.limits.read_timeout.0,
            write_timeout: plan.limits.write_timeout.0,
        },
        draining: core.draining.clone(),
    }
}

/// Starts two to four clients, which do what chance says.
fn start_clients(world: &Arc<SimWorld>, house: &HttpHosts, rng: &mut Rng) -> Vec<JoinHandle<()>> {
    let mut living = Vec::new();
    for number in 0..2 + rng.below(3) {
        let era = if rng.one_in(2) {
            ServerEra::Legacy
        } else {
            ServerEra::Modern
        };
        let who = rng.pick(2);
        let able = !rng.one_in(4);
        let listener = ListenerStub::new(house, world, rng);
        let mut client = SimClient::new(world, listener, era, who, number, able);
        let rng = rng.fork();
        living.push(tokio::spawn(async move { client.live(rng).await }));
    }
    living
}

/// What an operator does meanwhile: the config changes, and back; servers are restarted.
async fn operate(world: &SimWorld, core: &GatewayCore, plan: &Plan, mut rng: Rng) {
    for _ in 0..rng.below(3) {
        tokio::time::sleep(rng.time(Duration::from_secs(60))).await;
        if rng.one_in(3) {
            let name = world.kinds[rng.pick(world.kinds.len())].name;
            match core.gateway.restart(name).await {
                RestartOutcome::Replaced(_) => world.count("a server was restarted"),
                RestartOutcome::Failed { .. } => world.count("a server could not be restarted"),
                RestartOutcome::Busy => world.count("a server was being restarted"),
                // The other one took it out of the config.
                RestartOutcome::Disabled | RestartOutcome::Unknown => {
                    world.count("a server was not there to be restarted")
                }
            }
            continue;
        }
        let (what, changed) = plans::changed(plan, &mut rng);
        if changed.auth.keys.len() < plan.auth.keys.len() {
            world.locked.store(true, Ordering::Relaxed);
        }
        world.count(what);
        for plan in [&changed, plan] {
            let outcome = core.reloader.apply_plan(plan.clone()).await;
            assert!(
                !matches!(outcome, ReloadOutcome::Refused(_)),
                "{what}: {outcome:?}"
            );
            tokio::time::sleep(rng.time(Duration::from_secs(40))).await;
        }
    }
}

/// Nobody wants anything any more: nothing is left, once all times are over.
async fn quiet(kinds: &[ServerPlan], metrics: &Metrics) {
    let levels = || {
        let mut levels = vec![
            ("inflight", metrics.calls.inflight.get()),
            ("streams", metrics.clients.streams.get()),
            ("parked", metrics.inputs.parked.get()),
            ("sessions", metrics.clients.sessions.get()),
            ("replay_bytes", metrics.clients.replay_bytes.get()),
        ];
        for kind in kinds {
            levels.push((kind.name, metrics.servers.queue_depth.get(kind.name)));
            levels.push((kind.name, metrics.servers.backlog_bytes.get(kind.name)));
        }
        levels
    };
    // Longer than calls, questions, and what is kept for clients that may come back.
    for _ in 0..120 {
        if levels().iter().all(|(_, level)| *level == 0) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    panic!("something is left: {:?}", levels());
}

/// Every server works again, for a client of either era and principal.
async fn recovers(world: &Arc<SimWorld>, house: &HttpHosts, mut rng: Rng) {
    for (number, kind) in (1000..).zip(&world.kinds) {
        let who = rng.pick(2);
        let era = if rng.one_in(2) {
            ServerEra::Legacy
        } else {
            ServerEra::Modern
        };
        let mut client = SimClient::new(
            world,
            ListenerStub::Routes(house.routes.clone()),
            era,
            who,
            number,
            false,
        );
        let mut worked = false;
        for _ in 0..600 {
            worked = client.works(kind.name).await;
            if worked {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(
            worked,
            "{} does not work for a client of {era:?} once it behaves",
            kind.name
        );
        client.leave().await;
    }
}

/// Everything has stopped: no task is left, once what waits for a time has seen that there is
/// nothing to do.
async fn nothing_runs(world: &SimWorld) {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    for _ in 0..120 {
        if tasks() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    panic!(
        "{} tasks are left, of which this world has {:?}",
        tasks(),
        world.tasks.lock().unwrap()
    );
}
