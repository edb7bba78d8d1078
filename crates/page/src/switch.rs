//! Switches of servers and tools, and buttons that call the API.
//!
//! Owns their markup. Does not decide what may be switched (`source` and `rule` of the API).
//! Invariant: a body in the HTML is ASCII, so that no character of a name can hide there.

use std::fmt::Write as _;

use maud::{Markup, html};
use moongate_api::{
    EntrySource, ItemState, ServerItem, ServerPatch, ServerStatus, ToolOwner, ToolSwitches,
};
use serde::Serialize;

use super::text::{VisibleText, show_invisible};
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

/// Renders the rule that keeps a tool off: its pattern, list and location.
pub(super) fn rule_text(tool: &ServerItem) -> Markup {
    let Some(rule) = &tool.rule else {
        return html! {};
    };
    let pattern = rule.pattern.as_deref().unwrap_or_default();
    html! {
        @if pattern.is_empty() { "off: not in " code { "tools." (rule.list.name()) } }
        @else { "off by " code { (VisibleText(pattern)) } " in tools." (rule.list.name()) }
        (file_location(rule.file.as_deref(), rule.line))
    }
}

/// Renders the location of a server's entry in the config.
pub(super) fn entry_location(source: &EntrySource) -> Markup {
    file_location(source.file.as_deref(), source.line)
}

/// Renders the location of an entry or a rule in the config.
pub(super) fn file_location(file: Option<&str>, line: Option<usize>) -> Markup {
    let file = file.unwrap_or_default();
    let line = line.unwrap_or_default();
    html! {
        @if let Some(name) = file.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()) {
            ", " span title=(show_invisible(file)) {
                (VisibleText(name)) @if line > 0 { ":" (line) } }
        }
    }
}

/// Button that changes the config.
pub(super) struct ConfigButton<'a> {
    pub(super) label: &'a str,
    pub(super) method: &'a str,
    pub(super) url: String,
    pub(super) body: Option<String>,
    pub(super) done: String,
    /// Question and verb of the dialog that comes first.
    pub(super) confirm: Option<(String, &'a str)>,
}

impl ConfigButton<'_> {
    /// Renders the button.
    pub(super) fn draw(&self) -> Markup {
        self.draw_with(None)
    }

    /// Renders a button whose dialog asks for this text to be typed.
    pub(super) fn draw_typed(&self, typed: &str) -> Markup {
        self.draw_with(Some(typed))
    }

    fn draw_with(&self, typed: Option<&str>) -> Markup {
        let (question, verb) = self
            .confirm
            .as_ref()
            .map(|(question, verb)| (show_invisible(question), *verb))
            .unzip();
        html! {
            button type="button" class="btn js-only" data-action=(self.url) data-method=(self.method) data-body=[self.body.as_ref()]
                data-done=(show_invisible(&self.done)) data-confirm=[question] data-typed=[typed] data-verb=[verb] { (self.label) }
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
