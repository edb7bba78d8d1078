//! View that adds servers: by URL, from pasted text, from the popular ones, by command.
//!
//! Owns the ways to add a server. Does not render what they lead to (`preview.rs`). Invariant:
//! nothing is added from this view before it was previewed.

use maud::{Markup, html};
use moongate_api::{ListedPopular, PopularRow};

use super::copy::code_block;
use super::text::VisibleText;
use super::view_query::{ViewQuery, segment};

/// Tabs: name in the URL, and label.
const TABS: [(&str, &str); 4] = [
    ("url", "By URL"),
    ("paste", "Paste JSON, YAML or TOML"),
    ("popular", "Popular"),
    ("command", "By command"),
];

/// Ways to add a server, and what the URL says.
pub struct AddView<'a> {
    /// Query of the URL.
    pub query: &'a ViewQuery,
    /// Popular servers, as the API lists them.
    pub popular: &'a [ListedPopular],
    /// True if servers that start a program may be added here.
    pub allow_commands: bool,
    /// True if the reader may act.
    pub may_act: bool,
    /// Reason why the config cannot be changed here, if there is one.
    pub why_not: Option<String>,
}

impl AddView<'_> {
    /// Renders the whole view.
    pub fn page(&self) -> Markup {
        let shown = self.query.get("tab").unwrap_or("url");
        html! {
            div class="title" { h1 { "Add a server" } }
            div class="chips" role="navigation" aria-label="Ways to add" {
                @for (tab, label) in TABS {
                    a class="chip" href=(format!("/add?tab={tab}")) aria-current=[(tab == shown).then_some("true")] { (label) }
                }
            }
            @if !self.may_act { p class="empty" { "Only a key with the role “operate” can add \
                servers." } }
            @else if let Some(why_not) = &self.why_not {
                p class="banner orange" { "The config cannot be changed \
                    here: " (VisibleText(why_not)) ". Where it can be changed, \
                    run " code { "moongate add" } "." }
            } @else {
                @match shown {
                    "paste" => { (paste_form()) }
                    "popular" => { (self.popular()) }
                    "command" => { (self.command_form()) }
                    _ => { (self.url_form()) }
                }
                div id="preview" aria-live="polite" {}
            }
        }
    }

    fn url_form(&self) -> Markup {
        html! {
            form class="panel form" method="post" data-preview {
                label class="f" {
                    span class="cap" { b { "URL" } " " span class="soft" { "of the MCP endpoint" } }
                    input class="in" type="url" name="url" value=[self.query.get("url")] required placeholder="https://mcp.example.com/mcp" autocomplete="off" spellcheck="false" autofocus;
                }
                span class="cap" { b { "Headers" } " " span class="soft" { "if the server needs \
                    any. Keep keys in variables: Bearer ${MY_TOKEN}" } }
                div class="pair" {
                    input class="in" aria-label="Header \
                        name" placeholder="Authorization" autocomplete="off" spellcheck="false";
                    input class="in" aria-label="Header value" placeholder="Bearer \
                        ${MY_TOKEN}" autocomplete="off" spellcheck="false";
                }
                button type="button" class="plain js-only" data-more { "Add another header" }
                div class="row" { button class="btn main js-only" { "Preview" }
                    span class="soft" { "Moongate connects once to list its tools. Nothing is \
                        saved yet." } }
            }
        }
    }

    fn popular(&self) -> Markup {
        let chosen = self.query.get("server").and_then(|name| {
            self.popular
                .iter()
                .find(|listed| listed.server.name == name)
        });
        html! {
            @if let Some(listed) = chosen { (self.popular_form(&listed.server)) }
            @else {
                ul class="cards" {
                    @for listed in self.popular {
                        li { (popular_card(listed)) }
                    }
                }
            }
        }
    }

    fn popular_form(&self, server: &PopularRow) -> Markup {
        let arguments = &server.arguments;
        let target = server
            .url
            .as_ref()
            .or(server.command.as_ref())
            .map(String::as_str)
            .unwrap_or_default();
        let is_program = server.url.is_none();
        html! {
            div class="panel form" {
                h2 { (server.title) " " a class="back always" href="/add?tab=popular" {
                    "All popular servers" } }
                p { "For " (server.purpose) ". " span class="soft" { code { (target) } } }
                @if is_program && !self.allow_commands {
                    (no_commands()) (code_block(&format!("moongate add {}", server.usage),
                        "the command")) }
                @else {
                    form method="post" data-preview data-now[arguments.is_empty()] {
                        input type="hidden" name="popular" value=(server.name);
                        @for argument in arguments {
                            label class="f" {
                                span class="cap" { b { (argument.name) }
                                    " " span class="soft" { (argument.purpose) } }
                                input class="in" data-arg required autocomplete="off" spellcheck="false";
                            }
                        }
                        div class="row" { button class="btn main js-only" { "Preview" } }
                    }
                }
            }
        }
    }

    fn command_form(&self) -> Markup {
        html! {
            div class="panel form" {
                @if self.allow_commands {
                    p { "Enter the command as you would in a terminal. The gateway starts it once \
                        to list its tools." }
                    form method="post" data-preview {
                        (command_fields())
                        div class="row" { button class="btn main js-only" { "Preview" } }
                    }
                } @else {
                    (no_commands())
                    form method="post" class="js-only" data-build { (command_fields()) }
                    p { "On the gateway's machine:" }
                    (code_block("moongate add NAME -- npx -y PACKAGE@VERSION", "the command"))
                    p class="soft" { "This page updates automatically: the new server appears at \
                        once." }
                }
            }
        }
    }
}

fn popular_card(listed: &ListedPopular) -> Markup {
    let server = &listed.server;
    let host = server
        .url
        .as_deref()
        .and_then(|url| url.split('/').nth(2))
        .unwrap_or_default();
    html! {
        a class="panel" href=(format!("/add?tab=popular&server={}",
            segment(&server.name))) data-row {
            b { (server.title) }
            span { "For " (server.purpose) }
            span class="soft" { code { (if host.is_empty() { "a program" } else { host }) } }
            span class="foot" {
                span class="badge" { (key_text(server)) }
                @if listed.added { span class="green" { "added" } }
                @if server.stale { span class="soft" { "not checked recently" } }
            }
        }
    }
}

/// Renders the fields of a command. Scripts join them.
fn command_fields() -> Markup {
    html! {
        label class="f" { span class="cap" { b { "Name" } }
            input class="in" data-server required placeholder="memory" autocomplete="off" spellcheck="false" autofocus;
        }
        label class="f" { span class="cap" { b { "Command" } }
            input class="in mono" data-command required placeholder="npx -y @modelcontextprotocol/server-memory@2026.8.31" autocomplete="off" spellcheck="false";
        }
    }
}

fn paste_form() -> Markup {
    html! {
        form class="panel form" method="post" data-preview {
            label class="f" {
                span class="cap" { b { "Text" }
                    " " span class="soft" {
                        "a client's config, a server.json, a command line or a URL" } }
                textarea class="in mono" name="text" rows="9" required spellcheck="false" autocomplete="off" data-live autofocus
                    placeholder="{ \"mcpServers\": { \"deepwiki\": { \"url\": \"https://mcp.deepwiki.com/mcp\" } } }" {}
            }
            div class="row" { button class="btn js-only" { "Preview servers" }
                span class="soft" { "Nothing is saved until you add the servers." } }
        }
    }
}

/// Renders why a page may not start programs.
pub(super) fn no_commands() -> Markup {
    html! { p { "A web page may not start programs unless the config \
    has " code { "admin.allow_commands = true" } "." } }
}

fn key_text(server: &PopularRow) -> String {
    match &server.key {
        None => "no key".to_owned(),
        Some(key) if key.required => format!("needs {}", key.variable),
        Some(_) => "key optional".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use moongate_api::{PopularArgumentRow, PopularKeyRow};

    use super::*;

    fn page(query: &str, allow_commands: bool, may_act: bool) -> String {
        let query = ViewQuery::parse(query);
        let key = PopularKeyRow {
            variable: "X".to_owned(),
            ..PopularKeyRow::default()
        };
        let deepwiki = PopularRow {
            name: "deepwiki".to_owned(),
            title: "DeepWiki".to_owned(),
            purpose: "Asks.".to_owned(),
            url: Some("https://mcp.deepwiki.com/mcp".to_owned()),
            key: Some(key),
            ..PopularRow::default()
        };
        let argument = PopularArgumentRow {
            name: "DIR".to_owned(),
            ..PopularArgumentRow::default()
        };
        let files = PopularRow {
            name: "files".to_owned(),
            title: "Files".to_owned(),
            purpose: "reading".to_owned(),
            command: Some("npx".to_owned()),
            usage: "files DIR".to_owned(),
            arguments: vec![argument],
            stale: true,
            ..PopularRow::default()
        };
        let popular = [
            ListedPopular {
                server: deepwiki,
                added: true,
            },
            ListedPopular {
                server: files,
                added: false,
            },
        ];
        let view = AddView {
            query: &query,
            popular: &popular,
            allow_commands,
            may_act,
            why_not: None,
        };
        view.page().into_string()
    }

    #[test]
    fn each_way_in_has_its_form() {
        assert!(page("", false, true).contains("type=\"url\""));
        assert!(page("tab=paste", false, true).contains("data-live"));
        let cards = page("tab=popular", false, true);
        assert!(
            cards.contains("mcp.deepwiki.com")
                && cards.contains("added")
                && cards.contains("key optional")
                && cards.contains("no key")
                && cards.contains("not checked recently")
        );
        assert!(page("tab=popular&server=deepwiki", false, true).contains("data-now"));
        let files = page("tab=popular&server=files", false, true);
        assert!(
            files.contains("moongate add files DIR") && !files.contains("data-preview"),
            "{files}"
        );
        let asks = page("tab=popular&server=files", true, true);
        assert!(
            asks.contains("data-arg") && !asks.contains("data-now"),
            "{asks}"
        );
        let command = page("tab=command", false, true);
        assert!(
            command.contains("admin.allow_commands") && command.contains("moongate add NAME --")
        );
        assert!(command.contains("data-build"), "{command}");
        assert!(page("tab=command", true, true).contains("data-preview"));
        assert!(!page("", false, false).contains("<form"));
    }
}
