//! First steps: what a reader sees where no server is configured.
//!
//! Owns text and cards. Does not add anything (`add.rs`). Invariant: each card leads to one way of
//! adding a server.

use maud::{Markup, html};
use moongate_api::ServerStatus;

use super::text::VisibleText;
use super::view_query::segment;

/// Ways to add a server: tab, title and text.
const CARDS: [(&str, &str, &str); 3] = [
    (
        "url",
        "Add by URL",
        "A server on the web or on your network. Preview its tools before you add it.",
    ),
    (
        "paste",
        "Paste JSON",
        "The config of any client, one server or ten. YAML, TOML and command lines work too.",
    ),
    (
        "popular",
        "Popular",
        "Widely used servers, added with one click. Most need no key.",
    ),
];

/// Renders the steps. `demo` is the server that replaces others, if there is one.
pub(super) fn draw(demo: Option<&ServerStatus>, may_act: bool) -> Markup {
    html! {
        section class="first" aria-label="First steps" {
            p class="lead" {
                "Nothing is connected yet."
                @if let Some(demo) = demo {
                    @let name = demo.name();
                    " This is the demo \
                     server: " a href=(format!("/try/{}/add", segment(name))) { "try it" } "."
                }
            }
            @if may_act {
                ul class="cards" {
                    @for (tab, title, words) in CARDS {
                        li { a class="panel" href=(format!("/add?tab={tab}")) data-row {
                            b { (title) } span class="soft" { (words) } } }
                    }
                }
            } @else { p { "Only a key with the role “operate” can add servers." } }
            p class="soft" { "To import the servers that your clients already have, \
                run " code { "moongate import" } ". Commands and this page change the same config \
                file." }
            @if let Some(demo) = demo { h2 { (VisibleText(demo.name())) ", built in" } }
        }
    }
}
