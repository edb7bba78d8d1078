//! `_meta` of a request: what the revision reserves there, read and written.

use std::sync::Arc;

use http::HeaderMap;

use crate::json::{Object, Raw, Text};
use crate::model::{Caller, Can, Error, Level, LogWish, Principal, Reason};
use crate::revision::v2026_07_28::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, NAME, PROTOCOL_VERSION, tasks};
use crate::revision::{FrontState, legacy};

/// Takes the revision out of `_meta`.
pub(super) fn take_version(meta: &mut Object) -> Result<Text, Error> {
    let version = meta.remove(PROTOCOL_VERSION).and_then(|raw| raw.as_text());
    version.ok_or_else(|| missing(PROTOCOL_VERSION, "a string"))
}

/// Takes the caller out of `_meta`.
pub(super) fn take_caller(
    meta: &mut Object,
    principal: Arc<Principal>,
    headers: &HeaderMap,
    state: &FrontState,
) -> Result<Arc<Caller>, Error> {
    let declared = meta.remove(CLIENT_CAPABILITIES);
    let capabilities = declared.filter(Raw::is_object).ok_or_else(|| missing(CLIENT_CAPABILITIES, "an object"))?;
    let members =
        capabilities.as_object().ok_or_else(|| missing(CLIENT_CAPABILITIES, "an object without duplicate keys"))?;
    let can: Can = legacy::can(&members);
    let log = match meta.remove(LOG_LEVEL) {
        // server/utilities/logging.mdx: "The server MUST NOT emit `notifications/message` for a request that does not
        // include this field."
        None => LogWish::Nothing,
        Some(raw) => {
            let level = raw.as_text().and_then(|name| Level::from_name(&name));
            LogWish::AtLeast(level.ok_or_else(|| {
                Error::new(Reason::InvalidParams, format!("Invalid params: _meta[\"{LOG_LEVEL}\"] is not a log level"))
            })?)
        }
    };
    let info = meta.remove(CLIENT_INFO).filter(Raw::is_object);
    // A call that can be asked something may be parked for long, and must not keep the request's buffer alive.
    let (capabilities, info) = match can == Can::default() {
        true => (capabilities, info),
        false => (capabilities.detached(), info.as_ref().map(Raw::detached)),
    };
    Ok(Arc::new(Caller {
        principal,
        session: None,
        capabilities,
        can,
        info,
        log,
        revision: NAME,
        headers: legacy::forwarded(headers, state),
        ended: tokio_util::sync::CancellationToken::new(),
    }))
}

fn missing(key: &str, what: &str) -> Error {
    Error::new(Reason::InvalidParams, format!("Invalid params: _meta[\"{key}\"] must be {what}"))
}

/// `_meta` for a request to a server: the client's own, what the revision demands, and our progress token. `may_task`:
/// whether the request may meet a task, as the call says; a client of this revision has said so itself.
pub(super) fn write(mut meta: Object, caller: &Caller, own_info: &Raw, token: Option<u64>, may_task: bool) -> Object {
    let mut set = |key: &'static str, value: Raw| meta.set(Text::literal(key), value);
    set(PROTOCOL_VERSION, const { Raw::literal("\"2026-07-28\"") });
    set(CLIENT_INFO, caller.info.clone().unwrap_or_else(|| own_info.clone()));
    let capabilities = match caller.revision {
        NAME => caller.capabilities.clone(),
        _ => tasks::declare(&caller.capabilities, may_task),
    };
    set(CLIENT_CAPABILITIES, capabilities);
    // server/utilities/logging.mdx has no default: without the field, nothing MUST be sent. A legacy client that set no
    // level would hear its server's own default, so that is what is asked for on its behalf.
    let level = match caller.log {
        LogWish::AtLeast(level) => Some(level),
        LogWish::ServerDecides => Some(LogWish::BY_DEFAULT),
        LogWish::Nothing => None,
    };
    if let Some(level) = level {
        set(LOG_LEVEL, Raw::string(level.name()));
    }
    if let Some(token) = token {
        set("progressToken", Raw::number(token));
    }
    meta
}
