//! A gateway in this process, and a tap that keeps what passes over HTTP.

pub(crate) mod rig;
pub(crate) mod tap;
