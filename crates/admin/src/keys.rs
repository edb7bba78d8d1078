//! Keys of clients and of operators: their list, new ones, and their removal.
//!
//! Owns the bodies and the answers. Does not write the config (`config_change.rs`) or check requests (`access.rs`).
//! Invariant: a key is shown once, in the answer that makes it; all else has the first digits of its hash.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::actions::{Operator, Viewer};
use crate::config_change::{ChangeTerms, apply, changed, refuse, request_change};
use crate::config_control::{ChangeKind, ChangeRefusal, ConfigStatus};
use crate::config_view::key_source;
use crate::json_body::JsonBody;
use crate::query_map::QueryMap;
use crate::{AdminState, json};
use moongate_access::auth::{AdminKey, KeyHash, KeySettings, is_key_name, new_key};
use moongate_api::EntrySource;
use moongate_config::RateSetting;
use moongate_config::edit::{ConfigOperation, KeyList, without_references};
use moongate_listener::json_response;

/// List of keys, as a request names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListName {
    #[default]
    Clients,
    Operators,
}

impl ListName {
    fn list(self) -> KeyList {
        match self {
            ListName::Clients => KeyList::Clients,
            ListName::Operators => KeyList::Operators,
        }
    }
}

/// Body of `POST /api/v1/keys`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKey {
    name: String,
    #[serde(default)]
    list: ListName,
    role: Option<String>,
    views: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    rate: Option<String>,
    expires: Option<String>,
}

/// Handles `GET /api/v1/keys`.
pub(super) async fn keys(Viewer(admin): Viewer) -> Response {
    json(StatusCode::OK, &keys_json(&admin))
}

/// Lists the keys that are in use.
pub(super) fn keys_json(admin: &AdminState) -> Value {
    let status = admin.control.config();
    let principals = admin.listener_state.load().auth.principals().all();
    let calls: HashMap<&str, SystemTime> = principals
        .iter()
        .filter_map(|principal| {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(principal.last_call.time()?);
            Some((principal.name.as_str(), at))
        })
        .collect();
    let clients = status.client_keys.iter().map(|key| client_json(&status, key, calls.get(key.name.as_str())));
    let access = admin.access.load();
    let operators =
        access.keys.iter().map(|key| operator_json(&status, key, admin.sign_in.key_uses.last(key).as_ref()));
    json!({ "clients": clients.collect::<Vec<_>>(), "operators": operators.collect::<Vec<_>>() })
}

fn client_json(status: &ConfigStatus, key: &KeySettings, last_used: Option<&SystemTime>) -> Value {
    let patterns = key.tools.patterns();
    let own = json!({
        "name": key.name,
        "hash_prefix": key.hash.prefix(),
        "views": key.views,
        // One star is the same as no list.
        "tools": Some(patterns).filter(|patterns| *patterns != ["*"]),
        "rate": key.rate.map(RateSetting),
        "expires": key.expires.map(|at| at.to_string()),
        "expired": key.expires.is_some_and(|at| at <= jiff::Timestamp::now()),
        "last_used": last_used.and_then(time_text),
    });
    with_source(own, status, KeyList::Clients, &key.name)
}

fn operator_json(status: &ConfigStatus, key: &AdminKey, last_used: Option<&SystemTime>) -> Value {
    let own = json!({
        "name": key.name,
        "role": key.role.name(),
        "hash_prefix": key.hash.prefix(),
        "last_used": last_used.and_then(time_text),
    });
    with_source(own, status, KeyList::Operators, &key.name)
}

fn with_source(mut own: Value, status: &ConfigStatus, list: KeyList, name: &str) -> Value {
    let EntrySource { file, line, editable, why_not, .. } = key_source(status, list, name);
    own["file"] = file.into();
    own["line"] = line.into();
    own["editable"] = editable.into();
    own["why_not"] = why_not.into();
    own
}

fn time_text(at: &SystemTime) -> Option<String> {
    Some(format!("{:.0}", jiff::Timestamp::try_from(*at).ok()?))
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
        Err((code, message)) => return json_response(StatusCode::BAD_REQUEST, code, &message),
    };
    let (name, list) = (wanted.name, wanted.list.list());
    let change = ChangeKind::Edit(vec![ConfigOperation::AddKey { list, entry }]);
    let was_closed = list == KeyList::Clients && !admin.listener_state.load().auth.is_open();
    let mut body = match request_change(&admin, change, terms).await {
        Ok(body) => body,
        Err(refusal) => return refuse(&admin, &with_command(refusal, &name, list)),
    };
    // From now on everybody else needs a key, too: people must hear of it.
    let names = names_of(&admin, list);
    body["first_key"] = (names == [name.as_str()] && !was_closed).into();
    body["name"] = name.into();
    body["key"] = key.into();
    changed(StatusCode::CREATED, &body)
}

/// Says how to get a key and its entry where none can be written here.
fn with_command(mut refusal: ChangeRefusal, name: &str, list: KeyList) -> ChangeRefusal {
    if matches!(refusal.error.code, "edit_off" | "read_only" | "cannot_edit") {
        let flag = if list == KeyList::Operators { " --admin" } else { "" };
        refusal.error.message +=
            &format!(". `moongate key new {name:?}{flag}` makes a key, and prints the entry to paste");
    }
    refusal
}

/// Returns the config's entry of a key, or the reason why there can be none.
fn entry(wanted: &NewKey, key: &str) -> Result<Value, (&'static str, String)> {
    let NewKey { name, list, role, views, tools, rate, expires } = wanted;
    if !is_key_name(name) {
        return Err(("bad_name", "`name`: a key's name has 1 to 64 characters, and no control characters".to_owned()));
    }
    let texts = |texts: &Vec<String>| Value::from_iter(texts.iter().map(|text| without_references(text)));
    let text = |text: &String| Value::from(without_references(text));
    let mut entry =
        Map::from_iter([("name".to_owned(), text(name)), ("hash".to_owned(), KeyHash::of(key).to_string().into())]);
    let given = [
        ("role", role.as_ref().map(text), ListName::Operators),
        ("views", views.as_ref().map(texts), ListName::Clients),
        ("tools", tools.as_ref().map(texts), ListName::Clients),
        ("rate", rate.as_ref().map(text), ListName::Clients),
        ("expires", expires.as_ref().map(text), ListName::Clients),
    ];
    for (member, value, of) in given {
        match value {
            Some(_) if of != *list => {
                let owners = if of == ListName::Clients { "clients" } else { "operators" };
                return Err(("bad_value", format!("`{member}` is for keys of {owners} only: leave it out")));
            }
            Some(value) => drop(entry.insert(member.to_owned(), value)),
            None => {}
        }
    }
    Ok(Value::Object(entry))
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
            return json_response(StatusCode::BAD_REQUEST, "bad_query", "`list` is `clients` or `operators`");
        }
    };
    let is_last = names_of(&admin, list) == [name.as_str()];
    let stays_closed = match query.get("closed") {
        None | Some("false") => None,
        Some("true") => Some(ConfigOperation::RequireKeys(name.clone())),
        Some(_) => return json_response(StatusCode::BAD_REQUEST, "bad_query", "`closed` is `true` or `false`"),
    };
    // Before the removal, which leaves no key that tells the file.
    let stays_closed = stays_closed.filter(|_| is_last && list == KeyList::Clients);
    let operations = stays_closed.into_iter().chain([ConfigOperation::RemoveKey(list, name)]).collect();
    match apply(&admin, ChangeKind::Edit(operations), terms).await {
        Ok(mut body) => {
            body["last_key"] = names_of(&admin, list).is_empty().into();
            // Open to all programs of this machine, also to one that still sends the key.
            body["open"] = admin.listener_state.load().auth.is_open().into();
            changed(StatusCode::OK, &body)
        }
        Err(refused) => refused,
    }
}

/// Returns the names of the keys that are in use.
fn names_of(admin: &AdminState, list: KeyList) -> Vec<String> {
    match list {
        KeyList::Clients => admin.control.config().client_keys.iter().map(|key| key.name.clone()).collect(),
        KeyList::Operators => admin.access.load().keys.iter().map(|key| key.name.clone()).collect(),
    }
}
