//! Explanation of what is not listed: its server may be disconnected. Owns the request to the admin
//! listener.
//!
//! Does not change the endpoint's response. Invariant: without an answer from the admin listener,
//! nothing is claimed.

use crate::cli::admin_client::AdminClient;
use moongate_api::{GatewayStatus, ServerCondition, ServerStatus};
use moongate_model::UpstreamState;
use moongate_telemetry::logs;

/// Servers that an explanation of an empty list names. Of more, it gives the number.
const MAX_NAMED: usize = 5;

/// Returns a sentence on the server that a tool's name belongs to, if it is disconnected.
pub(super) async fn explain(tool: &str, admin: &AdminClient) -> Option<String> {
    sentence(tool, &servers(admin).await?)
}

/// Returns the disconnected servers of an empty list, as a part of a sentence. `only` is the
/// endpoint's server or view. Which servers a view has is not known here, so nothing is claimed of
/// it.
pub(super) async fn explain_empty(admin: &AdminClient, only: Option<&str>) -> Option<String> {
    disconnected(&servers(admin).await?, only)
}

async fn servers(admin: &AdminClient) -> Option<Vec<ServerStatus>> {
    let (status, body) = admin.get("/api/v1/status").await.ok()?;
    let status: GatewayStatus = serde_json::from_slice(&body)
        .ok()
        .filter(|_| status == 200)?;
    Some(status.servers)
}

fn disconnected(servers: &[ServerStatus], only: Option<&str>) -> Option<String> {
    let mut named: Vec<String> = servers
        .iter()
        .filter(|server| server.condition.state != UpstreamState::Ready)
        .filter(|server| only.is_none_or(|only| only == server.name()))
        .map(|server| format!("{:?} ({})", server.name(), server.condition.state.name()))
        .collect();
    let more = named.len().saturating_sub(MAX_NAMED);
    named.truncate(MAX_NAMED);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    (!named.is_empty()).then(|| {
        format!(
            "unavailable: {}; `moongate status` shows why",
            named.join(", ")
        )
    })
}

fn sentence(tool: &str, servers: &[ServerStatus]) -> Option<String> {
    // The longest prefix decides.
    let (_, server) = servers
        .iter()
        .filter_map(|server| Some((prefix_length(server, tool)?, server)))
        .max_by_key(|(length, _)| *length)?;
    let ServerCondition {
        state,
        reason,
        next_attempt_seconds,
        ..
    } = &server.condition;
    if *state == UpstreamState::Ready {
        return None;
    }
    let mut text = format!(
        "{tool} cannot be called: the server {:?} is unavailable ({})",
        server.name(),
        state.name()
    );
    if !reason.is_empty() {
        text.push_str(&format!(": {}", logs::one_line(reason)));
    }
    if let Some(seconds) = next_attempt_seconds {
        text.push_str(&format!("; the next attempt is in {seconds:.0} s"));
    }
    Some(text)
}

/// Returns the length of a server's prefix if a tool's name starts with it, whatever separates the
/// two.
fn prefix_length(server: &ServerStatus, tool: &str) -> Option<usize> {
    let prefix = server.identity.prefix.as_str();
    let rest = tool.strip_prefix(prefix).filter(|_| !prefix.is_empty());
    rest.is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric()))
        .then_some(prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, prefix: Option<&str>, state: UpstreamState) -> ServerStatus {
        let mut server = ServerStatus::default();
        server.identity.name = name.to_owned();
        server.identity.prefix = prefix.unwrap_or(name).to_owned();
        server.condition.state = state;
        server.condition.reason = "refused".to_owned();
        server.condition.next_attempt_seconds = Some(2.0);
        server
    }

    #[test]
    fn an_empty_list_names_the_servers_that_are_away() {
        let all = [
            server("a", None, UpstreamState::Starting),
            server("b", None, UpstreamState::Ready),
            server("c", None, UpstreamState::Failed),
        ];
        let named = "unavailable: \"a\" (starting), \"c\" (failed); `moongate status` shows why";
        assert_eq!(disconnected(&all, None).unwrap(), named);
        assert_eq!(
            disconnected(&all, Some("c")).unwrap(),
            "unavailable: \"c\" (failed); `moongate status` shows why"
        );
        assert_eq!(disconnected(&all, Some("b")), None);
        let many: Vec<ServerStatus> = (0..7)
            .map(|n| server(&n.to_string(), None, UpstreamState::Starting))
            .collect();
        let text = disconnected(&many, None).unwrap();
        assert!(
            text.contains("\"4\" (starting), 2 more;") && !text.contains("\"5\""),
            "{text}"
        );
    }

    #[test]
    fn a_server_that_is_away_is_named() {
        let servers = [
            server("git", Some("git"), UpstreamState::Ready),
            server("git_hub", Some("git_hub"), UpstreamState::Failed),
            server("b", Some("x"), UpstreamState::BackingOff),
            server("off", None, UpstreamState::Disabled),
            server("bare", Some(""), UpstreamState::Failed),
        ];
        assert_eq!(
            sentence("x__echo", &servers).unwrap(),
            "x__echo cannot be called: the server \"b\" is unavailable (backing_off): refused; the \
             next attempt is in 2 s"
        );
        assert!(
            sentence("git_hub__echo", &servers)
                .unwrap()
                .contains("\"git_hub\""),
            "the longest prefix"
        );
        let off = sentence("off__echo", &servers).unwrap();
        assert!(off.contains("disabled"));
        for tool in ["git__echo", "echo", "x", "xecho", "bare__echo"] {
            assert_eq!(sentence(tool, &servers), None, "{tool}");
        }
    }
}
