//! Chance that can be repeated.

use std::time::Duration;

/// SplitMix64: small, and good enough to choose what happens.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Generator of somebody's own, which nobody else's draws change.
    pub(crate) fn fork(&mut self) -> Self {
        Rng(self.next())
    }

    /// Less than `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// One of so many places.
    pub(crate) fn pick(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    /// Whether one of `n` equal chances came.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time below this; short ones are as likely as long ones.
    pub(crate) fn time(&mut self, most: Duration) -> Duration {
        let part = [1, 10, 100, 1000][usize::try_from(self.below(4)).unwrap()];
        let ms = u64::try_from(most.as_millis()).unwrap() / part;
        Duration::from_millis(self.below(ms.max(1)))
    }
}
