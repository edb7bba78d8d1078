//! `moongate key`: keys for clients and operators. Owns the single display of a new key.
//!
//! Stores only its hash. Invariant: standard output gets the key and nothing else, so that it can
//! be piped. The config's entry goes to standard error, or into the config, and does not reveal the
//! key.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::admin::AdminArgs;
use crate::cli::config_edit::EditedConfig;
use crate::cli::process::{block_on, print_message};
use moongate_access::auth::{AdminRole, KeyHash, is_key_name, new_key};
use moongate_config::edit::{ConfigOperation, KeyList, without_references};

/// Message about the first key of clients.
pub(super) const FIRST_KEY: &str = "this is the first key: from now on, every client needs one";

/// Create keys for clients and operators
#[derive(Clone, Debug, clap::Args)]
pub struct KeyArgs {
    /// What to do
    #[command(subcommand)]
    pub command: KeyCommand,
}

/// What to do with keys.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum KeyCommand {
    /// Create a key: prints the key once to standard output, and its entry for the config to
    /// standard error
    New {
        /// Whose key it is; shown in logs
        name: String,
        /// Create it for an operator: an entry of `admin.keys`
        #[arg(long)]
        admin: bool,
        /// Write the entry into the config
        #[arg(long)]
        write: bool,
        /// Config that is written.
        #[command(flatten)]
        config: EditedConfig,
    },
}

/// Runs the command. Returns exit code 1 if standard output fails, 2 for a name that a key cannot
/// have.
pub fn run(args: KeyArgs) -> ExitCode {
    let KeyCommand::New {
        name,
        admin,
        write,
        config,
    } = args.command;
    if !is_key_name(&name) {
        // Without a standard error, the exit code alone shows the mistake.
        let _ = writeln!(std::io::stderr(), "a key's name has 1 to 64 characters");
        return ExitCode::from(2);
    }
    let key = new_key();
    // The entry first, so that the key is the last line on a screen.
    let table = if admin {
        KeyTable::Admin
    } else {
        KeyTable::Clients
    };
    if write {
        let written = block_on(write_entry(table, name, key.clone(), config));
        if written != ExitCode::SUCCESS {
            return written;
        }
    } else {
        // A closed standard error isn't a failure: the key is what a script reads.
        let _ = write!(std::io::stderr(), "{}", entry(table, &name, &key));
    }
    match writeln!(std::io::stdout(), "{key}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Writes the entry of a key into the config.
async fn write_entry(
    table: KeyTable,
    name: String,
    key: String,
    config: EditedConfig,
) -> anyhow::Result<ExitCode> {
    let list = match table {
        KeyTable::Clients => KeyList::Clients,
        KeyTable::Admin => KeyList::Operators,
    };
    let entry = entry_value(list, &name, &key);
    let operation = ConfigOperation::AddKey { list, entry };
    let prepared = config
        .prepare(std::slice::from_ref(&operation))
        .ok()
        .filter(|_| list == KeyList::Clients);
    let is_first = prepared.is_some_and(|prepared| prepared.loaded().plan.auth.keys.len() == 1);
    // The flag `--admin` has another meaning here.
    let code = config
        .apply(&AdminArgs::of_environment(), &operation, None)
        .await?;
    if config.is_dry_run() && code == ExitCode::SUCCESS {
        print_message(
            "nothing was written: this key is not stored anywhere, so no gateway will accept it",
        );
    } else if is_first && code == ExitCode::SUCCESS {
        print_message(FIRST_KEY);
    }
    Ok(code)
}

/// Entry of a key in the config.
#[derive(Serialize)]
struct KeyEntry {
    name: String,
    hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
}

/// Returns the entry of a key, as an edit of the config takes it.
pub(super) fn entry_value(list: KeyList, name: &str, key: &str) -> serde_json::Value {
    let entry = KeyEntry {
        // A dollar sign is doubled, or it would start a reference.
        name: without_references(name),
        hash: KeyHash::of(key).to_string(),
        role: (list == KeyList::Operators).then(|| AdminRole::Operate.name()),
    };
    serde_json::to_value(entry).unwrap_or_default()
}

/// Table of the config that a key goes into.
#[derive(Clone, Copy)]
enum KeyTable {
    Clients,
    Admin,
}

/// Returns the config's entry for a key.
fn entry(table: KeyTable, name: &str, key: &str) -> String {
    // A JSON string is a TOML string, too. A dollar sign is doubled, or it would start a reference.
    let name = serde_json::Value::from(name.replace('$', "$$")).to_string();
    let hash = KeyHash::of(key);
    let (table, role) = match table {
        KeyTable::Clients => ("auth.keys", ""),
        KeyTable::Admin => ("admin.keys", "role = \"operate\"  # or \"view\"\n"),
    };
    format!(
        "# Add this to the config; the key itself is shown only this once.\n[[{table}]]\nname = \
         {name}\nhash = \"{hash}\"\n{role}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_has_the_hash_and_not_the_key() {
        let operator = entry(KeyTable::Admin, "me", "mg_key");
        assert!(
            operator.contains("[[admin.keys]]\nname = \"me\"\n")
                && operator.contains("role = \"operate\"")
        );
        let entry = entry(KeyTable::Clients, "a \"b\"", "mg_key");
        assert!(entry.contains("name = \"a \\\"b\\\"\"\n"));
        assert!(entry.contains(&KeyHash::of("mg_key").to_string()) && !entry.contains("mg_key"));
    }
}
