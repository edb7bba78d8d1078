//! MCP clients: where each keeps its servers, and how Moongate's entry looks there.
//!
//! The table of clients (`table`) is data. The rest reads it: files of a machine (`places`),
//! entries (`entry`, `entry_update`), their flags and keys (`entry_flags`, `entry_key`), links
//! (`link`), command lines (`command_line`), changes of a file's text (`connect_file`,
//! `take_over`), bundles (`bundle`), and all of it as steps (`steps`). `import` goes the other way:
//! from clients' texts to our config. Does not read or write files. Invariant: a link to a web page
//! never contains a key.

mod bundle;
mod command_line;
mod connect_file;
mod entry;
mod entry_flags;
mod entry_key;
mod entry_shape;
mod entry_update;
pub mod import;
mod link;
mod places;
mod profile;
mod session_name;
mod start_command;
mod steps;
mod table;
mod take_over;
mod template;

pub use bundle::{bundle_manifest, program_path as bundle_program};
pub use command_line::add_command;
pub use connect_file::{
    ConnectError, ExistingEntry, connect_text, disconnect_text, existing_entry, format_of,
    replace_text,
};
pub use entry::{ConnectKey, ConnectRequest, ConnectRoute, EntryError, client_entry};
pub use entry_flags::entry_target;
pub use entry_key::{KEY_VARIABLE, UnkeptKey, kept_key, lacks_key};
pub use entry_shape::shape_problem;
pub use link::deeplink;
pub use places::{UserDirectories, shown_file};
pub use profile::{
    ClientLimits, ClientProfile, ConnectMethod, OffSwitch, ServerWrapper, UserFiles, VariableForm,
};
pub use session_name::client_of_session;
pub use start_command::{LauncherVariables, StartCommand};
pub use steps::{ConnectStep, StepKind, connect_steps};
pub use table::{client, clients, nearest_client};
pub use take_over::{TakenEntry, take_over_text};
