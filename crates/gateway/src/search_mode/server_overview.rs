//! Servers of an endpoint, for models: in the instructions, and in the answer of `list_servers`.
//!
//! Owns the words about servers and their states. Does not decide who may know a server
//! (`visible_servers.rs`). Invariant: instructions fit where clients cut them.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::running_server::RunningServer;
use crate::search_mode::text_result::text_result;
use crate::visible_servers::VisibleServer;
use moongate_model::{Outcome, Principal, UpstreamState};

/// Longest instructions in bytes. Some clients cut them here.
const INSTRUCTIONS_MAX: usize = 512;
/// Words about a server in the instructions.
const WORDS_MAX: usize = 12;
/// Room for the line about servers without their own line.
const REST_LINE: usize = 40;

impl Endpoint {
    /// Answers `list_servers`.
    pub(super) fn list_servers(&self, principal: &Principal) -> Outcome {
        let snapshot = self.generation.snapshot.load();
        let servers = self.visible_servers(principal, &snapshot);
        let mut lines = vec![format!("{}.", count(servers.len(), "server"))];
        for VisibleServer { server, tools } in servers {
            let about = server
                .description_or_instructions()
                .map(|text| moongate_search::summary(&text))
                .unwrap_or_default();
            let about = if about.is_empty() {
                about
            } else {
                format!(" {about}")
            };
            let state = match server.status().state {
                UpstreamState::Ready => "ready",
                UpstreamState::Stopped => "starts on the first call",
                state => state_note(state).unwrap_or_default(),
            };
            lines.push(format!(
                "{}: {}, {state}.{about}",
                server.display_title(),
                count(tools, "tool")
            ));
        }
        text_result(&lines.join("\n"))
    }
}

/// Writes the instructions of search mode: how to use it, and a line for each of these servers.
pub(crate) fn search_instructions(servers: &[&Arc<RunningServer>]) -> String {
    let mut text =
        "Tools are not listed here: find them with search_tools, then call them with call_tool."
            .to_owned();
    for (n, server) in servers.iter().enumerate() {
        let about = server
            .description_or_instructions()
            .map(|text| moongate_search::summary(&text))
            .unwrap_or_default();
        let words: Vec<&str> = about
            .split(' ')
            .filter(|word| !word.is_empty())
            .take(WORDS_MAX)
            .collect();
        let colon = if words.is_empty() { "" } else { ": " };
        let line = format!("\n- {}{colon}{}", server.display_title(), words.join(" "));
        let is_last = n + 1 == servers.len();
        let room = if is_last { 0 } else { REST_LINE };
        // The line about the rest must still fit after this one, unless no server is left for it.
        if text.len() + line.len() + room > INSTRUCTIONS_MAX {
            text += &format!("\n- {} more: list_servers", servers.len() - n);
            break;
        }
        text += &line;
    }
    text
}

/// Returns what keeps a server from answering now.
pub(super) fn state_note(state: UpstreamState) -> Option<&'static str> {
    match state {
        // A stopped server is a lazy one, which a call starts.
        UpstreamState::Ready | UpstreamState::Stopped => None,
        UpstreamState::Starting => Some("starting"),
        UpstreamState::Degraded => Some("degraded"),
        UpstreamState::BackingOff => Some("not reachable now"),
        UpstreamState::NeedsLogin => Some("needs sign-in"),
        UpstreamState::Failed | UpstreamState::Disabled => Some("not available"),
    }
}

/// Writes which of these servers are not ready, and why, as a sentence after a space. Nothing if
/// all are.
pub(super) fn not_ready_text<'a>(servers: impl Iterator<Item = &'a Arc<RunningServer>>) -> String {
    let waiting: Vec<String> = servers
        .filter_map(|server| {
            let why = state_note(server.status().state)?;
            Some(format!("{} ({why})", server.settings.name))
        })
        .collect();
    if waiting.is_empty() {
        String::new()
    } else {
        format!(" Not ready: {}.", waiting.join(", "))
    }
}

fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}
