//! State of the admin listener.
//!
//! Owns what handlers read. Does not handle requests. Invariant: nothing here depends on a handler.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::admin_control::{ConfigEditor, Examiner, LoginControl, PeopleControl, Reloader};
use crate::event_feed::EventFeed;
use crate::probe_slots::ProbeSlots;
use crate::sign_in::SignInState;
use crate::try_call::running::OperatorCalls;
use moongate_access::auth::AdminAccess;
use moongate_gateway::Gateway;
use moongate_listener::SharedListenerState;
use moongate_telemetry::Metrics;

/// State of the admin listener.
pub struct AdminState {
    /// Gateway with all servers.
    pub gateway: Arc<Gateway>,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// State of the MCP listener, for its accepted hosts and origins.
    pub listener_state: SharedListenerState,
    /// True if no browser can connect, so that a request's host says nothing.
    pub local: bool,
    /// Keys of operators. A reload replaces them.
    pub access: Arc<ArcSwap<AdminAccess>>,
    /// Address that clients connect to, for people to copy. Empty if no URL leads to an endpoint.
    pub endpoint_url: String,
    /// True if other machines may reach the listener.
    pub is_reachable_by_others: bool,
    /// Reload of the config.
    pub reloader: Arc<dyn Reloader>,
    /// Edits of the config.
    pub editor: Arc<dyn ConfigEditor>,
    /// Examination of the gateway and of servers.
    pub examiner: Arc<dyn Examiner>,
    /// Logins at servers.
    pub logins: Arc<dyn LoginControl>,
    /// People's logins at the gateway.
    pub people: Arc<dyn PeopleControl>,
    /// Cancelled when the gateway drains. From then on it is not ready.
    pub draining: CancellationToken,
    /// Changes for pages and programs that watch.
    pub events: EventFeed,
    /// Calls that operators make here.
    pub operator_calls: OperatorCalls,
    /// Slots of previews that connect to servers. All listeners share them.
    pub probe_slots: ProbeSlots,
    /// Sessions, tickets and wrong keys. All listeners share them.
    pub sign_in: Arc<SignInState>,
}

impl AdminState {
    /// Returns the address of an endpoint. Empty if no URL leads to one.
    pub(super) fn url_of_endpoint(&self, name: &str) -> String {
        match (self.endpoint_url.as_str(), name) {
            ("", _) => String::new(),
            (url, "") => url.to_owned(),
            (url, name) => format!("{url}/{name}"),
        }
    }
}
