//! Preview rows for servers that the config has without some of their settings.
//!
//! Owns a row: the missing settings, the lines that add them, and the box that adds a separate
//! server instead. Does not render the panel or other rows (`preview.rs`). Invariant: no box is
//! ticked by default, so nothing is merged or duplicated unless somebody asks for it.

use maud::{Markup, html};
use moongate_api::{FoundServer, ServerProbe};
use moongate_model::CallState;

use super::copy::code_block;
use super::icons::StateIcon;
use super::text::{VisibleText, count};

/// Renders the row of a server. `is_allowed`: the page may add it.
pub(super) fn row(server: &FoundServer, is_allowed: bool) -> Markup {
    let name = &server.name;
    let known = server.same_as.as_deref().unwrap_or_default();
    let has_secrets = !server.secrets.is_empty();
    html! {
        div class="found" data-name=[is_allowed.then_some(name)] {
            div class="row" {
                b { (VisibleText(known)) }
                span class="outcome" {
                    (StateIcon::of_call(CallState::ToolError).draw()) "already added, without some \
                        settings" }
                span class="soft grow" { (VisibleText(&server.target)) }
            }
            p { "Your entry " code { (VisibleText(known)) } " lacks:" }
            ul {
                @for setting in &server.lacks {
                    li { code { (VisibleText(&setting.path)) }
                        " = " code { (VisibleText(&setting.value)) } }
                }
            }
            @if let Some(probe) = &server.probe { (probe_line(probe)) }
            @if let Some(lines) = &server.lines {
                @let table = server.lacks.first().and_then(|first| first.path.split('.').next());
                p { "To use the missing settings there, add this to \
                    the " code { (table.unwrap_or_default()) } " of the entry in the \
                         config" @if lines.contains("${") { ", and set the variable in the \
                         gateway's environment" } ":" }
                (code_block(lines, "the lines"))
            }
            @if is_allowed {
                div class="row" {
                    label class="inline" { input type="checkbox"; "Or add it as a separate server \
                        named" }
                    input class="in" value=(name) aria-label={ "Name of " (VisibleText(name)) }
                    autocomplete="off" spellcheck="false";
                }
                @if has_secrets { p class="soft" { "Its secrets are then written in plain text, \
                    and its tools are listed twice." } }
            } @else {
                p { "Or add it as a separate server: run this on the gateway's machine and paste \
                    the text there:" }
                (code_block(&format!("moongate import - --only {name}"), "the command"))
            }
        }
    }
}

/// Renders what the server said with these settings.
fn probe_line(probe: &ServerProbe) -> Markup {
    html! {
        @match &probe.fault {
            None => {
                p class="outcome" {
                    (StateIcon::of_call(CallState::Ok).draw()) "With these settings, the server \
                        answers: " (count(probe.tools.unwrap_or_default() as u64, "tool", "tools")) "." }
            }
            Some(fault) => {
                p class="outcome red" {
                    (StateIcon::of_call(CallState::Error).draw()) span {
                        "Even with these settings: " (VisibleText(&fault.message)) } }
                @if !fault.hint.is_empty() { p class="soft" { (VisibleText(&fault.hint)) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use moongate_api::{FoundSecret, FoundState, LackingSetting, ServerPreview};

    use super::*;
    use crate::preview;

    fn differing(name: &str, needs_command: bool) -> FoundServer {
        let lacking = LackingSetting {
            path: "headers.Authorization".to_owned(),
            value: "***".to_owned(),
        };
        FoundServer {
            name: name.to_owned(),
            state: FoundState::Differs,
            same_as: Some("docs".to_owned()),
            needs_command,
            target: "https://<b>".to_owned(),
            lacks: vec![lacking],
            secrets: vec![FoundSecret {
                path: "x".to_owned(),
                suggest: "X".to_owned(),
            }],
            lines: Some(
                "[servers.docs.headers]\nAuthorization = \"Bearer ${DOCS_TOKEN}\"\n".to_owned(),
            ),
            probe: Some(ServerProbe {
                tools: Some(3),
                ..ServerProbe::default()
            }),
            ..FoundServer::default()
        }
    }

    fn drawn(servers: Vec<FoundServer>, diff: Option<&str>) -> String {
        let diff = diff.map(str::to_owned);
        preview::render(
            ServerPreview {
                servers,
                diff,
                ..ServerPreview::default()
            },
            false,
        )
        .into_string()
    }

    #[test]
    fn what_is_missing_can_be_pasted_or_added_under_another_name() {
        let html = drawn(vec![differing("docs-2", false)], None);
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
        assert!(
            !html.contains("checked>") && !html.contains("No servers found"),
            "{html}"
        );
        assert_eq!(html.matches("data-count").count(), 1, "{html}");
        assert_eq!(html.matches("class=\"diff\"").count(), 1, "{html}");
    }

    #[test]
    fn one_button_adds_all_that_is_chosen() {
        let new = FoundServer {
            name: "new".to_owned(),
            state: FoundState::New,
            ..FoundServer::default()
        };
        let html = drawn(vec![new, differing("docs-2", false)], Some("+ x"));
        assert_eq!(html.matches("data-count").count(), 1, "{html}");
        assert_eq!(html.matches("class=\"diff\"").count(), 1, "{html}");
        assert!(
            html.find("docs-2") < html.find("data-count"),
            "the button is the last: {html}"
        );
        let html = drawn(vec![differing("run-2", true)], None);
        assert!(
            html.contains("moongate import - --only run-2") && !html.contains("data-count"),
            "{html}"
        );
        let none = drawn(Vec::new(), None);
        assert!(none.contains("No servers found"), "{none}");
    }
}
