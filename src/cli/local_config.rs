//! Our own config, as commands compare other servers with it.
//!
//! Owns the choice of the file that gets new servers. Does not write it (`config_edit.rs`).
//! Invariant: a file that cannot be read is an error, since its servers would be added a second
//! time.

use std::path::PathBuf;

use anyhow::Context;

use crate::app::configured_servers::{known_servers, reference_variables, self_addresses};
use moongate_clients::import::{ImportRow, KnownServer, SelfAddresses, plan_import};
use moongate_config::edit::refused_settings;
use moongate_config::{LoadOptions, ParsedServer};

/// Servers of our config, and the gateway that it is for.
pub(super) struct LocalConfig {
    /// File that gets new servers: the last one.
    pub(super) target: PathBuf,
    /// Servers of all files.
    pub(super) known: Vec<KnownServer>,
    /// Addresses that the gateway listens on.
    pub(super) own: SelfAddresses,
    options: LoadOptions<'static>,
}

impl LocalConfig {
    /// Reads the files of a config.
    pub(super) fn read(mut options: LoadOptions<'static>) -> anyhow::Result<Self> {
        // A new config goes to the user's folder: in the current one, only this folder would find
        // it again.
        let target = options
            .paths
            .last()
            .cloned()
            .or_else(|| moongate_config::users_file(&options.env));
        let target = target.context("there is no place for a config: HOME is not set")?;
        // A file of a flag may be missing, and the first edit creates it.
        options.paths.retain(|path| path.exists());
        Ok(LocalConfig {
            target,
            known: known_servers(&options)?,
            own: self_addresses(&options),
            options,
        })
    }

    /// Compares servers with those that are there. One that the config would refuse says why, and
    /// is unusable.
    pub(super) fn plan_import(
        &self,
        found: impl IntoIterator<Item = (String, ParsedServer)>,
    ) -> Vec<ImportRow> {
        let env = reference_variables(&self.options);
        let options = LoadOptions {
            env,
            ..self.options.clone()
        };
        let judged = found.into_iter().map(|(origin, mut server)| {
            let reasons = refused_settings(&options, &server.name, &server.settings);
            server.is_broken |= !reasons.is_empty();
            server.notes.extend(reasons);
            (origin, server)
        });
        plan_import(judged, &self.known, &self.own, &options.env)
    }

    /// Returns the env file that the config reads, if it names one.
    pub(super) fn env_file(&self) -> anyhow::Result<Option<PathBuf>> {
        moongate_config::env_file_in_config(&self.options)
            .map_err(|problems| anyhow::anyhow!("{problems}"))
    }
}
