//! What the benches share: the servers and the plain proxy, the gateway under test, and a load
//! generator that checks every answer. Measures nothing itself.

pub(crate) mod answers;
pub(crate) mod begin;
pub(crate) mod cases;
pub(crate) mod ceiling;
pub(crate) mod entry;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod process;
pub(crate) mod readme;
pub(crate) mod roles;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod signals;
pub(crate) mod target;
pub(crate) mod upstream;
pub(crate) mod wire;
