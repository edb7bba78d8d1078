//! One tool: a row that opens to its description, arguments and schema.
//!
//! Owns the row. Does not call tools. Invariant: an annotation is shown as the server's claim.

use maud::{Markup, html};
use moongate_api::{ItemState, ServerItem, ToolHints, ToolOwner};
use moongate_form::{FieldKind, FieldLimits, FormField, read_form};
use moongate_jsonrpc::json::RawJson;
use serde::Serialize;

use super::buttons::ConfigButton;
use super::config_location::rule_text;
use super::copy::copy_button;
use super::explain;
use super::icons::{StateIcon, draw_lock};
use super::switch::{ConfigSwitch, SwitchTarget, server_url, tools_body};
use super::text::{VisibleText, count, duration, estimate};
use super::view_query::segment;

/// Characters of a schema that are shown. Longer ones are cut.
const SCHEMA_MAX: usize = 20_000;
/// Values of an argument that are named.
const CHOICES_MAX: usize = 8;
/// Characters of an argument's type that are shown.
const TYPE_MAX: usize = 200;

/// Row of a tool of an open server.
pub(super) struct ToolRow<'a> {
    pub(super) owner: &'a ToolOwner,
    pub(super) tool: &'a ServerItem,
    pub(super) is_open: bool,
    /// True if the filter leaves it out.
    pub(super) is_hidden: bool,
    pub(super) may_act: bool,
}

impl ToolRow<'_> {
    /// Renders the row.
    pub(super) fn draw(&self) -> Markup {
        let ToolRow { owner, tool, .. } = *self;
        let name = &tool.name;
        html! {
            li class="toolrow" data-filter hidden[self.is_hidden] {
                (state_cell(owner, tool, self.may_act))
                details id=(format!("tool-{}",
                    segment(name))) data-tool=(segment(name)) open[self.is_open] {
                    summary class="tool" data-row { (tool_line(tool, None)) }
                    (tool_details(owner, tool, self.may_act))
                }
            }
        }
    }
}

/// Renders the switch in front of a tool's row, or else its state.
pub(super) fn state_cell(owner: &ToolOwner, tool: &ServerItem, may_act: bool) -> Markup {
    let switch = ConfigSwitch::of_tool(owner, tool).filter(|_| may_act);
    html! {
        span class="switch" {
            @match switch {
                Some(switch) => { (switch.draw()) }
                None if tool.state == ItemState::Off && tool.is_locked() => {
                    (draw_lock()) span { "off" } }
                // Its line says the rest.
                None if tool.state == ItemState::LeftOut => {
                    (StateIcon::of_tool(tool.state).draw()) }
                None => {
                    (StateIcon::of_tool(tool.state).draw()) span {
                        (if tool.state == ItemState::On { "on" } else { "off" }) } }
            }
        }
    }
}

/// Renders the line of a tool. `server` names the server where the tools of several are listed.
pub(super) fn tool_line(tool: &ServerItem, server: Option<&str>) -> Markup {
    let first_line = tool
        .description
        .as_deref()
        .and_then(|text| text.lines().next())
        .unwrap_or_default();
    html! {
        code { (VisibleText(&tool.name)) }
        span class="d" {
            @if let Some(server) = server { span class="tag" { (VisibleText(server)) } " " }
            @if tool.state == ItemState::Hidden { span class="tag" { "hidden" } " " }
            @if tool.state == ItemState::LeftOut {
                span class="orange" {
                    "left out: " (VisibleText(tool.reason.as_deref().unwrap_or_default())) } }
            @else if tool.is_locked() { (rule_text(tool)) }
            @else { (VisibleText(first_line)) }
        }
        (claim(tool.hints()))
        span class="n" { (estimate(tool.tokens)) span class="unseen" { " tokens" } }
        span class="n calls" {
            @if tool.calls > 0 { (count(tool.calls, "call", "calls")) }
            @if tool.errors > 0 { span class="red" { ", " (tool.errors) " failed" } }
        }
    }
}

/// Renders what an open row shows.
pub(super) fn tool_details(owner: &ToolOwner, tool: &ServerItem, may_act: bool) -> Markup {
    html! {
        div class="more" {
            @if let Some(title) = tool.title.as_deref().filter(|title| !title.is_empty()) {
                p { b { (VisibleText(title)) } } }
            p class="prose" { (VisibleText(tool.description.as_deref().unwrap_or_default())) }
            // A tool that is off has no exposed name. It would get the expected one.
            @let exposed = tool.exposed.as_ref().or(tool.expected.as_ref()).map(String::as_str).unwrap_or_default();
            p class="acts" {
                a class="btn" href=(format!("/try/{}/{}", segment(&tool.server),
                    segment(&tool.name))) { "Try it" }
                a class="btn" href=(explain::link(None, "", exposed)) { "Explain" }
            }
            (details(tool))
            @if may_act && owner.source.editable && tool.is_locked() {
                (exception_button(owner, tool)) }
            (argument_table(tool))
            (schema("Input schema", tool.input_schema.as_ref()))
            (schema("Output schema", tool.output_schema.as_ref()))
        }
    }
}

/// Renders the short form of what the server says the tool does.
fn claim(hints: ToolHints) -> Markup {
    let (label, class) = match (hints.read_only, hints.destructive) {
        (Some(true), _) => ("read", "badge"),
        (_, Some(true)) => ("destructive", "badge red"),
        (Some(false), _) | (_, Some(false)) => ("write", "badge"),
        (None, None) => ("", "badge none"),
    };
    html! { span class=(class) { (label) } }
}

/// Renders the button that lets one tool through a pattern. The pattern stays.
fn exception_button(owner: &ToolOwner, tool: &ServerItem) -> Markup {
    let name = &tool.name;
    let pattern = tool
        .rule
        .as_ref()
        .and_then(|rule| rule.pattern.as_deref())
        .unwrap_or_default();
    let question = format!(
        "Switch on {name} although {pattern} switches it off? Moongate adds the exception \
         !{name} after the pattern."
    );
    ConfigButton {
        label: "Add an exception",
        method: "PATCH",
        url: server_url(&owner.name),
        body: Some(tools_body(SwitchTarget::On, vec![name.clone()])),
        done: format!("{name} is switched on."),
        confirm: Some((question, "Add exception")),
    }
    .draw()
}

fn details(tool: &ServerItem) -> Markup {
    let hints = tool.hints();
    let claims = [
        (hints.read_only, "read-only", "changes things"),
        (hints.destructive, "destructive", "not destructive"),
        (hints.idempotent, "idempotent", "not idempotent"),
        (
            hints.open_world,
            "reaches other systems",
            "reaches no other system",
        ),
    ];
    let claims: Vec<&str> = claims
        .into_iter()
        .filter_map(|(hint, yes, no)| Some(if hint? { yes } else { no }))
        .collect();
    let exposed = tool.exposed.as_deref().unwrap_or_default();
    let reason = tool.reason.as_deref().unwrap_or_default();
    html! {
        dl {
            @if !exposed.is_empty() { dt { "Name for clients" }
                dd { code { (VisibleText(exposed)) } " " (copy_button("the name")) } }
            @if tool.state == ItemState::Off { dt { "State" }
                dd { @if tool.rule.is_none() { "off" } @else { (rule_text(tool)) } } }
            @if tool.state == ItemState::Hidden { dt { "State" } dd { "callable, but not listed \
                (tools.hide)" } }
            @if !reason.is_empty() { dt { "Left out" } dd { (VisibleText(reason)) } }
            @if !claims.is_empty() { dt { "The server says" }
                dd { (claims.join(", ")) ". This is a claim, not a guarantee." } }
            @if tool.calls > 0 {
                dt { "Since start" }
                dd {
                    (count(tool.calls, "call", "calls")) ", " (tool.errors) " failed"
                    @if let Some(p95) = tool.p95_ms { ", p95 " (duration(p95)) }
                }
            }
        }
    }
}

fn argument_table(tool: &ServerItem) -> Markup {
    let schema = tool
        .input_schema
        .as_ref()
        .and_then(|schema| RawJson::from_value(schema).as_object())
        .unwrap_or_default();
    let FieldKind::Object { fields, .. } = read_form(&schema).kind else {
        return html! {};
    };
    html! {
        @if !fields.is_empty() {
            div class="wide" tabindex="0" role="region" aria-label="Arguments" {
                table {
                    thead { tr { th scope="col" { "Argument" } th scope="col" { "Type" }
                        th scope="col" { "Description" } } }
                    tbody {
                        @for field in &fields {
                            tr {
                                td { code { (VisibleText(&field.name)) }
                                    @if field.required { " required" } }
                                td { (VisibleText(&type_words(field))) }
                                td class="prose" {
                                    (VisibleText(field.description.as_deref().unwrap_or_default())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names the type of an argument, with its bounds and its default.
fn type_words(field: &FormField) -> String {
    let mut words = match &field.kind {
        FieldKind::Choice(choices) => {
            let titles: Vec<&str> = choices
                .iter()
                .take(CHOICES_MAX)
                .map(|choice| choice.title.as_str())
                .collect();
            format!(
                "{}{}",
                titles.join(" or "),
                if choices.len() > titles.len() {
                    " or …"
                } else {
                    ""
                }
            )
        }
        FieldKind::List(item) => format!("array of {}", item.type_name()),
        _ => field.type_name().to_owned(),
    };
    let FieldLimits {
        least,
        most,
        above,
        below,
    } = field.limits;
    for (sign, limit) in [("≥", least), ("≤", most), (">", above), ("<", below)] {
        words.extend(limit.map(|limit| format!(" {sign} {limit}")));
    }
    words.extend(field.nullable.then_some(", or null"));
    words.extend(
        field
            .default
            .as_ref()
            .map(|default| format!(", default {default:?}")),
    );
    words.chars().take(TYPE_MAX).collect()
}

/// Renders a schema, closed at first.
pub(super) fn schema(label: &str, schema: Option<&impl Serialize>) -> Markup {
    let Some(schema) = schema else {
        return html! {};
    };
    let mut text = serde_json::to_string_pretty(schema).unwrap_or_default();
    if text.len() > SCHEMA_MAX {
        let end = (0..=SCHEMA_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or_default();
        text.truncate(end);
        text.push_str("\n…");
    }
    html! {
        details class="schema" {
            summary { (label) }
            pre tabindex="0" aria-label=(label) { (VisibleText(&text)) }
        }
    }
}
