//! Frame of every view: bar, navigation and dialogs.
//!
//! Owns the document, the list of views in the navigation, and the summary of states. Does not draw
//! views. Invariant: the HTML itself has no script, style or handler.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use moongate_api::ServerStatus;
use moongate_model::UpstreamState;

use super::banners::NoticeFacts;
use super::copy::copy_button;
use super::icons::{StateIcon, draw_chevron, draw_theme};
use super::state_groups::{GROUPS, count_group};
use super::text::{VisibleText, show_invisible};

/// Path, label and key of a view.
type NavigationView = (&'static str, &'static str, &'static str);

/// Views, in the order of the navigation: path, label, and the key that leads there after `g`.
const VIEWS: [NavigationView; 8] = [
    ("/", "Servers", "s"),
    ("/tools", "Tools", "t"),
    ("/calls", "Calls", "c"),
    ("/sessions", "Sessions", "e"),
    ("/people", "People", "p"),
    ("/context", "Context", "x"),
    ("/connect", "Connect", "o"),
    ("/keys", "Keys", "k"),
];
/// Views that a narrow bar has. The others are behind "More".
const NARROW: [&str; 4] = ["/", "/tools", "/calls", "/connect"];

/// Facts that the frame of a page shows.
pub struct PageFrame {
    /// Addresses of the endpoints, that of all servers first. None if no URL leads to them.
    pub urls: Vec<String>,
    /// Servers of the config.
    pub servers: Vec<ServerStatus>,
    /// Facts of the notices.
    pub notices: NoticeFacts,
    /// True if the reader may act. Otherwise the page has no buttons for actions.
    pub may_act: bool,
    /// True if the reader has a session that can be ended.
    pub is_signed_in: bool,
    /// True if the view of keys has something for the reader.
    pub sees_keys: bool,
    /// True if people can log in at this gateway.
    pub sees_people: bool,
}

/// Content of the document besides the frame.
pub struct PageContent<'a> {
    /// Label of the view in the navigation.
    pub view: &'static str,
    /// Name of the thing that the page is about, if it is one.
    pub title: Option<&'a str>,
    /// Content itself.
    pub body: Markup,
}

/// Renders a whole page.
pub fn document(frame: &PageFrame, content: &PageContent<'_>) -> Markup {
    let title = content
        .title
        .map(|title| format!("{} · {}", show_invisible(title), content.view));
    html! {
        (head(title.as_deref().unwrap_or(content.view)))
        body {
            a class="skip" href="#main" { "Skip to the content" }
            header {
                (brand())
                (endpoints(&frame.urls))
                span class="grow" {}
                (summary(&frame.servers))
                span id="live" class="live js-only" role="status" data-state="waiting" {
                    "connecting" }
                @if frame.may_act { (add_link(false)) }
                button type="button" class="plain js-only" id="theme" {
                    (draw_theme()) span { "Theme: system" } }
                @if frame.is_signed_in {
                    button type="button" class="plain js-only" id="signout" { "Sign out" } }
            }
            nav aria-label="Views" { (navigation(frame, content.view)) }
            (banners(&frame.notices))
            main id="main" tabindex="-1" { (content.body) }
            p id="announce" class="unseen" role="status" {}
            div id="said" hidden {
                span role="status" {}
                button type="button" data-action="/api/v1/config/undo" data-done="Undone." {
                    "Undo" }
            }
            (confirm_dialog())
            (help_dialog())
        }
    }
}

/// Opens the document.
pub(super) fn head(title: &str) -> Markup {
    html! {
        (DOCTYPE)
        (PreEscaped(concat!("<html lang=\"en\" data-version=\"", env!("CARGO_PKG_VERSION"), "\">")))
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Moongate" }
            link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
            link rel="stylesheet" href="/assets/app.css";
            script src="/assets/js/theme.js" {}
            script type="module" src="/assets/js/page.js" {}
        }
    }
}

/// Renders the wordmark.
pub(super) fn brand() -> Markup {
    html! {
        a class="brand" href="/" title=(concat!("Moongate ", env!("CARGO_PKG_VERSION"))) {
            svg viewBox="0 0 24 24" aria-hidden="true" focusable="false" {
                path d="M17.5 15.5A7.5 7.5 0 0 1 9 5.2a7.5 7.5 0 1 0 \
                        8.5 10.3z" fill="currentColor" {}
                path d="M4 21v-9a8 8 0 0 1 \
                        16 \
                        0v9" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" {}
            }
            span { "Moongate" }
        }
    }
}

/// Renders the address for clients, and a menu of the others.
fn endpoints(urls: &[String]) -> Markup {
    html! {
        @if let Some(url) = urls.first() {
            (address(url, "the address for clients"))
            @if urls.len() > 1 {
                details class="menu" data-menu {
                    summary aria-label="Addresses of all endpoints" { (draw_chevron(false)) }
                    div class="panel" { @for url in urls { (address(url, url)) } }
                }
            }
        }
    }
}

fn address(url: &str, label: &str) -> Markup {
    html! { span class="url" { code { (VisibleText(url)) } (copy_button(label)) } }
}

/// Renders the counts of servers by state. Each leads to its filter.
pub fn summary(servers: &[ServerStatus]) -> Markup {
    html! {
        span id="summary" class="sum" data-part="/parts/summary" data-on="servers snapshot" {
            @for (group, label) in GROUPS {
                @let number = count_group(servers, group);
                @if number > 0 {
                    a href=(format!("/?state={group}")) {
                        (group_icon(group).draw()) (number) " " (label.to_lowercase()) }
                }
            }
        }
    }
}

fn group_icon(group: &str) -> StateIcon {
    StateIcon::of_server(match group {
        "ready" => UpstreamState::Ready,
        "attention" => UpstreamState::Degraded,
        _ => UpstreamState::Stopped,
    })
}

fn navigation(frame: &PageFrame, current: &str) -> Markup {
    let is_in_menu = shown_views(frame).any(|view| is_rare(view) && view.1 == current);
    html! {
        @for view in shown_views(frame) {
            (view_link(view, current, is_rare(view).then_some("rare"), Some(view.2))) }
        // A narrow bar has no room for all. A separate list works without scripts, too.
        details id="more" data-menu {
            summary class=[is_in_menu.then_some("here")] { "More" }
            div { @for view in shown_views(frame) {
                @if is_rare(view) { (view_link(view, current, None, None)) } } }
        }
        span class="grow" {}
        form class="find" method="get" action="/tools" role="search" aria-label="All tools" {
            input class="in" type="search" name="q" placeholder="Search tools" aria-label="Search all tools" autocomplete="off" spellcheck="false";
        }
        @if frame.may_act { (add_link(true)) }
    }
}

/// Returns the views that a reader may see.
fn shown_views(frame: &PageFrame) -> impl Iterator<Item = &'static NavigationView> {
    VIEWS.iter().filter(move |(path, ..)| match *path {
        "/keys" => frame.sees_keys,
        "/people" => frame.sees_people,
        _ => true,
    })
}

/// Returns true for a view that a narrow bar lacks.
fn is_rare((path, ..): &NavigationView) -> bool {
    !NARROW.contains(path)
}

fn view_link(
    (path, label, _): &NavigationView,
    current: &str,
    class: Option<&str>,
    key: Option<&str>,
) -> Markup {
    html! {
        a href=(path) class=[class] aria-current=[(*label == current).then_some("page")] data-go=[key] {
            (label) }
    }
}

/// Renders the link to the view that adds servers. It is in the bar of a narrow page, and in the
/// navigation of others.
fn add_link(has_key: bool) -> Markup {
    html! { a class="btn main add" href="/add" data-key=[has_key.then_some("a")] {
    "Add" span { " server" } } }
}

/// Renders the notices, and the place for what fails.
fn banners(notices: &NoticeFacts) -> Markup {
    html! {
        section id="banners" aria-label="Notices" {
            div id="failure" class="banner red" role="alert" hidden {}
            noscript { p class="banner" { "Without JavaScript, this page shows the state when it \
                was loaded. Actions and live updates need JavaScript." } }
            (notices.draw())
        }
    }
}

fn confirm_dialog() -> Markup {
    html! {
        dialog id="confirm" aria-labelledby="confirm-title" {
            h2 id="confirm-title" { "Are you sure?" }
            p id="confirm-text" {}
            label hidden {
                "Type the name to \
                 confirm: " input class="in" autocomplete="off" spellcheck="false"; }
            form method="dialog" class="row" {
                // The first button is the one that Enter presses.
                button value="no" class="btn" autofocus { "Cancel" }
                button value="yes" class="btn red" id="confirm-yes" type="button" { "Continue" }
            }
        }
    }
}

fn help_dialog() -> Markup {
    let keys = [
        ("/", "Go to the filter, or search all tools"),
        ("j k", "Next and previous row"),
        ("Enter", "Open or close the row"),
        ("Space", "Switch the row on or off"),
        ("a", "Add a server"),
        ("r", "Refresh the open server"),
        ("?", "This help"),
        ("Esc", "Close"),
    ];
    html! {
        dialog id="help" aria-labelledby="help-title" {
            h2 id="help-title" { "Keyboard shortcuts" }
            dl {
                @for (_, label, key) in VIEWS { dt { kbd { "g" } " " kbd { (key) } }
                    dd { (label) } }
                @for (key, meaning) in keys { dt { kbd { (key) } } dd { (meaning) } }
            }
            form method="dialog" class="row" {
                label { input type="checkbox" id="keys-on" checked; " Use single-key shortcuts" }
                button class="btn" autofocus { "Close" }
            }
        }
    }
}
