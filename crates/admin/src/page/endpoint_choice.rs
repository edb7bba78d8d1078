//! Choice of an endpoint, as several views have it in their URL.
//!
//! Owns its field and its address. Does not list what the endpoint has. Invariant: an endpoint that is gone stays chosen,
//! so that a link never shows another one.

use maud::{Markup, html};
use moongate_gateway::EndpointCoverage;

use super::text::VisibleText;
use super::view_query::ViewQuery;
use crate::AdminState;
use crate::calls::endpoint_path;

/// Endpoint that a view shows, and those it could show.
pub(super) struct EndpointChoice {
    names: Vec<String>,
    /// Name of the chosen one. The endpoint over everything has none.
    pub(super) name: String,
    /// Servers and tools of the chosen one. `None` if there is no such endpoint.
    pub(super) coverage: Option<EndpointCoverage>,
}

impl EndpointChoice {
    /// Reads the choice of a URL.
    pub(super) fn read(admin: &AdminState, query: &ViewQuery) -> Self {
        let name = query.get("endpoint").unwrap_or_default().to_owned();
        EndpointChoice { names: admin.gateway.endpoint_names(), coverage: admin.gateway.endpoint_coverage(&name), name }
    }

    /// Chooses among these names without a gateway. The first one is there.
    #[cfg(test)]
    pub(super) fn of(names: &[&str], name: &str) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let coverage = (names[0] == name).then(EndpointCoverage::default);
        EndpointChoice { names, name: name.to_owned(), coverage }
    }

    /// Returns the path of the chosen endpoint.
    pub(super) fn path(&self) -> String {
        endpoint_path(&self.name)
    }

    /// Renders the field of a form. Nothing to choose from renders nothing.
    pub(super) fn field(&self) -> Markup {
        html! {
            @if self.names.len() > 1 || self.coverage.is_none() {
                select class="in" name="endpoint" aria-label="Endpoint" {
                    @if self.coverage.is_none() { option value=(self.name) selected { (VisibleText(&self.path())) } }
                    @for name in &self.names {
                        option value=(name) selected[*name == self.name] { (VisibleText(&endpoint_path(name))) }
                    }
                }
            }
        }
    }

    /// Renders the text for an endpoint that is not there.
    pub(super) fn missing(&self) -> Markup {
        html! { p class="empty" { "There is no endpoint " code { (VisibleText(&self.path())) } "." } }
    }
}
