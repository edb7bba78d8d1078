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
#[path = "sim/server.rs"]
mod server;
#[path = "sim/world.rs"]
mod world;

use moongate::config::Plan;

/// How many worlds are run, over all of the tests below, unless `SIM_SEEDS` says otherwise.
const SEEDS: u64 = 400;
/// How many tests share them, so that they can run side by side.
const PARTS: u64 = 4;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn part(part: u64) {
    let plan = world::plan();
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
    if seeds >= 400 {
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

#[test]
fn worlds_of_the_first_part() {
    part(0);
}

#[test]
fn worlds_of_the_second_part() {
    part(1);
}

#[test]
fn worlds_of_the_third_part() {
    part(2);
}

#[test]
fn worlds_of_the_fourth_part() {
    part(3);
}
