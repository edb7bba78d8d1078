//! Env file that keys of imported servers go into.
//!
//! Owns its location, its new lines and its mode. Does not choose the secrets (`moongate-clients`).
//! Invariant: no line that is there changes, and only the owner can read the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::cli::local_config::LocalConfig;
use crate::cli::process::print_message;
use moongate_clients::import::move_secrets;
use moongate_config::{ParsedServer, env_file};
use moongate_edit::ConfigFile;
use moongate_platform::private_file;

/// Env file of a config.
pub(super) struct EnvFileTarget {
    path: PathBuf,
    /// Value of `gateway.env_file` to write. `None` if the config has it.
    setting: Option<String>,
}

/// Lines that an env file gets.
pub(super) struct EnvFileAddition {
    /// Path as the config's reader knows it.
    pub(super) path: PathBuf,
    /// Value of `gateway.env_file` to write. `None` if the config has it.
    pub(super) setting: Option<String>,
    /// Text with the new lines.
    pub(super) text: String,
    file: ConfigFile,
    names: Vec<String>,
}

impl EnvFileTarget {
    /// Compares the path of the flag with the config. A config reads one env file.
    pub(super) fn find(given: &Path, config: &LocalConfig) -> anyhow::Result<Self> {
        let absolute = std::path::absolute(given).with_context(|| given.display().to_string())?;
        if let Some(there) = config.env_file()? {
            let is_same = std::path::absolute(&there).is_ok_and(|there| there == absolute);
            let shown = there.display();
            ensure!(
                is_same,
                "--env-file: the config reads {shown} already (`gateway.env_file`): name that file"
            );
            return Ok(EnvFileTarget {
                path: there,
                setting: None,
            });
        }
        let target = std::path::absolute(&config.target)?;
        let folder = target.parent().unwrap_or(Path::new("/"));
        // Next to the config the name is enough, and both can move together.
        let written = absolute.strip_prefix(folder).unwrap_or(&absolute);
        let setting = written
            .to_str()
            .context("--env-file: the path is not UTF-8 text")?
            .to_owned();
        let path = config
            .target
            .parent()
            .map_or_else(|| absolute.clone(), |folder| folder.join(written));
        Ok(EnvFileTarget {
            path,
            setting: Some(setting),
        })
    }

    /// Moves the secrets of servers into variables. `None` if there are none.
    pub(super) fn move_secrets(
        self,
        servers: &mut [ParsedServer],
        env: &BTreeMap<String, String>,
    ) -> anyhow::Result<Option<EnvFileAddition>> {
        let shown = self.path.display().to_string();
        let file = ConfigFile::read(&self.path)?;
        let there = env_file::parse(file.text())
            .map_err(|error| anyhow::anyhow!("{shown}: line {}: {}", error.line, error.why))?;
        let moved = move_secrets(servers, &there, env);
        moved.notes.iter().for_each(|note| print_message(note));
        let lines = moved
            .variables
            .iter()
            .filter_map(|(name, value)| env_file::line(name, value));
        let mut text = file.text().to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        lines.for_each(|line| text += &format!("{line}\n"));
        // A key that is in the file already adds no line, but its reference needs the file, too.
        if moved.replaced == 0 {
            print_message("no key was found to move into the env file");
            return Ok(None);
        }
        let names = moved.variables.into_iter().map(|(name, _)| name).collect();
        Ok(Some(EnvFileAddition {
            path: self.path,
            setting: self.setting,
            text,
            file,
            names,
        }))
    }
}

impl EnvFileAddition {
    /// Returns the change as people may see it, without values.
    pub(super) fn shown(&self) -> String {
        let lines: String = self
            .names
            .iter()
            .map(|name| format!("+ {name}=***\n"))
            .collect();
        format!("{}:\n{}", self.path.display(), lines.trim_end())
    }

    /// Writes the lines.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        // Before the keys are inside, or others could read them in between. A new file gets the
        // mode by itself.
        if self.path.exists() {
            private_file::make_private(&self.path).with_context(|| path.to_string())?;
        }
        self.file
            .write(&self.text)
            .with_context(|| path.to_string())?;
        print_message(&format!(
            "written to {path}, which the gateway reads from its next start or reload"
        ));
        Ok(())
    }
}
