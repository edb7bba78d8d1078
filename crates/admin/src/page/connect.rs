//! View of the clients: the steps that connect one, and the proof that it is.
//!
//! Owns their layout. Does not make the steps (`connect.rs` of the API). Invariant: nothing here changes a client's file.

use maud::{Markup, html};
use moongate_clients::{ClientProfile, ConnectMethod};
use moongate_model::CallState;
use serde_json::Value;

use super::copy::code_block;
use super::endpoint_choice::EndpointChoice;
use super::facts::{number, text};
use super::icons::StateIcon;
use super::keys;
use super::text::{VisibleText, count, seconds};
use super::view_query::ViewQuery;

/// Seconds of silence after which a client's session is no proof of a new connection.
const RECENT_SECONDS: u64 = 120;
/// Names that a list shows.
const NAMES_MAX: usize = 3;

/// Chosen client, with its steps.
pub(super) struct ChosenClient {
    pub(super) profile: &'static ClientProfile,
    pub(super) steps: Vec<Value>,
    /// Newest sign of the client, or null.
    pub(super) presence: Value,
    /// Names of tools that are too long for it.
    pub(super) too_long: Vec<String>,
}

/// Clients, and what the URL says.
pub(super) struct ConnectView<'a> {
    pub(super) endpoint: &'a EndpointChoice,
    /// Address of the endpoint. Empty if no URL leads to it.
    pub(super) url: String,
    pub(super) chosen: Option<ChosenClient>,
    pub(super) query: &'a ViewQuery,
    /// Name for a new key of the chosen client.
    pub(super) key_name: String,
    /// True if a key can be made here.
    pub(super) may_make_key: bool,
    /// Names of keys that may use the endpoint.
    pub(super) keys: Vec<String>,
    /// True if no client needs a key.
    pub(super) is_open: bool,
}

impl ConnectView<'_> {
    /// Renders the whole view.
    pub(super) fn page(&self) -> Markup {
        html! {
            div class="title" { h1 { "Connect" } }
            div class=(if self.chosen.is_some() { "split chosen" } else { "split" }) {
                section class="list" aria-label="Clients" { (self.clients()) }
                section class="steps" aria-label="Steps" {
                    @match &self.chosen {
                        Some(chosen) => { (self.steps(chosen)) }
                        None => {
                            p { "Choose the client that shall use Moongate. You get what it needs: a link, a command, or the text of its file." }
                            p class="soft" { "This page changes nothing at your clients. " code { "moongate connect CLIENT --write" @if !self.is_open { " --key CLIENT" } } " does, and shows the change before." }
                        }
                    }
                }
            }
        }
    }

    fn clients(&self) -> Markup {
        let current = self.chosen.as_ref().map(|chosen| chosen.profile.id);
        html! {
            form class="filter" role="search" method="get" action="/connect" data-live-filter {
                input class="in wide-in" type="search" aria-label="Filter clients" placeholder="Filter clients" data-search;
            }
            ul class="links" {
                // The API still knows discontinued clients. Nobody should begin with one.
                @for profile in moongate_clients::clients().filter(|profile| profile.method != ConnectMethod::Discontinued) {
                    li data-filter {
                        a href=(self.query.only(&["endpoint"]).with("client", Some(profile.id)).link("/connect")) data-row
                            aria-current=[(current == Some(profile.id)).then_some("true")] { (profile.title) }
                    }
                }
            }
        }
    }

    fn steps(&self, chosen: &ChosenClient) -> Markup {
        let profile = chosen.profile;
        let path = match self.endpoint.name.as_str() {
            "" => String::new(),
            _ => format!(" --endpoint {}", self.endpoint.path()),
        };
        let key = if self.is_open { String::new() } else { format!(" --key {}", self.key_name) };
        html! {
            h2 { (profile.title) " " a class="back" href=(self.query.only(&["endpoint"]).link("/connect")) { "All clients" } }
            form class="inline" method="get" action="/connect" data-auto-submit {
                input type="hidden" name="client" value=(profile.id);
                (self.endpoint.field())
                noscript { button class="btn" { "Show" } }
            }
            @if self.endpoint.coverage.is_none() { (self.endpoint.missing()) }
            @else if self.url.is_empty() {
                p class="banner orange" { "No URL leads to an endpoint: gateway.listen has sockets only." }
            } @else {
                (self.key(profile))
                @let (links, others): (Vec<&Value>, Vec<&Value>) = chosen.steps.iter().partition(|step| text(step, "kind") == "link");
                @for step in links { (step_block(profile, step)) }
                @if profile.method == ConnectMethod::File {
                    h3 { "On the gateway's machine" }
                    p class="soft" { "One command does it. It shows the change, and asks." }
                    (code_block(&format!("moongate connect {}{path} --write{key}", profile.id), "the command"))
                }
                @for step in others { (step_block(profile, step)) }
                (too_long(chosen))
                (self.presence(chosen))
            }
        }
    }

    /// Renders what the client needs to be let in.
    fn key(&self, profile: &ClientProfile) -> Markup {
        html! {
            h3 { "The key" }
            @if self.is_open { p { "None is needed: this machine may use the endpoint." } }
            @else { p { "It needs one of its own. The steps below take it from the variable " code { "MOONGATE_KEY" } ", or have its place." } }
            @if !self.is_open && !self.keys.is_empty() {
                p class="soft" {
                    "Any key that may use this endpoint will do, as far as you still have its text: " (some_names(&self.keys)) "."
                }
            }
            @if self.may_make_key { p { (keys::make_for_client(&self.key_name, profile.title)) } }
        }
    }

    /// Renders whether the client is there.
    pub(super) fn presence(&self, chosen: &ChosenClient) -> Markup {
        let present = &chosen.presence;
        let ago = number(present, "seconds");
        let part = self.query.only(&["client", "endpoint"]).link("/parts/connect");
        let is_here = !present.is_null() && ago <= RECENT_SECONDS;
        html! {
            div id="presence" class="panel presence" role="status" data-part=(part) data-on="sessions calls snapshot" data-ticks="slow" {
                @if is_here {
                    (StateIcon::of_call(CallState::Ok).draw())
                    span { b class="green" { (chosen.profile.title) " is connected" } ": " (VisibleText(text(present, "name"))) " " (VisibleText(text(present, "version"))) ", " (seconds(ago)) " ago" }
                } @else {
                    (StateIcon::of_call(CallState::Running).draw())
                    span {
                        "Waiting for " (chosen.profile.title) "…"
                        @if !present.is_null() { span class="soft" { " It was here " (seconds(ago)) " ago." } }
                    }
                }
            }
        }
    }
}

fn step_block(profile: &ClientProfile, step: &Value) -> Markup {
    let (kind, words) = (text(step, "kind"), text(step, "text"));
    html! {
        @match kind {
            "link" => { p { a class="btn main" href=(words) rel="noopener noreferrer" { "Add to " (profile.title) } } }
            // The line that sets a key comes after the entry that names it.
            "command" if words.starts_with("export ") => { h3 { "The key in your shell" } (code_block(words, "the line")) }
            "command" => { h3 { "By command" } (code_block(words, "the command")) }
            "file" => {
                h3 { @match text(step, "path") { "" => "By text, to paste", path => { "By file: " code { (path) } } } }
                (code_block(words, "the text"))
            }
            _ => { p { (words) } }
        }
    }
}

/// Renders the first names of a list.
fn some_names(names: &[String]) -> Markup {
    html! {
        @for (n, name) in names.iter().take(NAMES_MAX).enumerate() { @if n > 0 { ", " } code { (VisibleText(name)) } }
        @if names.len() > NAMES_MAX { ", …" }
    }
}

fn too_long(chosen: &ChosenClient) -> Markup {
    let names = &chosen.too_long;
    html! {
        @if !names.is_empty() {
            p class="banner orange" {
                (count(names.len() as u64, "name is", "names are")) " too long for " (chosen.profile.title) ": "
                (some_names(names))
                " A prefix of the server that is shorter helps."
            }
        }
    }
}
