//! View of the sessions of legacy clients.
//!
//! Owns the table. Does not end sessions by itself. Invariant: the ids are our own, never a session's secret.

use maud::{Markup, html};
use serde_json::Value;

use super::facts::{number, text};
use super::text::{VisibleText, count, seconds, show_invisible};

/// Renders the whole view.
pub(super) fn page(sessions: &[Value], may_act: bool) -> Markup {
    html! {
        div class="title" { h1 { "Sessions" } }
        p class="soft" { "Clients of the revisions with sessions. Stateless clients have none: see Calls." }
        (table(sessions, may_act))
    }
}

/// Renders the sessions.
pub(super) fn table(sessions: &[Value], may_act: bool) -> Markup {
    html! {
        div id="sessions" data-part="/parts/sessions" data-on="sessions snapshot" data-ticks="slow" {
            @if sessions.is_empty() { p class="empty" { "No client has a session." } }
            @else {
                p class="soft" { (count(sessions.len() as u64, "session", "sessions")) }
                div class="wide panel" tabindex="0" role="region" aria-label="Sessions" {
                    table class="calls" {
                        thead { tr {
                            th scope="col" { "Client" } th scope="col" { "Principal" } th scope="col" { "Endpoint" } th scope="col" { "Revision" }
                            th scope="col" class="n" { "Age" } th scope="col" class="n" { "Idle" } th scope="col" class="n" { "Calls" }
                            th scope="col" class="n" { "Streams" } th scope="col" class="n" { "Subscriptions" }
                            th scope="col" { span class="unseen" { "Actions" } }
                        } }
                        tbody { @for session in sessions { (row(session, may_act)) } }
                    }
                }
            }
        }
    }
}

fn row(session: &Value, may_act: bool) -> Markup {
    let (id, client) = (text(session, "id"), &session["client"]);
    let name = match text(client, "name") {
        "" => "unnamed client",
        name => name,
    };
    let question =
        format!("End the session of {name} ({})? The client has to connect again.", text(session, "principal"));
    html! {
        tr id=(format!("session-{id}")) {
            td { (VisibleText(name)) " " span class="soft" { (VisibleText(text(client, "version"))) } }
            td { (VisibleText(text(session, "principal"))) }
            td { code { (VisibleText(text(session, "endpoint"))) } }
            td { (text(session, "revision")) }
            td class="n" title=(text(session, "since")) { (seconds(number(session, "since_seconds"))) }
            td class="n" { (seconds(number(session, "idle_seconds"))) }
            td class="n" { (number(session, "calls")) }
            td class="n" { (number(session, "streams")) }
            td class="n" { (number(session, "subscriptions")) }
            td {
                @if may_act {
                    button type="button" class="btn small js-only" data-action=(format!("/api/v1/sessions/{id}")) data-method="DELETE"
                        data-done="The session was ended." data-confirm=(show_invisible(&question)) data-verb="End it" { "End" }
                }
            }
        }
    }
}
