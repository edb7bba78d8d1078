//! Config: files, environment and flags become a [`Plan`].
//!
//! The steps: each source becomes a tree with places (`parse`), forms of clients become ours (`client_formats`), and
//! figment merges the layers (`merge`). References are replaced (`expand`), keys and types are checked against the
//! schema (`check`), and values become settings (`resolve`). Does not start anything. Invariant: a plan has no
//! problems, except those that cost only the servers they name.

mod advice;
mod check;
mod choices;
mod client_formats;
mod collector;
mod editor_schema;
mod expand;
mod failed_servers;
mod file;
mod gateway_addresses;
mod keys;
mod layers;
mod load;
mod merge;
mod options;
mod parse;
mod parse_units;
mod plan;
mod problem;
mod redact;
mod resolve;
mod schema;
mod schema_types;
mod server_names;
mod source;
mod suggest;
mod supervision;
mod tree;

pub use editor_schema::json_schema;
pub use gateway_addresses::{GatewayAddresses, gateway_addresses};
pub use load::{LoadedConfig, load};
pub use options::{ErrorTolerance, LoadOptions};
pub use parse_units::duration;
pub use plan::{LogSettings, NameSettings, Plan, PlanLimits, ReloadSettings, ViewSettings};
pub use problem::{ConfigProblem, ConfigProblems, ProblemKind, ProblemOrigin, SourceSnippet};
pub use source::search;
