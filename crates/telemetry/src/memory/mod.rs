//! Memory of the process against `limits.memory`.
//!
//! Owns the budget that every message is reserved in (`budget.rs`), the limit (`limit.rs`) and the
//! samples of what the process really uses (`watch.rs`). Does not decide what a refusal looks like
//! to a client. Invariant: what a client or a server makes the gateway hold is reserved before it
//! is stored, and given back when its last byte is dropped.

use std::sync::Arc;

use crate::Metrics;

mod budget;
mod holder;
mod limit;
mod pressure;
mod reservation;
mod watch;

pub use budget::{MemoryBudget, MemoryShare};
pub use holder::MemoryHolder;
pub use limit::MemoryLimit;
pub use pressure::MemoryRelief;
pub use reservation::{MemoryExhausted, MemoryReservation, SMALL_MESSAGE};
pub use watch::MemoryWatch;

/// Both guards of the gateway's memory: the budget of messages, and the watch for all else.
#[derive(Clone)]
pub struct GatewayMemory {
    /// Watch of what the process really uses.
    pub watch: Arc<MemoryWatch>,
    /// Budget of messages.
    pub budget: Arc<MemoryBudget>,
}

impl GatewayMemory {
    /// Creates the guards of a limit.
    pub fn new(limit: MemoryLimit, metrics: &Metrics) -> Self {
        let watch = MemoryWatch::new(limit, metrics);
        GatewayMemory {
            budget: MemoryBudget::new(&watch, metrics),
            watch,
        }
    }
}
