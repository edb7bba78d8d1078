//! The config file: read, checked all at once, resolved into a [`Plan`].

mod plan;

pub use plan::{Limits, LogSettings, NameSettings, Plan, ViewSettings};
