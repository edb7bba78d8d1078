//! Changes of one client's file.
//!
//! Owns the steps: edit, show, ask, keep a copy, write, read back. Does not know clients' formats.
//! Invariant: a file that somebody else changed meanwhile stays as it is.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::backup::{self, FileBackup};
use crate::cli::confirm::confirm;
use crate::cli::process::print_message;
use crate::cli::text_diff::diff_of_file;
use moongate_clients::import::{GatewayReach, SelfAddresses};
use moongate_clients::{
    ClientProfile, ConnectKey, ConnectRequest, ExistingEntry, TakenEntry, UnkeptKey, connect_text,
    disconnect_text, existing_entry, format_of, kept_key, replace_text, take_over_text,
};
use moongate_edit::ConfigFile;
use serde_json::{Map, Value};

/// File of a client, as it was read.
pub(super) struct ClientFile {
    file: ConfigFile,
}

/// Permissions of the user for one change.
#[derive(Clone, Copy)]
pub(super) struct ChangeConsent {
    /// Somebody else's entry may be replaced.
    pub(super) force: bool,
    /// The change need not be confirmed.
    pub(super) confirmed: bool,
}

impl ClientFile {
    /// Reads the file. A missing one is empty.
    pub(super) fn read(path: PathBuf) -> anyhow::Result<Self> {
        Ok(ClientFile {
            file: ConfigFile::read(&path)?,
        })
    }

    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Text of the file.
    pub(super) fn text(&self) -> &str {
        self.file.text()
    }

    /// Writes our entry. Returns the file as it was read back.
    pub(super) fn connect(
        self,
        profile: &ClientProfile,
        request: &ConnectRequest,
        own: &SelfAddresses,
        consent: ChangeConsent,
    ) -> anyhow::Result<ClientFile> {
        let path = self.path().to_owned();
        let format = format_of(&path);
        let text = match existing_entry(&path, self.text(), &request.name, own) {
            ExistingEntry::Foreign(entry) => {
                // An entry that leads elsewhere was somebody's decision, so both are shown before
                // one is replaced.
                let ours = masked_entry(profile, request)?;
                ensure!(
                    consent.force,
                    "{} has another entry `{}`; use --force to replace it, or --name for another \
                     name\n  there: {entry}\n  ours:  {ours}",
                    path.display(),
                    request.name
                );
                replace_text(profile, request, format, self.text())
            }
            ExistingEntry::None | ExistingEntry::Ours => {
                connect_text(profile, request, format, self.text())
            }
        };
        let text = text.map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        // An unchanged file is left alone: a write would make a copy, and `--undo` would then undo
        // nothing.
        if text == self.text() {
            print_message(&format!("{} already has this entry", path.display()));
            return Ok(self);
        }
        self.write(&text, key_of(request), consent)?;
        ClientFile::read_back(path, &text)
    }

    fn read_back(path: PathBuf, text: &str) -> anyhow::Result<ClientFile> {
        let again = ClientFile::read(path)?;
        // A running client may rewrite its file from memory at any time, and our entry would be
        // gone.
        ensure!(
            again.text() == text,
            "{} does not read back as it was written",
            again.path().display()
        );
        Ok(again)
    }

    /// Returns the key of our entry. `None` if we have no entry, or if it has no key.
    pub(super) fn own_key(
        &self,
        profile: &ClientProfile,
        name: &str,
        own: &SelfAddresses,
    ) -> Result<Option<ConnectKey>, UnkeptKey> {
        match existing_entry(self.path(), self.text(), name, own) {
            ExistingEntry::Ours => kept_key(profile, self.path(), self.text(), name),
            // A key for somebody else's server isn't one for this gateway.
            ExistingEntry::None | ExistingEntry::Foreign(_) => Ok(None),
        }
    }

    /// Returns how much of the gateway the file's entries reach, with the name of one that reaches
    /// so much.
    pub(super) fn reach(
        &self,
        reach_of: impl Fn(&Map<String, Value>) -> GatewayReach,
    ) -> anyhow::Result<(GatewayReach, String)> {
        let entries = moongate_config::parse_servers(self.path(), self.text());
        let entries =
            entries.map_err(|problems| anyhow::anyhow!("{}", problems.to_string().trim_end()))?;
        let reaches = entries
            .servers
            .iter()
            .map(|entry| (reach_of(&entry.settings), entry.name.clone()));
        Ok(reaches
            .max_by_key(|(reach, _)| *reach)
            .unwrap_or((GatewayReach::Nothing, String::new())))
    }

    /// Replaces entries by ours, or only removes them without a request. Returns the file as it was
    /// read back.
    pub(super) fn take_over(
        self,
        profile: &ClientProfile,
        request: Option<&ConnectRequest>,
        own: &SelfAddresses,
        taken: &[TakenEntry<'_>],
        consent: ChangeConsent,
    ) -> anyhow::Result<ClientFile> {
        let path = self.path().to_owned();
        if let Some(request) = request {
            // What is left of this name was not imported, so nobody but its owner may replace it.
            let left = self.taken_over_text(profile, None, taken)?;
            if let ExistingEntry::Foreign(entry) = existing_entry(&path, &left, &request.name, own)
            {
                let name = &request.name;
                bail!(
                    "another entry `{name}` was not imported; rename or remove it first\n  there: \
                     {entry}"
                );
            }
        }
        let text = self.taken_over_text(profile, request, taken)?;
        self.write(&text, request.and_then(key_of), consent)?;
        ClientFile::read_back(path, &text)
    }

    fn taken_over_text(
        &self,
        profile: &ClientProfile,
        request: Option<&ConnectRequest>,
        taken: &[TakenEntry<'_>],
    ) -> anyhow::Result<String> {
        take_over_text(profile, request, format_of(self.path()), self.text(), taken)
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// Removes our entry.
    pub(super) fn disconnect(
        self,
        profile: &ClientProfile,
        name: &str,
        own: &SelfAddresses,
        consent: ChangeConsent,
    ) -> anyhow::Result<()> {
        let path = self.path().to_owned();
        match existing_entry(&path, self.text(), name, own) {
            ExistingEntry::None => {
                print_message(&format!("{} has no entry `{name}`", path.display()));
                return Ok(());
            }
            ExistingEntry::Foreign(entry) if !consent.force => {
                bail!(
                    "{} has another entry `{name}`; use --force to remove it\n  there: {entry}",
                    path.display()
                );
            }
            ExistingEntry::Ours | ExistingEntry::Foreign(_) => {}
        }
        // The last copy without the entry shows what was there before us, such as a file that had
        // no table of servers. A later one would bring the entry back.
        let before = backup::backups(&path)
            .into_iter()
            .rev()
            .filter_map(|backup| backup.before().ok())
            .find(|before| {
                let text = before.as_deref().unwrap_or_default();
                existing_entry(&path, text, name, own) == ExistingEntry::None
            });
        let was_absent = before == Some(None);
        let before = before.map(Option::unwrap_or_default);
        let text = disconnect_text(
            profile,
            name,
            format_of(&path),
            self.text(),
            before.as_deref(),
        )
        .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        if text.is_empty() && was_absent {
            show(&path, self.text(), &text, None);
            ask(consent)?;
            // Some clients refuse an empty file, and this one was not there before.
            self.file.remove()?;
            print_message(&format!(
                "removed {}, which had nothing else",
                path.display()
            ));
            return Ok(());
        }
        self.write(&text, None, consent)
    }

    /// Takes back the last change. What others wrote since then stays.
    pub(super) fn undo(self, consent: ChangeConsent) -> anyhow::Result<()> {
        let path = self.path().to_owned();
        let backup = backup::backups(&path).pop();
        let backup =
            backup.with_context(|| format!("there is no copy of {} to restore", path.display()))?;
        let earlier = backup
            .before()
            .context("nothing was changed; remove the entry with --remove or by hand")?;
        let before = earlier.as_deref().unwrap_or_default();
        let text =
            self.text_without_change(&backup, before)
                .with_context(|| match earlier {
                    None => "nothing was changed; the file did not exist before the last change"
                        .to_owned(),
                    Some(_) => {
                        let copy = backup.before_path();
                        format!(
                            "nothing was changed; {} is the file from before the last change",
                            copy.display()
                        )
                    }
                })?;
        show(&path, self.text(), &text, None);
        ask(consent)?;
        match text.is_empty() && earlier.is_none() {
            // The file was not there before.
            true if path.exists() => self.file.remove()?,
            true => {}
            false => drop(self.file.write(&text)?),
        }
        // The copy goes only after its text is back, and a second undo then reaches the one before.
        backup.remove()?;
        print_message(&match text == before {
            true => format!("{} is as it was", path.display()),
            false => format!(
                "{} was written by others since then, so only this change was reverted",
                path.display()
            ),
        });
        Ok(())
    }

    /// Returns the text without the change that a copy was made for.
    fn text_without_change(&self, backup: &FileBackup, before: &str) -> anyhow::Result<String> {
        let after = backup
            .after()
            .context("what others wrote since then is unknown")?;
        if self.text() == after {
            return Ok(before.to_owned());
        }
        let format = format_of(self.path());
        let edits = moongate_edit::difference(format, &after, before)?;
        let text = moongate_edit::edit(format, self.text(), &edits)?;
        // An edit leaves the braces of a JSON text that was once empty.
        Ok(if before.is_empty() && matches!(text.trim(), "" | "{}") {
            String::new()
        } else {
            text
        })
    }

    fn write(&self, text: &str, key: Option<&str>, consent: ChangeConsent) -> anyhow::Result<()> {
        let path = self.path();
        show(path, self.text(), text, key);
        ask(consent)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        // Kept before the write: without a copy nothing may be changed.
        let is_new = self.file.tag().is_absent();
        let backup = backup::keep(path, (!is_new).then_some(self.text()))?;
        if let Err(error) = self.file.write(text) {
            // Without a change there is nothing to undo.
            let _ = backup.remove();
            return Err(error.into());
        }
        backup.keep_after(path, text)?;
        let before = backup.before_path();
        let after = backup.after_path();
        let copy = match is_new {
            true => "it did not exist before".to_owned(),
            false => format!("a copy from before is {}", before.display()),
        };
        print_message(&format!("written to {}; {copy}", path.display()));
        print_message(&format!(
            "--undo compares with {}, and then removes the copies",
            after.display()
        ));
        Ok(())
    }
}

fn show(path: &Path, before: &str, after: &str, key: Option<&str>) {
    print_message(&format!(
        "{}:\n{}",
        path.display(),
        diff_of_file(path, before, after, key).trim_end()
    ));
}

fn ask(consent: ChangeConsent) -> anyhow::Result<()> {
    ensure!(
        consent.confirmed || confirm("Write this?")?,
        "nothing was written"
    );
    Ok(())
}

/// Key of a request, which no output shows.
fn key_of(request: &ConnectRequest) -> Option<&str> {
    match &request.key {
        Some(
            ConnectKey::Value(key)
            | ConnectKey::Variable {
                value: Some(key), ..
            },
        ) => Some(key),
        _ => None,
    }
}

/// Our entry as it may be shown.
fn masked_entry(profile: &ClientProfile, request: &ConnectRequest) -> anyhow::Result<String> {
    let entry = moongate_clients::client_entry(profile, request)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let text = entry.to_string();
    Ok(key_of(request).map_or_else(|| text.clone(), |key| text.replace(key, "***")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use moongate_clients::{ConnectRoute, StartCommand, client};

    const URL: &str = "http://127.0.0.1:8080/mcp";
    const CONFIRMED: ChangeConsent = ChangeConsent {
        force: false,
        confirmed: true,
    };

    /// Writes our entry into a file of Cursor.
    fn connect(path: &Path, key: Option<ConnectKey>) -> ClientFile {
        let request = ConnectRequest {
            name: "moongate".to_owned(),
            url: URL.to_owned(),
            key,
            route: ConnectRoute::Best,
            start: StartCommand::program("moongate"),
        };
        let file = ClientFile::read(path.to_owned()).unwrap();
        let own = SelfAddresses::of_url(URL);
        let cursor = client("cursor").unwrap();
        file.connect(cursor, &request, &own, CONFIRMED).unwrap()
    }

    fn disconnect(file: ClientFile) -> anyhow::Result<()> {
        let own = SelfAddresses::of_url(URL);
        file.disconnect(client("cursor").unwrap(), "moongate", &own, CONFIRMED)
    }

    #[test]
    fn a_file_that_its_client_wrote_meanwhile_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mcp.json");
        let file = connect(&path, None);
        let ours = file.text().to_owned();
        let theirs = "{\"mcpServers\": {\"other\": {\"command\": \"other\"}}}";
        std::fs::write(&path, theirs).unwrap();
        let error = disconnect(file).unwrap_err();
        assert!(error.to_string().contains("has changed"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), theirs);
        std::fs::write(&path, ours).unwrap();
        disconnect(ClientFile::read(path.clone()).unwrap()).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn an_entry_is_removed_even_if_the_last_copy_has_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mcp.json");
        for before in [None, Some("{\"mcpServers\": {}, \"theme\": \"dark\"}")] {
            if let Some(before) = before {
                std::fs::write(&path, before).unwrap();
            }
            connect(&path, None);
            let file = connect(&path, Some(ConnectKey::Value("mg_k".to_owned())));
            assert!(file.text().contains("mg_k"));
            disconnect(file).unwrap();
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
        }
    }
}
