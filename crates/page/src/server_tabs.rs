//! Tabs of an open server card (its tools, resources, prompts, settings and log), and its foot.
//!
//! Owns the tabs, and the actions at the foot. Does not render the card's head (`servers.rs`), the
//! settings (`settings_tab.rs`) or a tool's row (`tool_row.rs`). Invariant: server text is never
//! treated as markup.

use maud::{Markup, html};
use moongate_api::{
    EffectiveSettings, ItemState, ServerItem, ServerItems, ServerStatus, ShownEntry,
};

use super::buttons::{ConfigButton, post_button};
use super::config_location::entry_location;
use super::copy::copy_button;
use super::icons::StateIcon;
use super::server_login;
use super::settings_tab;
use super::switch::{SwitchTarget, server_url, tools_body};
use super::text::{VisibleText, count, duration, estimate};
use super::tool_row::{ToolRow, schema};
use super::view_query::{ViewQuery, segment};

/// Content of an open card.
#[derive(Default)]
pub struct OpenServer {
    /// Items. `None` for a server that is off.
    pub items: Option<ServerItems>,
    /// Entry in the config, if a file has it.
    pub entry: Option<ShownEntry>,
    /// Values of its settings that hold now, defaults included.
    pub effective: Option<EffectiveSettings>,
}

/// Renders the tabs of a server and the open one.
pub(super) fn render(
    server: &ServerStatus,
    open: &OpenServer,
    query: &ViewQuery,
    may_act: bool,
) -> Markup {
    let none = ServerItems::default();
    let items = open.items.as_ref().unwrap_or(&none);
    let path = format!("/servers/{}", segment(server.name()));
    let tabs = [
        ("tools", "Tools", Some(items.tools.len())),
        (
            "resources",
            "Resources",
            Some(items.resources.len() + items.templates.len()),
        ),
        ("prompts", "Prompts", Some(items.prompts.len())),
        ("settings", "Settings", None),
        ("log", "Log", None),
    ];
    let shown = query.get("tab").unwrap_or("tools");
    let keep = query.only(&["state", "sort"]);
    html! {
        div class="body" {
            div class="tabs" role="navigation" aria-label=(format!("Parts of {}", server.name())) {
                @for (tab, label, number) in tabs {
                    @let wanted = Some(tab).filter(|tab| *tab != "tools");
                    a href=(keep.with("tab",
                        wanted).link(&path)) aria-current=[(tab == shown).then_some("true")] {
                        (label) @if let Some(number) = number { " " (number) }
                    }
                }
            }
            @match shown {
                "resources" => { (resource_list(items)) }
                "prompts" => { (prompt_list(&items.prompts)) }
                "settings" => {
                    (settings_tab::render(server, open.entry.as_ref(), open.effective.as_ref(),
                        may_act)) }
                "log" => { (log(server)) }
                _ => { (tools(server, &items.tools, query, may_act)) }
            }
            @if may_act { (actions(server, open)) }
        }
    }
}

fn actions(server: &ServerStatus, open: &OpenServer) -> Markup {
    let name = server.name();
    let url = server_url(name);
    let from = server
        .source
        .file
        .as_deref()
        .unwrap_or_default()
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or_default();
    html! {
        div class="foot" {
            @if open.items.is_some() {
                (post_button("Refresh", &format!("{url}/refresh"),
                    "Lists refreshed.", Some("r")))
                (post_button("Restart", &format!("{url}/restart"),
                    "The server was restarted.", None))
            }
            (server_login::sign_out(server))
            @if let Some(entry) = &open.entry {
                pre hidden { (VisibleText(&entry.toml)) }
                button type="button" class="btn js-only" data-copy { "Copy as TOML" }
            }
            span class="soft grow entry" {
                @if from.is_empty() {
                    (VisibleText(server.source.why_not.as_deref().unwrap_or_default())) }
                @else {
                    "servers." (VisibleText(name)) (entry_location(&server.source))
                    @if !server.source.editable {
                        " · " (VisibleText(server.source.why_not.as_deref().unwrap_or_default())) }
                }
            }
            @if server.source.editable {
                (ConfigButton {
                    label: "Remove…",
                    method: "DELETE",
                    url: url.clone(),
                    body: None,
                    done: format!("{name} was removed."),
                    confirm: Some((format!("Remove {name}? Its entry is deleted from {from}, and \
                        its running calls end."), "Remove server")),
                }.draw())
            }
        }
    }
}

/// Renders the buttons that switch several tools in one edit.
fn bulk_buttons(server: &ServerStatus, all: &[ServerItem]) -> Markup {
    let name = server.name();
    let on = unlocked_tools(all, ItemState::On);
    let off = unlocked_tools(all, ItemState::Off);
    let writing: Vec<&ServerItem> = on
        .iter()
        .copied()
        .filter(|tool| tool.hints().read_only != Some(true))
        .collect();
    html! {
        span class="grow" {}
        @if !off.is_empty() { (switch_button(name, "All on", SwitchTarget::On, &off)) }
        @if !on.is_empty() { (switch_button(name, "All off", SwitchTarget::Off, &on)) }
        @if !writing.is_empty() && writing.len() < on.len() {
            (switch_button(name, "Keep only read-only", SwitchTarget::Off, &writing)) }
    }
}

/// Returns the tools in a state that a switch can change.
fn unlocked_tools(all: &[ServerItem], state: ItemState) -> Vec<&ServerItem> {
    all.iter()
        .filter(|tool| tool.state == state && !tool.is_locked())
        .collect()
}

/// Renders the button that switches these tools of a server.
fn switch_button(server: &str, label: &str, to: SwitchTarget, tools: &[&ServerItem]) -> Markup {
    let what = count(tools.len() as u64, "tool is", "tools are");
    let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    ConfigButton {
        label,
        method: "PATCH",
        url: server_url(server),
        body: Some(tools_body(to, names)),
        done: format!("{what} switched {}.", to.name()),
        confirm: None,
    }
    .draw()
}

fn tools(server: &ServerStatus, all: &[ServerItem], query: &ViewQuery, may_act: bool) -> Markup {
    let path = format!("/servers/{}", segment(server.name()));
    let wanted = query.get("q").unwrap_or_default().to_lowercase();
    let fitting = all.iter().filter(|tool| has_text(tool, &wanted)).count();
    let on = all
        .iter()
        .filter(|tool| tool.state == ItemState::On)
        .count();
    let label = "Filter tools";
    let owner = server.owner();
    html! {
        form class="filter" method="get" action=(path) role="search" data-live-filter {
            @for (key, value) in query.only(&["state", "sort"]).pairs() {
                input type="hidden" name=(key) value=(value); }
            input class="in" type="search" name="q" value=[query.get("q")] placeholder=(label) aria-label=(label) data-search;
            noscript { button class="btn" { "Filter" } }
            span class="soft" {
                "on " (on) @if on < all.len() { " · not listed " (all.len() - on) } }
            @if may_act && server.source.editable { (bulk_buttons(server, all)) }
        }
        @if all.is_empty() { p class="empty" { "This server offers no tools, or its list has not \
            been fetched yet." } }
        // All of them: a script lets others through when the text changes.
        ul class="rows" {
            @for tool in all {
                @let is_open = query.get("tool") == Some(tool.name.as_str());
                @let is_hidden = !has_text(tool, &wanted);
                (ToolRow { owner: &owner, tool, is_open, is_hidden, may_act }.draw())
            }
        }
        p class="empty" data-none hidden[fitting > 0 || all.is_empty()] {
            "No tools match. " a href=(path) { "Show all" } }
        (item_notes(&format!("excluded-{}", server.name()), "left out", &server.findings.left_out))
        (item_notes(&format!("mended-{}", server.name()), "mended", &server.findings.mended))
    }
}

/// Returns true if a text of a tool contains this one, which is in lower case.
fn has_text(tool: &ServerItem, wanted: &str) -> bool {
    let texts = [
        Some(&tool.name),
        tool.description.as_ref(),
        tool.title.as_ref(),
    ];
    wanted.is_empty()
        || texts
            .into_iter()
            .flatten()
            .any(|text| text.to_lowercase().contains(wanted))
}

/// Renders what became of items of a server, folded.
fn item_notes(id: &str, what: &str, reasons: &[String]) -> Markup {
    html! {
        @if !reasons.is_empty() {
            details class="note" id=(id) {
                summary {
                    (StateIcon::of_tool(ItemState::LeftOut).draw()) (count(reasons.len() as u64,
                        "item is", "items are")) " " (what)
                }
                ul { @for reason in reasons { li { (VisibleText(reason)) } } }
            }
        }
    }
}

fn resource_list(items: &ServerItems) -> Markup {
    let both = items.resources.iter().chain(&items.templates);
    html! {
        @if both.clone().next().is_none() { p class="empty" { "This server offers no resources." } }
        @else {
            div class="wide" tabindex="0" role="region" aria-label="Resources" {
                table {
                    thead { tr { th scope="col" { "URI" } th scope="col" { "Title" }
                        th scope="col" { "Description" } th scope="col" { "Cost" } } }
                    tbody {
                        @for item in both {
                            tr {
                                td { code { (VisibleText(&item.name)) } }
                                td { (VisibleText(item.title.as_deref().unwrap_or_default())) }
                                td class="prose" {
                                    (VisibleText(item.description.as_deref().unwrap_or_default())) }
                                td class="n" { (estimate(item.tokens)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn prompt_list(prompts: &[ServerItem]) -> Markup {
    html! {
        @if prompts.is_empty() { p class="empty" { "This server offers no prompts." } }
        ul class="rows" {
            @for prompt in prompts {
                li {
                    details id=(format!("prompt-{}", segment(&prompt.name))) {
                        summary class="tool" data-row {
                            (StateIcon::of_tool(prompt.state).draw())
                            code { (VisibleText(&prompt.name)) }
                            span class="d" {
                                (VisibleText(prompt.description.as_deref().unwrap_or_default())) }
                            span class="n" { (count(prompt.calls, "call", "calls")) }
                        }
                        div class="more" {
                            @if let Some(p95) = prompt.p95_ms { p { "p95 " (duration(p95)) } }
                            (schema("Arguments", prompt.arguments.as_ref()))
                        }
                    }
                }
            }
        }
    }
}

fn log(server: &ServerStatus) -> Markup {
    let lines = &server.condition.stderr;
    html! {
        @if lines.is_empty() {
            p class="empty" {
                @if server.identity.transport.as_deref() == Some("stdio") { "This server has \
                    written nothing to stderr." }
                @else { "Only servers that run as programs have a log." }
            }
        } @else {
            div class="code log" {
                pre tabindex="0" aria-label="Last lines of stderr" {
                    @for line in lines { (VisibleText(line)) "\n" }
                }
                (copy_button("the log"))
            }
        }
    }
}
