//! Config as operators see it: its files, its last reload, and the place of each server and rule.
//!
//! Owns their form. Does not change anything (`config_change.rs`). Invariant: a shown text has its secrets redacted.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::actions::Viewer;
use crate::config_control::ConfigStatus;
use crate::json;
use moongate_access::policy::ItemRules;
use moongate_api::EntrySource;
use moongate_config::ReadFile;
use moongate_config::edit::{EditAuthor, KeyList, PastEdit};
use moongate_listener::json_response;

/// Time for reading the files. A network file system may stall.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Handles `GET /api/v1/config`.
pub(super) async fn config(Viewer(admin): Viewer) -> Response {
    let status = admin.control.config();
    let control = admin.control.clone();
    let read = {
        let status = status.clone();
        // The timeout ends the request only. The thread stays until its file system answers.
        tokio::task::spawn_blocking(move || {
            let files: Vec<Value> = status.places.files().iter().map(file_with_text).collect();
            let undo: Vec<Value> = control.past_edits().iter().map(past_edit_json).collect();
            (files, undo)
        })
    };
    let Ok(Ok((files, undo))) = tokio::time::timeout(READ_TIMEOUT, read).await else {
        return json_response(StatusCode::GATEWAY_TIMEOUT, "timeout", "The config's files cannot be read in time");
    };
    let mut body = config_json(&status);
    body["files"] = files.into();
    body["undo"] = undo.into();
    json(StatusCode::OK, &body)
}

/// Describes the config without its text.
pub(super) fn config_json(status: &ConfigStatus) -> Value {
    json!({
        "files": status.places.files().iter().map(file_json).collect::<Vec<_>>(),
        "reload": { "at": status.at, "outcome": status.outcome, "message": status.message },
        "in_use_since": status.in_use_since,
        "needs_restart": status.needs_restart,
        "edit": status.edits.edit,
        "allow_commands": status.edits.allow_commands,
    })
}

fn file_json(file: &ReadFile) -> Value {
    json!({ "path": file.path.display().to_string(), "etag": file.tag, "writable": file.why_not.is_none(), "why_not": file.why_not })
}

fn file_with_text(file: &ReadFile) -> Value {
    let mut shown = file_json(file);
    match moongate_config::read_redacted(&file.path) {
        Ok((tag, text)) => {
            // The tag of the text beside it. The one of the loaded config may be older.
            shown["etag"] = tag.into();
            shown["text_masked"] = text.into();
        }
        Err(message) => shown["error"] = message.into(),
    }
    shown
}

fn past_edit_json(edit: &PastEdit) -> Value {
    json!({
        "at": edit.at,
        "file": edit.file.display().to_string(),
        "summary": edit.summary,
        "etag": edit.tag,
        "via": edit.author.as_ref().map(EditAuthor::way),
        "by": edit.author.as_ref().and_then(EditAuthor::operator),
    })
}

/// Describes where a server is configured, and why that cannot be edited.
pub(super) fn entry_source(status: &ConfigStatus, server: &str) -> EntrySource {
    // What they decide cannot be changed in the file.
    let variables = status.places.server_variables(server).to_vec();
    EntrySource { variables, ..source_at(status, status.places.server(server)) }
}

/// Describes where a key is configured, and why that cannot be edited.
pub(super) fn key_source(status: &ConfigStatus, list: KeyList, key: &str) -> EntrySource {
    source_at(status, status.places.key(list, key))
}

fn source_at(status: &ConfigStatus, place: Option<(&ReadFile, usize)>) -> EntrySource {
    let why_not = match place {
        _ if !status.edits.edit => Some("admin.edit is false".to_owned()),
        None => Some("no file has its entry: the built-in demo, or variables".to_owned()),
        Some((file, _)) => file.why_not.clone(),
    };
    EntrySource {
        file: place.map(|(file, _)| file.path.display().to_string()),
        line: place.map(|(_, line)| line),
        etag: place.map(|(file, _)| file.tag.clone()),
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

/// Describes the rule that decides about an item: its list, its pattern, and its line. Null if there is none.
pub(super) fn rule_json(status: &ConfigStatus, table: RuleTable<'_>, name: &str, is_hidden: bool) -> Value {
    let RuleTable { server, kind, rules } = table;
    let hidden = rules.hide.deciding(name).filter(|_| is_hidden).map(|at| ("hide", at));
    let Some((list, at)) = hidden.or_else(|| rules.deciding(name)) else {
        // Without a pattern only a list that names others can leave it out.
        let left_out = json!({ "list": "allow", "pattern": null, "exact": false, "file": null, "line": null });
        return if rules.allows_name(name) { Value::Null } else { left_out };
    };
    let patterns = match list {
        "hide" => &rules.hide,
        "deny" => &rules.deny,
        _ => &rules.allow,
    };
    let pattern = patterns.patterns().get(at).map(String::as_str).unwrap_or_default();
    let place = status.places.rule(server, kind, list, at);
    json!({
        "list": list,
        "pattern": pattern,
        "exact": moongate_config::edit::is_pattern_of(pattern, name),
        "file": place.map(|(file, _)| file.display().to_string()),
        "line": place.map(|(_, line)| line),
    })
}
