//! Key that `connect --key` makes for its clients.
//!
//! Owns its entry in the config. Does not write clients' files. Invariant: its hash is in the
//! config only if a client has the key.

use anyhow::ensure;

use super::args::{ConnectArgs, DEFAULT_VARIABLE};
use crate::cli::config_edit::EditedConfig;
use crate::cli::key;
use crate::cli::process::print_message;
use moongate_access::auth::{KeyHash, is_key_name, new_key};
use moongate_clients::ConnectKey;
use moongate_config::edit::{ConfigOperation, KeyEntry, KeyList};

/// Key that the config does not have yet.
pub(super) struct NewClientKey {
    edited: EditedConfig,
    operation: ConfigOperation,
    is_confirmed: bool,
    value: String,
}

impl NewClientKey {
    /// Makes a key. Fails if the config would not take it.
    pub(super) fn prepare(args: &ConnectArgs, name: &str) -> anyhow::Result<Self> {
        ensure!(
            is_key_name(name),
            "--key: a key's name has 1 to 64 characters"
        );
        let value = new_key();
        let operation = ConfigOperation::AddKey {
            list: KeyList::Clients,
            key: KeyEntry::new(name, KeyHash::of(&value)),
        };
        let edited = EditedConfig::of(&args.config);
        edited.prepare(std::slice::from_ref(&operation))?;
        Ok(NewClientKey {
            edited,
            operation,
            is_confirmed: args.yes,
            value,
        })
    }

    /// Returns the key as a request has it.
    pub(super) fn request_key(&self, args: &ConnectArgs) -> ConnectKey {
        match args.key_inline {
            true => ConnectKey::Value(self.value.clone()),
            false => ConnectKey::Variable {
                name: DEFAULT_VARIABLE.to_owned(),
                value: Some(self.value.clone()),
            },
        }
    }

    /// Writes the hash into the config.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let operations = std::slice::from_ref(&self.operation);
        if self
            .edited
            .prepare(operations)?
            .loaded()
            .plan
            .auth
            .keys
            .len()
            == 1
        {
            print_message(key::FIRST_KEY);
        }
        self.edited
            .confirm_and_write(operations, None, self.is_confirmed)
    }
}
