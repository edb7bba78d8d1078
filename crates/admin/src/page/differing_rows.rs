//! Rows of a preview for servers that the config has without some of their settings.
//!
//! Owns their panel: what is missing, the lines that add it, and the box that makes another server of it. Does not show
//! other rows (`add.rs`). Invariant: no box is checked, since nothing is merged or doubled by itself.

use maud::{Markup, html};
use moongate_model::CallState;
use serde_json::Value;

use super::add;
use super::copy::code_block;
use super::facts::{list, number, text};
use super::icons::StateIcon;
use super::text::{VisibleText, count};

/// Renders a whole preview. Rows that differ stand before all others, whose button adds them, too.
pub(super) fn preview(mut found: Value, allow_commands: bool) -> Markup {
    let all = found["servers"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let (differing, others): (Vec<Value>, Vec<Value>) =
        all.into_iter().partition(|server| text(server, "state") == "differs");
    if differing.is_empty() {
        found["servers"] = others.into();
        return add::preview(&found, allow_commands);
    }
    let is_allowed = |server: &Value| allow_commands || server["needs_command"] != true;
    let is_new = |server: &&Value| matches!(text(server, "state"), "new" | "renamed") && is_allowed(server);
    let has_button = others.iter().any(|server| is_new(&server));
    let has_rest = ["problems", "warnings"].iter().any(|key| !list(&found, key).is_empty()) || !others.is_empty();
    let can_add = differing.iter().any(is_allowed);
    found["servers"] = others.into();
    let rows = html! { @for server in &differing { (row(server, is_allowed(server))) } };
    html! {
        // One element, since scripts take the first of a fragment.
        div {
            div class="panel" {
                @if can_add && !has_button { form method="post" data-add { (rows) (end(&found)) } }
                @else { (rows) }
            }
            @if has_rest { (add::preview(&found, allow_commands)) }
        }
    }
}

/// Renders what would be written, and the button.
fn end(found: &Value) -> Markup {
    html! {
        div class="found" {
            p { "With a box checked, this is written:" }
            pre class="diff" tabindex="0" aria-label="What is written" { (VisibleText(&add::without_blank_ends(text(found, "diff")))) }
        }
        div class="found row" {
            a class="btn" href="/" { "Cancel" }
            button class="btn main js-only" data-count { "Add" }
        }
    }
}

fn row(server: &Value, is_allowed: bool) -> Markup {
    let (name, known) = (text(server, "name"), text(server, "same_as"));
    let has_secrets = !list(server, "secrets").is_empty();
    html! {
        div class="found" data-name=[is_allowed.then_some(name)] {
            div class="row" {
                b { (VisibleText(known)) }
                span class="outcome" { (StateIcon::of_call(CallState::ToolError).draw()) "you have it, without some settings" }
                span class="soft grow" { (VisibleText(text(server, "target"))) }
            }
            p { "Your entry " code { (VisibleText(known)) } " lacks:" }
            ul {
                @for setting in list(server, "lacks") {
                    li { code { (VisibleText(text(setting, "path"))) } " = " code { (VisibleText(text(setting, "value"))) } }
                }
            }
            (probe(&server["probe"]))
            @if let Some(lines) = server["lines"].as_str() {
                @let table = list(server, "lacks").first().and_then(|first| text(first, "path").split('.').next());
                p { "To use it there, add this to the " code { (table.unwrap_or_default()) } " of the entry in the config" @if lines.contains("${") { ", and set the variable where the gateway starts" } ":" }
                (code_block(lines, "the lines"))
            }
            @if is_allowed {
                div class="row" {
                    label class="inline" { input type="checkbox"; "Or add it as another server, called" }
                    input class="in" value=(name) aria-label={ "Name of " (VisibleText(name)) } autocomplete="off" spellcheck="false";
                }
                @if has_secrets { p class="soft" { "Then its secrets are written as they are, and its tools are there twice." } }
            } @else {
                p { "Or add it as another server, on the gateway's machine, with the text pasted there:" }
                (code_block(&format!("moongate import - --only {name}"), "the command"))
            }
        }
    }
}

/// Renders what the server said with these settings.
fn probe(probe: &Value) -> Markup {
    let fault = &probe["fault"];
    html! {
        @if probe.is_null() {}
        @else if fault.is_null() {
            p class="outcome" { (StateIcon::of_call(CallState::Ok).draw()) "With it, the server answers: " (count(number(probe, "tools"), "tool", "tools")) "." }
        } @else {
            p class="outcome red" { (StateIcon::of_call(CallState::Error).draw()) span { "With it as well: " (VisibleText(text(fault, "message"))) } }
            @if !text(fault, "hint").is_empty() { p class="soft" { (VisibleText(text(fault, "hint"))) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differing(name: &str, command: bool) -> Value {
        json!({
            "name": name, "state": "differs", "same_as": "docs", "needs_command": command, "target": "https://<b>",
            "lacks": [{ "path": "headers.Authorization", "value": "***" }], "secrets": [{ "path": "x", "suggest": "X" }],
            "lines": "[servers.docs.headers]\nAuthorization = \"Bearer ${DOCS_TOKEN}\"\n",
            "probe": { "tools": 3, "fault": null },
        })
    }

    #[test]
    fn what_is_missing_can_be_pasted_or_added_under_another_name() {
        let html = preview(json!({ "servers": [differing("docs-2", false)], "problems": [] }), false).into_string();
        for part in [
            "<code>headers.Authorization</code> = <code>***</code>",
            "Authorization = &quot;Bearer ${DOCS_TOKEN}&quot;",
            "data-name=\"docs-2\"",
            "type=\"checkbox\"",
            "value=\"docs-2\"",
            "the server answers: 3 tools",
            "https://&lt;b&gt;",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(!html.contains("checked>") && !html.contains("No server was found"), "{html}");
        assert_eq!((html.matches("data-count").count(), html.matches("class=\"diff\"").count()), (1, 1), "{html}");
    }

    #[test]
    fn one_button_adds_all_that_is_chosen() {
        let new = json!({ "name": "new", "state": "new", "notes": [], "secrets": [] });
        let found =
            json!({ "servers": [new, differing("docs-2", false)], "problems": [], "diff": "+ x", "file": "m.toml" });
        let html = preview(found, false).into_string();
        assert_eq!((html.matches("data-count").count(), html.matches("class=\"diff\"").count()), (1, 1), "{html}");
        assert!(html.find("docs-2") < html.find("data-count"), "the button is the last: {html}");
        let html = preview(json!({ "servers": [differing("run-2", true)] }), false).into_string();
        assert!(html.contains("moongate import - --only run-2") && !html.contains("data-count"), "{html}");
        let none = preview(json!({ "servers": [] }), false).into_string();
        assert!(none.contains("No server was found"), "{none}");
    }
}
