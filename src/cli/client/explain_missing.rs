//! Explanation of a tool that is not listed: its server may be disconnected. Owns the request to the admin listener.
//!
//! Does not change the endpoint's response. Invariant: without an answer from the admin listener, nothing is claimed.

use serde::Deserialize;

use crate::cli::admin::AdminClient;
use moongate_telemetry::logs;

#[derive(Deserialize)]
struct PartialStatus {
    servers: Vec<PartialServer>,
}

#[derive(Deserialize)]
struct PartialServer {
    name: String,
    state: String,
    reason: String,
    prefix: Option<String>,
    next_attempt_seconds: Option<f64>,
}

/// Returns a sentence on the server that a tool's name belongs to, if it is disconnected.
pub(super) async fn explain(tool: &str, admin: &AdminClient) -> Option<String> {
    let (status, body) = admin.get("/api/v1/status").await.ok()?;
    let status: PartialStatus = serde_json::from_slice(&body).ok().filter(|_| status == 200)?;
    sentence(tool, &status.servers)
}

fn sentence(tool: &str, servers: &[PartialServer]) -> Option<String> {
    // The longest prefix decides, whatever separates it from the tool's own name.
    let of = |server: &&PartialServer| {
        let prefix = server.prefix.as_deref().unwrap_or(&server.name);
        let rest = tool.strip_prefix(prefix).filter(|_| !prefix.is_empty());
        rest.is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric())).then_some(prefix.len())
    };
    let server = servers.iter().filter(|server| of(server).is_some()).max_by_key(of)?;
    if server.state == "ready" {
        return None;
    }
    let PartialServer { name, state, reason, .. } = server;
    let mut text = format!("{tool} cannot be called: the server {name:?} is away ({state})");
    if !reason.is_empty() {
        text.push_str(&format!(": {}", logs::one_line(reason)));
    }
    if let Some(seconds) = server.next_attempt_seconds {
        text.push_str(&format!("; the next attempt is in {seconds:.0} s"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_away_is_named() {
        let server = |name: &str, prefix: Option<&str>, state: &str| PartialServer {
            name: name.to_owned(),
            state: state.to_owned(),
            reason: "refused".to_owned(),
            prefix: prefix.map(str::to_owned),
            next_attempt_seconds: Some(2.0),
        };
        let servers = [
            server("git", Some("git"), "ready"),
            server("git_hub", Some("git_hub"), "failed"),
            server("b", Some("x"), "backing_off"),
            server("off", None, "disabled"),
            server("bare", Some(""), "failed"),
        ];
        let said = |tool: &str| sentence(tool, &servers);
        assert_eq!(
            said("x__echo").unwrap(),
            "x__echo cannot be called: the server \"b\" is away (backing_off): refused; the next attempt is in 2 s"
        );
        assert!(said("git_hub__echo").unwrap().contains("\"git_hub\""), "the longest prefix");
        assert!(said("off__echo").unwrap().contains("disabled"));
        for tool in ["git__echo", "echo", "x", "xecho", "bare__echo"] {
            assert_eq!(said(tool), None, "{tool}");
        }
    }
}
