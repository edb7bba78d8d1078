//! Switches of servers and tools, and the bodies of the requests that change them.
//!
//! Owns their markup, and the address of a server in the API. Does not decide what may be switched
//! (`source` and `rule` of the API). Invariant: a body in the HTML is ASCII, so that no character
//! of a name can hide there.

use std::fmt::Write as _;

use maud::{Markup, html};
use moongate_api::{ItemState, ServerItem, ServerPatch, ServerStatus, ToolOwner, ToolSwitches};
use serde::Serialize;

use super::text::show_invisible;
use super::view_query::segment;

/// Switch of a server or a tool, as its config has it.
pub(super) struct ConfigSwitch {
    label: String,
    url: String,
    is_on: bool,
    /// Body of the request that changes it.
    body: String,
}

impl ConfigSwitch {
    /// Describes the switch of a server. `None` if its entry cannot be edited.
    pub(super) fn of_server(server: &ServerStatus) -> Option<Self> {
        let is_on = server.identity.enabled;
        let label = show_invisible(server.name());
        server.source.editable.then(|| ConfigSwitch {
            label,
            url: server_url(server.name()),
            is_on,
            body: ascii(&ServerPatch {
                enabled: Some(!is_on),
                ..ServerPatch::default()
            }),
        })
    }

    /// Describes the switch of a tool. `None` if a pattern decides, or if the tool is left out.
    pub(super) fn of_tool(owner: &ToolOwner, tool: &ServerItem) -> Option<Self> {
        let can_switch = match tool.state {
            ItemState::On | ItemState::Hidden => true,
            ItemState::Off => !tool.is_locked(),
            ItemState::LeftOut => false,
        };
        let is_on = tool.state != ItemState::Off;
        let label = show_invisible(&tool.name);
        let to = if is_on {
            SwitchTarget::Off
        } else {
            SwitchTarget::On
        };
        let body = tools_body(to, vec![tool.name.clone()]);
        (can_switch && owner.source.editable).then(|| ConfigSwitch {
            label,
            url: server_url(&owner.name),
            is_on,
            body,
        })
    }

    /// Renders the switch. Without scripts it is text.
    pub(super) fn draw(&self) -> Markup {
        let state = if self.is_on { "on" } else { "off" };
        let done = format!(
            "{} is switched {}.",
            self.label,
            if self.is_on { "off" } else { "on" }
        );
        html! {
            button type="button" class="toggle js-only" role="switch" aria-checked=(self.is_on.to_string()) aria-label=(self.label)
                data-switch=(self.url) data-body=(self.body) data-done=(done) {}
            span class="no-js" { (state) }
        }
    }
}

/// Returns the address of a server in the API.
pub(super) fn server_url(name: &str) -> String {
    format!("/api/v1/servers/{}", segment(name))
}

/// State that a button switches to.
#[derive(Clone, Copy)]
pub(super) enum SwitchTarget {
    On,
    Off,
}

impl SwitchTarget {
    /// Returns the word for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            SwitchTarget::On => "on",
            SwitchTarget::Off => "off",
        }
    }
}

/// Returns the body that switches tools.
pub(super) fn tools_body(to: SwitchTarget, names: Vec<String>) -> String {
    let tools = match to {
        SwitchTarget::On => ToolSwitches {
            on: names,
            off: Vec::new(),
        },
        SwitchTarget::Off => ToolSwitches {
            on: Vec::new(),
            off: names,
        },
    };
    ascii(&ServerPatch {
        tools,
        ..ServerPatch::default()
    })
}

/// Writes JSON in ASCII.
fn ascii(body: &impl Serialize) -> String {
    let mut out = String::new();
    // Fails never: all keys are strings.
    let text = serde_json::to_string(body).unwrap_or_default();
    // Escapes of JSON are units of UTF-16: a character beyond the first plane needs two.
    for unit in text.encode_utf16() {
        match u8::try_from(unit).ok().filter(u8::is_ascii) {
            Some(byte) => out.push(char::from(byte)),
            // Fails never: a `String` takes all.
            None => drop(write!(out, "\\u{unit:04x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_ascii_and_says_the_same() {
        let name = "a\u{202e}\u{1f600}\"\\ü";
        let body = tools_body(SwitchTarget::Off, vec![name.to_owned()]);
        assert!(body.is_ascii());
        let read: ServerPatch = serde_json::from_str(&body).unwrap();
        assert_eq!(read.tools.off, [name]);
    }
}
