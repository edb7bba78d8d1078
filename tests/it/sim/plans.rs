//! What is configured: which servers a world has, and what an operator may make of that.

use moongate_config::{LoadOptions, Plan};
use moongate_protocol::SUPPORTED;
use moongate_upstream::ConnectTarget;

use crate::sim::rng::Rng;
use crate::sim::server::ServerEra;

/// The keys of the two principals.
pub(crate) const KEYS: [&str; 2] = ["key-of-anna-0123456789", "key-of-bert-0123456789"];

/// What carries a server's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimCarrier {
    Pipe,
    Http,
    HttpSse,
}

/// One of the servers that a world may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerPlan {
    pub(crate) name: &'static str,
    pub(crate) era: ServerEra,
    pub(crate) carrier: SimCarrier,
    /// What the config says of it.
    settings: &'static str,
}

const fn kind(
    name: &'static str,
    era: ServerEra,
    carrier: SimCarrier,
    settings: &'static str,
) -> ServerPlan {
    ServerPlan {
        name,
        era,
        carrier,
        settings,
    }
}

/// All of them.
pub(crate) const KINDS: [ServerPlan; 7] = [
    kind(
        "s0",
        ServerEra::Legacy,
        SimCarrier::Pipe,
        "command = 'memory'",
    ),
    kind(
        "s1",
        ServerEra::Modern,
        SimCarrier::Pipe,
        "command = 'memory'\nmax_concurrency = 2\nqueue = 2",
    ),
    kind(
        "s2",
        ServerEra::Legacy,
        SimCarrier::Pipe,
        "command = 'memory'\nshare = 'session'",
    ),
    kind(
        "s3",
        ServerEra::Legacy,
        SimCarrier::Http,
        "url = 'http://s3.test/mcp'",
    ),
    kind(
        "s4",
        ServerEra::Modern,
        SimCarrier::Http,
        "url = 'http://s4.test/mcp'\ntransport = 'http'\nmax_concurrency = 3",
    ),
    kind(
        "s5",
        ServerEra::Legacy,
        SimCarrier::HttpSse,
        "url = 'http://s5.test/sse'\ntransport = 'sse'",
    ),
    kind(
        "s6",
        ServerEra::Legacy,
        SimCarrier::Http,
        "url = 'http://s6.test/mcp'\nshare = 'session'",
    ),
];

/// Servers in one world.
const SERVERS: usize = 3;

/// The config of a gateway with every kind of server.
pub(crate) fn all() -> Plan {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sim.toml");
    let [anna, bert] = KEYS;
    let mut text = format!(
        "[gateway]\nask_timeout = '60s'\n[limits]\nparked = 2\nsessions = 2\nsession_idle = \
         '300s'\nreplay_time = '60s'\n\
         [[auth.keys]]\nname = 'anna'\nkey = '{anna}'\n[[auth.keys]]\nname = 'bert'\nkey = \
         '{bert}'\n"
    );
    for kind in KINDS {
        text += &format!(
            "[servers.{}]\ntimeout = '30s'\n{}\n",
            kind.name, kind.settings
        );
    }
    std::fs::write(&path, text).unwrap();
    let loaded = moongate_config::load(&LoadOptions {
        paths: vec![path],
        revisions: &SUPPORTED,
        ..LoadOptions::default()
    });
    loaded.unwrap_or_else(|problems| panic!("{problems}")).plan
}

/// Some of the servers, and the config for these.
pub(crate) fn chosen(all: &Plan, rng: &mut Rng) -> (Vec<ServerPlan>, Plan) {
    let mut kinds = KINDS.to_vec();
    while kinds.len() > SERVERS {
        kinds.remove(rng.pick(kinds.len()));
    }
    let mut plan = all.clone();
    plan.servers
        .retain(|server| kinds.iter().any(|kind| kind.name == server.name));
    (kinds, plan)
}

/// The config as somebody may have changed it.
pub(crate) fn changed(plan: &Plan, rng: &mut Rng) -> (&'static str, Plan) {
    let mut plan = plan.clone();
    let at = rng.pick(plan.servers.len());
    let server = &mut plan.servers[at];
    let what = match rng.below(6) {
        0 => {
            plan.servers.remove(at);
            "a server was taken out of the config"
        }
        1 => {
            plan.auth.keys.truncate(1);
            "a key was taken out of the config"
        }
        2 => {
            server.live.timeout.0 = std::time::Duration::from_secs(15);
            server.live.max_concurrency = 1;
            "a server's limits were changed"
        }
        3 => {
            plan.names.max_length -= 1;
            "the rules of names were changed"
        }
        _ => {
            match &mut server.connect {
                ConnectTarget::Stdio { args, .. } => args.push("again".to_owned()),
                ConnectTarget::Http { url, .. } => url.set_query(Some("again")),
                ConnectTarget::Socket(_) | ConnectTarget::Misconfigured { .. } => {
                    unreachable!("there is none")
                }
            }
            "a server was replaced"
        }
    };
    (what, plan)
}
