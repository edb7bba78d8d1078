//! `moongate key`: keys for clients and operators. Owns the single display of a new key.
//!
//! Stores only its hash. Invariant: standard output gets the key and nothing else, so that it can
//! be piped. The config's entry goes to standard error, or into the config, and does not reveal the
//! key.

use std::io::Write;
use std::process::ExitCode;

use crate::cli::admin_client::AdminArgs;
use crate::cli::config_edit::EditedConfig;
use crate::cli::process::{block_on, print_message};
use moongate_access::auth::{AdminRole, KeyHash, is_key_name, new_key};
use moongate_config::edit::{ConfigOperation, KeyEntry, KeyList, key_toml};

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
    let list = if admin {
        KeyList::Operators
    } else {
        KeyList::Clients
    };
    let entry = key_entry(list, name, &key);
    if write {
        let written = block_on(write_entry(list, entry, config));
        if written != ExitCode::SUCCESS {
            return written;
        }
    } else if let Some(lines) = lines_to_add(list, &entry) {
        // A closed standard error isn't a failure: the key is what a script reads.
        let _ = write!(std::io::stderr(), "{lines}");
    } else {
        // Without its entry, no gateway would accept the key.
        let _ = writeln!(std::io::stderr(), "the key has no entry in TOML");
        return ExitCode::FAILURE;
    }
    match writeln!(std::io::stdout(), "{key}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Writes the entry of a key into the config.
async fn write_entry(
    list: KeyList,
    entry: KeyEntry,
    config: EditedConfig,
) -> anyhow::Result<ExitCode> {
    let operation = ConfigOperation::AddKey { list, key: entry };
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

/// Returns the entry of a new key.
fn key_entry(list: KeyList, name: String, key: &str) -> KeyEntry {
    KeyEntry {
        role: (list == KeyList::Operators).then_some(AdminRole::Operate),
        ..KeyEntry::new(name, KeyHash::of(key))
    }
}

/// Returns the lines that a person adds to the config.
fn lines_to_add(list: KeyList, entry: &KeyEntry) -> Option<String> {
    let toml = key_toml(list, entry)?;
    // The role comes last, and its line shows the other one.
    let other_role = match entry.role {
        Some(AdminRole::Operate) => format!("  # or {:?}", AdminRole::View.name()),
        Some(AdminRole::View) | None => String::new(),
    };
    Some(format!(
        "# Add this to the config; the key itself is shown only this once.\n{}{other_role}\n\n",
        toml.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines for a key of this list.
    fn lines(list: KeyList, name: &str) -> String {
        lines_to_add(list, &key_entry(list, name.to_owned(), "mg_key")).unwrap()
    }

    #[test]
    fn the_entry_has_the_hash_and_not_the_key() {
        let hash = KeyHash::of("mg_key");
        let advice = "# Add this to the config; the key itself is shown only this once.\n";
        assert_eq!(
            lines(KeyList::Operators, "me"),
            format!(
                "{advice}[[admin.keys]]\nname = \"me\"\nhash = \"{hash}\"\nrole = \"operate\"  # \
                 or \"view\"\n\n"
            )
        );
        assert_eq!(
            lines(KeyList::Clients, "a \"b\" $c"),
            format!("{advice}[[auth.keys]]\nname = \"a \\\"b\\\" $$c\"\nhash = \"{hash}\"\n\n")
        );
    }
}
