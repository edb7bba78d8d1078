//! The neutral language between the two edges: what a call is, whatever revision spelled it.
//!
//! Owns the types that fronts, the gateway and backs exchange. No IO, no clock, no HTTP, no dates. Invariant: nothing
//! here can tell a stateful peer from a stateless one.

mod call;
mod error;
mod exchange;
mod server;
mod task;

pub use call::{AskKind, Call, Caller, Can, Check, Kind, Level, LogWish, Method, Principal, Resume};
pub use error::{Again, Error, Fault, Reason};
pub use exchange::{Answers, Ask, AskState, CacheHint, Event, Exchange, Outcome, Question};
pub use server::{Face, Features, Filter, Notice, Notices, Server};
pub use task::{Task, TaskFeatures, TaskMethod, TaskStatus, TaskWish};

/// What tests of other modules need.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;

    use crate::json::{Raw, Text};
    use crate::model::{Caller, Can, LogWish, Principal};

    /// A caller without capabilities.
    pub(crate) fn caller(principal: u32, session: Option<&str>) -> Arc<Caller> {
        Arc::new(Caller {
            principal: Arc::new(Principal { name: "test".to_owned(), id: principal }),
            session: session.map(Text::from),
            capabilities: Raw::literal("{}"),
            can: Can::default(),
            info: None,
            log: LogWish::Nothing,
            revision: "",
            headers: Vec::new(),
            ended: tokio_util::sync::CancellationToken::new(),
        })
    }
}
