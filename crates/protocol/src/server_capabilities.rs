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
    let tools = capabilities.get_object("tools");
    let prompts = capabilities.get_object("prompts");
    let resources = capabilities.get_object("resources");
    ServerCapabilities {
        tools_changes: has_flag(tools.as_ref(), "listChanged"),
        prompts_changes: has_flag(prompts.as_ref(), "listChanged"),
        resources_changes: has_flag(resources.as_ref(), "listChanged"),
        subscribe: has_flag(resources.as_ref(), "subscribe"),
        subscribe_untried: false,
        tools: tools.is_some(),
        prompts: prompts.is_some(),
        resources: resources.is_some(),
        completions: capabilities.get_object("completions").is_some(),
        logging: capabilities.get_object("logging").is_some(),
        tasks: None,
        extensions: extensions::read_announced(capabilities, "extensions", options),
        experimental: extensions::read_announced(capabilities, "experimental", options),
    }
}

fn has_flag(part: Option<&JsonObject>, name: &str) -> bool {
    part.is_some_and(|part| part.is_true(name))
}

/// Writes a server's capabilities.
pub(super) fn write_capabilities(capabilities: &ServerCapabilities) -> JsonObject {
    let resources = [
        ("listChanged", capabilities.resources_changes),
        ("subscribe", capabilities.subscribe),
    ];
    let members = [
        (
            capabilities.tools,
            "tools",
            flags(&[("listChanged", capabilities.tools_changes)]),
        ),
        (
            capabilities.prompts,
            "prompts",
            flags(&[("listChanged", capabilities.prompts_changes)]),
        ),
        (capabilities.resources, "resources", flags(&resources)),
        (capabilities.completions, "completions", flags(&[])),
        (capabilities.logging, "logging", flags(&[])),
        (
            !capabilities.experimental.is_empty(),
            "experimental",
            capabilities.experimental.to_raw(),
        ),
        (
            !capabilities.extensions.is_empty(),
            "extensions",
            capabilities.extensions.to_raw(),
        ),
    ];
    let mut written = JsonObject::new();
    for (_, name, value) in members.into_iter().filter(|(on, ..)| *on) {
        written.set(ByteString::literal(name), value);
    }
    written
}

/// Writes the flags that are set.
fn flags(members: &[(&'static str, bool)]) -> RawJson {
    let set = members.iter().filter(|(_, on)| *on);
    set.fold(JsonObject::new(), |object, (name, _)| {
        object.with(name, RawJson::literal("true"))
    })
    .to_raw()
}
