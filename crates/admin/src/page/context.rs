//! View of the context: what the listed tools cost in every conversation.
//!
//! Owns bars and warnings. Does not sum up (`crate::context`). Invariant: each bar has its number beside it.

use maud::{Markup, html};

use super::endpoint_choice::EndpointChoice;
use super::facts::{number, text, title};
use super::text::{VisibleText, count, estimate, grouped};
use super::view_query::{ViewQuery, segment};
pub(super) use crate::context::ServerCost;

/// Numbers of tools from which clients have trouble.
const TOOL_LIMITS: [(u64, &str); 3] = [
    (128, "VS Code sends no request with more than 128 tools"),
    (100, "Windsurf takes 100 tools at most"),
    (40, "Cursor advises to keep below 40 tools"),
];
/// Tokens from which the definitions are a noticeable part of a conversation.
const TOKENS_MUCH: u64 = 10_000;

/// Cost of one endpoint.
pub(super) struct ContextView<'a> {
    pub(super) costs: Vec<ServerCost<'a>>,
    pub(super) endpoint: &'a EndpointChoice,
    pub(super) query: &'a ViewQuery,
}

/// Renders the whole view.
pub(super) fn page(view: &mut ContextView<'_>) -> Markup {
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
pub(super) fn table(view: &mut ContextView<'_>) -> Markup {
    view.costs.sort_by_key(|cost| std::cmp::Reverse(cost.tokens));
    let costs = &view.costs;
    let tokens: u64 = costs.iter().map(|cost| cost.tokens).sum();
    let tools: u64 = costs.iter().map(|cost| cost.tools.len() as u64).sum();
    let most = costs.first().map_or(0, |cost| cost.tokens);
    let used: u64 = costs.iter().map(ServerCost::called_tokens).sum();
    html! {
        div id="context" data-part=(view.query.link("/parts/context")) data-on="servers snapshot" {
            @if view.endpoint.coverage.is_none() { (view.endpoint.missing()) }
            p class="lead" {
                code { (VisibleText(&view.endpoint.path())) } " lists " (count(tools, "tool", "tools")) ": " b { (estimate(tokens)) " tokens" } " in every conversation."
            }
            @if let Some((_, warning)) = TOOL_LIMITS.iter().find(|(limit, _)| tools > *limit) {
                p class="banner orange" { (warning) ". A view can list fewer." }
            }
            @if tokens > TOKENS_MUCH {
                p class="banner orange" { "More than " (grouped(TOKENS_MUCH)) " tokens: models choose tools worse, and each request costs more." }
            }
            @if tokens > 0 { p class="soft" { "Only the tools that were called since the start: " (estimate(used)) " tokens." } }
            div class="wide panel" tabindex="0" role="region" aria-label="Cost of each server" {
                table class="cost" {
                    thead { tr { th scope="col" { "Server" } th scope="col" class="barcell" { "Share" } th scope="col" { "Tokens" } th scope="col" { "Tools" } th scope="col" { "Calls" } } }
                    tbody { @for cost in costs { (server_row(cost, most)) } }
                }
            }
            @for cost in costs.iter().filter(|cost| !cost.tools.is_empty()) { (tool_table(cost)) }
            p class="soft" { "Estimate: 4.25 bytes of a definition are a token. Calls are counted since the gateway started." }
        }
    }
}

fn server_row(cost: &ServerCost<'_>, most: u64) -> Markup {
    let server = cost.server;
    let calls = cost.calls();
    html! {
        tr {
            th scope="row" { a href=(format!("/servers/{}", segment(text(server, "name")))) { (VisibleText(title(server))) } }
            td class="barcell" { (bar(cost.tokens, most)) }
            td class="n" { (estimate(cost.tokens)) }
            td class="n" { (cost.tools.len()) }
            td class="n" { @if calls > 0 { (grouped(calls)) } @else { "none" } }
        }
    }
}

fn tool_table(cost: &ServerCost<'_>) -> Markup {
    let most = cost.tools.first().map_or(0, |tool| number(tool, "tokens"));
    let idle = cost.tools.iter().filter(|tool| number(tool, "calls") == 0).count();
    html! {
        details class="panel" id=(format!("cost-{}", text(cost.server, "name"))) {
            summary data-row {
                b { (VisibleText(title(cost.server))) } " by tool"
                @if idle > 0 { span class="soft" { " · " (count(idle as u64, "tool", "tools")) " nobody called" } }
            }
            div class="wide" tabindex="0" role="region" aria-label=(format!("Cost of each tool of {}", text(cost.server, "name"))) {
                table class="cost" {
                    thead { tr { th scope="col" { "Tool" } th scope="col" class="barcell" { "Share" } th scope="col" { "Tokens" } th scope="col" { "Calls" } } }
                    tbody {
                        @for tool in &cost.tools {
                            tr {
                                th scope="row" { code { (VisibleText(text(tool, "name"))) } }
                                td class="barcell" { (bar(number(tool, "tokens"), most)) }
                                td class="n" { (estimate(number(tool, "tokens"))) }
                                td class="n" { @if number(tool, "calls") > 0 { (number(tool, "calls")) } @else { "none" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Draws a bar. The number stands beside it.
fn bar(part: u64, most: u64) -> Markup {
    let width = (part * 200).checked_div(most).unwrap_or_default();
    html! {
        svg class="bar" viewBox="0 0 200 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect width=(width) height="10" rx="2" fill="currentColor" {}
        }
    }
}
