//! Telemetry: metrics and logs. Owns the registry and the name of every metric.
//!
//! Does not decide when something is counted. Invariant: label values are few and fixed. They are
//! names of the config and the catalogue, or words of ours, never text of a client.

mod call_totals;
mod calls;
mod log_writer;
pub mod logs;
mod memory;
mod meter;
mod metrics;
pub mod plain_text;
mod process;
mod redact;
pub mod secret_look;
pub mod secret_names;

pub use call_totals::CallTotals;
pub use calls::{CallLog, CallLogSwitch, CallRecord};
pub use memory::{
    GatewayMemory, MemoryBudget, MemoryExhausted, MemoryHolder, MemoryLimit, MemoryRelief,
    MemoryReservation, MemoryShare, MemoryWatch, SMALL_MESSAGE,
};
pub use meter::{CallEnding, CallMeter, MeterFactory, ServerHop};
pub use metrics::*;
pub use process::{HeapReader, set_heap_reader};
