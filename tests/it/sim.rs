//! Whole gateways in a simulated world: clients and servers of both eras that do whatever chance
//! says, over pipes in memory, and HTTP over such pipes, under a clock that only runs when nobody
//! has anything to do.
//!
//! Every seed is a world of its own: which servers it has, what its clients and servers do, and
//! when, where connections are slow, stand still or are cut, and what an operator does meanwhile
//! (changes of the config, restarts of servers). `SIM_SEED=7 cargo nextest run --test it sim::`
//! runs one again, `SIM_SEEDS=20000` runs so many. (The gateway draws ids and the length of pauses
//! itself, so that a rare failure may need a few runs.) What must hold, whatever happens:
//!
//! - every request has one outcome, and has it in time, unless its client left or cancelled (P3); a
//!   stream that is asked for again brings no event twice (P4); what a client is given is its own
//!   (nonces), and never another principal's (P6);
//! - on a connection, and in a session, no id is used twice, and no call of a tool reaches a server
//!   twice (P1);
//! - tables stay within their limits (P5), and once nobody wants anything any more they are empty;
//! - once servers behave again, every one of them works; once the gateway has stopped, nothing of
//!   it runs.

mod client;
mod http;
mod link;
mod listener_stub;
mod plans;
pub(crate) mod rng;
mod server;
mod world;

use moongate_config::Plan;

/// How many worlds are run, over all of the tests below, unless `SIM_SEEDS` says otherwise.
const SEEDS: u64 = 4000;
/// How many tests share them, so that they can run side by side.
const PARTS: u64 = 16;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    })
}

fn part(part: u64) {
    let plan = plans::all();
    if let Some(seed) = number("SIM_SEED") {
        if seed % PARTS == part {
            run(seed, &plan);
        }
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let mut seen = world::EventCounts::default();
    for seed in (0..seeds).filter(|seed| seed % PARTS == part) {
        seen.add(&run(seed, &plan));
    }
    // A simulation in which nothing happens shows nothing.
    if seeds >= SEEDS {
        seen.assert_all_happened(seeds / PARTS);
    }
}

fn run(seed: u64, plan: &Plan) -> world::EventCounts {
    let replay = ReplayHint(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let seen = runtime.block_on(world::run(seed, plan));
    std::mem::forget(replay);
    seen
}

/// Says how to run the seed again, if it ends in a panic.
struct ReplayHint(u64);

impl Drop for ReplayHint {
    fn drop(&mut self) {
        eprintln!("the seed was {0}: SIM_SEED={0} runs it again", self.0);
    }
}

macro_rules! parts {
    ($($name:ident: $part:literal,)*) => {
        $(#[test]
        fn $name() {
            part($part);
        })*
    };
}

parts! {
    worlds_01_of_16: 0,
    worlds_02_of_16: 1,
    worlds_03_of_16: 2,
    worlds_04_of_16: 3,
    worlds_05_of_16: 4,
    worlds_06_of_16: 5,
    worlds_07_of_16: 6,
    worlds_08_of_16: 7,
    worlds_09_of_16: 8,
    worlds_10_of_16: 9,
    worlds_11_of_16: 10,
    worlds_12_of_16: 11,
    worlds_13_of_16: 12,
    worlds_14_of_16: 13,
    worlds_15_of_16: 14,
    worlds_16_of_16: 15,
}
