//! What can be seen from outside: metrics and logs.
//!
//! Owns the registry and every metric's name. Does not decide when something is counted. Invariant: label values are
//! few and fixed: names from the config and the catalogue, words of ours, never what a client sent.

mod calls;
pub mod logs;
mod memory;
mod meter;
mod metrics;
mod process;
mod redact;

pub use calls::{CallLog, CallLogSwitch, CallRecord};
pub use memory::{MemoryLimit, MemoryWatch};
pub use meter::{CallEnding, CallMeter, MeterFactory, ServerHop};
pub use metrics::{CountGuard, CounterHandle, GaugeHandle, Metrics, ServerRequests};
