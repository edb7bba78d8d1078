//! View of the context: what the listed tools cost in every conversation.
//!
//! Owns the bars and warnings. Does not add up costs (`admin/endpoint_cost.rs`). Invariant: each
//! bar has its number next to it.

use maud::{Markup, html};

use super::buttons::ConfigButton;
use super::endpoint_choice::EndpointChoice;
use super::switch::{SwitchTarget, server_url, tools_body};
use super::text::{VisibleText, count, estimate, grouped};
use super::view_query::{ViewQuery, segment};
use moongate_api::{ServerCost, ToolOwner};

/// Numbers of tools from which clients have trouble.
const TOOL_LIMITS: [(u64, &str); 3] = [
    (
        128,
        "VS Code does not send requests with more than 128 tools",
    ),
    (100, "Windsurf takes at most 100 tools"),
    (40, "Cursor recommends staying below 40 tools"),
];
/// Numbers of tools that the scale marks, with the client that minds.
const MARKS: [(u64, &str); 2] = [
    (40, "40 (recommended by Cursor)"),
    (128, "128 (VS Code's limit)"),
];
/// Tokens of a search with five hits, by the encoding o200k_base.
const HIT_TOKENS: u64 = 260;
/// Tokens from which the definitions are a noticeable part of a conversation.
const TOKENS_MUCH: u64 = 10_000;

/// Cost of a server's tools, with the location of its entry.
pub struct OwnedCost {
    /// Server with its entry.
    pub owner: ToolOwner,
    /// Cost of its listed tools.
    pub cost: ServerCost,
}

/// List that clients get in search mode.
#[derive(Clone, Copy)]
pub struct SearchCost {
    /// True if they get it. False if the endpoint has full lists, and this is what it could have
    /// instead.
    pub is_listed: bool,
    /// Number of its tools.
    pub tools: usize,
    /// Estimated tokens of their definitions.
    pub tokens: u64,
}

/// Cost of one endpoint.
pub struct ContextView<'a> {
    /// Servers, the most expensive first.
    pub costs: Vec<OwnedCost>,
    /// Endpoint of the URL.
    pub endpoint: &'a EndpointChoice,
    /// List that clients get in search mode, or would get. `None`: the endpoint has full lists
    /// always.
    pub search: Option<SearchCost>,
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// True if the reader may act.
    pub may_act: bool,
}

/// Renders the whole view.
pub fn page(view: &ContextView<'_>) -> Markup {
    html! {
        div class="title" {
            h1 { "Context" }
            form class="inline" method="get" action="/context" data-auto-submit {
                (view.endpoint.field())
                noscript { button class="btn" { "Show" } }
            }
        }
        (table(view))
    }
}

/// Renders the cost of each server and tool.
pub fn table(view: &ContextView<'_>) -> Markup {
    let costs = view.costs.iter().map(|owned| &owned.cost);
    let tokens: u64 = costs.clone().map(|cost| cost.tokens).sum();
    let tools: u64 = costs.clone().map(|cost| cost.tools.len() as u64).sum();
    let most = costs.clone().map(|cost| cost.tokens).max();
    let most = most.unwrap_or_default();
    let used: u64 = costs.map(ServerCost::called_tokens).sum();
    let search = view.search.filter(|list| list.is_listed);
    let listed = search.map_or(tools, |list| list.tools as u64);
    let now = search.map_or(tokens, |list| list.tokens);
    html! {
        div id="context" data-part=(view.query.link("/parts/context")) data-on="servers snapshot" {
            @if !view.endpoint.is_there { (view.endpoint.missing()) }
            p class="lead" {
                code { (VisibleText(view.endpoint.path())) }
                @if search.is_some() { " is in search mode. It" }
                " lists " (count(listed, "tool", "tools")) ": " b { (estimate(now)) " tokens" }
                " in every conversation."
                @if search.is_some() { " A search covers " (count(tools, "tool", "tools")) "." }
            }
            @if let Some((_, warning)) = TOOL_LIMITS.iter().find(|(limit, _)| listed > *limit) {
                p class="banner orange" { (warning) ". Use a view to list fewer." }
            }
            @if now > TOKENS_MUCH {
                p class="banner orange" { "More than " (grouped(TOKENS_MUCH)) " tokens: models \
                    choose tools less reliably, and each request costs more." }
            }
            @if tools > 0 { (tool_scale(listed)) (what_it_would_be((tokens, used), view.search)) }
            div class="wide panel" tabindex="0" role="region" aria-label="Cost of each server" {
                table class="cost" {
                    thead { tr { th scope="col" { "Server" }
                        th scope="col" class="barcell" { "Share" } th scope="col" { "Tokens" }
                        th scope="col" { "Tools" } th scope="col" { "Calls" } } }
                    tbody { @for owned in &view.costs { (server_row(owned, most)) } }
                }
            }
            @for owned in view.costs.iter().filter(|owned| !owned.cost.tools.is_empty()) {
                (tool_table(owned, view.may_act)) }
            p class="soft" { "Estimate: 4.25 bytes of a definition count as one token. Calls are \
                counted since the gateway started." }
        }
    }
}

fn server_row(owned: &OwnedCost, most: u64) -> Markup {
    let OwnedCost { owner, cost } = owned;
    let calls = cost.calls;
    html! {
        tr {
            th scope="row" {
                a href=(format!("/servers/{}", segment(&owner.name))) {
                    (VisibleText(owner.title())) } }
            td class="barcell" { (bar(cost.tokens, most)) }
            td class="n" { (estimate(cost.tokens)) }
            td class="n" { (cost.tools.len()) }
            td class="n" { @if calls > 0 { (grouped(calls)) } @else { "none" } }
        }
    }
}

/// Renders where the number of tools is among the numbers that clients mind.
fn tool_scale(tools: u64) -> Markup {
    let most = tools.max(140);
    html! {
        svg class="scale" viewBox="0 0 600 14" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect width="600" height="14" rx="3" fill="currentColor" opacity=".15" {}
            rect width=(scale_position(tools, most)) height="14" rx="3" fill="currentColor" {}
            @for (number, _) in MARKS {
                rect class="mark" x=(scale_position(number, most)) width="2" height="14" {} }
        }
        p class="soft" {
            (count(tools, "tool", "tools")) " listed; the marks show "
            @for (n, (_, words)) in MARKS.iter().enumerate() { @if n > 0 { " and " } (words) } "."
        }
    }
}

/// Returns the position of a number on a scale that is 600 wide.
fn scale_position(number: u64, most: u64) -> u64 {
    (number * 600).checked_div(most).unwrap_or_default()
}

/// Renders the cost of each way to list the tools: all of them, those that were called, and search
/// mode.
fn what_it_would_be((tokens, used): (u64, u64), search: Option<SearchCost>) -> Markup {
    let searched = html! { span class="soft" { " (+ ≈ " (HIT_TOKENS) " per search)" } };
    html! {
        div class="panel would" {
            h2 { "What each option costs" }
            dl {
                @if let Some(list) = search.filter(|list| list.is_listed) {
                    dt { "Now, in search mode" } dd { b { (estimate(list.tokens)) } (searched) }
                    dt { "Full lists" }
                    dd { b { (estimate(tokens)) }
                        span class="soft" { " with " code { "discovery = \"full\"" } } }
                } @else { dt { "Now" } dd { b { (estimate(tokens)) } } }
                dt { "Only tools that were \
                      called" } dd { b { (estimate(used)) } span class="soft" { " since the gateway started" } }
                @if let Some(list) = search.filter(|list| !list.is_listed) {
                    dt { "Search mode" }
                    dd { b { (estimate(list.tokens)) }
                        (searched) span class="soft" {
                            " with " code { "discovery = \"search\"" } } }
                }
            }
        }
    }
}

/// Renders the button that switches off the tools that nobody called.
fn idle_button(owned: &OwnedCost) -> Markup {
    let OwnedCost { owner, cost } = owned;
    let name = &owner.name;
    let idle: Vec<String> = cost
        .tools
        .iter()
        .filter(|tool| tool.calls == 0)
        .map(|tool| tool.name.clone())
        .collect();
    let what = count(idle.len() as u64, "tool", "tools");
    html! {
        // With all of them off the server would have nothing left.
        @if owner.source.editable && !idle.is_empty() && idle.len() < cost.tools.len() {
            (ConfigButton {
                label: "Switch off unused tools",
                method: "PATCH",
                url: server_url(name),
                body: Some(tools_body(SwitchTarget::Off, idle)),
                done: format!("Switched off {what} of {name}."),
                confirm: Some((format!("Switch off {what} of {name} that nobody has called since \
                    the gateway started? Clients will no longer see them."), "Switch off")),
            }.draw())
        }
    }
}

fn tool_table(owned: &OwnedCost, may_act: bool) -> Markup {
    let OwnedCost { owner, cost } = owned;
    let most = cost.tools.first().map_or(0, |tool| tool.tokens);
    let idle = cost.tools.iter().filter(|tool| tool.calls == 0).count();
    html! {
        details class="panel" id=(format!("cost-{}", owner.name)) {
            summary data-row {
                b { (VisibleText(owner.title())) } " by tool"
                @if idle > 0 {
                    span class="soft" {
                        " · " (count(idle as u64, "tool", "tools")) " not called" } }
            }
            @if may_act { (idle_button(owned)) }
            div class="wide" tabindex="0" role="region" aria-label=(format!("Cost of each tool of \
                {}", owner.name)) {
                table class="cost" {
                    thead { tr { th scope="col" { "Tool" }
                        th scope="col" class="barcell" { "Share" } th scope="col" { "Tokens" }
                        th scope="col" { "Calls" } } }
                    tbody {
                        @for tool in &cost.tools {
                            tr {
                                th scope="row" { code { (VisibleText(&tool.name)) } }
                                td class="barcell" { (bar(tool.tokens, most)) }
                                td class="n" { (estimate(tool.tokens)) }
                                td class="n" { @if tool.calls > 0 { (tool.calls) }
                                    @else { "none" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Draws a bar. The number is next to it.
fn bar(part: u64, most: u64) -> Markup {
    let width = (part * 200).checked_div(most).unwrap_or_default();
    html! {
        svg class="bar" viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect width=(width) height="10" rx="2" fill="currentColor" {}
        }
    }
}
