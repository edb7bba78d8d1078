//! Servers that the config has without some of their settings: what is missing, and the lines that
//! add it.
//!
//! Owns these fields of a preview. Does not compare entries (`moongate_clients`) or write.
//! Invariant: no field contains a secret, because a variable replaces each.

use std::time::Duration;

use crate::admin_state::AdminState;
use moongate_api::{FoundServer, LackingSetting};
use moongate_clients::import::{ImportRow, ImportState, MissingSetting};
use moongate_config::edit::entry_lines;
use moongate_config::{ParsedServer, VariableNames, secret_reference};

/// Time for reading the file of the entry. A network file system may stall.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(2);

/// Text of a setting with what to write for it.
struct ShownSetting<'a> {
    setting: &'a MissingSetting,
    /// Text, with `***` for a secret.
    masked: &'a str,
    /// Text with a variable instead of a secret.
    written: String,
}

/// Adds what the config's entry lacks, and the lines for it, to the description of a row.
pub(super) async fn describe(admin: &AdminState, row: &ImportRow, described: &mut FoundServer) {
    let ImportState::Differs { name, lacks } = &row.state else {
        return;
    };
    let shown = shown_settings(name, &row.server, lacks);
    described.lacks = shown
        .iter()
        .map(|one| LackingSetting {
            path: one.setting.path(),
            value: one.masked.to_owned(),
        })
        .collect();
    // Another row of the same text may be the one that lacks it. Then no file has its entry.
    let Some(path) = admin
        .reloader
        .config()
        .places
        .server(name)
        .map(|(file, _)| file.path.clone())
    else {
        return;
    };
    let settings: Vec<(&'static str, String, String)> = shown
        .into_iter()
        .map(|one| (one.setting.table, one.setting.key.clone(), one.written))
        .collect();
    let name = name.clone();
    let read = tokio::task::spawn_blocking(move || {
        let settings: Vec<(&str, &str, String)> = settings
            .iter()
            .map(|(table, key, text)| (*table, key.as_str(), text.clone()))
            .collect();
        entry_lines(&path, &name, &settings)
    });
    described.lines = tokio::time::timeout(ENTRY_TIMEOUT, read)
        .await
        .ok()
        .and_then(Result::ok)
        .flatten();
}

/// Returns the settings that are missing, in their order, with a variable for each secret.
fn shown_settings<'a>(
    known: &str,
    server: &'a ParsedServer,
    lacks: &'a [MissingSetting],
) -> Vec<ShownSetting<'a>> {
    let mut variables = VariableNames::default();
    lacks
        .iter()
        .filter_map(|setting| show_setting(&mut variables, known, server, setting))
        .collect()
}

/// Returns the text of a setting, with a variable instead of a secret.
fn show_setting<'a>(
    variables: &mut VariableNames,
    known: &str,
    server: &'a ParsedServer,
    setting: &'a MissingSetting,
) -> Option<ShownSetting<'a>> {
    let text = server
        .settings
        .get(setting.table)?
        .get(&setting.key)?
        .as_str()?;
    let masked = server
        .masked
        .get(setting.table)?
        .get(&setting.key)?
        .as_str()?;
    let written = if masked == text {
        text.to_owned()
    } else {
        secret_reference(text, &variables.suggest(known, &setting.path()))
    };
    Some(ShownSetting {
        setting,
        masked,
        written,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_variable_stands_for_each_secret() {
        let text = json!({ "url": "https://a.example", "headers": {
            "Authorization": "Bearer s3cr3t", "X-Token": "s3cr3t", "X-Org": "${ORG}" } });
        let server = moongate_clients::import::read_text(&text.to_string())
            .unwrap()
            .servers
            .remove(0);
        let lacks = ["Authorization", "X-Token", "X-Org"].map(|key| MissingSetting {
            table: "headers",
            key: key.to_owned(),
        });
        let shown = shown_settings("a", &server, &lacks);
        let written: Vec<(&str, &str)> = shown
            .iter()
            .map(|one| (one.masked, one.written.as_str()))
            .collect();
        assert_eq!(
            written,
            [
                ("***", "Bearer ${A_TOKEN}"),
                ("***", "${A_TOKEN_2}"),
                ("${ORG}", "${ORG}")
            ]
        );
    }
}
