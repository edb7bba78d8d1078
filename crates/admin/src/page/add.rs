//! View that adds servers: by URL, from pasted text, from the popular ones, by command.
//!
//! Owns the ways in, and how a preview looks. Does not read texts or probe servers (`server_preview.rs` of the API).
//! Invariant: what is written is shown before, and no text of a server is markup.

use maud::{Markup, html};
use moongate_model::{CallState, UpstreamState};
use serde_json::Value;

use super::copy::code_block;
use super::facts::{list, number, text};
use super::icons::StateIcon;
use super::shell_line::add_line;
use super::text::{VisibleText, count, estimate};
use super::view_query::{ViewQuery, segment};

/// Tabs: name in the URL, and label.
const TABS: [(&str, &str); 4] =
    [("url", "By URL"), ("paste", "Paste JSON, YAML or TOML"), ("popular", "Popular"), ("command", "By command")];

/// Ways to add a server, and what the URL says.
pub(super) struct AddView<'a> {
    pub(super) query: &'a ViewQuery,
    /// Popular servers, as the API lists them.
    pub(super) popular: &'a [Value],
    /// True if servers that start a program may be added here.
    pub(super) allow_commands: bool,
    pub(super) may_act: bool,
    /// Reason why the config cannot be changed here, if there is one.
    pub(super) why_not: Option<String>,
}

impl AddView<'_> {
    /// Renders the whole view.
    pub(super) fn page(&self) -> Markup {
        let shown = self.query.get("tab").unwrap_or("url");
        html! {
            div class="title" { h1 { "Add a server" } }
            div class="chips" role="navigation" aria-label="Ways to add" {
                @for (tab, label) in TABS {
                    a class="chip" href=(format!("/add?tab={tab}")) aria-current=[(tab == shown).then_some("true")] { (label) }
                }
            }
            @if !self.may_act { p class="empty" { "A key with the role “operate” may add servers." } }
            @else if let Some(why_not) = &self.why_not {
                p class="banner orange" { "The config cannot be changed here: " (VisibleText(why_not)) ". The command works where it can: " code { "moongate add" } "." }
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
                label class="f" { span class="cap" { b { "URL" } " " span class="soft" { "of the MCP endpoint" } }
                    input class="in" type="url" name="url" value=[self.query.get("url")] required placeholder="https://mcp.example.com/mcp" autocomplete="off" spellcheck="false" autofocus;
                }
                span class="cap" { b { "Headers" } " " span class="soft" { "if it wants any. Keep keys in variables: Bearer ${MY_TOKEN}" } }
                div class="pair" {
                    input class="in" aria-label="Name of the header" placeholder="Authorization" autocomplete="off" spellcheck="false";
                    input class="in" aria-label="Value of the header" placeholder="Bearer ${MY_TOKEN}" autocomplete="off" spellcheck="false";
                }
                button type="button" class="plain js-only" data-more { "One more header" }
                div class="row" { button class="btn main js-only" { "Look" } span class="soft" { "It is asked what it offers. Nothing is written." } }
            }
        }
    }

    fn popular(&self) -> Markup {
        let chosen =
            self.query.get("server").and_then(|name| self.popular.iter().find(|server| text(server, "name") == name));
        html! {
            @if let Some(server) = chosen { (self.popular_form(server)) }
            @else {
                ul class="cards" {
                    @for server in self.popular {
                        li { (self.popular_card(server)) }
                    }
                }
            }
        }
    }

    fn popular_card(&self, server: &Value) -> Markup {
        let name = text(server, "name");
        let host = text(server, "url").split('/').nth(2).unwrap_or_default();
        html! {
            a class="panel" href=(format!("/add?tab=popular&server={}", segment(name))) data-row {
                b { (text(server, "title")) }
                span { "For " (text(server, "purpose")) }
                span class="soft" { code { (if host.is_empty() { "a program" } else { host }) } }
                span class="foot" {
                    span class="badge" { (key_text(server)) }
                    @if server["added"] == true { span class="green" { "added" } }
                    @if server["stale"] == true { span class="soft" { "checked long ago" } }
                }
            }
        }
    }

    fn popular_form(&self, server: &Value) -> Markup {
        let name = text(server, "name");
        let arguments = list(server, "arguments");
        let is_program = text(server, "url").is_empty();
        html! {
            div class="panel form" {
                h2 { (text(server, "title")) " " a class="back always" href="/add?tab=popular" { "All popular servers" } }
                p { "For " (text(server, "purpose")) ". " span class="soft" { code { (if is_program { text(server, "command") } else { text(server, "url") }) } } }
                @if is_program && !self.allow_commands { (no_commands()) (code_block(&format!("moongate add {}", text(server, "usage")), "the command")) }
                @else {
                    form method="post" data-preview data-now[arguments.is_empty()] {
                        input type="hidden" name="popular" value=(name);
                        @for argument in arguments {
                            label class="f" { span class="cap" { b { (text(argument, "name")) } " " span class="soft" { (text(argument, "purpose")) } }
                                input class="in" data-arg required autocomplete="off" spellcheck="false";
                            }
                        }
                        div class="row" { button class="btn main js-only" { "Look" } }
                    }
                }
            }
        }
    }

    fn command_form(&self) -> Markup {
        html! {
            div class="panel form" {
                @if self.allow_commands {
                    p { "Write the command as in a terminal. The gateway starts it once to look." }
                    form method="post" data-preview {
                        (command_fields())
                        div class="row" { button class="btn main js-only" { "Look" } }
                    }
                } @else {
                    (no_commands())
                    form method="post" class="js-only" data-build { (command_fields()) }
                    p { "On the gateway's machine:" }
                    (code_block("moongate add NAME -- npx -y PACKAGE@VERSION", "the command"))
                    p class="soft" { "The page follows by itself: the new server appears here at once." }
                }
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
            label class="f" { span class="cap" { b { "Text" } " " span class="soft" { "the config of a client, a server.json, a command line or a URL" } }
                textarea class="in mono" name="text" rows="9" required spellcheck="false" autocomplete="off" data-live autofocus
                    placeholder="{ \"mcpServers\": { \"deepwiki\": { \"url\": \"https://mcp.deepwiki.com/mcp\" } } }" {}
            }
            div class="row" { button class="btn js-only" { "Look at the servers" } span class="soft" { "Nothing is written before you add." } }
        }
    }
}

fn no_commands() -> Markup {
    html! { p { "A web page may not start programs. " code { "admin.allow_commands = true" } " in the config allows it." } }
}

fn no_references() -> Markup {
    html! {
        p {
            "A web page may not add a server that gets variables, files or headers of others. "
            code { "admin.allow_commands = true" } " in the config allows it."
        }
    }
}

fn key_text(server: &Value) -> String {
    let key = &server["key"];
    match key["required"] == true {
        _ if key.is_null() => "no key".to_owned(),
        true => format!("needs {}", text(key, "variable")),
        false => "key optional".to_owned(),
    }
}

/// Returns a difference without the blank lines that only part the new entry from its neighbours.
pub(super) fn without_blank_ends(diff: &str) -> String {
    let lines: Vec<&str> = diff.lines().collect();
    let is_blank = |line: &&&str| line.trim() == "+";
    let start = lines.iter().take_while(is_blank).count();
    let end = lines.len() - lines[start..].iter().rev().take_while(is_blank).count();
    lines[start..end].join("\n")
}

/// Renders what would be added: a row for each server, and what is written.
pub(super) fn preview(found: &Value, allow_commands: bool) -> Markup {
    let servers = list(found, "servers");
    let problems = list(found, "problems");
    let warnings: Vec<&str> = list(found, "warnings").iter().filter_map(Value::as_str).collect();
    let can_add = |server: &&Value| is_addable(server, allow_commands);
    let diff = text(found, "diff");
    html! {
        div class="panel" {
            @for problem in problems { (problem_line(problem)) }
            @for warning in warnings { p class="found orange" { (VisibleText(warning)) } }
            @if servers.is_empty() && problems.is_empty() { p class="empty" { "No server was found in it." } }
            form method="post" data-add {
                @for server in servers { (found_server(server, allow_commands)) }
                @if servers.iter().any(|server| can_add(&server)) {
                    @if !diff.is_empty() {
                        div class="found" {
                            p { "What is written, into " code { (VisibleText(text(found, "file"))) } ":" }
                            pre class="diff" tabindex="0" aria-label="What is written" { (VisibleText(&without_blank_ends(diff))) }
                        }
                    }
                    div class="found row" {
                        a class="btn" href="/" { "Cancel" }
                        button class="btn main js-only" data-count { "Add" }
                    }
                }
            }
        }
    }
}

fn is_addable(server: &Value, allow_commands: bool) -> bool {
    is_new(server) && (allow_commands || server["needs_command"] != true)
}

fn is_new(server: &Value) -> bool {
    matches!(text(server, "state"), "new" | "renamed")
}

fn found_server(server: &Value, allow_commands: bool) -> Markup {
    let name = text(server, "name");
    let can_add = is_addable(server, allow_commands);
    let notes: Vec<&str> = list(server, "notes").iter().filter_map(Value::as_str).collect();
    html! {
        div class="found" data-name=[can_add.then_some(name)] {
            div class="row" {
                @if can_add {
                    input type="checkbox" checked aria-label={ "Add " (VisibleText(name)) };
                    input class="in" value=(name) aria-label={ "Name of " (VisibleText(name)) } autocomplete="off" spellcheck="false";
                } @else { b { (VisibleText(name)) } }
                (state_words(server))
                @if can_add && !text(server, "name_prefix").is_empty() {
                    span class="soft" {
                        "tools begin with "
                        code data-after=[text(server, "name_prefix").strip_prefix(name)] { (VisibleText(text(server, "name_prefix"))) }
                    }
                }
                span class="soft grow" { (VisibleText(text(server, "target"))) }
            }
            @if is_new(server) && !can_add {
                (if server["settings"]["command"].is_null() { no_references() } else { no_commands() })
                @match add_line(server) {
                    Some(line) => { p { "On the gateway's machine:" } (code_block(&line, "the command")) }
                    None => { p { "On the gateway's machine, run this and paste the text there:" } (code_block("moongate add -", "the command")) }
                }
            }
            @for note in notes { p class="soft" { (VisibleText(note)) } }
            @for secret in list(server, "secrets").iter().filter(|_| is_new(server)) {
                @let variable = html! { code { "${" (VisibleText(text(secret, "suggest"))) "}" } };
                p class="orange" {
                    (VisibleText(text(secret, "path"))) " has a secret"
                    @if can_add && allow_commands { ", which is written as it is. Better: set a variable for the gateway, and paste " (variable) " in place of the secret." }
                    @else if can_add { ", which is written as it is. On the gateway's machine, " code { "moongate add" } " can take it from a variable." }
                    @else { ". Set " (variable) " in the environment of the gateway." }
                }
            }
            @if !server["probe"].is_null() { (probe(&server["probe"])) }
        }
    }
}

fn state_words(server: &Value) -> Markup {
    let (icon, words) = match text(server, "state") {
        "new" => (CallState::Ok, "new".to_owned()),
        "renamed" => (CallState::Ok, format!("new; its name {} is taken", text(server, "was"))),
        "same" => (
            CallState::Cancelled,
            format!("you have it: {}", server["same_as"].as_str().unwrap_or_else(|| text(server, "name"))),
        ),
        "own" => (CallState::Cancelled, "this is the gateway itself".to_owned()),
        _ => (CallState::Error, "it cannot be added".to_owned()),
    };
    html! { span class="outcome" { (StateIcon::of_call(icon).draw()) (VisibleText(&words)) } }
}

fn problem_line(problem: &Value) -> Markup {
    html! {
        p class="found" {
            span class="outcome red" { (StateIcon::of_call(CallState::Error).draw()) }
            @if number(problem, "line") > 0 { " line " (number(problem, "line")) ", column " (number(problem, "column")) ":" }
            " " (VisibleText(text(problem, "message")))
            @if !text(problem, "hint").is_empty() { "; " (VisibleText(text(problem, "hint"))) }
        }
    }
}

/// Renders what a server said when it was asked.
fn probe(probe: &Value) -> Markup {
    let fault = &probe["fault"];
    let info = &probe["server_info"];
    let names: Vec<&str> = list(probe, "tool_names").iter().filter_map(Value::as_str).collect();
    let said = format!("{} {}", text(info, "name"), text(info, "version"));
    html! {
        @if probe["needs_login"] == true {
            p class="outcome" { (StateIcon::of_server(UpstreamState::NeedsLogin).draw()) "It asks for a sign-in: add it, then sign in." }
        } @else if !fault.is_null() {
            p class="outcome red" { (StateIcon::of_call(CallState::Error).draw()) span { (VisibleText(text(fault, "message"))) } }
            @if !text(fault, "hint").is_empty() { p class="soft" { (VisibleText(text(fault, "hint"))) } }
        } @else {
            p class="outcome" {
                (StateIcon::of_call(CallState::Ok).draw())
                span {
                    (text(probe, "transport")) " · " (VisibleText(text(probe, "revision"))) @if !said.trim().is_empty() { " · " (VisibleText(said.trim())) }
                    " · " (count(number(probe, "tools"), "tool", "tools")) " · " (estimate(number(probe, "tokens"))) " tokens"
                }
            }
            @if !names.is_empty() {
                p class="soft" {
                    @for (at, name) in names.iter().enumerate() { @if at > 0 { ", " } code { (VisibleText(name)) } }
                    @if number(probe, "tools") > names.len() as u64 { ", …" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script>\u{202e}";

    fn page(query: &str, allow_commands: bool, may_act: bool) -> String {
        let query = ViewQuery::parse(query);
        let popular = [
            json!({ "name": "deepwiki", "title": "DeepWiki", "purpose": "Asks.", "url": "https://mcp.deepwiki.com/mcp", "key": { "variable": "X", "required": false }, "added": true }),
            json!({ "name": "files", "title": "Files", "purpose": "reading", "command": "npx", "usage": "files DIR", "arguments": [{ "name": "DIR", "purpose": "the folder" }], "stale": true }),
        ];
        let view = AddView { query: &query, popular: &popular, allow_commands, may_act, why_not: None };
        view.page().into_string()
    }

    #[test]
    fn blank_lines_around_an_entry_are_not_shown() {
        assert_eq!(without_blank_ends("+ \n+ [servers.a]\n+ \n+ x\n+\n"), "+ [servers.a]\n+ \n+ x");
        assert_eq!(without_blank_ends(""), "");
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
                && cards.contains("checked long ago")
        );
        assert!(page("tab=popular&server=deepwiki", false, true).contains("data-now"));
        let files = page("tab=popular&server=files", false, true);
        assert!(files.contains("moongate add files DIR") && !files.contains("data-preview"), "{files}");
        let asks = page("tab=popular&server=files", true, true);
        assert!(asks.contains("data-arg") && !asks.contains("data-now"), "{asks}");
        let command = page("tab=command", false, true);
        assert!(command.contains("admin.allow_commands") && command.contains("moongate add NAME --"));
        assert!(command.contains("data-build"), "{command}");
        assert!(page("tab=command", true, true).contains("data-preview"));
        assert!(!page("", false, false).contains("<form"));
    }

    #[test]
    fn a_preview_offers_what_can_be_added_and_shows_texts_as_text() {
        let server = |name: &str, state: &str, command: bool| {
            json!({
                "name": name, "state": state, "needs_command": command, "target": HOSTILE, "notes": [HOSTILE], "was": "a", "same_as": "b",
                "secrets": [{ "path": "headers.Authorization", "suggest": "A_TOKEN" }], "settings": { "command": "npx", "args": ["x; y"] },
                "probe": { "transport": "http", "revision": "2025-11-25", "server_info": { "name": HOSTILE, "version": "1" }, "tools": 3, "tokens": 610, "tool_names": [HOSTILE], "needs_login": false, "fault": null },
            })
        };
        let mut found = json!({
            "servers": [server("a-2", "renamed", false), server("c", "same", false), server("d", "new", true)],
            "problems": [{ "line": 3, "column": 7, "message": HOSTILE, "hint": "Close it" }], "warnings": [HOSTILE], "file": "/etc/m.toml",
            "diff": "+ \n+ [servers.a-2]\n+ \n",
        });
        let html = preview(&found, false).into_string();
        assert!(!html.contains("<script>") && !html.contains('\u{202e}'), "{html}");
        assert_eq!(
            html.matches("type=\"checkbox\"").count(),
            1,
            "what is there, and what starts a program, is not offered: {html}"
        );
        for part in [
            "line 3, column 7",
            "its name a is taken",
            "you have it: b",
            "${A_TOKEN}",
            "aria-label=\"What is written\">+ [servers.a-2]</pre>",
            "3 tools · ≈ 610 tokens",
            "moongate add d -- npx 'x; y'",
            "Set <code>${A_TOKEN}</code>",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(preview(&found, true).into_string().matches("type=\"checkbox\"").count(), 2);
        found = json!({ "servers": [{ "name": "x", "state": "new", "probe": { "fault": { "message": "refused", "hint": "Start it" } } }] });
        let html = preview(&found, false).into_string();
        assert!(html.contains("refused") && html.contains("Start it") && html.contains("data-count"), "{html}");
        assert!(preview(&json!({}), false).into_string().contains("No server was found"));
    }
}
