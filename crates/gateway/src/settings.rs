//! Settings of the gateway, as the config gives them.
//!
//! Owns no state. Does not read the config (`config`). Invariant: they change only as a whole
//! (`reconfigure.rs`).

use std::time::Duration;

use crate::names::NameRules;
use crate::schemas::SchemaStyle;
use moongate_access::policy::{AccessTable, GlobList};
use moongate_telemetry::CallLog;
use moongate_upstream::{ConnectTarget, ServerSettings};

/// Settings of the gateway.
pub struct GatewaySettings {
    /// Rules of exposed names.
    pub names: NameRules,
    /// Settings of each server.
    pub servers: Vec<ServerSettings>,
    /// Servers that the config disables.
    pub disabled: Vec<DisabledServer>,
    /// Named subsets.
    pub views: Vec<ViewRules>,
    /// Access of each role.
    pub access: AccessTable,
    /// Time that the calls of a removed server may still take.
    pub drain: Duration,
    /// Calls that are recorded.
    pub call_log: CallLog,
    /// Number of recent calls that are kept for operators.
    pub recent_calls: usize,
    /// Longest URI that is looked up, in bytes.
    pub uri_max: usize,
    /// Style of tools' input schemas, unless a view has its own.
    pub schema: SchemaStyle,
    /// Rules of search mode at the endpoint over everything. `None`: its lists have all tools.
    pub search: Option<SearchRules>,
}

/// Server that the config disables, as far as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct DisabledServer {
    /// Name in the config.
    pub name: String,
    /// Title for people.
    pub title: Option<String>,
    /// Icon for people.
    pub icon: Option<String>,
    /// Prefix that the names of its items would have.
    pub prefix: String,
    /// Place that it would be reached at, without headers and variables. `None` if the entry does
    /// not say it.
    pub target: Option<ConnectTarget>,
}

/// Rules of search mode, in which an endpoint lists a few tools that find and call all others.
#[derive(Clone, Debug)]
pub struct SearchRules {
    /// Tools that are listed anyway, by exposed name.
    pub always: GlobList,
    /// True if resources and prompts can be found, too.
    pub resources: bool,
    /// True if tools that only read have their own tool for calls.
    pub split_calls: bool,
}

impl Default for SearchRules {
    fn default() -> Self {
        SearchRules {
            always: GlobList::none(),
            resources: true,
            split_calls: false,
        }
    }
}

/// Named subset of servers and tools.
#[derive(Clone, Debug)]
pub struct ViewRules {
    /// Name in the path.
    pub name: String,
    /// Servers of the view. `None`: all.
    pub servers: Option<Vec<String>>,
    /// Tools, by exposed name.
    pub tools: GlobList,
    /// Style of tools' input schemas. `None`: the general one.
    pub schema: Option<SchemaStyle>,
    /// Rules of search mode. `None`: its lists have all tools.
    pub search: Option<SearchRules>,
}

impl ViewRules {
    pub(super) fn includes(&self, server: &str) -> bool {
        self.servers
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name == server))
    }
}

impl GatewaySettings {
    pub(super) fn drain_ms(&self) -> u64 {
        u64::try_from(self.drain.as_millis()).unwrap_or(u64::MAX)
    }
}
