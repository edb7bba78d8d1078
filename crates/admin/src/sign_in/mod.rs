//! Keys of operators on their way in: guesses, and their limit.
//!
//! Owns what the listener remembers of them. Does not know routes. Invariant: every table here is bounded, and holds
//! hashes only.

mod wrong_keys;

pub(crate) use wrong_keys::{KeyAttempt, WrongKeyLimit};

/// Memory of the listener about those who sign in.
#[derive(Default)]
pub struct SignInState {
    pub(super) wrong_keys: WrongKeyLimit,
}
