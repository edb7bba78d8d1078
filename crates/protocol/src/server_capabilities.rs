//! Capabilities of servers in the wire form that all revisions share.
//!
//! Owns their names. Does not encode task capabilities, which differ by revision. Invariant: a
//! capability is written only if it is set.

use crate::connect_options::ConnectOptions;
use crate::extensions;
use moongate_jsonrpc::json::{ByteString, JsonObject, RawJson};
use moongate_model::ServerCapabilities;

/// Reads a server's capabilities.
///
/// `extensions` belongs to 2026-07-28, but servers of earlier revisions send it, too.
pub(super) fn read_capabilities(
    capabilities: &JsonObject,
    options: &ConnectOptions,
) -> ServerCapabilities {
    let part = |name: &str| capabilities.get_object(name);
    let flag = |part: &Option<JsonObject>, name: &str| {
        part.as_ref()
            .and_then(|p| p.get(name))
            .is_some_and(|v| &v.bytes()[..] == b"true")
    };
    let tools = part("tools");
    let prompts = part("prompts");
    let resources = part("resources");
    ServerCapabilities {
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
        extensions: extensions::read_announced(capabilities, "extensions", options),
        experimental: extensions::read_announced(capabilities, "experimental", options),
    }
}

/// Writes a server's capabilities.
pub(super) fn write_capabilities(capabilities: &ServerCapabilities) -> JsonObject {
    let flags = |members: &[(&'static str, bool)]| {
        let set = members.iter().filter(|(_, on)| *on);
        set.fold(JsonObject::new(), |object, (name, _)| {
            object.with(name, RawJson::literal("true"))
        })
        .to_raw()
    };
    let mut written = JsonObject::new();
    let mut add = |on: bool, name: &'static str, value: RawJson| {
        if on {
            written.set(ByteString::literal(name), value);
        }
    };
    add(
        capabilities.tools,
        "tools",
        flags(&[("listChanged", capabilities.tools_changes)]),
    );
    add(
        capabilities.prompts,
        "prompts",
        flags(&[("listChanged", capabilities.prompts_changes)]),
    );
    let resources = [
        ("listChanged", capabilities.resources_changes),
        ("subscribe", capabilities.subscribe),
    ];
    add(capabilities.resources, "resources", flags(&resources));
    add(capabilities.completions, "completions", flags(&[]));
    add(capabilities.logging, "logging", flags(&[]));
    for (name, announced) in [
        ("experimental", &capabilities.experimental),
        ("extensions", &capabilities.extensions),
    ] {
        add(!announced.is_empty(), name, announced.to_raw());
    }
    written
}
