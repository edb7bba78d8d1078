//! Whole gateways in a simulated world: clients and servers of both eras that do whatever chance says, over pipes in
//! memory and under a clock that only runs when nobody has anything to do.
//!
//! Every seed is a world of its own. What its clients and servers do, and when, comes from the seed alone:
//! `SIM_SEED=7 cargo nextest run --test sim` runs one again, `SIM_SEEDS=20000` runs so many. (The order in which the
//! runtime polls what is ready at the same instant is its own, so that a rare failure may need a few runs.) What must
//! hold, whatever happens:
//!
//! - every request has one outcome, and has it in time (P3); what a client is given is its own (nonces), and never
//!   another principal's (P6);
//! - on a connection no id is used twice, and no call of a tool reaches a server twice (P1);
//! - tables stay within their limits (P5), and once nobody wants anything any more they are empty;
//! - once servers behave again, every one of them works.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "sim/client.rs"]
mod client;
#[path = "sim/dice.rs"]
mod dice;
#[path = "sim/door.rs"]
mod door;
#[path = "sim/http.rs"]
mod http;
#[path = "sim/link.rs"]
mod link;
#[path = "sim/plans.rs"]
mod plans;
#[path = "sim/server.rs"]
mod server;
#[path = "sim/world.rs"]
mod world;

use moongate::config::Plan;

/// How many worlds are run, over all of the tests below, unless `SIM_SEEDS` says otherwise.
const SEEDS: u64 = 4000;
/// How many tests share them, so that they can run side by side.
const PARTS: u64 = 8;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
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
    let mut seen = world::Seen::default();
    for seed in (0..seeds).filter(|seed| seed % PARTS == part) {
        seen.add(&run(seed, &plan));
    }
    // A simulation in which nothing happens shows nothing.
    if seeds / PARTS >= 400 {
        seen.assert_all_happened();
    }
}

fn run(seed: u64, plan: &Plan) -> world::Seen {
    let replay = Replay(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let seen = runtime.block_on(world::run(seed, plan));
    std::mem::forget(replay);
    seen
}

/// Says how to run the seed again, if it ends in a panic.
struct Replay(u64);

impl Drop for Replay {
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
    worlds_1_of_8: 0,
    worlds_2_of_8: 1,
    worlds_3_of_8: 2,
    worlds_4_of_8: 3,
    worlds_5_of_8: 4,
    worlds_6_of_8: 5,
    worlds_7_of_8: 6,
    worlds_8_of_8: 7,
}
