//! Probe of servers before they are added: each is connected once, with the settings that it would
//! have.
//!
//! Owns which faults speak against adding a server, and their words. Does not connect itself
//! (`client/probe.rs`). Invariant: a fault that may pass by itself never keeps a server out.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::app::probe::ProbeFailure;
use crate::cli::client::probe_settings;
use crate::cli::process::print_message;
use moongate_admin::ProbeAnswer;
use moongate_config::edit::PreparedEdit;
use moongate_gateway::estimate_tokens;
use moongate_model::login_sentence;
use moongate_protocol::ConnectError;
use moongate_telemetry::logs;
use moongate_transport::LinkError;
use moongate_upstream::{ConnectTarget, ServerSettings};

/// Time limit of one probe. `npx` may have to download a package first.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Servers that are probed together. Each may start a program.
const TOGETHER_MAX: usize = 4;
/// Longest name that a server gives itself and that is shown, in characters.
const NAME_MAX: usize = 60;

/// Conclusion about one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeVerdict {
    /// Nothing speaks against it.
    Add,
    /// Server that does not work yet, and may later.
    AddUnready,
    /// Settings with which it cannot work.
    Refuse,
}

/// Probes the servers of an edit, and reports each result. Returns a verdict for each name.
pub(super) async fn probe_all(prepared: &PreparedEdit, names: &[&str]) -> Vec<ProbeVerdict> {
    let mut verdicts = Vec::new();
    for names in names.chunks(TOGETHER_MAX) {
        let mut running = JoinSet::new();
        let mut of_chunk = vec![ProbeVerdict::Add; names.len()];
        for (at, name) in names.iter().enumerate() {
            match settings_of(prepared, name) {
                Ok(Some(settings)) => {
                    running.spawn(async move {
                        (
                            at,
                            judge(&settings, probe_settings(&settings, PROBE_TIMEOUT).await),
                        )
                    });
                }
                Ok(None) => {}
                Err(why) => {
                    of_chunk[at] = ProbeVerdict::AddUnready;
                    print_message(&format!("{name}: not tried: {why}"));
                }
            }
        }
        while let Some(done) = running.join_next().await {
            // A probe that broke off says nothing about the server.
            let Ok((at, (verdict, line))) = done else {
                continue;
            };
            let mark = if verdict == ProbeVerdict::Refuse {
                "error: "
            } else {
                ""
            };
            print_message(&format!("{mark}{}", logs::one_line(&line)));
            of_chunk[at] = verdict;
        }
        verdicts.extend(of_chunk);
    }
    verdicts
}

/// Returns the settings of a server. `None` if it is switched off, and a reason if they need what
/// is missing here.
fn settings_of(prepared: &PreparedEdit, name: &str) -> Result<Option<ServerSettings>, String> {
    let loaded = prepared.loaded();
    if let Some(problem) = loaded
        .failed
        .iter()
        .find(|problem| problem.server.as_deref() == Some(name))
    {
        // The variable may be set where the gateway runs.
        return Err(problem.message.clone());
    }
    Ok(loaded
        .plan
        .servers
        .iter()
        .find(|server| server.name == name)
        .cloned())
}

/// Judges a probe. Returns the line for people, too.
fn judge(
    settings: &ServerSettings,
    probed: Result<ProbeAnswer, ProbeFailure>,
) -> (ProbeVerdict, String) {
    let name = &settings.name;
    let (verdict, text) = match probed {
        Ok(answer) => (ProbeVerdict::Add, describe(&answer)),
        Err(ProbeFailure::Connect(error)) if settings.needs_login(&error) => {
            return (ProbeVerdict::AddUnready, login_sentence(name));
        }
        Err(ProbeFailure::Connect(error)) => judge_error(settings, &error),
        Err(ProbeFailure::List(message)) => (
            ProbeVerdict::AddUnready,
            format!("it connects, but does not list its tools: {message}; it is added anyway"),
        ),
        Err(ProbeFailure::Late) => (
            ProbeVerdict::AddUnready,
            format!("no answer within {PROBE_TIMEOUT:?}; it is added anyway"),
        ),
    };
    // Without its name: a server that is called `token` has no secret as its text.
    (verdict, format!("{name}: {}", logs::redact(&text)))
}

/// Separates faults that a change of the settings must heal from those that may pass.
fn judge_error(settings: &ServerSettings, error: &ConnectError) -> (ProbeVerdict, String) {
    let has_headers =
        matches!(&settings.connect, ConnectTarget::Http { headers, .. } if !headers.is_empty());
    let is_program = matches!(settings.connect, ConnectTarget::Stdio { .. });
    let (verdict, note) = match error {
        ConnectError::Link(LinkError::Status {
            status: 401 | 403, ..
        }) if has_headers => (
            ProbeVerdict::Refuse,
            "; the header is wrong, or lacks a permission",
        ),
        ConnectError::Link(LinkError::Status {
            status: 401 | 403, ..
        }) => (
            ProbeVerdict::AddUnready,
            "; it may need credentials: set a header, as in `headers = { Authorization = \"Bearer \
             ${TOKEN}\" }`",
        ),
        // A server that is too busy, and one that is being repaired, will answer otherwise later.
        ConnectError::Link(LinkError::Status {
            status: 408 | 425 | 429 | 500..,
            ..
        }) => (ProbeVerdict::AddUnready, "; this may be temporary"),
        // Its own hint asks about the URL already, or says more.
        ConnectError::Link(LinkError::Status { hint, .. }) if !hint.is_empty() => {
            (ProbeVerdict::Refuse, "")
        }
        ConnectError::Link(LinkError::Status { .. }) => {
            (ProbeVerdict::Refuse, "; is the URL right?")
        }
        ConnectError::Link(LinkError::Spawn(_)) => (ProbeVerdict::Refuse, ""),
        ConnectError::Link(LinkError::Closed(_)) if is_program => (ProbeVerdict::Refuse, ""),
        ConnectError::Link(LinkError::Protocol(_)) => {
            (ProbeVerdict::Refuse, "; is it an MCP server?")
        }
        ConnectError::Link(LinkError::Unreachable(_)) => (
            ProbeVerdict::AddUnready,
            "; it is added anyway, and connects once it is reachable",
        ),
        ConnectError::Link(_) => (ProbeVerdict::AddUnready, "; it is added anyway"),
        ConnectError::Answered(_) | ConnectError::NoCommonRevision(_) => (ProbeVerdict::Refuse, ""),
    };
    (verdict, format!("{error}{note}"))
}

fn describe(answer: &ProbeAnswer) -> String {
    let transport = match answer.transport {
        "http" => "Streamable HTTP",
        "sse" => "HTTP+SSE",
        "ws" => "WebSocket",
        other => other,
    };
    let own_name = answer.name.as_ref().map(|name| {
        let text = format!("{name} {}", answer.version.as_deref().unwrap_or_default());
        format!(
            ", {:?}",
            text.trim().chars().take(NAME_MAX).collect::<String>()
        )
    });
    let tools = answer.tools;
    let tokens = estimate_tokens(answer.tool_bytes);
    let own_name = own_name.unwrap_or_default();
    format!(
        "{transport}, {}{own_name}, {tools} tools, about {tokens} tokens",
        answer.revision
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http::header::AUTHORIZATION;
    use http::{HeaderName, HeaderValue};
    use moongate_oauth::ServerAuth;
    use moongate_upstream::{HttpTransport, NetworkSettings};

    use super::*;

    fn program() -> ServerSettings {
        let connect = ConnectTarget::Stdio {
            command: "a".to_owned(),
            args: Vec::new(),
            env: Default::default(),
            cwd: None,
        };
        ServerSettings::new("a".to_owned(), connect)
    }

    fn verdict(error: LinkError) -> ProbeVerdict {
        judge_error(&program(), &ConnectError::Link(error)).0
    }

    #[test]
    fn the_url_is_asked_about_once() {
        let settings = program();
        for (hint, text) in [
            (
                ": is `url` complete?",
                "HTTP status 404: is `url` complete?",
            ),
            ("", "HTTP status 404; is the URL right?"),
        ] {
            let status = 404;
            let hint = hint.to_owned();
            let error = ConnectError::Link(LinkError::Status {
                status,
                hint,
                message: None,
                retry_after: None,
                challenge: None,
            });
            assert_eq!(judge_error(&settings, &error).1, text);
        }
    }

    fn status(status: u16) -> LinkError {
        LinkError::Status {
            status,
            hint: String::new(),
            message: None,
            retry_after: None,
            challenge: None,
        }
    }

    /// Judges a refusal by a server that is sent a header, or none.
    fn judge_refusal(status_code: u16, header: Option<HeaderName>) -> (ProbeVerdict, String) {
        let settings = ServerSettings::new(
            "linear",
            ConnectTarget::Http {
                url: url::Url::parse("https://mcp.linear.app/mcp").unwrap(),
                socket: None,
                transport: HttpTransport::Auto,
                headers: header
                    .map(|name| (name, HeaderValue::from_static("x")))
                    .into_iter()
                    .collect(),
                forward_headers: Vec::new(),
                auth: ServerAuth::default(),
                network: NetworkSettings::default(),
            },
        );
        let error = ConnectError::Link(status(status_code));
        judge(&settings, Err(ProbeFailure::Connect(error)))
    }

    #[test]
    fn a_server_that_needs_a_login_is_added_with_the_command() {
        let sentence = "linear needs a login: moongate login linear".to_owned();
        let other = HeaderName::from_static("x-workspace");
        for header in [None, Some(other)] {
            let judged = judge_refusal(401, header);
            assert_eq!(judged, (ProbeVerdict::AddUnready, sentence.clone()));
        }
        let (verdict, line) = judge_refusal(401, Some(AUTHORIZATION));
        assert_eq!(verdict, ProbeVerdict::Refuse);
        assert_eq!(
            line,
            "linear: HTTP status 401; the header is wrong, or lacks a permission"
        );
        let (verdict, line) = judge_refusal(403, None);
        assert_eq!(verdict, ProbeVerdict::AddUnready);
        assert!(
            line.starts_with("linear: HTTP status 403; it may need"),
            "{line}"
        );
    }

    #[test]
    fn only_faults_that_a_change_must_heal_keep_a_server_out() {
        for passing in [401, 403, 408, 429, 500, 503, 599] {
            assert_eq!(
                verdict(status(passing)),
                ProbeVerdict::AddUnready,
                "{passing}"
            );
        }
        for lasting in [301, 400, 404, 405, 410] {
            assert_eq!(verdict(status(lasting)), ProbeVerdict::Refuse, "{lasting}");
        }
        for passing in [
            LinkError::Unreachable("x".to_owned()),
            LinkError::Timeout("x".to_owned()),
            LinkError::NotSent("x".to_owned()),
        ] {
            assert_eq!(verdict(passing), ProbeVerdict::AddUnready);
        }
        for lasting in [
            LinkError::Spawn("x".to_owned()),
            LinkError::Closed("x".to_owned()),
            LinkError::Protocol("x".to_owned()),
        ] {
            assert_eq!(verdict(lasting), ProbeVerdict::Refuse);
        }
    }
}
