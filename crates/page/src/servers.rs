//! View of the servers: a card for each, and filters by state.
//!
//! Owns list and card. Does not show what a server offers (`server_tabs.rs`). Invariant: each state
//! has a shape and a text, so that colour is never alone.
//!
//! Identity, condition and counters are taken apart without `..` here, findings in
//! `unmatched_rules.rs`. A field that somebody adds does not compile before it is drawn, or named
//! there with the reason why not.

use maud::{Markup, html};
use moongate_api::{LastError, ServerCondition, ServerCounters, ServerIdentity, ServerStatus};
use moongate_model::UpstreamState;

use super::buttons::post_button;
use super::config_location::entry_location;
use super::first_steps;
use super::icons::{StateIcon, draw_chevron};
use super::server_login;
use super::server_tabs::{self, OpenServer};
use super::state_groups::{GROUPS, count_group, group};
use super::switch::{ConfigSwitch, server_url};
use super::text::{VisibleText, WithCode, count, duration, estimate, seconds};
use super::unmatched_rules;
use super::view_query::{ViewQuery, segment};

/// List of servers, and what its URL says.
pub struct ServersView<'a> {
    /// Servers of the config.
    pub servers: &'a [ServerStatus],
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// Server whose card is open, with its items.
    pub open: Option<(&'a str, OpenServer)>,
    /// True if the reader may act.
    pub may_act: bool,
    /// True if all there is is the built-in demo.
    pub is_demo: bool,
}

impl ServersView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        html! {
            div class="title" {
                h1 { "Servers" }
                span class="grow" {}
                @if self.may_act {
                    (post_button("Reload config", "/api/v1/reload", "The config was reloaded.",
                        None))
                }
            }
            @if let Some(name) = self.missing() {
                p class="banner orange" { "There is no server \
                    “" (VisibleText(name)) "”." @if !self.servers.is_empty() { " These servers \
                    exist:" } }
            }
            (self.chips())
            (self.cards())
        }
    }

    /// Returns the name of the server that the URL asks for, if there is none.
    fn missing(&self) -> Option<&str> {
        let (name, _) = self.open.as_ref()?;
        self.servers
            .iter()
            .all(|server| server.name() != *name)
            .then_some(*name)
    }

    /// Renders the filters by state, and the order.
    pub fn chips(&self) -> Markup {
        let wanted = self.query.get("state");
        let query = self.query.only(&["state", "sort"]);
        html! {
            div id="chips" class="chips" data-part=(self.query.link("/parts/chips")) data-on="servers snapshot" {
                (state_chip(&query, None, "All", self.servers.len()))
                @for (group, label) in GROUPS {
                    @let number = count_group(self.servers, group);
                    @if number > 0 || wanted == Some(group) {
                        (state_chip(&query, Some(group), label, number)) }
                }
                span class="grow" {}
                span class="sort" {
                    "Sort by " (sort_link(&query, None, "name")) " " (sort_link(&query, Some("cost"), "cost")) }
            }
        }
    }

    /// Renders the cards that the filter lets through.
    pub fn cards(&self) -> Markup {
        let wanted = self.query.get("state");
        let mut shown: Vec<&ServerStatus> = self
            .servers
            .iter()
            .filter(|server| wanted.is_none_or(|wanted| group(server) == wanted))
            .collect();
        shown.sort_by_cached_key(|server| server.title().to_lowercase());
        if self.query.get("sort") == Some("cost") {
            shown.sort_by_key(|server| std::cmp::Reverse(server.counters.tokens));
        }
        let part = self
            .query
            .with("open", self.open.as_ref().map(|(name, _)| *name))
            .link("/parts/servers");
        // With a filter each change may move a card in or out.
        let on = if wanted.is_some() {
            "servers snapshot"
        } else {
            "list snapshot"
        };
        html! {
            div id="servers" data-part=(part) data-on=(on) {
                @if self.servers.is_empty() || self.is_demo {
                    (first_steps::draw(self.servers.first(), self.may_act)) }
                @for server in &shown { (self.card(server)) }
                @if !self.servers.is_empty() && shown.is_empty() {
                    p class="empty" { "No server is in this state. " a href="/" { "Show all" } }
                }
            }
        }
    }

    /// Renders the card of one server.
    pub fn card(&self, server: &ServerStatus) -> Markup {
        let name = server.name();
        let open = self
            .open
            .as_ref()
            .filter(|(open, _)| *open == name)
            .map(|(_, items)| items);
        let path = format!("/servers/{}", segment(name));
        let part = self
            .query
            .with("open", open.map(|_| name))
            .link(&format!("/parts/server/{}", segment(name)));
        let toggle = if open.is_some() { "/" } else { &path };
        html! {
            article class="card" id=(format!("server-{name}")) data-part=(part) data-on={
                "server:" (name) @if open.is_some() { " config" } }
                data-ticks[is_ticking(server)] {
                form id=(format!("open-{name}")) method="get" action=(toggle) {
                    @for (key, value) in self.query.only(&["state", "sort"]).pairs() {
                        input type="hidden" name=(key) value=(value); }
                }
                div class="head" {
                    (StateIcon::of_server(server.condition.state).draw())
                    h2 {
                        button class="name" form=(format!("open-{name}")) aria-expanded=(open.is_some().to_string()) data-row {
                            (VisibleText(server.title()))
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
                @if let Some(items) = open {
                    (server_tabs::render(server, items, self.query, self.may_act)) }
            }
        }
    }

    /// Renders the text next to the state, and the action that helps. An open card has the rest
    /// below.
    fn reason(&self, server: &ServerStatus, is_open: bool) -> Markup {
        let ServerCondition {
            state,
            reason,
            hint,
            login,
            next_attempt_seconds,
            replacement,
            stale,
            // Elsewhere on the card: in `state_words`, in `tags`, and in the log's tab.
            since_seconds: _,
            revision: _,
            stderr: _,
            // Details for programs, which read the API.
            since: _,
            pid: _,
            shared: _,
            restarts: _,
            // The reason says it.
            needs_login: _,
        } = &server.condition;
        let color = StateIcon::of_server(*state).color;
        let is_ready = *state == UpstreamState::Ready;
        let is_off = *state == UpstreamState::Disabled;
        let again = next_attempt_seconds.filter(|_| !is_ready);
        let target = server.identity.target.as_deref().unwrap_or_default();
        html! {
            span class="state" {
                @if is_ready { span class="unseen" { "Ready. " } (facts(server)) }
                @else {
                    b class=(color) { (state_words(&server.condition)) }
                    @if is_off {
                        (entry_location(&server.source))
                        @if !target.is_empty() { " · " (VisibleText(target)) }
                    }
                    @else if !reason.is_empty() && *state != UpstreamState::Starting {
                        ": " (VisibleText(reason)) }
                    @if let Some(again) = again { " · tries again \
                        in " (seconds(again.ceil() as u64)) }
                    @if let Some(hint) = hint {
                        br; "To fix it: " (WithCode(&hint.text)) }
                }
                @if replacement.is_some() { " · a replacement is starting; the \
                    old one is still in use" }
                @if *stale && !is_off { " · lists are from an earlier connection" }
                @if let Some(login) = login { (server_login::login_words(login)) }
                @if !is_open { (unmatched_rules::closed_note(server)) }
            }
            @if self.may_act { (helping_button(server)) }
        }
    }
}

/// Renders the action that may end the state of a server.
fn helping_button(server: &ServerStatus) -> Markup {
    let action = format!("{}/restart", server_url(server.name()));
    let can_retry = matches!(
        server.condition.state,
        UpstreamState::Failed | UpstreamState::BackingOff
    );
    html! {
        @if can_retry {
            (post_button("Retry now", &action, "The server was restarted.", None)) }
        (server_login::sign_in(server))
    }
}

/// True if the card shows a time that runs.
fn is_ticking(server: &ServerStatus) -> bool {
    matches!(
        server.condition.state,
        UpstreamState::Starting | UpstreamState::BackingOff
    )
}

/// Names a state that is not ready.
fn state_words(condition: &ServerCondition) -> String {
    let elapsed = seconds(condition.since_seconds.unwrap_or_default());
    let words = match condition.state {
        UpstreamState::Ready => "",
        UpstreamState::Starting => return format!("Starting, {elapsed}"),
        UpstreamState::NeedsLogin => "Sign-in needed",
        UpstreamState::Stopped => "Starts on the first call",
        UpstreamState::Disabled => "Off",
        UpstreamState::Degraded => "Degraded",
        UpstreamState::BackingOff => "Not connected",
        UpstreamState::Failed => "Failed",
    };
    words.to_owned()
}

fn tags(server: &ServerStatus) -> Markup {
    let ServerIdentity {
        name,
        name_prefix,
        transport,
        // Read by `title()`, which falls back on the name.
        title: _,
        // Next to the state, in `reason` and `facts`.
        target: _,
        server: _,
        // Settings have their own tab, and the state shows whether the server is on.
        icon: _,
        prefix: _,
        start: _,
        share: _,
        enabled: _,
    } = &server.identity;
    let beginning = name_prefix.as_deref().unwrap_or_default();
    let parts = [transport.as_deref(), server.condition.revision.as_deref()];
    let parts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    html! {
        @if server.title() != name { span class="tag" { (VisibleText(name)) } }
        @if !beginning.is_empty() { span class="tag" { (VisibleText(beginning)) } }
        @if !parts.is_empty() { span class="tag x" { (parts.join(" · ")) } }
    }
}

fn cost(server: &ServerStatus) -> Markup {
    let ServerCounters {
        tools,
        tools_on,
        tokens,
        ..
    } = server.counters;
    html! {
        div class="num" {
            @if tools_on < tools { (tools_on) " of " }
            (count(tools, "tool", "tools"))
            @if tokens > 0 { small { (estimate(tokens)) " tokens" } }
        }
    }
}

/// Renders where a ready server is, and how it does.
fn facts(server: &ServerStatus) -> Markup {
    let ServerCounters {
        calls,
        waiting,
        inflight,
        p95_ms,
        last_error,
        // Drawn by `cost`.
        tools: _,
        tools_on: _,
        tokens: _,
        // Tabs count what they list, and the view of the context shows the tokens of all tools.
        resources: _,
        prompts: _,
        tokens_all: _,
        // Details for programs, which read the API.
        connections: _,
        p50_ms: _,
    } = &server.counters;
    let failed = calls.tool_error + calls.error;
    let waiting = *waiting;
    let inflight = *inflight;
    let mut parts = Vec::new();
    let info = &server.identity.server;
    if let Some(own) = info
        .name
        .as_deref()
        .filter(|own| !own.is_empty() && *own != server.title())
    {
        // A server may call itself anything, at any length.
        let said = format!("{own} {}", info.version.as_deref().unwrap_or_default());
        parts.push(said.trim_end().chars().take(120).collect());
    }
    parts.extend(server.identity.target.clone());
    parts.extend(p95_ms.map(|p95| format!("p95 {}", duration(p95))));
    parts.extend((calls.ok + failed > 0).then(|| count(calls.ok + failed, "call", "calls")));
    parts.extend((failed > 0).then(|| format!("{failed} failed")));
    parts.extend(
        last_error
            .as_ref()
            .and_then(time_since)
            .map(|ago| format!("last error {ago} ago")),
    );
    parts.extend((inflight > 0).then(|| format!("{inflight} running")));
    parts.extend((waiting > 0).then(|| format!("{waiting} waiting")));
    parts.retain(|part| !part.is_empty());
    html! { (VisibleText(&parts.join(" · "))) }
}

/// Returns the time since a call ended with an error.
fn time_since(error: &LastError) -> Option<String> {
    let at = error.at.as_ref()?.parse::<jiff::Timestamp>().ok()?;
    let ago = jiff::Timestamp::now().duration_since(at).as_secs();
    Some(seconds(u64::try_from(ago).unwrap_or_default()))
}

/// Renders the link that filters by a group of states.
fn state_chip(query: &ViewQuery, group: Option<&str>, label: &str, number: usize) -> Markup {
    let current = (query.get("state") == group).then_some("true");
    html! { a class="chip" href=(query.with("state",
    group).link("/")) aria-current=[current] { (label) " " (number) } }
}

fn sort_link(query: &ViewQuery, name: Option<&str>, label: &str) -> Markup {
    let current = (query.get("sort") == name).then_some("true");
    html! { a href=(query.with("sort", name).link("/")) aria-current=[current] { (label) } }
}
