//! Anything that can be called: an upstream server of any revision, the gateway, or a view of it.
//!
//! Owns the trait and the description. Does not know transports, revisions or connections
//! (`connection.rs`). Invariant: no method blocks.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{
    Call, Caller, Error, Exchange, Notification, NotificationStream, SubscriptionFilter,
    TaskCapabilities,
};
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};

/// MCP server of any revision.
pub trait McpServer: Send + Sync {
    /// Returns the identity and capabilities of the server for this caller. Answered from memory.
    fn describe(&self, caller: &Caller) -> ServerDescription;

    /// Starts a call. Never blocks: all waiting happens in the exchange.
    fn call(&self, caller: &Arc<Caller>, call: Call) -> Exchange;

    /// Subscribes to changes. The stream ends when the server can no longer report them.
    fn subscribe(&self, caller: &Arc<Caller>, filter: SubscriptionFilter) -> NotificationStream;

    /// Tests subscriptions to resources on a server that denies support and was not tried yet.
    /// `None`: there is nothing to test, and [`McpServer::subscribe`] knows the answer. An error
    /// concerns only these resources.
    fn try_subscriptions(
        &self,
        _: &Arc<Caller>,
        _: &[ByteString],
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        None
    }

    /// Waits until the server has answered to the subscription of a resource, which
    /// [`McpServer::subscribe`] started. `None`: it does not answer. An error is the server's
    /// refusal.
    fn confirm_subscription(
        &self,
        _: &Arc<Caller>,
        _: &ByteString,
    ) -> Option<BoxFuture<'static, Result<(), Error>>> {
        None
    }

    /// Returns the check whether a caller may use the server's extensions, for requests outside of
    /// its calls.
    fn extension_check(&self, _: &Caller) -> ExtensionCheck {
        Box::new(|| false)
    }

    /// Sends a notification to the server.
    fn notify(&self, caller: &Arc<Caller>, notification: Notification);
}

/// Check whether a client may use a server's extensions at this moment. Rules may change while its
/// session is open.
pub type ExtensionCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// Self-description of a server.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServerDescription {
    /// Name, version and title: an `Implementation` object.
    pub info: RawJson,
    /// Instructions for a model.
    pub instructions: Option<String>,
    /// Capabilities. Rows of the store call them `features`.
    #[serde(rename = "features")]
    pub capabilities: ServerCapabilities,
    /// Facts that the connection showed and that people should know of: why nothing is offered, or
    /// what is missing.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Capabilities of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ServerCapabilities {
    pub tools: bool,
    pub tools_changes: bool,
    pub prompts: bool,
    pub prompts_changes: bool,
    pub resources: bool,
    pub resources_changes: bool,
    /// True if single resources can be subscribed to.
    pub subscribe: bool,
    /// True if the server denies subscriptions in terms that some servers use wrongly, and was not
    /// tried.
    pub subscribe_untried: bool,
    pub completions: bool,
    pub logging: bool,
    /// Task capabilities; `None` without any.
    pub tasks: Option<TaskCapabilities>,
    /// Extensions that the gateway does not interpret: settings by identifier.
    pub extensions: JsonObject,
    /// Experimental capabilities that the gateway does not interpret.
    pub experimental: JsonObject,
}
