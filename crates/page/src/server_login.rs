//! Login at a server, as its card shows it.
//!
//! Owns its text and buttons. Does not log in (`js/actions.js` asks the API). Invariant: a server
//! that the gateway does not log in to has neither.

use maud::{Markup, html};
use moongate_api::{LoginPhase, LoginView, ServerStatus};
use moongate_model::UpstreamState;

use super::buttons::{ConfigButton, login_button};
use super::switch::server_url;
use super::text::WithCode;

/// Renders the state of a login, next to that of its server. Without a login, the server's state
/// says so.
pub(super) fn login_words(login: &LoginView) -> Markup {
    let expires = login.expires.as_deref();
    html! {
        @match login.state {
            LoginPhase::SignedIn if login.renews => { " · Signed in, renews itself" }
            LoginPhase::SignedIn => {
                " · Signed in" @if let Some(at) = expires { " until " (minute(at)) } }
            LoginPhase::Ended => { " · The last login has ended" }
            LoginPhase::SignedOut => {}
        }
        @if let Some(problem) = &login.problem { br; "Login: " (WithCode(problem)) }
    }
}

/// Renders a time to the minute. The title has the full time.
fn minute(at: &str) -> Markup {
    let shown = at.get(..16).unwrap_or(at).replace('T', " ");
    html! { time datetime=(at) title=(at) { (shown) " UTC" } }
}

/// Renders the button that starts a login, if that would help.
pub(super) fn sign_in(server: &ServerStatus) -> Markup {
    let login = server.condition.login.as_ref();
    let is_refused = server.condition.state == UpstreamState::NeedsLogin;
    let helps = login.is_some_and(|login| is_refused || login.state == LoginPhase::Ended);
    let url = format!("{}/login", server_url(server.name()));
    html! { @if helps { (login_button("Sign in", &url)) } }
}

/// Renders the button that ends a login, if there is one.
pub(super) fn sign_out(server: &ServerStatus) -> Markup {
    let name = server.name();
    let login = server.condition.login.as_ref();
    let is_there = login.is_some_and(|login| login.state != LoginPhase::SignedOut);
    html! {
        @if is_there {
            (ConfigButton {
                label: "Sign out",
                method: "POST",
                url: format!("{}/logout", server_url(name)),
                body: None,
                done: format!("Signed out of {name}."),
                confirm: Some((format!("Sign out of {name}? The login is revoked, and calls that \
                    need it fail until somebody signs in again."), "Sign out")),
            }.draw())
        }
    }
}
