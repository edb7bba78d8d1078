//! View that connects a client: the steps for it, and whether it has connected.
//!
//! Owns their layout. Does not make the steps (`admin/connect.rs`). Invariant: nothing here changes
//! a client's file.

use maud::{Markup, html};
use moongate_api::{ClientList, ClientRow, ConnectMethod, ConnectStep, StepKind};
use moongate_model::CallState;

use super::copy::code_block;
use super::endpoint_choice::EndpointChoice;
use super::icons::StateIcon;
use super::keys;
use super::text::{VisibleText, count, seconds};
use super::view_query::ViewQuery;

/// Seconds of silence after which a client's session doesn't prove a new connection.
const RECENT_SECONDS: u64 = 120;
/// Names that a list shows.
const NAMES_MAX: usize = 3;

/// Chosen client, with its steps.
pub struct ChosenClient {
    /// Client itself.
    pub client: ClientRow,
    /// Steps that connect it.
    pub steps: Vec<ConnectStep>,
    /// Names of tools that are too long for it.
    pub too_long: Vec<String>,
}

/// Clients, and what the URL says.
pub struct ConnectView<'a> {
    /// Endpoint of the URL.
    pub endpoint: &'a EndpointChoice,
    /// Address of the endpoint. Empty if no URL leads to it.
    pub url: String,
    /// Clients that can be chosen.
    pub clients: ClientList,
    /// Client of the URL.
    pub chosen: Option<ChosenClient>,
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// Name for a new key of the chosen client.
    pub key_name: String,
    /// True if a key can be made here.
    pub may_make_key: bool,
    /// Names of keys that may use the endpoint.
    pub keys: Vec<String>,
    /// True if no client needs a key.
    pub is_open: bool,
}

impl ConnectView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        html! {
            div class="title" { h1 { "Connect" } }
            div class=(if self.chosen.is_some() { "split chosen" } else { "split" }) {
                section class="list" aria-label="Clients" { (self.clients()) }
                section class="steps" aria-label="Steps" {
                    @match &self.chosen {
                        Some(chosen) => { (self.steps(chosen)) }
                        None => {
                            p { "Choose a client to connect. Moongate shows you what it needs: a \
                                link, a command, or the text for its config file." }
                            p class="soft" { "This page does not change your \
                                clients. " code { "moongate connect CLIENT \
                                    --write" @if !self.is_open { " --key CLIENT" } } " does, after \
                                    showing you the change." }
                        }
                    }
                }
            }
        }
    }

    fn clients(&self) -> Markup {
        let current = self.chosen.as_ref().map(|chosen| chosen.client.id.as_str());
        html! {
            form class="filter" role="search" method="get" action="/connect" data-live-filter {
                input class="in wide-in" type="search" aria-label="Filter clients" placeholder="Filter clients" data-search;
            }
            ul class="links" {
                // The API still knows discontinued clients. Nobody should start with one.
                @for client in self.clients.clients.iter().filter(|client| client.method != ConnectMethod::Discontinued) {
                    li data-filter {
                        a href=(self.query.only(&["endpoint"]).with("client",
                            Some(&client.id)).link("/connect")) data-row
                            aria-current=[(current == Some(client.id.as_str())).then_some("true")] {
                                (client.title) }
                    }
                }
            }
        }
    }

    fn steps(&self, chosen: &ChosenClient) -> Markup {
        let client = &chosen.client;
        let path = match self.endpoint.name() {
            "" => String::new(),
            _ => format!(" --endpoint {}", self.endpoint.path()),
        };
        let key = if self.is_open {
            String::new()
        } else {
            format!(" --key {}", self.key_name)
        };
        html! {
            h2 { (client.title) " " a class="back" href=(self.query.only(&["endpoint"]).link("/connect")) { "All clients" } }
            form class="inline" method="get" action="/connect" data-auto-submit {
                input type="hidden" name="client" value=(client.id);
                (self.endpoint.field())
                noscript { button class="btn" { "Show" } }
            }
            @if !self.endpoint.is_there { (self.endpoint.missing()) }
            @else if self.url.is_empty() {
                p class="banner orange" { "No endpoint has a URL: the gateway listens only \
                    on sockets." }
            } @else {
                (self.key(client))
                @for step in chosen.steps.iter().filter(|step| step.kind == StepKind::Link) {
                    (step_block(client, step)) }
                @if client.method == ConnectMethod::File {
                    h3 { "On the gateway's machine" }
                    p class="soft" { "One command does it. It shows you the diff and asks before \
                        it writes anything." }
                    (code_block(&format!("moongate connect {}{path} \
                        --write{key}", client.id), "the command"))
                }
                @for step in chosen.steps.iter().filter(|step| step.kind != StepKind::Link) {
                    (step_block(client, step)) }
                (too_long(chosen))
                (self.presence(chosen))
            }
        }
    }

    /// Renders what the client needs to be let in.
    fn key(&self, client: &ClientRow) -> Markup {
        html! {
            h3 { "The key" }
            @if self.is_open { p { "No key needed: this machine may use the endpoint." } }
            @else { p { "The client needs its own key. The steps below read it from the \
                variable " code { "MOONGATE_KEY" } " or contain a placeholder." } }
            @if !self.is_open && !self.keys.is_empty() {
                p class="soft" {
                    "Any key that may use this endpoint will work, if you still have \
                     it: " (some_names(&self.keys)) "."
                }
            }
            @if self.may_make_key { p { (keys::make_for_client(&self.key_name, &client.title)) } }
        }
    }

    /// Renders whether the client is there.
    pub fn presence(&self, chosen: &ChosenClient) -> Markup {
        let present = chosen.client.present.as_ref();
        let title = &chosen.client.title;
        let part = self
            .query
            .only(&["client", "endpoint"])
            .link("/parts/connect");
        html! {
            div id="presence" class="panel presence" role="status" data-part=(part) data-on="sessions calls snapshot" data-ticks="slow" {
                @if let Some(sign) = present.filter(|sign| sign.seconds <= RECENT_SECONDS) {
                    (StateIcon::of_call(CallState::Ok).draw())
                    span { b class="green" { (title) " is connected" }
                        ": " (VisibleText(&sign.name)) " " (VisibleText(&sign.version)) ", " (seconds(sign.seconds)) " ago" }
                } @else {
                    (StateIcon::of_call(CallState::Running).draw())
                    span {
                        "Waiting for " (title) "…"
                        @if let Some(sign) = present {
                            span class="soft" { " Last seen " (seconds(sign.seconds)) " ago." } }
                    }
                }
            }
        }
    }
}

fn step_block(client: &ClientRow, step: &ConnectStep) -> Markup {
    let words = &step.text;
    html! {
        @match step.kind {
            StepKind::Link => {
                p { a class="btn main" href=(words) rel="noopener noreferrer" {
                    "Add to " (client.title) } } }
            // The line that sets a key comes after the entry that names it.
            StepKind::Command if words.starts_with("export ") => { h3 { "Set the key in your \
                shell" } (code_block(words, "the line")) }
            StepKind::Command => { h3 { "By command" } (code_block(words, "the command")) }
            StepKind::File => {
                h3 { @match &step.path { None => "Paste this text",
                    Some(path) => { "By file: " code { (path) } } } }
                (code_block(words, "the text"))
            }
            StepKind::Note => { p { (words) } }
        }
    }
}

/// Renders the first names of a list.
fn some_names(names: &[String]) -> Markup {
    html! {
        @for (n, name) in names.iter().take(NAMES_MAX).enumerate() { @if n > 0 { ", " }
            code { (VisibleText(name)) } }
        @if names.len() > NAMES_MAX { ", …" }
    }
}

fn too_long(chosen: &ChosenClient) -> Markup {
    let names = &chosen.too_long;
    html! {
        @if !names.is_empty() {
            p class="banner orange" {
                (count(names.len() as u64, "name is",
                    "names are")) " too long for " (chosen.client.title) ": "
                (some_names(names))
                " Use a shorter server prefix."
            }
        }
    }
}
