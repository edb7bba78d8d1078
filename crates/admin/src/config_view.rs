//! Config as operators see it: its files, its last reload, and where each server, key and rule is.
//!
//! Owns their form. Does not change anything (`config_change.rs`). Invariant: a shown text has its
//! secrets redacted.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;

use crate::control_types::ConfigStatus;
use crate::json_answer::json;
use crate::operator_check::Viewer;
use moongate_access::policy::ItemRules;
use moongate_api::{
    ConfigFile, ConfigState, ConfigView, EntrySource, ItemRule, LastReload, PastEditRow, RuleList,
};
use moongate_config::ReadFile;
use moongate_config::edit::{EditAuthor, KeyList, PastEdit};
use moongate_listener::json_response;

/// Time for reading the files. A network file system may stall.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Handles `GET /api/v1/config`.
pub(super) async fn config(Viewer(admin): Viewer) -> Response {
    let status = admin.reloader.config();
    let state = config_state(&status);
    let editor = admin.editor.clone();
    // The timeout ends the request only. The thread stays until its file system answers.
    let read = tokio::task::spawn_blocking(move || ConfigView {
        state: ConfigState {
            files: status.places.files().iter().map(file_with_text).collect(),
            ..state
        },
        undo: editor.past_edits().iter().map(past_edit_row).collect(),
    });
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(Ok(view)) => json(StatusCode::OK, &view),
        _ => json_response(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            "Reading the config files took too long",
        ),
    }
}

/// Describes the config without its text.
pub(super) fn config_state(status: &ConfigStatus) -> ConfigState {
    ConfigState {
        files: status.places.files().iter().map(file_row).collect(),
        reload: LastReload {
            at: status.at.clone(),
            outcome: status.outcome.to_owned(),
            message: status.message.clone(),
        },
        in_use_since: status.in_use_since.clone(),
        needs_restart: status.needs_restart.clone(),
        edit: status.edits.edit,
        allow_commands: status.edits.allow_commands,
    }
}

fn file_row(file: &ReadFile) -> ConfigFile {
    ConfigFile {
        path: file.path.display().to_string(),
        etag: file.tag.clone(),
        writable: file.why_not.is_none(),
        why_not: file.why_not.clone(),
        ..ConfigFile::default()
    }
}

fn file_with_text(file: &ReadFile) -> ConfigFile {
    let row = file_row(file);
    match moongate_config::read_redacted(&file.path) {
        // The tag of this text. The one of the loaded config may be older.
        Ok((etag, text)) => ConfigFile {
            etag,
            text_masked: Some(text),
            ..row
        },
        Err(message) => ConfigFile {
            error: Some(message),
            ..row
        },
    }
}

fn past_edit_row(edit: &PastEdit) -> PastEditRow {
    PastEditRow {
        at: edit.at.to_string(),
        file: edit.file.display().to_string(),
        summary: edit.summary.clone(),
        etag: edit.tag.clone(),
        via: edit.author.as_ref().map(|author| author.way().to_owned()),
        by: edit
            .author
            .as_ref()
            .and_then(EditAuthor::operator)
            .map(str::to_owned),
    }
}

/// Describes where a server is configured, and why that cannot be edited.
pub(super) fn entry_source(status: &ConfigStatus, server: &str) -> EntrySource {
    // What they decide cannot be changed in the file.
    let variables = status.places.server_variables(server).to_vec();
    EntrySource {
        variables,
        ..source_at(status, status.places.server(server))
    }
}

/// Describes where a key is configured, and why that cannot be edited.
pub(super) fn key_source(status: &ConfigStatus, list: KeyList, key: &str) -> EntrySource {
    source_at(status, status.places.key(list, key))
}

fn source_at(status: &ConfigStatus, location: Option<(&ReadFile, usize)>) -> EntrySource {
    let why_not = match location {
        _ if !status.edits.edit => Some("admin.edit is false".to_owned()),
        None => Some(
            "its entry is not in a config file: it is built in or comes from variables".to_owned(),
        ),
        Some((file, _)) => file.why_not.clone(),
    };
    EntrySource {
        file: location.map(|(file, _)| file.path.display().to_string()),
        line: location.map(|(_, line)| line),
        etag: location.map(|(file, _)| file.tag.clone()),
        editable: why_not.is_none(),
        why_not,
        variables: Vec::new(),
    }
}

/// Table of a server's rules, and its name in the config.
#[derive(Clone, Copy)]
pub(super) struct RuleTable<'a> {
    pub(super) server: &'a str,
    pub(super) kind: &'static str,
    pub(super) rules: &'a ItemRules,
}

/// Describes the rule that decides about an item: its list, its pattern, and its line. `None` if
/// there is none.
pub(super) fn describe_rule(
    status: &ConfigStatus,
    table: RuleTable<'_>,
    name: &str,
    is_hidden: bool,
) -> Option<ItemRule> {
    let RuleTable {
        server,
        kind,
        rules,
    } = table;
    let hidden = rules
        .hide
        .deciding(name)
        .filter(|_| is_hidden)
        .map(|at| (RuleList::Hide, at));
    let Some((list, at)) = hidden.or_else(|| deciding_rule(rules, name)) else {
        // Without a pattern only a list that names others can leave it out.
        return (!rules.allows_name(name)).then(ItemRule::default);
    };
    let patterns = match list {
        RuleList::Hide => &rules.hide,
        RuleList::Deny => &rules.deny,
        RuleList::Allow => &rules.allow,
    };
    let pattern = patterns
        .patterns()
        .get(at)
        .map(String::as_str)
        .unwrap_or_default();
    let location = status.places.rule(server, kind, list.name(), at);
    Some(ItemRule {
        list,
        pattern: Some(pattern.to_owned()),
        exact: moongate_config::edit::is_pattern_of(pattern, name),
        file: location.map(|(file, _)| file.display().to_string()),
        line: location.map(|(_, line)| line),
    })
}

/// Returns the list and the position of the pattern that decides if an item exists.
fn deciding_rule(rules: &ItemRules, name: &str) -> Option<(RuleList, usize)> {
    let (list, at) = rules.deciding(name)?;
    let list = if list == "deny" {
        RuleList::Deny
    } else {
        RuleList::Allow
    };
    Some((list, at))
}
