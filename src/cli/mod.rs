//! The commands.

pub mod check;
pub mod key;
pub mod schema;
