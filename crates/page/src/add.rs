//! View that adds servers: by URL, from pasted text, from the popular ones, by command.
//!
//! Owns the ways to add a server, and how a preview looks. Does not read texts or probe servers
//! (`admin/server_preview.rs`). Invariant: everything is shown before it is written, and server
//! text is never treated as markup.

use maud::{Markup, html};
use moongate_api::{
    FoundServer, FoundState, ListedPopular, PopularRow, ServerPreview, ServerProbe, TextProblem,
};
use moongate_model::{CallState, UpstreamState};

use super::copy::code_block;
use super::icons::StateIcon;
use super::shell_line::add_line;
use super::text::{VisibleText, count, estimate};
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
                    p class="soft" { "This page updates by itself: the new server appears at \
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

fn no_commands() -> Markup {
    html! { p { "A web page may not start programs unless the config \
    has " code { "admin.allow_commands = true" } "." } }
}

fn no_references() -> Markup {
    html! {
        p {
            "A web page may not add a server that reads variables or files, or receives \
             forwarded client headers, unless the config has "
            code { "admin.allow_commands = true" } "."
        }
    }
}

fn key_text(server: &PopularRow) -> String {
    match &server.key {
        None => "no key".to_owned(),
        Some(key) if key.required => format!("needs {}", key.variable),
        Some(_) => "key optional".to_owned(),
    }
}

/// Returns a difference without the blank lines that only part the new entry from its neighbours.
pub(super) fn without_blank_ends(diff: &str) -> String {
    let lines: Vec<&str> = diff.lines().collect();
    let Some(start) = lines.iter().position(|line| line.trim() != "+") else {
        return String::new();
    };
    let last = lines.iter().rposition(|line| line.trim() != "+");
    lines[start..=last.unwrap_or(start)].join("\n")
}

/// Renders what would be added: a row for each server, and what is written.
pub(super) fn preview(found: &ServerPreview, allow_commands: bool) -> Markup {
    let ServerPreview {
        servers,
        problems,
        warnings,
        ..
    } = found;
    let diff = found.diff.as_deref().unwrap_or_default();
    html! {
        div class="panel" {
            @for problem in problems { (problem_line(problem)) }
            @for warning in warnings { p class="found orange" { (VisibleText(warning)) } }
            @if servers.is_empty() && problems.is_empty() { p class="empty" { "No servers \
                found." } }
            form method="post" data-add {
                @for server in servers { (found_server(server, allow_commands)) }
                @if servers.iter().any(|server| is_addable(server, allow_commands)) {
                    @if !diff.is_empty() {
                        div class="found" {
                            p { "This will be written \
                                to " code { (VisibleText(found.file.as_deref().unwrap_or_default())) } ":" }
                            pre class="diff" tabindex="0" aria-label="Lines to write" {
                                (VisibleText(&without_blank_ends(diff))) }
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

/// Returns true for a server that the page may add.
pub(super) fn is_addable(server: &FoundServer, allow_commands: bool) -> bool {
    server.state.is_new() && (allow_commands || !server.needs_command)
}

fn found_server(server: &FoundServer, allow_commands: bool) -> Markup {
    let name = &server.name;
    let can_add = is_addable(server, allow_commands);
    let name_prefix = server
        .name_prefix
        .as_deref()
        .filter(|prefix| can_add && !prefix.is_empty());
    html! {
        div class="found" data-name=[can_add.then_some(name)] {
            div class="row" {
                @if can_add {
                    input type="checkbox" checked aria-label={ "Add " (VisibleText(name)) };
                    input class="in" value=(name) aria-label={ "Name of " (VisibleText(name)) }
                    autocomplete="off" spellcheck="false";
                } @else { b { (VisibleText(name)) } }
                (state_words(server))
                @if let Some(prefix) = name_prefix {
                    span class="soft" {
                        "tool names start with "
                        code data-after=[prefix.strip_prefix(name.as_str())] {
                            (VisibleText(prefix)) }
                    }
                }
                span class="soft grow" { (VisibleText(&server.target)) }
            }
            @if server.state.is_new() && !can_add {
                (if server.settings.contains_key("command") { no_commands() } else {
                    no_references() })
                @match add_line(server) {
                    Some(line) => { p { "On the gateway's \
                        machine:" } (code_block(&line, "the command")) }
                    None => { p { "On the gateway's machine, run this and paste the text \
                                   there:" } (code_block("moongate add -", "the command")) }
                }
            }
            @for note in &server.notes { p class="soft" { (VisibleText(note)) } }
            @for secret in server.secrets.iter().filter(|_| server.state.is_new()) {
                @let variable = html! { code { "${" (VisibleText(&secret.suggest)) "}" } };
                p class="orange" {
                    (VisibleText(&secret.path)) " contains a secret"
                    @if can_add && allow_commands { ", which is written in plain text. Better: set \
                        a variable for the gateway, and paste " (variable) " instead of the \
                        secret." }
                    @else if can_add { ", which is written in plain text. On the gateway's \
                        machine, " code { "moongate add" } " can read it from a variable instead." }
                    @else { ". Set " (variable) " in the gateway's environment." }
                }
            }
            @if let Some(probe) = &server.probe { (probe_lines(probe)) }
        }
    }
}

fn state_words(server: &FoundServer) -> Markup {
    let (icon, words) = match server.state {
        FoundState::New => (CallState::Ok, "new".to_owned()),
        FoundState::Renamed => (
            CallState::Ok,
            format!(
                "new; the name {} is taken",
                server.was.as_deref().unwrap_or_default()
            ),
        ),
        FoundState::Same => (
            CallState::Cancelled,
            format!(
                "already added: {}",
                server.same_as.as_ref().unwrap_or(&server.name)
            ),
        ),
        FoundState::Own => (
            CallState::Cancelled,
            "this is the gateway itself".to_owned(),
        ),
        FoundState::Differs | FoundState::Problem => {
            (CallState::Error, "cannot be added".to_owned())
        }
    };
    html! { span class="outcome" { (StateIcon::of_call(icon).draw()) (VisibleText(&words)) } }
}

fn problem_line(problem: &TextProblem) -> Markup {
    let hint = problem.hint.as_deref().unwrap_or_default();
    html! {
        p class="found" {
            span class="outcome red" { (StateIcon::of_call(CallState::Error).draw()) }
            @if let Some(line) = problem.line {
                " line " (line) ", column " (problem.column.unwrap_or_default()) ":" }
            " " (VisibleText(&problem.message))
            @if !hint.is_empty() { "; " (VisibleText(hint)) }
        }
    }
}

/// Renders what a server said when it was asked.
fn probe_lines(probe: &ServerProbe) -> Markup {
    let names = &probe.tool_names;
    let tools = probe.tools.unwrap_or_default();
    let info = probe.server_info.as_ref();
    let said = [
        info.and_then(|info| info.name.as_deref()),
        info.and_then(|info| info.version.as_deref()),
    ];
    let said = said.map(Option::unwrap_or_default).join(" ");
    html! {
        @if probe.needs_login {
            p class="outcome" {
                (StateIcon::of_server(UpstreamState::NeedsLogin).draw()) "This server requires \
                    a login: get a token, and set it in Headers." }
        } @else if let Some(fault) = &probe.fault {
            p class="outcome red" {
                (StateIcon::of_call(CallState::Error).draw()) span {
                    (VisibleText(&fault.message)) } }
            @if !fault.hint.is_empty() { p class="soft" { (VisibleText(&fault.hint)) } }
        } @else {
            p class="outcome" {
                (StateIcon::of_call(CallState::Ok).draw())
                span {
                    (probe.transport.as_deref().unwrap_or_default()) " · " (VisibleText(probe.revision.as_deref().unwrap_or_default())) @if !said.trim().is_empty() { " · " (VisibleText(said.trim())) }
                    " · " (count(tools as u64, "tool",
                        "tools")) " · " (estimate(probe.tokens.unwrap_or_default())) " tokens"
                }
            }
            @if !names.is_empty() {
                p class="soft" {
                    @for (at, name) in names.iter().enumerate() { @if at > 0 { ", " }
                        code { (VisibleText(name)) } }
                    @if tools > names.len() { ", …" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use moongate_api::{FoundSecret, PopularArgumentRow, PopularKeyRow, ProbeFault, ProbedInfo};
    use serde_json::{Map, json};

    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script>\u{202e}";

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
    fn blank_lines_around_an_entry_are_not_shown() {
        assert_eq!(
            without_blank_ends("+ \n+ [servers.a]\n+ \n+ x\n+\n"),
            "+ [servers.a]\n+ \n+ x"
        );
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

    /// Server of a source with hostile texts, which has answered.
    fn found(name: &str, state: FoundState, needs_command: bool) -> FoundServer {
        let probe = ServerProbe {
            transport: Some("http".to_owned()),
            revision: Some("2025-11-25".to_owned()),
            server_info: Some(ProbedInfo {
                name: Some(HOSTILE.to_owned()),
                version: Some("1".to_owned()),
            }),
            tools: Some(3),
            tokens: Some(610),
            tool_names: vec![HOSTILE.to_owned()],
            ..ServerProbe::default()
        };
        let secret = FoundSecret {
            path: "headers.Authorization".to_owned(),
            suggest: "A_TOKEN".to_owned(),
        };
        let settings = json!({ "command": "npx", "args": ["x; y"] });
        FoundServer {
            name: name.to_owned(),
            state,
            needs_command,
            target: HOSTILE.to_owned(),
            notes: vec![HOSTILE.to_owned()],
            was: Some("a".to_owned()),
            same_as: Some("b".to_owned()),
            secrets: vec![secret],
            settings: settings.as_object().cloned().unwrap_or_default(),
            probe: Some(probe),
            ..FoundServer::default()
        }
    }

    /// Preview of a renamed, a known and a new server, with hostile texts.
    fn hostile_preview() -> ServerPreview {
        let problem = TextProblem {
            line: Some(3),
            column: Some(7),
            message: HOSTILE.to_owned(),
            hint: Some("Close it".to_owned()),
            concern: None,
        };
        ServerPreview {
            servers: vec![
                found("a-2", FoundState::Renamed, false),
                found("c", FoundState::Same, false),
                found("d", FoundState::New, true),
            ],
            problems: vec![problem],
            warnings: vec![HOSTILE.to_owned()],
            file: Some("/etc/m.toml".to_owned()),
            diff: Some("+ \n+ [servers.a-2]\n+ \n".to_owned()),
        }
    }

    #[test]
    fn a_preview_offers_what_can_be_added_and_shows_texts_as_text() {
        let found = hostile_preview();
        let html = preview(&found, false).into_string();
        assert!(
            !html.contains("<script>") && !html.contains('\u{202e}'),
            "{html}"
        );
        assert_eq!(
            html.matches("type=\"checkbox\"").count(),
            1,
            "what is there, and what starts a program, is not offered: {html}"
        );
        for part in [
            "line 3, column 7",
            "the name a is taken",
            "already added: b",
            "${A_TOKEN}",
            "aria-label=\"Lines to write\">+ [servers.a-2]</pre>",
            "3 tools · ≈ 610 tokens",
            "moongate add d -- npx 'x; y'",
            "Set <code>${A_TOKEN}</code>",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        assert_eq!(
            preview(&found, true)
                .into_string()
                .matches("type=\"checkbox\"")
                .count(),
            2
        );
        let fault = ProbeFault {
            message: "refused".to_owned(),
            hint: "Start it".to_owned(),
        };
        let refused = FoundServer {
            name: "x".to_owned(),
            state: FoundState::New,
            settings: Map::new(),
            probe: Some(ServerProbe {
                fault: Some(fault),
                ..ServerProbe::default()
            }),
            ..FoundServer::default()
        };
        let found = ServerPreview {
            servers: vec![refused],
            ..ServerPreview::default()
        };
        let html = preview(&found, false).into_string();
        assert!(
            html.contains("refused") && html.contains("Start it") && html.contains("data-count"),
            "{html}"
        );
        assert!(
            preview(&ServerPreview::default(), false)
                .into_string()
                .contains("No servers found")
        );
    }
}
