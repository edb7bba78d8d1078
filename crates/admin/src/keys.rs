//! Keys of clients and of operators: their list, new ones, and their removal.
//!
//! Owns the bodies and the answers. Leaves the change itself to `config_change.rs`, and does not
//! check requests (`key_check.rs`). Invariant: a key is shown once, in the answer that makes it;
//! all else has the first digits of its hash.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use crate::admin_state::AdminState;
use crate::change_answer::{changed, refuse};
use crate::config_change::{ChangeTerms, apply, request_change};
use crate::config_view::key_source;
use crate::control_types::{ChangeKind, ChangeRefusal, ConfigStatus};
use crate::json_answer::json;
use crate::json_body::JsonBody;
use crate::operator_check::{Operator, Viewer};
use crate::query_map::QueryMap;
use crate::time_format::timestamp_to_second;
use moongate_access::auth::{AdminKey, AdminRole, KeyHash, KeySettings, is_key_name, new_key};
use moongate_api::{
    ClientKey, EntrySource, KeyListName, KeyLists, KeyPlace, KeyRemovalReport, NewKey,
    NewKeyReport, OperatorKey,
};
use moongate_config::RateSetting;
use moongate_config::edit::{ConfigEditError, ConfigOperation, KeyEntry, KeyList};
use moongate_listener::json_response;

/// Returns the list of the config that a request names.
fn config_list(name: KeyListName) -> KeyList {
    match name {
        KeyListName::Clients => KeyList::Clients,
        KeyListName::Operators => KeyList::Operators,
    }
}

/// Handles `GET /api/v1/keys`.
pub(super) async fn keys(Viewer(admin): Viewer) -> Response {
    json(StatusCode::OK, &list_keys(&admin))
}

/// Lists the keys that are in use.
pub(super) fn list_keys(admin: &AdminState) -> KeyLists {
    let status = admin.reloader.config();
    let principals = admin.listener_state.load().auth.principals().all();
    let calls: HashMap<&str, SystemTime> = principals
        .iter()
        .filter_map(|principal| {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(principal.last_call.time()?);
            Some((principal.name.as_str(), at))
        })
        .collect();
    let clients = status
        .client_keys
        .iter()
        .map(|key| client_key(&status, key, calls.get(key.name.as_str())));
    let access = admin.access.load();
    let operators = access
        .keys
        .iter()
        .map(|key| operator_key(&status, key, admin.sign_in.key_uses.last(key).as_ref()));
    KeyLists {
        clients: clients.collect(),
        operators: operators.collect(),
    }
}

fn client_key(
    status: &ConfigStatus,
    key: &KeySettings,
    last_used: Option<&SystemTime>,
) -> ClientKey {
    let patterns = key.tools.patterns();
    ClientKey {
        name: key.name.clone(),
        hash_prefix: key.hash.prefix(),
        views: key.views.clone(),
        // One star is the same as no list.
        tools: Some(patterns)
            .filter(|patterns| *patterns != ["*"])
            .map(<[String]>::to_vec),
        rate: key.rate.map(|rate| RateSetting(rate).to_string()),
        expires: key.expires.map(|at| at.to_string()),
        expired: key.expires.is_some_and(|at| at <= jiff::Timestamp::now()),
        last_used: last_used.copied().and_then(timestamp_to_second),
        place: key_place(status, KeyList::Clients, &key.name),
    }
}

fn operator_key(
    status: &ConfigStatus,
    key: &AdminKey,
    last_used: Option<&SystemTime>,
) -> OperatorKey {
    OperatorKey {
        name: key.name.clone(),
        role: key.role.name().to_owned(),
        hash_prefix: key.hash.prefix(),
        last_used: last_used.copied().and_then(timestamp_to_second),
        place: key_place(status, KeyList::Operators, &key.name),
    }
}

fn key_place(status: &ConfigStatus, list: KeyList, name: &str) -> KeyPlace {
    let EntrySource {
        file,
        line,
        editable,
        why_not,
        ..
    } = key_source(status, list, name);
    KeyPlace {
        file,
        line,
        editable,
        why_not,
    }
}

/// Handles `POST /api/v1/keys`.
pub(super) async fn make_key(
    Operator(admin): Operator,
    terms: ChangeTerms,
    JsonBody(wanted): JsonBody<NewKey>,
) -> Response {
    let key = new_key();
    let entry = match entry(&wanted, &key) {
        Ok(entry) => entry,
        Err(error) => return refuse(&admin, &ChangeRefusal::from(error)),
    };
    let list = config_list(wanted.list);
    let name = wanted.name;
    let change = ChangeKind::Edit(vec![ConfigOperation::AddKey { list, key: entry }]);
    let was_closed = list == KeyList::Clients && !admin.listener_state.load().auth.is_open();
    let change = match request_change(&admin, change, terms).await {
        Ok(change) => change,
        Err(refusal) => return refuse(&admin, &with_command(refusal, &name, list)),
    };
    // From now on everybody else needs a key, too: people must hear of it.
    let first_key = names_of(&admin, list) == [name.as_str()] && !was_closed;
    let report = NewKeyReport {
        change,
        first_key,
        name,
        key,
    };
    changed(StatusCode::CREATED, &report.change.etag, &report)
}

/// Says how to get a key and its entry where none can be written here.
fn with_command(mut refusal: ChangeRefusal, name: &str, list: KeyList) -> ChangeRefusal {
    if matches!(refusal.error.code, "edit_off" | "read_only" | "cannot_edit") {
        let flag = if list == KeyList::Operators {
            " --admin"
        } else {
            ""
        };
        refusal.error.message += &format!(
            ". `moongate key new {name:?}{flag}` creates a key and prints the entry to paste"
        );
    }
    refusal
}

/// Returns the config's entry of a key, or the reason why there can be none.
fn entry(wanted: &NewKey, key: &str) -> Result<KeyEntry, ConfigEditError> {
    let NewKey {
        name,
        list,
        role,
        views,
        tools,
        rate,
        expires,
    } = wanted;
    if !is_key_name(name) {
        return Err(ConfigEditError::new(
            "bad_name",
            "`name` must have 1 to 64 characters and no control characters",
        ));
    }
    let given = [
        ("role", role.is_some(), KeyListName::Operators),
        ("views", views.is_some(), KeyListName::Clients),
        ("tools", tools.is_some(), KeyListName::Clients),
        ("rate", rate.is_some(), KeyListName::Clients),
        ("expires", expires.is_some(), KeyListName::Clients),
    ];
    let foreign = given
        .into_iter()
        .find(|(_, is_given, of)| *is_given && of != list);
    if let Some((member, _, of)) = foreign {
        let of = of.name();
        let message = format!("`{member}` is only for keys of {of}; leave it out");
        return Err(ConfigEditError::new("bad_value", message));
    }
    let role = role.as_deref().map(parse_role).transpose()?;
    Ok(KeyEntry {
        role,
        views: views.clone(),
        tools: tools.clone(),
        rate: rate.clone(),
        expires: expires.clone(),
        ..KeyEntry::new(name, KeyHash::of(key))
    })
}

fn parse_role(role: &str) -> Result<AdminRole, ConfigEditError> {
    AdminRole::parse(role).ok_or_else(|| {
        let message = format!("`role`: {role:?} must be \"view\" or \"operate\"");
        ConfigEditError::new("problems", message)
    })
}

/// Handles `DELETE /api/v1/keys/{name}`.
pub(super) async fn remove_key(
    Operator(admin): Operator,
    Path(name): Path<String>,
    query: QueryMap,
    terms: ChangeTerms,
) -> Response {
    let list = match query.get("list") {
        None | Some("clients") => KeyList::Clients,
        Some("operators") => KeyList::Operators,
        Some(_) => {
            return json_response(
                StatusCode::BAD_REQUEST,
                "bad_query",
                "`list` must be `clients` or `operators`",
            );
        }
    };
    let is_last = names_of(&admin, list) == [name.as_str()];
    let stays_closed = match query.get("closed") {
        None | Some("false") => None,
        Some("true") => Some(ConfigOperation::RequireKeys(name.clone())),
        Some(_) => {
            return json_response(
                StatusCode::BAD_REQUEST,
                "bad_query",
                "`closed` must be `true` or `false`",
            );
        }
    };
    // Before the removal, which leaves no key that shows the file.
    let stays_closed = stays_closed.filter(|_| is_last && list == KeyList::Clients);
    let operations = stays_closed
        .into_iter()
        .chain([ConfigOperation::RemoveKey(list, name)])
        .collect();
    match apply(&admin, ChangeKind::Edit(operations), terms).await {
        Ok(change) => {
            let report = KeyRemovalReport {
                change,
                last_key: names_of(&admin, list).is_empty(),
                // Open to all programs of this machine, also to one that still sends the key.
                open: admin.listener_state.load().auth.is_open(),
            };
            changed(StatusCode::OK, &report.change.etag, &report)
        }
        Err(refused) => refused,
    }
}

/// Returns the names of the keys that are in use.
fn names_of(admin: &AdminState, list: KeyList) -> Vec<String> {
    match list {
        KeyList::Clients => admin
            .reloader
            .config()
            .client_keys
            .iter()
            .map(|key| key.name.clone())
            .collect(),
        KeyList::Operators => admin
            .access
            .load()
            .keys
            .iter()
            .map(|key| key.name.clone())
            .collect(),
    }
}
