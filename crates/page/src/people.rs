//! View of people's logins, each with the client that acts for the person.
//!
//! Owns the table. Ends a login only on request. Does not read logins (`admin/people.rs`).
//! Invariant: invisible characters in names are shown, and no token is on the page.

use maud::{Markup, html};
use moongate_api::{PeopleList, PersonItem};

use super::text::{VisibleText, WithCode, count, show_invisible};
use super::view_query::segment;

/// Most logins on one page. The command lists all.
const LOGINS_MAX: usize = 500;

/// Logins, as the API lists them.
pub struct PeopleView<'a> {
    /// Logins and findings. `None`: people cannot log in at this gateway.
    pub people: Option<&'a PeopleList>,
    /// True if the reader may act.
    pub may_act: bool,
}

impl PeopleView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        html! {
            div class="title" { h1 { "People" } }
            (self.list())
        }
    }

    /// Renders the list.
    pub fn list(&self) -> Markup {
        html! {
            div id="people" data-part="/parts/people" data-on="sessions snapshot" data-ticks="slow" {
                @match self.people {
                    None => {
                        p class="empty" {
                            "People cannot log in at this gateway. To let them, add "
                            code { "[auth.oauth]" } " to the config." }
                    }
                    Some(people) => { (self.logins(people)) }
                }
            }
        }
    }

    fn logins(&self, people: &PeopleList) -> Markup {
        let logins = &people.logins;
        html! {
            @for finding in &people.findings { p class="banner orange" { (WithCode(finding)) } }
            @if logins.is_empty() { p class="empty" { "Nobody is logged in." } }
            @else {
                p class="soft" {
                    (count(logins.len() as u64, "login", "logins"))
                    @if logins.len() > LOGINS_MAX {
                        "; the " (LOGINS_MAX) " last used are shown, and "
                        code { "moongate logins" } " lists all" }
                }
                div class="wide panel" tabindex="0" role="region" aria-label="Logins" {
                    table class="calls" {
                        thead { tr {
                            th scope="col" { "Name" } th scope="col" { "Roles" }
                            th scope="col" { "Client" } th scope="col" { "Endpoint" }
                            th scope="col" { "Since" } th scope="col" { "Last used" }
                            th scope="col" { "Confirmed" }
                            th scope="col" class="n" { "Replays" }
                            th scope="col" { span class="unseen" { "Actions" } }
                        } }
                        tbody {
                            @for login in logins.iter().take(LOGINS_MAX) { (self.row(login)) } }
                    }
                }
            }
        }
    }

    fn row(&self, login: &PersonItem) -> Markup {
        let id = login.id.as_str();
        let question = format!(
            "Revoke the login of {} with {}? Its streams and calls end immediately, and the client \
             has to request a new login.",
            login.name, login.client
        );
        html! {
            tr id=(format!("login-{id}")) {
                td { (VisibleText(&login.name)) }
                td {
                    @if login.roles.is_empty() { span class="soft" { "none" } }
                    @else { (VisibleText(&login.roles.join(", "))) }
                }
                td { (VisibleText(&login.client)) }
                td { code { (VisibleText(&login.endpoint)) } }
                td title=(login.since) { (minute(&login.since)) }
                td title=(login.last_used) { (minute(&login.last_used)) }
                td title=(login.checked) { (minute(&login.checked)) }
                td class="n" { (login.replays) }
                td {
                    @if self.may_act {
                        button type="button" class="btn small js-only"
                            data-action=(format!("/api/v1/people/{}", segment(id)))
                            data-method="DELETE" data-done="The login was revoked."
                            data-confirm=(show_invisible(&question)) data-verb="Revoke login" {
                            "Revoke" }
                    }
                }
            }
        }
    }
}

/// Writes a time in UTC to the minute.
fn minute(time: &str) -> String {
    time.get(..16).unwrap_or(time).replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(name: &str) -> PersonItem {
        PersonItem {
            id: "0123456789abcdef0123456789abcdef".to_owned(),
            name: name.to_owned(),
            roles: vec!["staff".to_owned(), "admins".to_owned()],
            client: "<b>Claude</b>".to_owned(),
            endpoint: "/mcp/reading".to_owned(),
            since: "2026-07-01T10:20:30Z".to_owned(),
            last_used: "2026-07-02T10:20:30Z".to_owned(),
            checked: "2026-07-03T10:20:30Z".to_owned(),
            replays: 2,
        }
    }

    fn drawn(people: Option<&PeopleList>, may_act: bool) -> String {
        PeopleView { people, may_act }.page().into_string()
    }

    #[test]
    fn a_login_shows_who_uses_which_client_with_which_roles() {
        let people = PeopleList {
            logins: vec![login("ann@example.com")],
            findings: vec!["the organisation `example` has another id".to_owned()],
        };
        let html = drawn(Some(&people), true);
        for part in [
            "ann@example.com",
            "staff, admins",
            "&lt;b&gt;Claude&lt;/b&gt;",
            "/mcp/reading",
            "2026-07-01 10:20",
            "2026-07-02 10:20",
            "2026-07-03 10:20",
            "<code>example</code> has another id",
            "data-action=\"/api/v1/people/0123456789abcdef0123456789abcdef\"",
            "data-method=\"DELETE\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("<b>Claude"));
    }

    #[test]
    fn a_viewer_has_no_button() {
        let people = PeopleList {
            logins: vec![login("ann@example.com")],
            findings: Vec::new(),
        };
        assert!(!drawn(Some(&people), false).contains("data-action"));
    }

    #[test]
    fn a_name_cannot_hide_what_it_is() {
        let people = PeopleList {
            logins: vec![login("<script>alert(1)</script>\u{202e}moc.elpmaxe@nna")],
            findings: Vec::new(),
        };
        let html = drawn(Some(&people), true);
        assert!(!html.contains("<script>") && !html.contains('\u{202e}'));
    }

    #[test]
    fn nobody_and_no_login_have_their_own_words() {
        assert!(drawn(Some(&PeopleList::default()), true).contains("Nobody is logged in."));
        assert!(drawn(None, true).contains("[auth.oauth]"));
    }
}
