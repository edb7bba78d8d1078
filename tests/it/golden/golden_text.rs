//! Text of a golden case: what was said on both sides, without what differs from run to run.

use std::fmt::Write as _;

use crate::wire::tap::Exchange;

/// The text of a case, without what differs from run to run.
#[derive(Default)]
pub(super) struct GoldenText {
    pub(super) text: String,
    /// The gateway's own ids, in the order in which they appear: equal ones stay equal.
    ids: Vec<String>,
    /// The names of tasks, likewise.
    names: Vec<String>,
}

impl GoldenText {
    pub(super) fn request(&mut self, title: &str, exchange: &Exchange) {
        let Exchange {
            method,
            headers,
            body,
            ..
        } = exchange;
        self.add(
            title,
            &format!("{method}\n{}\n\n{body}", headers.join("\n")),
        );
    }

    pub(super) fn answer(&mut self, title: &str, exchange: &Exchange) {
        let Exchange {
            status,
            answer_headers,
            answer,
            ..
        } = exchange;
        self.add(
            title,
            &format!("{status}\n{}\n\n{answer}", answer_headers.join("\n")),
        );
    }

    pub(super) fn add(&mut self, title: &str, said: &str) {
        let mut said = replaced(said, "mcp-session-id: ", "\n", "<session>");
        said = replaced(&said, "?sessionId=", "\n", "<session>");
        said = replaced(&said, "\"requestState\":\"", "\"", "<state>");
        said = self.tasks(&said);
        let version = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");
        said = said.replace(version, "\"<version>\"");
        // The client's ids are the test's; towards the server the gateway counts for itself.
        if title.contains("server") {
            for mark in ["\"id\":", "\"progressToken\":", "subscriptionId\":"] {
                said = self.numbered(&said, mark);
            }
        }
        write!(self.text, "=== {title}\n{said}\n").unwrap();
    }

    /// The server's names for its tasks, in handles too, and the times of their states.
    fn tasks(&mut self, text: &str) -> String {
        for mark in ["\"taskId\":\"", "\"taskId\":\"s:", "mcp-name: s:"] {
            for part in text.split(mark).skip(1) {
                let name = part.split(['"', '\n', '\r']).next().unwrap_or_default();
                if name.len() == 24 && !self.names.iter().any(|known| known == name) {
                    self.names.push(name.to_owned());
                }
            }
        }
        let named = |text: String, (n, name): (usize, &String)| {
            text.replace(name, &format!("<task {}>", n + 1))
        };
        let text = self.names.iter().enumerate().fold(text.to_owned(), named);
        let text = replaced(&text, "\"createdAt\":\"", "\"", "<time>");
        replaced(&text, "\"lastUpdatedAt\":\"", "\"", "<time>")
    }

    fn numbered(&mut self, text: &str, mark: &str) -> String {
        let mut parts = text.split(mark);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
            let id = &part[..part.len() - rest.len()];
            out.push_str(mark);
            if !id.is_empty() {
                let at = self
                    .ids
                    .iter()
                    .position(|known| known == id)
                    .unwrap_or(self.ids.len());
                if at == self.ids.len() {
                    self.ids.push(id.to_owned());
                }
                write!(out, "<{}>", at + 1).unwrap();
            }
            out.push_str(rest);
        }
        out
    }
}

/// Replaces what stands between each `begin` and the next `end`.
fn replaced(text: &str, begin: &str, end: &str, by: &str) -> String {
    let mut parts = text.split(begin);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        write!(
            out,
            "{begin}{by}{}",
            &part[part.find(end).unwrap_or(part.len())..]
        )
        .unwrap();
    }
    out
}
