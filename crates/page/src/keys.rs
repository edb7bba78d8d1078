//! View of the keys: who may use the endpoint and this page, and a form for new ones.
//!
//! Owns the tables, the form, the dialog of a new key, and the button that makes a key for a client
//! (`connect.rs`). Does not make keys (`admin/keys.rs`). Invariant: rendered HTML never contains a
//! key. The script shows a new key once, from the response that created it.

use maud::{Markup, html};
use moongate_api::{ClientKey, KeyListName, KeyLists, KeyPlace, OperatorKey};

use super::buttons::ConfigButton;
use super::config_location::file_location;
use super::copy::copy_button;
use super::text::{VisibleText, show_invisible};
use super::view_query::segment;

/// Those who may use the endpoint if there is no key of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeylessAccess {
    /// Everybody who can reach it.
    Everybody,
    /// People with a login or an access token.
    People,
    /// Nobody.
    Nobody,
}

/// Keys, as the API lists them.
pub struct KeysView<'a> {
    /// Keys that are in use.
    pub keys: &'a KeyLists,
    /// True if the reader may act.
    pub may_act: bool,
    /// True if changes of the config are taken here.
    pub may_edit: bool,
    /// Those who may use the endpoint without any key of a client.
    pub without_keys: KeylessAccess,
    /// Names of endpoints that a key can be restricted to.
    pub endpoints: Vec<String>,
}

impl KeysView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        html! {
            div class="title" { h1 { "Keys" } }
            (self.lists())
            @if self.may_act && self.may_edit { (self.forms()) }
        }
    }

    /// Renders both lists.
    pub fn lists(&self) -> Markup {
        let KeyLists { clients, operators } = self.keys;
        html! {
            div id="keys" data-part="/parts/keys" data-on="config snapshot" data-ticks="slow" {
                h2 { "Clients" }
                @if clients.is_empty() {
                    (no_client_key(self.without_keys))
                } @else {
                    (table(KeyListName::Clients,
                        html! { @for key in clients { (self.client_row(key)) } }))
                }
                h2 { "Operators" }
                @if operators.is_empty() {
                    p class="soft" { "No keys: this machine may view this page and make changes. \
                        Once you create a key, everybody needs one." }
                } @else {
                    (table(KeyListName::Operators,
                        html! { @for key in operators { (self.operator_row(key)) } }))
                }
            }
        }
    }

    fn client_row(&self, key: &ClientKey) -> Markup {
        html! {
            tr id=(format!("key-clients-{}", key.name)) {
                (name_cells(&key.name, &key.hash_prefix, &key.place))
                td { (VisibleText(&all_or_names(key.views.as_deref()))) }
                td { (VisibleText(&all_or_names(key.tools.as_deref()))) }
                td { (key.rate.as_deref().unwrap_or("no limit")) }
                td {
                    @if key.expired { b class="red" { "expired" } " " }
                    (moment(key.expires.as_deref(), "never"))
                }
                td { (moment(key.last_used.as_deref(), "not since startup")) }
                (self.action_cell(KeyListName::Clients, &key.name, &key.place))
            }
        }
    }

    fn operator_row(&self, key: &OperatorKey) -> Markup {
        html! {
            tr id=(format!("key-operators-{}", key.name)) {
                (name_cells(&key.name, &key.hash_prefix, &key.place))
                td { (key.role) }
                td { (moment(key.last_used.as_deref(), "not since startup")) }
                (self.action_cell(KeyListName::Operators, &key.name, &key.place))
            }
        }
    }

    fn action_cell(&self, of: KeyListName, name: &str, place: &KeyPlace) -> Markup {
        html! {
            td class="n" {
                @if self.may_act && place.editable { (self.revoke(of, name)) }
                @else if self.may_act {
                    span class="soft" {
                        (VisibleText(place.why_not.as_deref().unwrap_or_default())) } }
            }
        }
    }

    /// Renders the buttons that revoke a key. Without the last one of a client, the endpoint would
    /// be open to everybody.
    fn revoke(&self, of: KeyListName, name: &str) -> Markup {
        let would_open = self.without_keys == KeylessAccess::Everybody;
        let is_last = of == KeyListName::Clients && self.keys.clients.len() == 1 && would_open;
        let url = format!("/api/v1/keys/{}?list={}", segment(name), of.name());
        if !is_last {
            let question = format!(
                "Revoke the key {name}? Everybody who uses it will be locked out, and their \
                 sessions will end."
            );
            return revoke_button(name, url, "Revoke…", (question, "Revoke key"));
        }
        let closed = format!(
            "Revoke {name}, the last key, and keep the endpoint closed? Nobody can use it until \
             you create another key."
        );
        let open = format!(
            "Revoke {name}, the last key, and open the endpoint? Every program on this machine can \
             then use it, including those that have {name}."
        );
        html! {
            (revoke_button(name, format!("{url}&closed=true"), "Revoke…", (closed, "Revoke key")))
            " "
            (revoke_button(name, url, "Revoke and open…", (open, "Revoke and open")))
        }
    }

    fn forms(&self) -> Markup {
        html! {
            h2 { "Create a key" }
            div class="try" {
                form class="panel form" method="post" data-send="/api/v1/keys" data-done="The key \
                    was created." {
                    h3 { "For a client" }
                    (field("name", "Name", "who uses it: a person, a program, a \
                        machine", "laptop", false))
                    details {
                        summary { "What it may do" }
                        (field("views", "Endpoints", &format!("any of {}; empty: \
                            all", self.endpoints.join(", ")), "", true))
                        (field("tools", "Tools", "patterns, such as github__* !*__delete_*; \
                            empty: all", "", true))
                        (field("rate", "Rate", "such as 100/1m; empty: no limit", "", false))
                        (field("expires", "Expires", "such as 2027-01-31T00:00:00Z; \
                            empty: never", "", false))
                    }
                    div class="row" { button class="btn main js-only" { "Create key" } }
                }
                form class="panel form" method="post" data-send="/api/v1/keys" data-done="The key \
                    was created." {
                    h3 { "For an operator" }
                    input type="hidden" name="list" value="operators";
                    (field("name", "Name", "who signs in here", "me", false))
                    label class="f" { span class="cap" { b { "Role" } }
                        // The first key must be able to act, or nobody could.
                        @let is_first = self.keys.operators.is_empty();
                        select class="in" name="role" {
                            option value="view" { "view: sees everything, changes nothing" }
                            option value="operate" selected[is_first] { "operate: can also make \
                                changes" }
                        }
                    }
                    div class="row" { button class="btn main js-only" { "Create key" } }
                }
            }
            (new_key_dialog())
        }
    }
}

fn table(of: KeyListName, rows: Markup) -> Markup {
    html! {
        div class="wide panel" tabindex="0" role="region" aria-label=(format!("Keys of {}",
            of.name())) {
            table class="keys" {
                thead { tr {
                    th scope="col" { "Name" } th scope="col" { "Hash" }
                    @match of {
                        KeyListName::Clients => { th scope="col" { "Views" }
                            th scope="col" { "Tools" } th scope="col" { "Rate" }
                            th scope="col" { "Expires" } }
                        KeyListName::Operators => { th scope="col" { "Role" } }
                    }
                    th scope="col" { "Last used" }
                    th scope="col" { span class="unseen" { "Actions" } }
                } }
                tbody { (rows) }
            }
        }
    }
}

fn name_cells(name: &str, hash: &str, at: &KeyPlace) -> Markup {
    html! {
        td { b { (VisibleText(name)) }
            span class="soft" { (file_location(at.file.as_deref(), at.line)) } }
        td { code { (hash) } }
    }
}

fn all_or_names(names: Option<&[String]>) -> String {
    match names.unwrap_or_default() {
        [] => "all".to_owned(),
        names => names.join(", "),
    }
}

fn field(name: &str, label: &str, meaning: &str, example: &str, is_list: bool) -> Markup {
    html! {
        label class="f" {
            span class="cap" { b { (label) } " " span class="soft" { (meaning) } }
            input class="in" name=(name) placeholder=(example) required[name == "name"] data-list[is_list] autocomplete="off" spellcheck="false";
        }
    }
}

/// Renders the dialog that shows a new key.
pub(super) fn new_key_dialog() -> Markup {
    html! {
        dialog id="newkey" aria-labelledby="newkey-title" {
            h2 id="newkey-title" { "The new key" }
            p { "This key is shown only once. The config stores only its hash." }
            p { code {} " " (copy_button("the key")) }
            p class="orange" data-first hidden { "This is the first key: from now on everybody \
                needs one." }
            form method="dialog" class="row" { button class="btn main" { "I have copied it" } }
        }
    }
}

/// Returns a name that no key of a client has: this one, or with a number.
pub fn unused_name(keys: &KeyLists, wanted: &str) -> String {
    let numbered = (2..).map(|n| format!("{wanted}-{n}"));
    std::iter::once(wanted.to_owned())
        .chain(numbered)
        .find(|name| keys.clients.iter().all(|key| key.name != *name))
        .unwrap_or_default()
}

fn revoke_button(name: &str, url: String, label: &str, confirm: (String, &str)) -> Markup {
    ConfigButton {
        label,
        method: "DELETE",
        url,
        body: None,
        done: format!("The key {name} was revoked."),
        confirm: Some(confirm),
    }
    .draw_typed(&show_invisible(name))
}

/// Renders the button that makes a key for a client.
pub(super) fn make_for_client(name: &str, title: &str) -> Markup {
    html! {
        form class="inline" method="post" data-send="/api/v1/keys" data-done=(format!("The key \
            {name} was created.")) {
            input type="hidden" name="name" value=(name);
            button class="btn js-only" { "Create a key for " (title) }
        }
        (new_key_dialog())
    }
}

/// Renders a time to the minute. The whole of it is in the title.
fn moment(at: Option<&str>, never: &str) -> Markup {
    let at = at.unwrap_or_default();
    html! {
        @if at.is_empty() { span class="soft" { (never) } }
        @else { time datetime=(at) title=(at) { (at.get(..16).unwrap_or(at).replace('T', " ")) } }
    }
}

/// Renders what holds without any key of a client.
fn no_client_key(without_keys: KeylessAccess) -> Markup {
    html! {
        p class="soft" {
            @match without_keys {
                KeylessAccess::Everybody => {
                    "No keys: everybody who can reach the endpoint may use it. Once you create a \
                     key, everybody needs one."
                }
                KeylessAccess::People => {
                    "No keys: only people who log in or have an access token may use the endpoint."
                }
                KeylessAccess::Nobody => {
                    "No keys, and " code { "auth.required" } " is on: nobody can connect until you \
                     create a key."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a view of an operator who may do everything.
    fn keys_view(keys: &KeyLists) -> KeysView<'_> {
        KeysView {
            keys,
            may_act: true,
            may_edit: true,
            without_keys: KeylessAccess::Everybody,
            endpoints: Vec::new(),
        }
    }

    #[test]
    fn keys_are_listed_and_only_those_of_files_can_be_revoked() {
        let first = ClientKey {
            name: "ci".to_owned(),
            hash_prefix: "9f86d081".to_owned(),
            views: Some(vec!["coding".to_owned()]),
            rate: Some("9/1m".to_owned()),
            expires: Some("2027-01-31T00:00:00Z".to_owned()),
            place: KeyPlace {
                file: Some("/etc/moongate.toml".to_owned()),
                line: Some(9),
                editable: true,
                why_not: None,
            },
            ..ClientKey::default()
        };
        let why_not = Some("it comes from a variable".to_owned());
        let second = ClientKey {
            name: "<b>\u{202e}".to_owned(),
            expired: true,
            place: KeyPlace {
                why_not,
                ..KeyPlace::default()
            },
            ..ClientKey::default()
        };
        let keys = KeyLists {
            clients: vec![first, second],
            operators: Vec::new(),
        };
        let view = KeysView {
            endpoints: vec!["coding".to_owned()],
            ..keys_view(&keys)
        };
        let html = view.page().into_string();
        for part in [
            "9f86d081",
            "2027-01-31 00:00",
            "coding",
            "moongate.toml:9",
            "comes from a variable",
            "data-typed=\"ci\"",
            "expired",
            "No keys: this machine",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(html.matches("Revoke…").count(), 1, "{html}");
        assert!(html.contains("&lt;b&gt;⟨U+202E⟩") && !html.contains("<b>\u{202e}"));
        assert!(html.contains("id=\"newkey\"") && html.contains("value=\"operators\""));
        assert_eq!(unused_name(&keys, "ci"), "ci-2");
        assert_eq!(unused_name(&keys, "cursor"), "cursor");
        let viewing = KeysView {
            may_act: false,
            ..keys_view(&keys)
        };
        let html = viewing.page().into_string();
        assert!(
            !html.contains("Revoke…") && !html.contains("<form"),
            "{html}"
        );
        let without_edits = KeysView {
            may_edit: false,
            ..keys_view(&keys)
        };
        assert!(!without_edits.page().into_string().contains("Create a key"));
    }

    #[test]
    fn the_last_key_says_that_the_endpoint_opens() {
        let place = KeyPlace {
            editable: true,
            ..KeyPlace::default()
        };
        let key = ClientKey {
            name: "ci".to_owned(),
            place,
            ..ClientKey::default()
        };
        let keys = KeyLists {
            clients: vec![key],
            operators: Vec::new(),
        };
        let html = keys_view(&keys).lists().into_string();
        for part in [
            "closed=true",
            "keep the endpoint closed",
            "Revoke and open…",
            "Every program on this machine",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert!(!html.contains("locked out"), "{html}");
        for without_keys in [KeylessAccess::People, KeylessAccess::Nobody] {
            let closed = KeysView {
                without_keys,
                ..keys_view(&keys)
            };
            let html = closed.lists().into_string();
            assert!(
                html.contains("locked out") && !html.contains("Revoke and open"),
                "{html}"
            );
        }
    }

    #[test]
    fn without_keys_the_page_says_who_gets_in() {
        let keys = KeyLists::default();
        for (without_keys, part) in [
            (KeylessAccess::Everybody, "everybody who can reach"),
            (KeylessAccess::People, "only people who log in"),
            (KeylessAccess::Nobody, "nobody can connect"),
        ] {
            let view = KeysView {
                without_keys,
                ..keys_view(&keys)
            };
            let html = view.lists().into_string();
            assert!(html.contains(part), "{part} in {html}");
        }
    }
}
