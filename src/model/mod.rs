//! Neutral model between downstream and upstream: calls and events, independent of revisions.
//!
//! Owns the types that downstream dialects, the gateway and upstream connections exchange. No IO, no clock, no HTTP, no
//! revision dates. Invariant: no type here can tell a stateful peer from a stateless one.

mod call;
mod error;
mod exchange;
mod server;
mod task;

pub use call::{
    Call, Caller, ClientCapabilities, Continuation, DeferredCheck, InputKind, ItemKind, LogFilter, LogLevel, McpMethod,
    Principal,
};
pub use error::{Error, ErrorOrigin, McpErrorKind, Retryable};
pub use exchange::{
    CacheHint, Exchange, ExchangeEvent, InputRequest, InputRequired, InputResponses, Outcome, RequestState,
};
pub use server::{Notification, NotificationStream, Server, ServerCapabilities, ServerDescription, SubscriptionFilter};
pub use task::{TaskCapabilities, TaskMethod, TaskMode, TaskState, TaskStatus};

/// Fixtures for the tests of other modules.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;

    use crate::json::{ByteString, RawJson};
    use crate::model::{Caller, ClientCapabilities, LogFilter, Principal};

    /// Creates a caller without capabilities.
    pub(crate) fn caller(principal: u32, session: Option<&str>) -> Arc<Caller> {
        Arc::new(Caller {
            principal: Arc::new(Principal { name: "test".to_owned(), id: principal }),
            session: session.map(ByteString::from),
            declared_capabilities: RawJson::literal("{}"),
            capabilities: ClientCapabilities::default(),
            client_info: None,
            log_filter: LogFilter::Nothing,
            revision: "",
            forwarded_headers: Vec::new(),
            ended: tokio_util::sync::CancellationToken::new(),
        })
    }
}
