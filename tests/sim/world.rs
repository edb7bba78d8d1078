//! One world: a gateway, three servers, clients of two principals; from a seed to its end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use moongate::app::Core;
use moongate::config::{self, LoadOptions, Plan};
use moongate::front;
use moongate::link::LinkError;
use moongate::link::guard::Guard;
use moongate::revision::SUPPORTED;
use moongate::telemetry::Metrics;
use moongate::upstream::{Pipe, Shared};

use crate::client::Client;
use crate::dice::Dice;
use crate::server::{self, Era};

/// The keys of the two principals.
pub(crate) const KEYS: [&str; 2] = ["key-of-anna-0123456789", "key-of-bert-0123456789"];

/// Two servers that all share, one of each era, and one with a connection for each client.
const SERVERS: [(&str, Era); 3] = [("s0", Era::Legacy), ("s1", Era::Modern), ("s2", Era::Legacy)];

/// The config of every world.
pub(crate) fn plan() -> Plan {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.toml");
    let [anna, bert] = KEYS;
    let text = format!(
        r#"
        [gateway]
        ask_timeout = "60s"
        [servers.s0]
        command = "memory"
        timeout = "30s"
        [servers.s1]
        command = "memory"
        timeout = "30s"
        max_concurrency = 2
        queue = 2
        [servers.s2]
        command = "memory"
        share = "session"
        timeout = "30s"
        [limits]
        parked = 3
        sessions = 4
        replay_time = "60s"
        [[auth.keys]]
        name = "anna"
        key = "{anna}"
        [[auth.keys]]
        name = "bert"
        key = "{bert}"
        "#
    );
    std::fs::write(&path, text).unwrap();
    let loaded = config::load(&LoadOptions { paths: vec![path], revisions: &SUPPORTED, ..LoadOptions::default() });
    loaded.unwrap_or_else(|problems| panic!("{problems}")).plan
}

/// What its clients and servers share.
#[derive(Default)]
pub(crate) struct World {
    calm: AtomicBool,
    failures: Mutex<Vec<String>>,
    /// Nonces of the calls that servers got.
    ran: Mutex<HashSet<String>>,
    /// How often each server's list changed.
    versions: Mutex<HashMap<String, u64>>,
    seen: Mutex<Seen>,
}

/// What happened, and how often.
#[derive(Default)]
pub(crate) struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub(crate) fn assert_all_happened(&self) {
        for what in [
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
        ] {
            assert!(self.0.contains_key(what), "it never happened that {what}: {:?}", self.0);
        }
    }
}

impl World {
    /// Whether servers behave.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
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
        self.versions.lock().unwrap().get(server).copied().unwrap_or_default()
    }

    pub(crate) fn change(&self, server: &str) {
        *self.versions.lock().unwrap().entry(server.to_owned()).or_default() += 1;
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.seen.lock().unwrap().0.entry(what).or_default() += 1;
    }

    fn dial(self: &Arc<Self>, name: &str, dice: &Mutex<Dice>) -> Result<Pipe, LinkError> {
        let mut dice = dice.lock().unwrap().fork();
        if !self.is_calm() && dice.one_in(10) {
            self.count("a server could not be reached");
            return Err(LinkError::Unreachable("it is not there".to_owned()));
        }
        let (_, era) = SERVERS.into_iter().find(|(known, _)| *known == name).unwrap();
        // Some pipes hold little: whoever writes then waits for whoever reads.
        let size = [256, 2048, 64 * 1024][usize::try_from(dice.below(3)).unwrap()];
        let (ours, theirs) = tokio::io::duplex(size);
        tokio::spawn(server::serve(self.clone(), name.to_owned(), era, theirs, dice));
        let (reader, writer) = tokio::io::split(ours);
        Ok((Box::new(reader), Box::new(writer)))
    }
}

/// Runs the world of a seed to its end; gives what happened in it.
pub(crate) async fn run(seed: u64, plan: &Plan) -> Seen {
    let mut dice = Dice::new(seed);
    let world = Arc::new(World::default());
    let metrics = Arc::new(Metrics::new());
    let dialing = {
        let (world, dice) = (world.clone(), Mutex::new(dice.fork()));
        Arc::new(move |name: &str| world.dial(name, &dice))
    };
    let shared = Arc::new(Shared::new(metrics.clone(), Guard::none()).dialing(dialing));
    let core = Core::new(plan, shared);
    let routes = front::router(core.fronts.clone(), false);
    core.gateway.start();
    let state = core.fronts.load().state.clone();
    let expiring = tokio::spawn(state.parking.clone().expire_forever());
    let mut living = Vec::new();
    for number in 0..3 + dice.below(4) {
        let era = if dice.one_in(2) { Era::Legacy } else { Era::Modern };
        let (who, able) = (usize::try_from(dice.below(2)).unwrap(), !dice.one_in(4));
        let mut client = Client::new(&world, &routes, era, who, number, able);
        let dice = dice.fork();
        living.push(tokio::spawn(async move { client.live(dice).await }));
    }
    for client in living {
        if let Err(panic) = client.await {
            std::panic::resume_unwind(panic.into_panic());
        }
        let (parked, sessions) = (metrics.parked.get(), metrics.sessions.get());
        assert!(parked <= 3 && sessions <= 4, "P5: {parked} parked, {sessions} sessions");
    }
    world.calm.store(true, Ordering::Relaxed);
    quiet(&metrics).await;
    recovers(&world, &routes).await;
    quiet(&metrics).await;
    tokio::time::timeout(Duration::from_secs(60), core.gateway.stop()).await.expect("it stops");
    expiring.abort();
    let failures = std::mem::take(&mut *world.failures.lock().unwrap());
    assert!(failures.is_empty(), "{failures:#?}");
    std::mem::take(&mut *world.seen.lock().unwrap())
}

/// Nobody wants anything any more: nothing is left, once all times are over.
async fn quiet(metrics: &Metrics) {
    let levels = || {
        let queued: i64 = SERVERS.iter().map(|(name, _)| metrics.queue_depth.with_label_values(&[*name]).get()).sum();
        [
            ("inflight", metrics.inflight.get()),
            ("streams", metrics.streams.get()),
            ("parked", metrics.parked.get()),
            ("sessions", metrics.sessions.get()),
            ("replay_bytes", metrics.replay_bytes.get()),
            ("queue_depth", queued),
        ]
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

/// Every server works again, for clients of both eras and principals.
async fn recovers(world: &Arc<World>, routes: &axum::Router) {
    for (number, (server, _)) in (1000..).zip(SERVERS) {
        for (who, era) in [(0, Era::Legacy), (1, Era::Modern)] {
            let mut client = Client::new(world, routes, era, who, number, false);
            let mut worked = false;
            for _ in 0..600 {
                worked = client.works(server).await;
                if worked {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(worked, "{server} does not work for a client of {era:?} once it behaves");
            client.leave().await;
        }
    }
}
