//! Config: files, environment and flags become a [`Plan`].
//!
//! The steps: each source becomes a tree with spans (`parse`), forms of clients become ours
//! (`client_formats`), and figment merges the layers (`merge`). References are replaced (`expand`),
//! keys and types are checked against the schema (`check`), and values become settings (`resolve`).
//! Does not start anything. Invariant: a plan has no problems, except those that cost only the
//! servers they name.

mod advice;
mod broker_keys;
mod check;
mod check_units;
mod choices;
mod client_formats;
mod collector;
mod declarations;
pub mod edit;
#[cfg(test)]
mod derived;
mod editor_schema;
pub mod env_file;
mod env_setting;
mod expand;
mod failed_servers;
mod file;
mod gateway_addresses;
mod gateway_keys;
mod harmless_value;
mod json_members;
mod keys;
mod layers;
mod limits;
mod load;
mod masked_text;
mod merge;
mod options;
mod parse;
mod parsed_servers;
mod config_locations;
mod plan;
mod popular;
mod problem;
mod redact;
mod redact_comments;
mod redact_file;
mod reference_variables;
mod resolve;
mod schema;
mod secret_variable;
mod server_keys;
mod server_names;
mod setting_locations;
mod source;
mod suggest;
mod tree;
mod unavailable;
#[cfg(test)]
mod value_patterns;

pub use choices::DiscoveryMode;
pub use client_formats::split_command;
pub use config_locations::{ConfigLocations, ReadFile};
pub use declarations::{differing_keys, restart_keys, with_keys_of};
pub use editor_schema::json_schema;
pub use env_setting::{env_file_in_config, env_file_variables};
pub use file::NameSettings;
pub use gateway_addresses::{GatewayAddresses, gateway_addresses};
pub use gateway_keys::{GatewayTimes, ReloadSettings, SearchSettings};
pub use keys::{AdminEdits, AdminLimits};
pub use limits::LimitSettings;
pub use load::{LoadedConfig, load};
pub use moongate_search::nearest;
pub use moongate_telemetry::secret_names::sounds_secret;
pub use moongate_units::{RateSetting, duration};
pub use options::{ErrorTolerance, LoadOptions};
pub use parsed_servers::{ParsedServer, ParsedServers, parse_servers};
pub use plan::{DiscoverySettings, LogSettings, Plan, ViewSettings};
pub use popular::{
    PROBE_DAYS_MAX, PopularArgument, PopularKey, PopularServer, pinned_package, popular_server,
    popular_servers,
};
pub use problem::{ConfigProblem, ConfigProblems, ProblemKind, ProblemOrigin, SourceSnippet};
pub use redact::looks_secret;
pub use redact_file::{mask_file, read_redacted};
pub use resolve::usual_state_folder;
pub use schema::ConfigSchema;
pub use secret_variable::{VariableNames, secret_reference};
pub use server_names::{UnusedNames, has_name_characters, legal_name as legal_server_name};
pub use setting_locations::{SettingLocation, SettingLocations};
pub use source::{search, users_file};
