//! Preview of new servers: a row for each, what would be written, and the button.
//!
//! Owns the panels, and the rows of servers that are new, known or broken. Does not render the rows
//! of servers that lack settings (`differing_rows.rs`), and does not read texts or probe servers
//! (`admin/server_preview.rs`). Invariant: everything is shown before it is written, and server
//! text is never treated as markup.

use maud::{Markup, html};
use moongate_api::{FoundServer, FoundState, ServerPreview, ServerProbe, TextProblem};
use moongate_model::{CallState, UpstreamState};

use super::add::no_commands;
use super::copy::code_block;
use super::differing_rows;
use super::icons::StateIcon;
use super::shell_line::add_line;
use super::text::{VisibleText, count, estimate};

/// Renders a whole preview. Rows that differ come before all others, whose button adds them, too.
pub fn render(found: ServerPreview, allow_commands: bool) -> Markup {
    let (differing, others): (Vec<FoundServer>, Vec<FoundServer>) = found
        .servers
        .into_iter()
        .partition(|server| server.state == FoundState::Differs);
    let found = ServerPreview {
        servers: others,
        ..found
    };
    if differing.is_empty() {
        return panel(&found, allow_commands);
    }
    let has_button = found
        .servers
        .iter()
        .any(|server| is_addable(server, allow_commands));
    let has_rest =
        !found.problems.is_empty() || !found.warnings.is_empty() || !found.servers.is_empty();
    let can_add = allow_commands || differing.iter().any(|server| !server.needs_command);
    let rows = html! {
        @for server in &differing {
            (differing_rows::row(server, allow_commands || !server.needs_command)) }
    };
    html! {
        // One element, since scripts take the first of a fragment.
        div {
            div class="panel" {
                @if can_add && !has_button {
                    form method="post" data-add { (rows) (differing_end(&found)) }
                } @else { (rows) }
            }
            @if has_rest { (panel(&found, allow_commands)) }
        }
    }
}

/// Renders what would be written if a box is ticked, and the button.
fn differing_end(found: &ServerPreview) -> Markup {
    html! {
        div class="found" {
            p { "If you check a box, this is written:" }
            pre class="diff" tabindex="0" aria-label="Lines to write" {
                (VisibleText(&without_blank_ends(found.diff.as_deref().unwrap_or_default()))) }
        }
        div class="found row" {
            a class="btn" href="/" { "Cancel" }
            button class="btn main js-only" data-count { "Add" }
        }
    }
}

/// Returns a difference without the blank lines that only part the new entry from its neighbours.
fn without_blank_ends(diff: &str) -> String {
    let lines: Vec<&str> = diff.lines().collect();
    let Some(start) = lines.iter().position(|line| line.trim() != "+") else {
        return String::new();
    };
    let last = lines.iter().rposition(|line| line.trim() != "+");
    lines[start..=last.unwrap_or(start)].join("\n")
}

/// Renders servers that are new, known or broken: a row for each, and what is written.
fn panel(found: &ServerPreview, allow_commands: bool) -> Markup {
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
fn is_addable(server: &FoundServer, allow_commands: bool) -> bool {
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
        @if let Some(fault) = &probe.fault {
            @if probe.needs_login {
                p class="outcome" {
                    (StateIcon::of_server(UpstreamState::NeedsLogin).draw()) span {
                        (VisibleText(&fault.message)) } }
            } @else {
                p class="outcome red" {
                    (StateIcon::of_call(CallState::Error).draw()) span {
                        (VisibleText(&fault.message)) } }
            }
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

fn no_references() -> Markup {
    html! {
        p {
            "A web page may not add a server that reads variables or files, or receives \
             forwarded client headers, unless the config has "
            code { "admin.allow_commands = true" } "."
        }
    }
}

#[cfg(test)]
mod tests {
    use moongate_api::{FoundSecret, ProbeFault, ProbedInfo};
    use serde_json::{Map, json};

    use super::*;

    const HOSTILE: &str = "<script>alert(1)</script>\u{202e}";

    #[test]
    fn blank_lines_around_an_entry_are_not_shown() {
        assert_eq!(
            without_blank_ends("+ \n+ [servers.a]\n+ \n+ x\n+\n"),
            "+ [servers.a]\n+ \n+ x"
        );
        assert_eq!(without_blank_ends(""), "");
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
        let html = panel(&found, false).into_string();
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
            panel(&found, true)
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
        let html = panel(&found, false).into_string();
        assert!(
            html.contains("refused") && html.contains("Start it") && html.contains("data-count"),
            "{html}"
        );
        assert!(
            panel(&ServerPreview::default(), false)
                .into_string()
                .contains("No servers found")
        );
    }

    #[test]
    fn a_server_that_needs_a_login_shows_the_command() {
        let message = "linear needs a login: moongate login linear";
        let probe = ServerProbe {
            needs_login: true,
            fault: Some(ProbeFault {
                message: message.to_owned(),
                hint: "add it first".to_owned(),
            }),
            ..ServerProbe::default()
        };
        let html = probe_lines(&probe).into_string();
        assert!(
            html.contains(message)
                && html.contains("add it first")
                && !html.contains("outcome red"),
            "{html}"
        );
    }
}
