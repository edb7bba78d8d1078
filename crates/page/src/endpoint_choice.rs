//! Endpoint that several views read from their URL.
//!
//! Owns the field that chooses it, and its name and path. Does not list the endpoint's tools.
//! Invariant: an endpoint that no longer exists stays selected, so a link never shows a different
//! one.

use maud::{Markup, html};

use super::text::VisibleText;

/// Endpoint, by its name and its path. The one over everything has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointName {
    /// Name in the config.
    pub name: String,
    /// Path for clients.
    pub path: String,
}

/// Endpoint that a view shows, and those it could show.
pub struct EndpointChoice {
    /// Endpoints that can be chosen.
    pub all: Vec<EndpointName>,
    /// Chosen one.
    pub chosen: EndpointName,
    /// True if there is such an endpoint.
    pub is_there: bool,
}

impl EndpointChoice {
    /// Returns the name of the chosen endpoint.
    pub fn name(&self) -> &str {
        &self.chosen.name
    }

    /// Returns the path of the chosen endpoint.
    pub fn path(&self) -> &str {
        &self.chosen.path
    }

    /// Renders the field of a form. Nothing to choose from renders nothing.
    pub fn field(&self) -> Markup {
        html! {
            @if self.all.len() > 1 || !self.is_there {
                select class="in" name="endpoint" aria-label="Endpoint" {
                    @if !self.is_there {
                        option value=(self.name()) selected { (VisibleText(self.path())) } }
                    @for endpoint in &self.all {
                        option value=(endpoint.name) selected[*endpoint == self.chosen] {
                            (VisibleText(&endpoint.path)) }
                    }
                }
            }
        }
    }

    /// Renders the text for an endpoint that is not there.
    pub fn missing(&self) -> Markup {
        html! { p class="empty" { "There is no endpoint " code { (VisibleText(self.path())) }
        "." } }
    }
}
