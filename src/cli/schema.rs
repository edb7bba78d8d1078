//! `moongate schema`: the config's JSON Schema for editors. Owns printing it.
//!
//! Does not know its contents (`config`). Invariant: standard output holds the schema and nothing
//! else.

use std::io::Write;
use std::process::ExitCode;

/// Print the JSON Schema of the config file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SchemaArgs {}

/// Prints the schema to standard output. Returns exit code 1 if that fails.
pub fn run(_: &SchemaArgs) -> ExitCode {
    match std::io::stdout().write_all(moongate_config::json_schema().as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
