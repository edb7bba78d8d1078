//! Types that the traits of `admin_control.rs` exchange: config changes with their outcomes,
//! servers compared with the config, the config in use, and refusals of logins and of their ends.
//!
//! Owns the types. Does not edit, reload or log in. Invariant: an applied change names the file
//! that contains it.

use std::path::PathBuf;

use moongate_access::auth::KeySettings;
use moongate_api::{PersonItem, ReloadReport};
use moongate_clients::import::ImportRow;
use moongate_config::edit::{ConfigEditError, ConfigOperation, KnownReferences};
use moongate_config::{AdminEdits, ConfigLocations, ConfigProblem};

/// Change of the config that an operator wants.
#[derive(Clone, Debug)]
pub struct ConfigChange {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Tag that the file must have, from `If-Match`. Without it, any contents will do.
    pub expected_tag: Option<String>,
    /// Name of the operator's key. `None` where no key is asked for.
    pub operator: Option<String>,
}

/// Kind of a change.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// Operations on one file, which are one edit.
    Edit(Vec<ConfigOperation>),
    /// Undo of the last edit.
    Undo,
}

/// Change that was written, or that was not needed.
#[derive(Clone, Debug)]
pub struct AppliedChange {
    /// File that has it.
    pub file: PathBuf,
    /// First line that changed, from 1.
    pub line: usize,
    /// Changed lines, without secrets. Empty if the file is as it was.
    pub diff: String,
    /// Tag of the file's contents now.
    pub tag: String,
    /// Description in a few words.
    pub summary: String,
    /// True if the change can be undone.
    pub can_undo: bool,
    /// Servers that it is about.
    pub servers: Vec<String>,
    /// Problems of new servers. Each fails until its problem is solved.
    pub problems: Vec<ConfigProblem>,
    /// Reload that followed. `None` if the file is as it was.
    pub reload: Option<ReloadReport>,
}

/// Change as it would be written.
#[derive(Clone, Debug)]
pub struct ChangePreview {
    /// File that would have it.
    pub file: PathBuf,
    /// Changed lines, without secrets.
    pub diff: String,
    /// Problems of new servers that would not keep them from being added.
    pub problems: Vec<ConfigProblem>,
}

/// Servers of a source, compared with those of the config.
#[derive(Clone, Debug, Default)]
pub struct ComparedServers {
    /// A row for each server.
    pub rows: Vec<ImportRow>,
    /// References that the config has, and that a new server may have without
    /// `admin.allow_commands`.
    pub known: KnownReferences,
}

/// Refusal of a change. Nothing was written.
#[derive(Clone, Debug)]
pub struct ChangeRefusal {
    /// Reason.
    pub error: ConfigEditError,
    /// Tag of the file's contents, if the reason is another one.
    pub tag: Option<String>,
}

impl From<ConfigEditError> for ChangeRefusal {
    fn from(error: ConfigEditError) -> Self {
        ChangeRefusal { error, tag: None }
    }
}

/// Config in use, and its last reload.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// Number that grows with each reload and each edit.
    pub version: u64,
    /// Files, and locations in them. None without a config that can be read again.
    pub places: ConfigLocations,
    /// Changes that are taken here.
    pub edits: AdminEdits,
    /// Keys of clients, as they are in use.
    pub client_keys: Vec<KeySettings>,
    /// True if clients need a key even where there is none.
    pub keys_required: bool,
    /// True if people get in without a key, with a login or an access token.
    pub admits_people: bool,
    /// Time of the last reload.
    pub at: String,
    /// Outcome of the last reload: `applied`, `unchanged` or `refused`.
    pub outcome: &'static str,
    /// Problems of a config that was refused, for people.
    pub message: Option<String>,
    /// Time when the config in use was last read.
    pub in_use_since: String,
    /// Settings whose new values wait for a restart.
    pub needs_restart: Vec<String>,
}

/// Refusal to log in to a server, or out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRefusal {
    /// Reason.
    pub reason: LoginRefusalReason,
    /// Text for people.
    pub message: String,
}

/// Reason why nobody was logged in or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusalReason {
    /// The config has no server with this name.
    UnknownServer,
    /// The server takes no login, or needs none.
    NoLogin,
    /// The gateway has no folder to keep logins in.
    NoFolder,
    /// The gateway has no address that a browser could come back to.
    NoRedirect,
    /// The server, its authorization server or the disk did not do their part.
    Failed,
}

/// Refusal to end logins of people. None ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RevokeRefusal {
    /// People cannot log in at this gateway.
    None,
    /// No login has this id or name.
    Unknown,
    /// Several people have this name. These are their logins.
    Several(Vec<PersonItem>),
}
