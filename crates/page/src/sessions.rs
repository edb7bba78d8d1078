//! View of the clients: those with a session, and those whose revision has none.
//!
//! Owns both tables. Ends a session only on request. Does not read sessions (`admin/sessions.rs`).
//! Invariant: the ids are our own, never a session's secret.

use maud::{Markup, html};
use moongate_api::{ClientName, SessionRow, StatelessClient};

use super::text::{VisibleText, count, seconds, show_invisible};

/// Clients, as the API lists them.
pub struct SessionsView<'a> {
    /// Sessions in use, newest first.
    pub sessions: &'a [SessionRow],
    /// Clients whose revision has no sessions.
    pub stateless: &'a [StatelessClient],
    /// True if the reader may act.
    pub may_act: bool,
}

impl SessionsView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        html! {
            div class="title" { h1 { "Sessions" } }
            (self.lists())
        }
    }

    /// Renders both lists.
    pub fn lists(&self) -> Markup {
        html! {
            div id="sessions" data-part="/parts/sessions" data-on="sessions snapshot" data-ticks="slow" {
                @if self.sessions.is_empty() { p class="empty" { "No client has a session." } }
                @else { (self.session_table()) }
                @if !self.stateless.is_empty() {
                    h2 { "Without a session" }
                    p class="soft" { "Clients that use the stateless revision are listed by their \
                        recent calls." }
                    (self.stateless_table())
                }
            }
        }
    }

    fn session_table(&self) -> Markup {
        html! {
            p class="soft" { (count(self.sessions.len() as u64, "session", "sessions")) }
            div class="wide panel" tabindex="0" role="region" aria-label="Sessions" {
                table class="calls" {
                    thead { tr {
                        (identity_heads())
                        th scope="col" class="n" { "Age" } th scope="col" class="n" { "Idle" }
                        th scope="col" class="n" { "Running calls" }
                        th scope="col" class="n" { "Streams" }
                        th scope="col" class="n" { "Subscriptions" }
                        th scope="col" { span class="unseen" { "Actions" } }
                    } }
                    tbody { @for session in self.sessions { (self.session_row(session)) } }
                }
            }
        }
    }

    fn session_row(&self, session: &SessionRow) -> Markup {
        let id = session.id.as_str();
        let question = format!(
            "End the session of {} ({})? The client has to connect again.",
            client_name(&session.client),
            session.principal
        );
        html! {
            tr id=(format!("session-{id}")) {
                (identity(&session.client,
                    [&session.principal, &session.endpoint, &session.revision]))
                @let age = session.since_seconds.and_then(|age| u64::try_from(age).ok()).unwrap_or_default();
                td class="n" title=(session.since.as_deref().unwrap_or_default()) { (seconds(age)) }
                td class="n" { (seconds(session.idle_seconds)) }
                td class="n" { (session.calls) }
                td class="n" { (session.streams) }
                td class="n" { (session.subscriptions) }
                td {
                    @if self.may_act {
                        button type="button" class="btn small js-only" data-action=(format!("/api/v1/sessions/{id}")) data-method="DELETE"
                            data-done="The session was \
                                       ended." data-confirm=(show_invisible(&question)) data-verb="End session" { "End" }
                    }
                }
            }
        }
    }

    fn stateless_table(&self) -> Markup {
        html! {
            div class="wide panel" tabindex="0" role="region" aria-label="Clients without a \
                session" {
                table class="calls" {
                    thead { tr {
                        (identity_heads())
                        th scope="col" class="n" { "Last call" }
                        th scope="col" class="n" { "Running calls" }
                        th scope="col" class="n" { "Recent calls" }
                    } }
                    tbody {
                        @for client in self.stateless {
                            tr {
                                (identity(&client.client,
                                    [&client.principal, &client.endpoint, &client.revision]))
                                td class="n" { (seconds(client.idle_seconds)) " ago" }
                                td class="n" { (client.calls) }
                                td class="n" { (client.recent_calls) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn client_name(client: &ClientName) -> &str {
    client
        .name
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or("unnamed client")
}

fn identity_heads() -> Markup {
    html! { th scope="col" { "Client" } th scope="col" { "Principal" } th scope="col" { "Endpoint" }
    th scope="col" { "Revision" } }
}

/// Renders the cells that say who it is.
fn identity(client: &ClientName, [principal, endpoint, revision]: [&str; 3]) -> Markup {
    let version = client.version.as_deref().unwrap_or_default();
    html! {
        td { (VisibleText(client_name(client))) " " span class="soft" { (VisibleText(version)) } }
        td { (VisibleText(principal)) }
        td { code { (VisibleText(endpoint)) } }
        td { (revision) }
    }
}
