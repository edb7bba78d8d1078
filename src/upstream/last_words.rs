//! The last lines of a server's processes on stderr, for the status.
//!
//! Owns which process's lines are shown. Does not read them (`link::stderr`). Invariant: what a dead process wrote is
//! shown until its successor is ready.

use std::sync::{Mutex, PoisonError};

use crate::link::stderr::StderrTail;

/// What the processes of one server wrote last.
#[derive(Default)]
pub(super) struct LastWords(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Of the process before.
    dead: Vec<String>,
    live: StderrTail,
}

impl LastWords {
    /// Takes the lines of a process that is about to be started.
    pub(super) fn begin(&self) -> StderrTail {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut kept.live).lines();
        // One that said nothing explains less than the one before it.
        if !before.is_empty() {
            kept.dead = before;
        }
        kept.live.clone()
    }

    /// Shows the lines of a process that took the place of another while both ran.
    pub(super) fn turn_to(&self, live: StderrTail) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Kept { dead: Vec::new(), live };
    }

    /// Forgets those of the process before: this one is ready.
    pub(super) fn ready(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dead = Vec::new();
    }

    /// The lines, oldest first.
    pub(super) fn lines(&self) -> Vec<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (dead, live) = (kept.dead.clone(), kept.live.lines());
        dead.into_iter().chain(live).collect()
    }
}
