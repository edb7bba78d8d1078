//! One configured server: connected, watched, listed, leased.

mod settings;

pub use settings::{Connect, ServerSettings, Share};
