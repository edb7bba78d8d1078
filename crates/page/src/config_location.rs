//! Locations in the config: where an entry or a rule is.
//!
//! Owns their text. Does not find them: the API does. Invariant: only a file's name is shown, and
//! its path as a tooltip.

use maud::{Markup, html};
use moongate_api::{EntrySource, ServerItem};

use super::text::{VisibleText, show_invisible};

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
