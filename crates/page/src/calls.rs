//! View of the recent calls: a row for each, with filters.
//!
//! Owns table and filters. Does not record calls. Invariant: names and sizes only, never an
//! argument or a result.

use std::collections::BTreeSet;

use maud::{Markup, html};
use moongate_api::{CallError, CallRow, ClientName};
use moongate_model::CallState;

use super::explain;
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
const STATES: [(CallState, &str); 6] = [
    (CallState::Running, "running"),
    (CallState::Ok, "ok"),
    (CallState::ToolError, "tool error"),
    (CallState::Error, "error"),
    (CallState::Cancelled, "cancelled"),
    (CallState::InputRequired, "asked for input"),
];

/// Recent calls, and what the URL says.
pub struct CallsView<'a> {
    /// Recent calls, newest first.
    pub calls: &'a [CallRow],
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// True if the reader may act.
    pub may_act: bool,
    /// Path that tries the tool of the open call, if it has one.
    pub try_path: Option<String>,
}

impl CallsView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
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
        let servers: BTreeSet<&str> = self.calls.iter().map(|call| call.server.as_str()).collect();
        let clients: Vec<String> = self.calls.iter().map(client_name).collect();
        let clients: BTreeSet<&str> = clients.iter().map(String::as_str).collect();
        let states = STATES
            .map(|(state, label)| (state.name().to_owned(), label.to_owned()))
            .to_vec();
        html! {
            form class="filter" method="get" action="/calls" role="search" data-auto-submit data-search-live {
                (self.select("server", "All servers", &name_options(&servers)))
                (self.select("state", "All outcomes", &states))
                (self.select("client", "All clients", &name_options(&clients)))
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
                @if let Some(missing) = missing {
                    option value=(missing) selected { (VisibleText(missing)) } }
                @for (value, label) in options {
                    option value=(value) selected[wanted == Some(value)] { (VisibleText(label)) }
                }
            }
        }
    }

    /// Returns true if the filters let a call through.
    fn fits(&self, call: &CallRow) -> bool {
        let has_text = self.query.get("q").is_none_or(|wanted| {
            let wanted = wanted.to_lowercase();
            [&call.name, &call.principal]
                .iter()
                .any(|text| text.to_lowercase().contains(&wanted))
        });
        self.query.admits("server", &call.server)
            && self.query.admits("state", call.state.name())
            && self.query.admits("client", &client_name(call))
            && has_text
    }

    /// Renders the rows that the filters let through.
    pub fn table(&self) -> Markup {
        let mut shown: Vec<&CallRow> = self.calls.iter().filter(|call| self.fits(call)).collect();
        let all = shown.len();
        if self.query.get("rows") != Some("all") {
            shown.truncate(ROWS_MAX);
        }
        // Events bring a table that is flooded anyway.
        let ticks = match shown.iter().any(|call| call.state == CallState::Running) {
            true if shown.len() == ROWS_MAX && shown.iter().all(|call| is_young(call)) => {
                Some("slow")
            }
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
                                th scope="col" { "Time" } th scope="col" { "Outcome" }
                                th scope="col" { "Server" } th scope="col" { "Name" }
                                th scope="col" { "Client" } th scope="col" { "Principal" }
                                th scope="col" class="n" { "In → out" }
                                th scope="col" { span class="unseen" { "Actions" } }
                            } }
                            tbody { @for call in &shown { (self.row(call)) } }
                        }
                    }
                    @if shown.len() < all {
                        p class="soft" {
                            "Showing the newest " (shown.len()) " of " (all) ". "
                            a href=(self.query.with("rows", Some("all")).link("/calls")) { "Show all" } }
                    }
                }
            }
        }
    }

    fn empty(&self) -> Markup {
        html! {
            p class="empty" {
                @if FILTERS.iter().any(|key| self.query.get(key).is_some()) { "No recent calls \
                    match. " a href="/calls" { "Show all" } }
                @else { "No calls yet. New calls appear here as they happen." }
            }
        }
    }

    fn row(&self, call: &CallRow) -> Markup {
        let id = call.id.as_str();
        let is_open = self.query.get("open") == Some(id);
        let href = self
            .query
            .with("open", (!is_open).then_some(id))
            .link("/calls");
        let at = call.at.as_deref().unwrap_or_default();
        // The date is in the title: recent calls are of today.
        let time = at
            .split_once('T')
            .map_or(at, |(_, time)| time.trim_end_matches('Z'));
        let out = call.bytes_out.map(size).unwrap_or_default();
        let client = &call.client;
        let stop = format!("/api/v1/calls/{id}/cancel");
        let question = format!(
            "Stop {} on {}? The client gets an error.",
            call.name, call.server
        );
        html! {
            tr id=(id) class=[is_open.then_some("open")] {
                td { a class="mono" href=(href) aria-expanded=(is_open.to_string()) title=(at) data-row { (time) } }
                td { span class="outcome" {
                    (StateIcon::of_call(call.state).draw()) (outcome(call)) } }
                td { (VisibleText(&call.server)) }
                td {
                    code { (VisibleText(&call.name)) }
                    @if let Some(cause) = cause(call) {
                        div class="cause red" title=(show_invisible(cause)) {
                            (VisibleText(cause)) } }
                }
                td { (VisibleText(client.name.as_deref().unwrap_or_default())) " " span class="soft" { (VisibleText(client.version.as_deref().unwrap_or_default())) } }
                td { (VisibleText(&call.principal)) }
                td class="n" { (size(call.bytes_in)) " → " (out) }
                td {
                    @if call.state == CallState::Running && self.may_act {
                        button type="button" class="btn small js-only" data-action=(stop) data-method="POST" data-done="The call was stopped."
                            data-confirm=(show_invisible(&question))
                            data-verb="Stop call" { "Stop" }
                    }
                }
            }
            @if is_open { (self.details(call)) }
        }
    }

    fn details(&self, call: &CallRow) -> Markup {
        html! {
            tr class="detail" id=(format!("{}-detail", call.id)) {
                td colspan="8" {
                    dl { @for (label, value) in facts(call) { dt { (label) }
                        dd { (VisibleText(&value)) } } }
                    p class="acts" {
                        // Arguments are not kept, so the form is empty.
                        @if let Some(path) = &self.try_path {
                            a class="btn" href=(path) { "Try again…" } }
                        // An operator isn't a principal, and only tools have rules of keys.
                        @if call.method == "tools/call" && call.principal != "admin" {
                            a class="btn" href=(explain::link(Some(&call.principal), &call.endpoint,
                                &call.name)) { "Explain" }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the name of a call's client as the filter has it.
fn client_name(call: &CallRow) -> String {
    show_invisible(call.client.name.as_deref().unwrap_or_default())
}

/// Returns the options of a filter by name: their values and labels.
fn name_options(names: &BTreeSet<&str>) -> Vec<(String, String)> {
    names
        .iter()
        .filter(|name| !name.is_empty())
        .map(|&name| (name.to_owned(), name.to_owned()))
        .collect()
}

/// Returns true if a call started a moment ago.
fn is_young(call: &CallRow) -> bool {
    let began = call
        .at
        .as_ref()
        .and_then(|at| at.parse::<jiff::Timestamp>().ok());
    began.is_some_and(|began| jiff::Timestamp::now().duration_since(began) < FLOOD_AGE)
}

/// Renders how a call ended, or how long it runs.
fn outcome(call: &CallRow) -> Markup {
    let label = STATES
        .iter()
        .find(|(state, _)| *state == call.state)
        .map_or(call.state.name(), |(_, label)| label);
    let took = duration(call.ms);
    html! {
        span { (label) " " (took) }
        @if let Some(own) = call.own_ms.filter(|_| call.state == CallState::Ok) {
            " " span class="soft" title="Time in the gateway" { "(" (duration(own)) ")" }
        }
    }
}

/// Returns the text of a call's error, or else its kind.
fn cause(call: &CallRow) -> Option<&str> {
    let CallError { kind, message } = call.error.as_ref()?;
    [message, kind]
        .into_iter()
        .map(String::as_str)
        .find(|words| !words.is_empty())
}

/// Returns the kind and the text of a call's error. The text of a server's error has its code
/// already.
fn error_text(error: &CallError) -> String {
    match (error.kind.as_str(), error.message.as_str()) {
        (kind, "") => kind.to_owned(),
        (kind, message) if message.contains(kind) => message.to_owned(),
        (kind, message) => format!("{kind}: {message}"),
    }
}

fn facts(call: &CallRow) -> Vec<(&'static str, String)> {
    let own = call.own_ms;
    let wait = call.wait_ms;
    let at_server = own.map(|own| (call.ms - own - wait.unwrap_or_default()).max(0.0));
    let ClientName { name, version } = &call.client;
    let out = call.bytes_out.map(size).unwrap_or_default();
    let mut rows = vec![
        ("Id", call.id.clone()),
        ("Server", call.server.clone()),
        ("Name", call.name.clone()),
        (
            "Client",
            [name, version]
                .map(|text| text.as_deref().unwrap_or_default())
                .join(" ")
                .trim()
                .to_owned(),
        ),
        ("Principal", call.principal.clone()),
        ("In → out", format!("{} → {out}", size(call.bytes_in))),
        ("Method", call.method.clone()),
        ("Endpoint", call.endpoint.clone()),
        (
            "Revisions",
            format!("{} → {}", call.from, call.to.as_deref().unwrap_or("?")),
        ),
        ("Started", call.at.clone().unwrap_or_default()),
        ("In the gateway", own.map(duration).unwrap_or_default()),
        ("Waiting", wait.map(duration).unwrap_or_default()),
        ("At the server", at_server.map(duration).unwrap_or_default()),
        (
            "Retries",
            call.retries
                .filter(|retries| *retries > 0)
                .map(|retries| retries.to_string())
                .unwrap_or_default(),
        ),
        (
            "Error",
            call.error.as_ref().map(error_text).unwrap_or_default(),
        ),
    ];
    rows.retain(|(_, value)| !value.is_empty());
    rows
}
