//! View of the tools of an endpoint: by server, or ranked for a query.
//!
//! Owns groups and rows. Does not find or rank tools (`admin/tool_catalog.rs`, which asks the
//! gateway) or render a tool's details (`tool_row.rs`). Invariant: one page has a bounded number of
//! rows, however many tools there are.

use maud::{Markup, html};
use moongate_api::{FoundTools, ItemState, ServerItem, ServerTools, ToolOwner};

use super::copy::{code_block, copy_button};
use super::endpoint_choice::EndpointChoice;
use super::text::{VisibleText, count, duration, estimate};
use super::tool_row::{state_cell, tool_details, tool_line};
use super::view_query::{ViewQuery, segment};

/// Rows from which servers are closed at first.
const ROWS_MAX: usize = 200;
/// Tools that a query shows at first.
const FOUND_SHOWN: usize = 50;

/// Tools that a view shows.
pub enum ToolRows {
    /// All tools, by server.
    All(Vec<ServerTools>),
    /// Tools that fit the query.
    Found(FoundTools),
}

/// Tools of one endpoint, and what the URL says.
pub struct ToolsView<'a> {
    /// Endpoint of the URL.
    pub endpoint: &'a EndpointChoice,
    /// Address of the endpoint. Empty if no URL leads to it.
    pub url: String,
    /// Tools that are shown.
    pub rows: ToolRows,
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// Open tool, with its schemas.
    pub open: Option<ServerItem>,
    /// True if the reader may act.
    pub may_act: bool,
    /// Text that a model would get for the query, if the URL asks for it.
    pub model_answer: Option<String>,
}

/// Returns the number of found tools that a URL asks for.
pub fn shown_rows(query: &ViewQuery) -> usize {
    if query.get("rows") == Some("all") {
        usize::MAX
    } else {
        FOUND_SHOWN
    }
}

/// Returns server and tool of the open row.
pub fn open_tool(query: &ViewQuery) -> Option<(&str, &str)> {
    // At the first slash: names of tools may have further ones, and those of servers have none.
    query.get("open")?.split_once('/')
}

impl ToolsView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        html! {
            div class="title" {
                h1 { "Tools" }
                // The bar has the address of the endpoint over everything.
                @if !self.url.is_empty() && !self.endpoint.name().is_empty() {
                    span class="url" { code { (self.url) }
                        (copy_button("the address of the endpoint")) } }
            }
            form class="filter" method="get" action="/tools" role="search" data-auto-submit data-search-live {
                (self.endpoint.field())
                input class="in wide-in" type="search" name="q" value=[self.query.get("q")] aria-label="Search tools" data-search
                    placeholder="Search tools as a \
                                 model would" autocomplete="off" spellcheck="false";
                noscript { button class="btn" { "Search" } }
            }
            (self.list())
        }
    }

    /// Renders the rows.
    pub fn list(&self) -> Markup {
        html! {
            div id="tools" data-part=(self.query.link("/parts/tools")) data-on="list config snapshot" data-ticks="slow" {
                @if !self.endpoint.is_there { (self.endpoint.missing()) }
                @else {
                    @match &self.rows {
                        ToolRows::All(servers) => { (self.all(servers)) }
                        ToolRows::Found(found) => { (self.found(found)) }
                    }
                }
            }
        }
    }

    fn all(&self, servers: &[ServerTools]) -> Markup {
        let total: usize = servers.iter().map(|server| server.tools.len()).sum();
        let listed: usize = servers.iter().map(count_listed).sum();
        let listing = servers
            .iter()
            .filter(|server| count_listed(server) > 0)
            .count();
        let chosen = self.query.get("server");
        html! {
            @if total == 0 { p class="empty" { "No server behind this endpoint offers tools." } }
            @else {
                p class="soft" {
                    code { (VisibleText(self.endpoint.path())) }
                    " lists " (count(listed as u64, "tool", "tools"))
                    " from " (count(listing as u64, "server", "servers")) ", "
                    (estimate(servers.iter().map(listed_tokens).sum())) " tokens."
                }
            }
            @for server in servers.iter().filter(|server| !server.tools.is_empty()) {
                // Thousands of rows would make each redraw slow, so then one server is open at a
                // time.
                @let is_open = total <= ROWS_MAX || chosen == Some(server.owner.name.as_str());
                @let other = (!is_open).then_some(server.owner.name.as_str());
                section class="panel group" id=(format!("tools-{}", server.owner.name.as_str())) {
                    div class="grouphead" {
                        h2 { a href=(format!("/servers/{}", segment(server.owner.name.as_str()))) {
                            (VisibleText(server.owner.title())) } }
                        span class="soft grow" {
                            @let on = count_listed(server);
                            @if on < server.tools.len() { (on) " of " }
                            (count(server.tools.len() as u64, "tool",
                                "tools")) " · " (estimate(listed_tokens(server))) " tokens"
                        }
                        @if total > ROWS_MAX {
                            @let query = self.query.with("server", other).with("open", None);
                            a href=(query.link("/tools")) aria-expanded=(is_open.to_string()) data-row {
                                @if is_open { "Close" } @else { "Open" }
                                span class="unseen" { " " (VisibleText(server.owner.title())) }
                            }
                        }
                    }
                    @if is_open {
                        ul class="rows" {
                            @for tool in &server.tools { (self.row(&server.owner, tool, false)) } }
                    }
                }
            }
        }
    }

    fn found(&self, found: &FoundTools) -> Markup {
        let shown = found.listed.len();
        html! {
            p class="soft" role="status" {
                @if found.total == 0 { "No listed tool matches." }
                @else { (count(found.total as u64, "tool matches", "tools match")) ", best first: \
                    this is what search mode would find." }
                " " a href=(self.query.with("model",
                    self.model_answer.is_none().then_some("1")).link("/tools")) aria-expanded=(self.model_answer.is_some().to_string()) {
                    "What would the model see?"
                }
            }
            @if let Some(answer) = &self.model_answer {
                section class="panel model" aria-label="What the model sees" {
                    h2 { "Answer of " code { "search_tools" } " for this query" }
                    (code_block(answer, "the answer"))
                }
            }
            @if shown > 0 {
                div class="panel" {
                    ul class="rows" {
                        @for (server, tool) in &found.listed { (self.row(server, tool, true)) } } }
            }
            @if shown < found.total {
                p { "The best " (shown) " are shown. " a href=(self.query.with("rows",
                    Some("all")).link("/tools")) { "Show all" } }
            }
            @if !found.unlisted.is_empty() {
                h2 { "Not listed for clients" }
                div class="panel" {
                    ul class="rows" {
                        @for (server, tool) in &found.unlisted {
                            (self.row(server, tool, true)) } } }
            }
            @if found.total == 0 && found.unlisted.is_empty() {
                p class="empty" {
                    a href=(self.query.with("q", None).link("/tools")) { "Show all tools" } }
            }
        }
    }

    fn row(&self, owner: &ToolOwner, tool: &ServerItem, with_server: bool) -> Markup {
        let server_name = owner.name.as_str();
        let name = tool.name.as_str();
        let is_open = open_tool(self.query) == Some((server_name, name));
        let open = format!("{server_name}/{name}");
        let href = self
            .query
            .with("open", (!is_open).then_some(&open))
            .link("/tools");
        let details = self.open.as_ref().filter(|_| is_open).unwrap_or(tool);
        html! {
            li class="toolrow" id=(format!("row-{}-{}", segment(server_name), segment(name))) {
                (state_cell(owner, tool, self.may_act))
                div {
                    a class="tool" href=(href) aria-expanded=(is_open.to_string()) data-row {
                        (tool_line(tool, with_server.then_some(server_name)))
                        span class="n p95" {
                            @if let Some(p95) = tool.p95_ms { "p95 " (duration(p95)) } }
                    }
                    @if is_open { (tool_details(owner, details, self.may_act)) }
                }
            }
        }
    }
}

fn listed_tools(server: &ServerTools) -> impl Iterator<Item = &ServerItem> {
    server
        .tools
        .iter()
        .filter(|tool| tool.state == ItemState::On)
}

fn count_listed(server: &ServerTools) -> usize {
    listed_tools(server).count()
}

fn listed_tokens(server: &ServerTools) -> u64 {
    listed_tools(server).map(|tool| tool.tokens).sum()
}
