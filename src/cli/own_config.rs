//! Our own config, as commands change it.
//!
//! Owns the choice of the file, and the check before it is written. Does not edit texts (`moongate-edit`). Invariant: a
//! config that cannot be used is never written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde_json::json;

use crate::app::configured_servers::{ConfiguredServers, own_gateway};
use crate::cli::confirm::confirm;
use crate::cli::import_env_file::EnvFileAddition;
use crate::cli::process::print_message;
use crate::cli::text_diff::diff_of_file;
use moongate_access::auth::KeyHash;
use moongate_clients::import::{KnownServer, OwnGateway, import_edits};
use moongate_config::{LoadOptions, ServerEntry};
use moongate_edit::{ConfigFile, Edit, EditAction, Format, PathStep, edit};
use moongate_protocol::SUPPORTED;

/// Files of our config, and what they have.
pub(super) struct OwnConfig {
    paths: Vec<PathBuf>,
    env: BTreeMap<String, String>,
    /// File that is written: the last one.
    pub(super) target: PathBuf,
    /// Key of the servers in it.
    wrapper: &'static str,
    /// Servers of all files.
    pub(super) known: Vec<KnownServer>,
    /// Addresses that the gateway listens on.
    pub(super) own: OwnGateway,
}

impl OwnConfig {
    /// Finds the config that `serve` would load.
    pub(super) fn find(given: &[PathBuf], env: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let mut paths = given.to_vec();
        if paths.is_empty() {
            paths.extend(moongate_config::search(Path::new("."), env));
        }
        let target = match paths.last() {
            Some(last) => last.clone(),
            // A new config goes to the user's folder: in the current one, only this folder would find it
            // again.
            None => moongate_config::users_file(env).context("there is no place for a config: HOME is not set")?,
        };
        let options = LoadOptions::of_files(paths.clone(), env.clone());
        let ConfiguredServers { known, wrapper } = ConfiguredServers::read(&options, &target)?;
        let own = own_gateway(&options);
        Ok(OwnConfig { paths, env: env.clone(), target, wrapper, known, own })
    }

    /// Adds the hash of a client's key. Refuses a name that is there: its key would no longer work.
    pub(super) fn add_key(&self, name: &str, hash: &KeyHash, is_confirmed: bool) -> anyhow::Result<()> {
        let options = LoadOptions { revisions: &SUPPORTED, ..LoadOptions::of_files(self.existing(), self.env.clone()) };
        // The key may be in another file than the one that is written, so the loaded config is asked.
        let keys = moongate_config::load(&options).map(|loaded| loaded.plan.auth.keys);
        let keys = keys.map_err(|problems| anyhow::anyhow!("{}", problems.to_string().trim_end()))?;
        ensure!(!keys.iter().any(|key| key.name == name), "there is a key {name:?} already: give another name");
        if keys.is_empty() {
            print_message("this is the first key: from now on, every client needs one");
        }
        // A dollar sign is doubled, or it would begin a reference.
        let name = name.replace('$', "$$");
        let item = PathStep::Item { field: "name".to_owned(), value: name.clone() };
        let entry = json!({ "name": name, "hash": hash.to_string() });
        let path = [PathStep::from("auth"), PathStep::from("keys"), item];
        self.change(&[Edit::new(path, EditAction::Set(entry))], None, is_confirmed)
    }

    fn existing(&self) -> Vec<PathBuf> {
        self.paths.iter().filter(|path| path.exists()).cloned().collect()
    }

    /// Adds servers, and their variables to an env file, after a check of the whole config.
    pub(super) fn add(
        &self,
        servers: &[ServerEntry],
        variables: Option<&EnvFileAddition>,
        is_confirmed: bool,
    ) -> anyhow::Result<()> {
        let mut edits = import_edits(self.wrapper, servers);
        edits.extend(variables.and_then(|variables| variables.setting.clone()));
        self.change(&edits, variables, is_confirmed)
    }

    /// Returns the env file that the config reads, if it names one.
    pub(super) fn env_file(&self) -> anyhow::Result<Option<PathBuf>> {
        let options = LoadOptions::of_files(self.existing(), self.env.clone());
        moongate_config::env_file_in_config(&options).map_err(|problems| anyhow::anyhow!("{problems}"))
    }
}

impl OwnConfig {
    /// Makes edits, checks the whole config, shows the change, asks, and writes it.
    fn change(&self, edits: &[Edit], variables: Option<&EnvFileAddition>, is_confirmed: bool) -> anyhow::Result<()> {
        let file = ConfigFile::read(&self.target)?;
        let shown = self.target.display();
        let format = Format::of_file(&self.target).with_context(|| format!("{shown} is not TOML, YAML or JSON"))?;
        let text = edit(format, file.text(), edits).with_context(|| shown.to_string())?;
        // Checked before anything is shown or asked: nobody should confirm a change that is then refused.
        self.check(&text, variables)?;
        print_message(&format!("{shown}:\n{}", diff_of_file(&self.target, file.text(), &text, None).trim_end()));
        if let Some(variables) = variables {
            print_message(&variables.shown());
        }
        if !is_confirmed && !confirm("Write this?")? {
            bail!("nothing was written");
        }
        // First: a config whose variables are missing could not be used.
        variables.map_or(Ok(()), EnvFileAddition::write)?;
        file.write(&text)?;
        print_message(&format!("written to {shown}"));
        Ok(())
    }

    /// Checks the config as it would be. Servers whose references are not set here may be fine for the gateway.
    fn check(&self, text: &str, variables: Option<&EnvFileAddition>) -> anyhow::Result<()> {
        let mut paths = self.paths.clone();
        // The file is not there yet before its first change, and then no path names it.
        if !paths.contains(&self.target) {
            paths.push(self.target.clone());
        }
        let mut texts = BTreeMap::from([(self.target.clone(), text.to_owned())]);
        texts.extend(variables.map(|variables| (variables.path.clone(), variables.text.clone())));
        let options = LoadOptions { texts, revisions: &SUPPORTED, ..LoadOptions::of_files(paths, self.env.clone()) };
        let loaded = moongate_config::load(&options).map_err(|problems| {
            anyhow::anyhow!(
                "the config could not be used, so nothing was written:\n\n{}",
                problems.to_string().trim_end()
            )
        })?;
        for problem in &loaded.failed {
            print_message(problem.render("warning").trim_end());
        }
        Ok(())
    }
}
