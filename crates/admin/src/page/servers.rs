//! View of the servers: a card for each, and filters by state.
//!
//! Owns list and card. Does not show what a server offers (`server_tabs.rs`). Invariant: each state has a shape and a
//! text, so that colour is never alone.

use maud::{Markup, html};
use serde_json::Value;

use super::facts::{GROUPS, count_group, group, number, text, title};
use super::first_steps;
use super::icons::{StateIcon, draw_chevron};
use super::server_tabs::{self, OpenServer};
use super::switch::{ConfigSwitch, place};
use super::text::{VisibleText, WithCode, count, duration, estimate, seconds};
use super::unmatched_rules;
use super::view_query::{ViewQuery, segment};

/// List of servers, and what its URL says.
pub(super) struct ServersView<'a> {
    pub(super) servers: &'a [Value],
    pub(super) query: &'a ViewQuery,
    /// Server whose card is open, with its items.
    pub(super) open: Option<(&'a str, OpenServer)>,
    pub(super) may_act: bool,
    /// True if all there is is the built-in demo.
    pub(super) is_demo: bool,
}

impl ServersView<'_> {
    /// Renders the whole view.
    pub(super) fn page(&self) -> Markup {
        html! {
            div class="title" {
                h1 { "Servers" }
                span class="grow" {}
                @if self.may_act {
                    (action_button("Reload config", "POST", "/api/v1/reload", "The config was read again."))
                }
            }
            @if let Some(name) = self.missing() {
                p class="banner orange" { "There is no server “" (VisibleText(name)) "”." @if !self.servers.is_empty() { " These are there:" } }
            }
            (self.chips())
            (self.cards())
        }
    }

    /// Returns the name of the server that the URL asks for, if there is none.
    fn missing(&self) -> Option<&str> {
        let (name, _) = self.open.as_ref()?;
        self.servers.iter().all(|server| text(server, "name") != *name).then_some(*name)
    }

    /// Renders the filters by state, and the order.
    pub(super) fn chips(&self) -> Markup {
        let wanted = self.query.get("state");
        let query = self.query.only(&["state", "sort"]);
        let chip = |group: Option<&str>, label: &str, number: usize| {
            let current = (wanted == group).then_some("true");
            html! { a class="chip" href=(query.with("state", group).link("/")) aria-current=[current] { (label) " " (number) } }
        };
        let sort = |name: Option<&str>, label: &str| {
            let current = (self.query.get("sort") == name).then_some("true");
            html! { a href=(query.with("sort", name).link("/")) aria-current=[current] { (label) } }
        };
        html! {
            div id="chips" class="chips" data-part=(self.query.link("/parts/chips")) data-on="servers snapshot" {
                (chip(None, "All", self.servers.len()))
                @for (group, label) in GROUPS {
                    @let number = count_group(self.servers, group);
                    @if number > 0 || wanted == Some(group) { (chip(Some(group), label, number)) }
                }
                span class="grow" {}
                span class="sort" { "by " (sort(None, "name")) " " (sort(Some("cost"), "cost")) }
            }
        }
    }

    /// Renders the cards that the filter lets through.
    pub(super) fn cards(&self) -> Markup {
        let wanted = self.query.get("state");
        let mut shown: Vec<&Value> =
            self.servers.iter().filter(|server| wanted.is_none_or(|wanted| group(server) == wanted)).collect();
        shown.sort_by_cached_key(|server| title(server).to_lowercase());
        if self.query.get("sort") == Some("cost") {
            shown.sort_by_key(|server| std::cmp::Reverse(number(server, "tokens")));
        }
        let part = self.query.with("open", self.open.as_ref().map(|(name, _)| *name)).link("/parts/servers");
        // With a filter each change may move a card in or out.
        let on = if wanted.is_some() { "servers snapshot" } else { "list snapshot" };
        html! {
            div id="servers" data-part=(part) data-on=(on) {
                @if self.servers.is_empty() || self.is_demo { (first_steps::draw(self.servers.first(), self.may_act)) }
                @for server in &shown { (self.card(server)) }
                @if !self.servers.is_empty() && shown.is_empty() {
                    p class="empty" { "No server is in this state. " a href="/" { "Show all" } }
                }
            }
        }
    }

    /// Renders the card of one server.
    pub(super) fn card(&self, server: &Value) -> Markup {
        let name = text(server, "name");
        let open = self.open.as_ref().filter(|(open, _)| *open == name).map(|(_, items)| items);
        let path = format!("/servers/{}", segment(name));
        let part = self.query.with("open", open.map(|_| name)).link(&format!("/parts/server/{}", segment(name)));
        let toggle = if open.is_some() { "/" } else { &path };
        html! {
            article class="card" id=(format!("server-{name}")) data-part=(part) data-on={ "server:" (name) @if open.is_some() { " config" } }
                data-ticks[is_ticking(server)] {
                form id=(format!("open-{name}")) method="get" action=(toggle) {
                    @for (key, value) in self.query.only(&["state", "sort"]).pairs() { input type="hidden" name=(key) value=(value); }
                }
                div class="head" {
                    (StateIcon::of_server(text(server, "state")).draw())
                    h2 {
                        button class="name" form=(format!("open-{name}")) aria-expanded=(open.is_some().to_string()) data-row {
                            (VisibleText(title(server)))
                        }
                        (tags(server))
                    }
                    (cost(server))
                    span class="onoff" {
                        @match ConfigSwitch::of_server(server).filter(|_| self.may_act) {
                            Some(switch) => { (switch.draw()) }
                            None if group(server) == "off" => { "off" }
                            None => { "on" }
                        }
                    }
                    (draw_chevron(open.is_some()))
                    div class="why" { (self.reason(server, open.is_some())) }
                }
                @if open.is_some() { (unmatched_rules::details(server)) }
                @if let Some(items) = open { (server_tabs::render(server, items, self.query, self.may_act)) }
            }
        }
    }

    /// Renders the text beside the state, and the action that helps. An open card has the rest below.
    fn reason(&self, server: &Value, is_open: bool) -> Markup {
        let (state, color) = (text(server, "state"), StateIcon::of_server(text(server, "state")).color);
        let reason = text(server, "reason");
        let elapsed = seconds(number(server, "since_seconds"));
        let lead = match state {
            "ready" => String::new(),
            "starting" => format!("Starting, {elapsed}"),
            "needs_login" => "Sign in needed".to_owned(),
            "stopped" => "Starts on the first call".to_owned(),
            "disabled" => "Off".to_owned(),
            "degraded" => "Degraded".to_owned(),
            "backing_off" => "Not connected".to_owned(),
            "failed" => "Failed".to_owned(),
            other => other.to_owned(),
        };
        let again = server["next_attempt_seconds"].as_f64().filter(|_| state != "ready");
        let retry = matches!(state, "failed" | "backing_off") && self.may_act;
        let action = format!("/api/v1/servers/{}/restart", segment(text(server, "name")));
        html! {
            span class="state" {
                @if state == "ready" { span class="unseen" { "Ready. " } (facts(server)) }
                @else {
                    b class=(color) { (lead) }
                    @if state == "disabled" {
                        @if !server["source"].is_null() { (place(&server["source"])) }
                        @if !text(server, "target").is_empty() { " · " (VisibleText(text(server, "target"))) }
                    }
                    @else if !reason.is_empty() && state != "starting" { ": " (VisibleText(reason)) }
                    @if let Some(again) = again { " · tries again in " (seconds(again.ceil() as u64)) }
                    @if let Some(hint) = server["hint"]["text"].as_str() { br; "To fix it: " (WithCode(hint)) }
                }
                @if !server["replacement"].is_null() { " · a new one is coming up; the old one serves" }
                @if server["stale"] == true && state != "disabled" { " · lists are of an earlier connection" }
                @if !is_open { (unmatched_rules::note(server)) }
            }
            @if retry { (action_button("Retry now", "POST", &action, "It was tried again.")) }
        }
    }
}

/// True if the card shows a time that runs.
fn is_ticking(server: &Value) -> bool {
    matches!(text(server, "state"), "starting" | "backing_off")
}

fn tags(server: &Value) -> Markup {
    let beginning = text(server, "name_prefix");
    let parts = [text(server, "transport"), text(server, "revision")];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let name = text(server, "name");
    html! {
        @if title(server) != name { span class="tag" { (VisibleText(name)) } }
        @if !beginning.is_empty() { span class="tag" { (VisibleText(beginning)) } }
        @if !parts.is_empty() { span class="tag x" { (parts.join(" · ")) } }
    }
}

fn cost(server: &Value) -> Markup {
    let (tools, on) = (number(server, "tools"), number(server, "tools_on"));
    html! {
        div class="num" {
            @if on < tools { (on) " of " }
            (count(tools, "tool", "tools"))
            @if number(server, "tokens") > 0 { small { (estimate(number(server, "tokens"))) " tokens" } }
        }
    }
}

/// Renders where a ready server is, and how it does.
fn facts(server: &Value) -> Markup {
    let calls = &server["calls"];
    let failed = number(calls, "tool_error") + number(calls, "error");
    let waiting = number(server, "waiting");
    let mut parts = Vec::new();
    let info = &server["server"];
    if !text(info, "name").is_empty() && text(info, "name") != title(server) {
        // A server may call itself anything, at any length.
        let said = format!("{} {}", text(info, "name"), text(info, "version"));
        parts.push(said.trim_end().chars().take(120).collect());
    }
    parts.push(text(server, "target").to_owned());
    parts.extend(server["p95_ms"].as_f64().map(|p95| format!("p95 {}", duration(p95))));
    parts.extend((number(calls, "ok") + failed > 0).then(|| count(number(calls, "ok") + failed, "call", "calls")));
    parts.extend((failed > 0).then(|| format!("{failed} failed")));
    parts.extend(last_error(server).map(|ago| format!("last error {ago} ago")));
    parts.extend((number(server, "inflight") > 0).then(|| format!("{} running", number(server, "inflight"))));
    parts.extend((waiting > 0).then(|| format!("{waiting} waiting")));
    parts.retain(|part| !part.is_empty());
    html! { (VisibleText(&parts.join(" · "))) }
}

/// Returns the time since the last recent call that ended with an error.
fn last_error(server: &Value) -> Option<String> {
    let at = server["last_error"]["at"].as_str()?.parse::<jiff::Timestamp>().ok()?;
    let ago = jiff::Timestamp::now().duration_since(at).as_secs();
    Some(seconds(u64::try_from(ago).unwrap_or_default()))
}

/// Renders a button that calls the API.
pub(super) fn action_button(label: &str, method: &str, url: &str, done: &str) -> Markup {
    html! {
        button type="button" class="btn js-only" data-action=(url) data-method=(method) data-done=(done) { (label) }
    }
}
