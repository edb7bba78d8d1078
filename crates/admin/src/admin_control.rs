//! Traits that let operators act on the gateway: reload, edit the config, examine, log in, end
//! people's logins.
//!
//! Owns the traits. Does not implement them (`src/app/`). Invariant: every method returns types of
//! the API, of the config, of `control_types.rs` or of `probe_report.rs`.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::control_types::{
    AppliedChange, ChangePreview, ChangeRefusal, ComparedServers, ConfigChange, ConfigStatus,
    LoginRefusal, RevokeRefusal,
};
use crate::probe_report::ProbeReport;
use moongate_api::{
    Finding, LoginRequest, LoginStart, LoginView, LogoutReport, PeopleList, PlanReport,
    ReloadReport, RevokeReport, StatusHint,
};
use moongate_config::edit::{ConfigOperation, PastEdit};
use moongate_config::{ParsedServer, SettingLocations};
use moongate_gateway::RunningServer;

/// Reload of the config.
pub trait Reloader: Send + Sync {
    /// Reads the config again and applies it.
    fn reload(&self) -> BoxFuture<'_, ReloadReport>;

    /// Reports the changes that a reload would make.
    fn plan(&self) -> BoxFuture<'_, PlanReport>;

    /// Returns the config in use, and its last reload.
    fn config(&self) -> Arc<ConfigStatus>;
}

/// Edits of the config.
pub trait ConfigEditor: Send + Sync {
    /// Writes a change into the config, and applies it.
    fn change_config(
        &self,
        change: ConfigChange,
    ) -> BoxFuture<'_, Result<AppliedChange, ChangeRefusal>>;

    /// Prepares a change of the config, and writes nothing.
    fn preview_change(
        &self,
        operations: Vec<ConfigOperation>,
    ) -> BoxFuture<'_, Result<ChangePreview, ChangeRefusal>>;

    /// Compares servers with those of the config. `own_url` is an endpoint of this gateway.
    fn plan_import(
        &self,
        found: Vec<ParsedServer>,
        own_url: String,
    ) -> BoxFuture<'_, Result<ComparedServers, ChangeRefusal>>;

    /// Reads the edits that can be undone, the last one first. Reads a file, so it may block.
    fn past_edits(&self) -> Vec<PastEdit>;

    /// Reads where each setting of the config is. Reads files, so it may block.
    fn setting_places(&self) -> Option<SettingLocations>;
}

/// Examination of the gateway and of servers.
pub trait Examiner: Send + Sync {
    /// Runs the checks of the config, this machine and the servers. `None` without a config.
    fn doctor(&self) -> BoxFuture<'_, Option<Vec<Finding>>>;

    /// Connects once to the server that an operation would add.
    fn probe(&self, operation: ConfigOperation) -> BoxFuture<'_, ProbeReport>;

    /// Returns what would help a server that does not work. `None` for one that works, and where
    /// its reason says it.
    fn server_hint(&self, server: &RunningServer) -> Option<StatusHint>;
}

/// Logins at servers.
pub trait LoginControl: Send + Sync {
    /// Returns the login at a server. `None` if the gateway does not log in to it. Reads a small
    /// file.
    fn login(&self, server: &str) -> Option<LoginView>;

    /// Starts a login at a server. Writes nothing before a login on another domain is confirmed.
    fn start_login(
        &self,
        server: String,
        request: LoginRequest,
    ) -> BoxFuture<'_, Result<LoginStart, LoginRefusal>>;

    /// Revokes and forgets the login at a server.
    fn log_out(&self, server: String) -> BoxFuture<'_, Result<LogoutReport, LoginRefusal>>;
}

/// People's logins at the gateway.
pub trait PeopleControl: Send + Sync {
    /// Returns the logins, the last one used first. `None`: people cannot log in.
    fn people(&self) -> Option<PeopleList>;

    /// Returns true if people can log in.
    fn can_log_in(&self) -> bool;

    /// Ends a login by its id, or all logins of a person by name.
    fn revoke(&self, who: String) -> BoxFuture<'_, Result<RevokeReport, RevokeRefusal>>;
}
