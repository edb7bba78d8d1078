//! What all parts of a run share: the world, the counts, the dice, the pace.

use crate::judge::{Outcome, Tally};
use crate::world::{SERVERS, ServerSpec, SoakWorld};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// How far behind its own pace a run may be before it gives up making up for it, on a machine that
/// others use too.
const BEHIND: Duration = Duration::from_secs(30);
/// How much faster it calls while it makes up.
const HURRY: f64 = 1.5;

/// A run.
pub(crate) struct SoakRun {
    pub(crate) world: SoakWorld,
    tally: RefCell<Tally>,
    dice: Cell<u64>,
    nonce: Cell<u64>,
    /// Between two calls.
    gap: Duration,
    next: Cell<Instant>,
    last: Cell<Instant>,
    until: Cell<Instant>,
    /// Nobody calls for a moment.
    pub(crate) hold: Cell<bool>,
    /// Sessions that somebody else may try to take over: the id, and whose it is.
    pub(crate) board: RefCell<Vec<(String, usize)>>,
}

impl SoakRun {
    pub(crate) fn new(world: SoakWorld, seed: u64, rate: f64) -> Self {
        let now = Instant::now();
        Self {
            world,
            tally: RefCell::default(),
            dice: Cell::new(seed),
            nonce: Cell::new(0),
            gap: Duration::from_secs_f64(1.0 / rate.max(1.0)),
            next: Cell::new(now),
            last: Cell::new(now),
            until: Cell::new(now),
            hold: Cell::new(false),
            board: RefCell::default(),
        }
    }

    /// A phase of this length begins.
    pub(crate) fn begin(&self, length: Duration) {
        self.next.set(Instant::now());
        self.until.set(Instant::now() + length);
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until.get()
    }

    /// Waits for a pause to pass, or for the end of the phase; false: it is the end.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        sleep_until((Instant::now() + pause).min(self.until.get())).await;
        !self.is_over()
    }

    /// Waits for the next turn to call; false: the phase is over.
    pub(crate) async fn turn(&self) -> bool {
        let now = Instant::now();
        let next = self.next.get().max(now.checked_sub(BEHIND).unwrap_or(now));
        self.next.set(next + self.gap);
        let at = next.max(self.last.get() + self.gap.div_f64(HURRY));
        self.last.set(at.max(now));
        sleep_until(at.min(self.until.get())).await;
        self.held().await;
        !self.is_over()
    }

    /// Waits until everybody may call.
    pub(crate) async fn held(&self) {
        while self.hold.get() && !self.is_over() {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The next number of the dice, below `below` (SplitMix64).
    pub(crate) fn dice(&self, below: u64) -> u64 {
        let state = self.dice.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.dice.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        all.get(usize::try_from(self.dice(all.len() as u64)).unwrap_or(0))
    }

    /// A server that fits.
    pub(crate) fn server(&self, fits: impl Fn(&ServerSpec) -> bool) -> &'static ServerSpec {
        let fitting: Vec<&'static ServerSpec> = SERVERS.iter().filter(|spec| fits(spec)).collect();
        self.pick(&fitting).copied().unwrap_or(&SERVERS[0])
    }

    /// A text that nobody else sends.
    pub(crate) fn nonce(&self, key: usize) -> String {
        self.nonce.set(self.nonce.get() + 1);
        format!("nonce-{key}-{}", self.nonce.get())
    }

    pub(crate) fn tally<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        change(&mut self.tally.borrow_mut())
    }

    pub(crate) fn add(&self, what: &'static str) {
        self.tally(|tally| tally.add(what, 1));
    }

    pub(crate) fn broken(&self, what: &'static str, how: impl Into<String>) {
        self.tally(|tally| tally.broken(what, how.into()));
    }

    pub(crate) fn called(
        &self,
        what: &'static str,
        server: &'static str,
        began: Instant,
        outcome: Outcome,
    ) {
        self.tally(|tally| tally.called(what, server, began, outcome));
    }
}
