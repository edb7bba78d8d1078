//! Neutral model between downstream and upstream: calls and events, independent of revisions.
//!
//! Owns the types that downstream dialects, the gateway and upstream connections exchange. No IO,
//! no clock, no HTTP, no revision dates. Invariant: no type here can distinguish a stateful peer
//! from a stateless one.

mod call;
mod call_state;
mod cancel_reason;
mod client_channel;
mod connection;
mod error;
mod exchange;
mod extension_methods;
mod input_request;
mod notification;
mod notification_stream;
mod principal;
mod server;
mod server_choices;
mod shown_members;
mod task;
mod upstream_state;

pub use call::{
    Call, Caller, ClientCapabilities, Continuation, DeferredCheck, ItemKind, LogFilter, LogLevel,
    McpMethod,
};
pub use call_state::CallState;
pub use cancel_reason::{CancelReason, CancelReasons};
pub use client_channel::{AskClient, ClientChannel};
pub use connection::Connection;
pub use error::{Error, ErrorOrigin, McpErrorKind, Retryable};
pub use exchange::{
    CacheHint, Exchange, ExchangeEvent, InputRequired, InputResponses, Outcome, StateHolder,
};
pub use extension_methods::extends_protocol;
pub use input_request::{ElicitationAction, InputKind, InputProgress, InputRequest};
pub use notification::{Notification, SubscriptionFilter};
pub use notification_stream::NotificationStream;
pub use principal::{
    LastCall, Principal, PrincipalKey, PrincipalSecret, PrincipalStanding, RoleId,
};
pub use server::{ExtensionCheck, McpServer, ServerCapabilities, ServerDescription};
pub use server_choices::{ServerStart, SharingMode};
pub use shown_members::{ItemTexts, PeerName, ShownQuestion};
pub use task::{TaskCapabilities, TaskMethod, TaskMode, TaskState, TaskStatus};
pub use upstream_state::{UpstreamState, login_command, login_sentence};
