//! Notifications: the spelling that all revisions share.

use bytes::Bytes;

use crate::json::{Object, Raw, Text};
use crate::jsonrpc::{Notification, to_bytes, write_notification};
use crate::model::{Features, Kind, Level, Notice};
use crate::revision::connect::Hello;
use crate::revision::extensions;

/// Largest params of a notification that belongs to no call, in bytes; what is larger is dropped.
pub(super) const NOTICE_MAX: usize = 64 * 1024;

/// How the notification of a changed list is called.
pub(super) fn changed_method(kind: Kind) -> &'static str {
    match kind {
        Kind::Tools => "notifications/tools/list_changed",
        Kind::Prompts => "notifications/prompts/list_changed",
        Kind::Resources | Kind::Templates => "notifications/resources/list_changed",
    }
}

/// Reads a notification of a server.
pub(super) fn read(notification: Notification) -> Notice {
    let Notification { method, params } = notification;
    match &*method {
        "notifications/progress" => Notice::Progress(params),
        "notifications/message" => Notice::Log(params.text("level").and_then(|l| Level::from_name(&l)), params),
        "notifications/tools/list_changed" => Notice::Changed(Kind::Tools),
        "notifications/prompts/list_changed" => Notice::Changed(Kind::Prompts),
        "notifications/resources/list_changed" => Notice::Changed(Kind::Resources),
        "notifications/resources/updated" => match params.text("uri") {
            Some(uri) => Notice::Updated(uri, params),
            None => Notice::Other(method, params),
        },
        // 2025-11-25/client/elicitation.mdx, Completion Notifications for URL Mode Elicitation.
        "notifications/elicitation/complete" => match params.text("elicitationId") {
            Some(id) => Notice::Elicited(id, params),
            None => Notice::Other(method, params),
        },
        _ => Notice::Other(method, params),
    }
}

/// Spells a notice, except for progress, which needs the client's token.
pub(super) fn write(notice: &Notice) -> Option<(&str, Object)> {
    Some(match notice {
        // What depends on the revision is spelled there.
        Notice::Progress(_) | Notice::Task(_) => return None,
        Notice::Log(_, params) => ("notifications/message", params.clone()),
        Notice::Changed(kind) | Notice::Missed(kind) => (changed_method(*kind), Object::new()),
        Notice::Updated(_, params) => ("notifications/resources/updated", params.clone()),
        Notice::Elicited(_, params) => ("notifications/elicitation/complete", params.clone()),
        Notice::RootsChanged => ("notifications/roots/list_changed", Object::new()),
        Notice::Other(method, params) => (method, params.clone()),
    })
}

/// Spells progress with the token of this hop.
pub(super) fn progress(mut params: Object, token: &Raw) -> Bytes {
    params.set(Text::literal("progressToken"), token.clone());
    notification("notifications/progress", &params)
}

/// One notification as bytes.
pub(super) fn notification(method: &str, params: &Object) -> Bytes {
    to_bytes(params.size_hint(), |out| write_notification(out, method, params))
}

/// Reads the capabilities of a server; all revisions spell these members alike. `extensions` is a word of 2026-07-28,
/// which servers of the revisions before use too.
pub(super) fn features(capabilities: &Object, hello: &Hello) -> Features {
    let part = |name: &str| capabilities.object(name);
    let flag = |part: &Option<Object>, name: &str| {
        part.as_ref().and_then(|p| p.get(name)).is_some_and(|v| &v.bytes()[..] == b"true")
    };
    let (tools, prompts, resources) = (part("tools"), part("prompts"), part("resources"));
    Features {
        tools_changes: flag(&tools, "listChanged"),
        prompts_changes: flag(&prompts, "listChanged"),
        resources_changes: flag(&resources, "listChanged"),
        subscribe: flag(&resources, "subscribe"),
        subscribe_untried: false,
        tools: tools.is_some(),
        prompts: prompts.is_some(),
        resources: resources.is_some(),
        completions: part("completions").is_some(),
        logging: part("logging").is_some(),
        tasks: None,
        extensions: extensions::announced(capabilities, "extensions", hello),
        experimental: extensions::announced(capabilities, "experimental", hello),
    }
}

/// Spells the capabilities of a server.
pub(super) fn capabilities(features: &Features) -> Object {
    let flags = |members: &[(&'static str, bool)]| {
        let set = members.iter().filter(|(_, on)| *on);
        set.fold(Object::new(), |object, (name, _)| object.with(name, Raw::literal("true"))).raw()
    };
    let mut capabilities = Object::new();
    let mut add = |on: bool, name: &'static str, value: Raw| {
        if on {
            capabilities.set(Text::literal(name), value);
        }
    };
    add(features.tools, "tools", flags(&[("listChanged", features.tools_changes)]));
    add(features.prompts, "prompts", flags(&[("listChanged", features.prompts_changes)]));
    let resources = [("listChanged", features.resources_changes), ("subscribe", features.subscribe)];
    add(features.resources, "resources", flags(&resources));
    add(features.completions, "completions", flags(&[]));
    add(features.logging, "logging", flags(&[]));
    for (name, announced) in [("experimental", &features.experimental), ("extensions", &features.extensions)] {
        add(!announced.is_empty(), name, announced.raw());
    }
    capabilities
}
