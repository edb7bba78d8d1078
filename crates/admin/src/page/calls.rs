//! View of the recent calls: a row for each, with filters.
//!
//! Owns table and filters. Does not record calls. Invariant: names and sizes only, never an argument or a result.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde_json::Value;

use super::explain;
use super::facts::{number, text};
use super::icons::StateIcon;
use super::text::{VisibleText, duration, show_invisible, size};
use super::view_query::ViewQuery;

/// Rows that the view shows at most, unless its URL says `rows=all`.
const ROWS_MAX: usize = 40;
/// Age below which even the oldest row shows that calls pour in.
const FLOOD_AGE: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);
/// Parameters that filter.
const FILTERS: [&str; 4] = ["server", "state", "client", "q"];
/// States of a call, with their labels.
const STATES: [(&str, &str); 6] = [
    ("running", "running"),
    ("ok", "ok"),
    ("tool_error", "tool error"),
    ("error", "error"),
    ("cancelled", "cancelled"),
    ("input_required", "asked for input"),
];

/// Recent calls, and what the URL says.
pub(super) struct CallsView<'a> {
    pub(super) calls: &'a [Value],
    pub(super) query: &'a ViewQuery,
    pub(super) may_act: bool,
    /// Path that tries the tool of the open call, if it has one.
    pub(super) try_path: Option<String>,
}

impl CallsView<'_> {
    /// Renders the whole view.
    pub(super) fn page(&self) -> Markup {
        html! {
            div class="title" {
                h1 { "Calls" }
                span class="grow" {}
                button type="button" class="btn js-only" id="pause" aria-pressed="false" { "Pause" }
            }
            (self.filters())
            button type="button" class="btn held" id="held" hidden {}
            (self.table())
        }
    }

    fn filters(&self) -> Markup {
        let servers: BTreeSet<&str> = self.calls.iter().map(|call| text(call, "server")).collect();
        let clients: Vec<String> = self.calls.iter().map(client_name).collect();
        let clients: BTreeSet<&str> = clients.iter().map(String::as_str).collect();
        let named = |names: BTreeSet<&str>| -> Vec<(String, String)> {
            names.into_iter().filter(|name| !name.is_empty()).map(|name| (name.to_owned(), name.to_owned())).collect()
        };
        let states = STATES.map(|(state, label)| (state.to_owned(), label.to_owned())).to_vec();
        html! {
            form class="filter" method="get" action="/calls" role="search" data-auto-submit data-search-live {
                (self.select("server", "All servers", &named(servers)))
                (self.select("state", "All outcomes", &states))
                (self.select("client", "All clients", &named(clients)))
                input class="in" type="search" name="q" value=[self.query.get("q")] placeholder="Filter names" aria-label="Filter names"
                    data-search;
                noscript { button class="btn" { "Filter" } }
            }
        }
    }

    fn select(&self, name: &str, all: &str, options: &[(String, String)]) -> Markup {
        let wanted = self.query.get(name);
        // A value of the URL that no call has any more stays chosen.
        let missing = wanted.filter(|wanted| options.iter().all(|(value, _)| value != wanted));
        html! {
            select class="in" name=(name) aria-label=(all) {
                option value="" { (all) }
                @if let Some(missing) = missing { option value=(missing) selected { (VisibleText(missing)) } }
                @for (value, label) in options {
                    option value=(value) selected[wanted == Some(value)] { (VisibleText(label)) }
                }
            }
        }
    }

    /// Renders the rows that the filters let through.
    pub(super) fn table(&self) -> Markup {
        let fits = |call: &&Value| {
            let is = |key: &str, value: &str| self.query.get(key).is_none_or(|wanted| wanted == value);
            let contains = self.query.get("q").is_none_or(|wanted| {
                let wanted = wanted.to_lowercase();
                ["name", "principal"].iter().any(|member| text(call, member).to_lowercase().contains(&wanted))
            });
            let client = &client_name(call);
            is("server", text(call, "server")) && is("state", text(call, "state")) && is("client", client) && contains
        };
        let mut shown: Vec<&Value> = self.calls.iter().filter(fits).collect();
        let all = shown.len();
        if self.query.get("rows") != Some("all") {
            shown.truncate(ROWS_MAX);
        }
        // Events bring a table that is flooded anyway.
        let ticks = match shown.iter().any(|call| text(call, "state") == "running") {
            true if shown.len() == ROWS_MAX && shown.iter().all(|call| is_young(call)) => Some("slow"),
            true => Some(""),
            false => None,
        };
        html! {
            div id="calls" data-part=(self.query.link("/parts/calls")) data-on="calls snapshot" data-ticks=[ticks] {
                @if shown.is_empty() { (self.empty()) }
                @else {
                    div class="wide panel" tabindex="0" role="region" aria-label="Recent calls" {
                        table class="calls" {
                            thead { tr {
                                th scope="col" { "Time" } th scope="col" { "Outcome" } th scope="col" { "Server" } th scope="col" { "Name" }
                                th scope="col" { "Client" } th scope="col" { "Principal" } th scope="col" class="n" { "In → out" }
                                th scope="col" { span class="unseen" { "Actions" } }
                            } }
                            tbody { @for call in &shown { (self.row(call)) } }
                        }
                    }
                    @if shown.len() < all {
                        p class="soft" { "The newest " (shown.len()) " of " (all) ". " a href=(self.query.with("rows", Some("all")).link("/calls")) { "Show all" } }
                    }
                }
            }
        }
    }

    fn empty(&self) -> Markup {
        html! {
            p class="empty" {
                @if FILTERS.iter().any(|key| self.query.get(key).is_some()) { "No recent call fits. " a href="/calls" { "Show all" } }
                @else { "No call yet. The next one appears here at once." }
            }
        }
    }

    fn row(&self, call: &Value) -> Markup {
        let (id, state) = (text(call, "id"), text(call, "state"));
        let is_open = self.query.get("open") == Some(id);
        let href = self.query.with("open", (!is_open).then_some(id)).link("/calls");
        let at = text(call, "at");
        // The date is in the title: recent calls are of today.
        let time = at.split_once('T').map_or(at, |(_, time)| time.trim_end_matches('Z'));
        let out = call["bytes_out"].as_u64().map(size).unwrap_or_default();
        let (client, stop) = (&call["client"], format!("/api/v1/calls/{id}/cancel"));
        html! {
            tr id=(id) class=[is_open.then_some("open")] {
                td { a class="mono" href=(href) aria-expanded=(is_open.to_string()) title=(at) data-row { (time) } }
                td { span class="outcome" { (StateIcon::of_call(state).draw()) (outcome(call)) } }
                td { (VisibleText(text(call, "server"))) }
                td {
                    code { (VisibleText(text(call, "name"))) }
                    @if let Some(cause) = cause(call) { div class="cause red" title=(show_invisible(cause)) { (VisibleText(cause)) } }
                }
                td { (VisibleText(text(client, "name"))) " " span class="soft" { (VisibleText(text(client, "version"))) } }
                td { (VisibleText(text(call, "principal"))) }
                td class="n" { (size(number(call, "bytes_in"))) " → " (out) }
                td {
                    @if state == "running" && self.may_act {
                        button type="button" class="btn small js-only" data-action=(stop) data-method="POST" data-done="The call was stopped."
                            data-confirm=(show_invisible(&format!("Stop {} of {}? Its client gets an error.", text(call, "name"), text(call, "server"))))
                            data-verb="Stop it" { "Stop" }
                    }
                }
            }
            @if is_open { (self.details(call)) }
        }
    }

    fn details(&self, call: &Value) -> Markup {
        html! {
            tr class="detail" id=(format!("{}-detail", text(call, "id"))) {
                td colspan="8" {
                    dl { @for (label, value) in facts(call) { dt { (label) } dd { (VisibleText(&value)) } } }
                    p class="acts" {
                        // Arguments are not kept, so the form is empty.
                        @if let Some(path) = &self.try_path { a class="btn" href=(path) { "Try again…" } }
                        // An operator is no principal, and only tools have rules of keys.
                        @if text(call, "method") == "tools/call" && text(call, "principal") != "admin" {
                            a class="btn" href=(explain::link(call["principal"].as_str(), text(call, "endpoint"), text(call, "name"))) { "Explain" }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the name of a call's client as the filter has it.
fn client_name(call: &Value) -> String {
    show_invisible(text(&call["client"], "name"))
}

/// Returns true if a call began a moment ago.
fn is_young(call: &Value) -> bool {
    let began = text(call, "at").parse::<jiff::Timestamp>();
    began.is_ok_and(|began| jiff::Timestamp::now().duration_since(began) < FLOOD_AGE)
}

/// Renders how a call ended, or how long it runs.
fn outcome(call: &Value) -> Markup {
    let state = text(call, "state");
    let label = STATES.iter().find(|(name, _)| *name == state).map_or(state, |(_, label)| label);
    let took = duration(call["ms"].as_f64().unwrap_or_default());
    html! {
        span { (label) " " (took) }
        @if let Some(own) = call["own_ms"].as_f64().filter(|_| state == "ok") {
            " " span class="soft" title="Time in the gateway" { "(" (duration(own)) ")" }
        }
    }
}

/// Returns the text of a call's error, or else its kind.
fn cause(call: &Value) -> Option<&str> {
    let error = &call["error"];
    [text(error, "message"), text(error, "type")].into_iter().find(|words| !words.is_empty())
}

/// Returns the kind and the text of a call's error. The text of a server's error has its code already.
fn error_text(call: &Value) -> String {
    let (kind, message) = (text(&call["error"], "type"), text(&call["error"], "message"));
    match (kind, message) {
        (kind, "") => kind.to_owned(),
        (kind, message) if message.contains(kind) => message.to_owned(),
        (kind, message) => format!("{kind}: {message}"),
    }
}

fn facts(call: &Value) -> Vec<(&'static str, String)> {
    let (own, wait) = (call["own_ms"].as_f64(), call["wait_ms"].as_f64());
    let at_server =
        own.map(|own| call["ms"].as_f64().unwrap_or_default() - own - wait.unwrap_or_default()).map(|ms| ms.max(0.0));
    let retries = number(call, "retries");
    let client = &call["client"];
    let out = call["bytes_out"].as_u64().map(size).unwrap_or_default();
    let mut rows = vec![
        ("Id", text(call, "id").to_owned()),
        ("Server", text(call, "server").to_owned()),
        ("Name", text(call, "name").to_owned()),
        ("Client", format!("{} {}", text(client, "name"), text(client, "version")).trim().to_owned()),
        ("Principal", text(call, "principal").to_owned()),
        ("In → out", format!("{} → {out}", size(number(call, "bytes_in")))),
        ("Method", text(call, "method").to_owned()),
        ("Endpoint", text(call, "endpoint").to_owned()),
        ("Revisions", format!("{} → {}", text(call, "from"), call["to"].as_str().unwrap_or("?"))),
        ("Started", text(call, "at").to_owned()),
        ("In the gateway", own.map(duration).unwrap_or_default()),
        ("Waited for its turn", wait.map(duration).unwrap_or_default()),
        ("At the server", at_server.map(duration).unwrap_or_default()),
        ("Retries", if retries > 0 { retries.to_string() } else { String::new() }),
        ("Error", error_text(call)),
    ];
    rows.retain(|(_, value)| !value.is_empty());
    rows
}
