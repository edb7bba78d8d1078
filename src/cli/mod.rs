//! The commands.
//!
//! Owns one file for each. Does not own what they run. Invariant: what is meant for people goes to stderr.

pub mod mock;
