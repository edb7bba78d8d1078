//! Probe of a server: `initialize` and `tools/list`, over a separate connection.
//!
//! Owns the connection and its end, and what an operator may probe. Does not resolve settings.
//! Invariant: the connection and the child that was started have ended.

use std::time::Duration;

use super::metadata_address::is_metadata_target;
use moongate_admin::{ProbeAnswer, ProbeReport};
use moongate_model::{ItemKind, login_sentence};
use moongate_oauth::ServerAuth;
use moongate_protocol::ConnectError;
use moongate_telemetry::logs;
use moongate_transport::LinkError;
use moongate_transport::metadata_address::MetadataAccess;
use moongate_transport::socket::SocketAddress;
use moongate_units::SizeSetting;
use moongate_upstream::{
    ConnectIdentity, ConnectTarget, ListOptions, ServerSettings, UpstreamRuntime, gateway_caller,
};

/// Longest time of a probe for an operator.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Names of tools that a report has.
const NAMES_MAX: usize = 20;
/// Limits of what is read, far below those of a configured server: a probe only counts.
const LIMITS: ListOptions = ListOptions {
    max_items: 5000,
    max_pages: 100,
    max_list: SizeSetting(8 << 20),
    max_depth: 100,
};
/// Largest message that is read.
const MESSAGE_MAX: usize = 8 << 20;

/// Reason why a probe failed.
#[derive(Debug)]
pub(crate) enum ProbeFailure {
    /// No connection.
    Connect(ConnectError),
    /// The list of tools failed.
    List(String),
    /// The time was up.
    Late,
}

/// Connects to a server once, and lists its tools.
pub(crate) async fn probe_server(
    settings: &ServerSettings,
    shared: &UpstreamRuntime,
    limit: Duration,
) -> Result<ProbeAnswer, ProbeFailure> {
    let probing = async {
        let identity = ConnectIdentity::for_all(None);
        let active = moongate_upstream::open_connection(settings, shared, identity).await;
        let active = active.map_err(ProbeFailure::Connect)?;
        let listed =
            moongate_upstream::list_all(&*active.server, ItemKind::Tools, &settings.options.lists)
                .await;
        // Closed before the result is looked at, or a child would outlive a list that failed.
        active.link.close(Vec::new()).await;
        let tools = listed.map_err(|error| ProbeFailure::List(error.message.to_string()))?;
        let info = active.server.describe(&gateway_caller()).info.as_object();
        let [name, version] =
            ["name", "version"].map(|key| Some(info.as_ref()?.get_string(key)?.to_string()));
        let names = tools
            .items
            .iter()
            .filter_map(|tool| tool.get_string("name"));
        Ok(ProbeAnswer {
            transport: moongate_upstream::transport_name(&settings.connect, Some(&active)),
            revision: active.revision,
            name,
            version,
            tools: tools.items.len(),
            tool_bytes: tools.items.iter().map(|tool| tool.bytes().len()).sum(),
            tool_names: names.take(NAMES_MAX).map(|name| name.to_string()).collect(),
        })
    };
    tokio::time::timeout(limit, probing)
        .await
        .unwrap_or(Err(ProbeFailure::Late))
}

/// Probes a server for an operator, who may have typed any address.
pub(super) async fn probe_for_operator(
    mut settings: ServerSettings,
    shared: &UpstreamRuntime,
    allow_commands: bool,
) -> ProbeReport {
    let limit = settings.live.connect_timeout.0.min(TIME_MAX);
    if let Some(refused) = refusal(&settings, allow_commands, limit).await {
        return refused;
    }
    // Within the probe's own limit, so that a slow start is closed in order.
    (
        settings.live.connect_timeout.0,
        settings.live.start_timeout.0,
    ) = (limit, limit);
    (settings.options.lists, settings.options.max_message.0) =
        (LIMITS, settings.options.max_message.0.min(MESSAGE_MAX));
    match probe_server(&settings, shared, limit + Duration::from_secs(1)).await {
        Ok(answer) => ProbeReport::Answered(answer),
        Err(ProbeFailure::Connect(error)) if settings.needs_login(&error) => {
            ProbeReport::NeedsLogin(login_sentence(&settings.name))
        }
        Err(ProbeFailure::Connect(ConnectError::Link(LinkError::Status {
            status: status @ (401 | 403),
            ..
        }))) => failed(
            format!("it answers with HTTP status {status}"),
            "its credentials are missing or refused: check its headers, such as `Authorization`",
        ),
        Err(ProbeFailure::Connect(error)) => failed(
            error.to_string(),
            "check the address, and that the server is running",
        ),
        Err(ProbeFailure::List(message)) => failed(
            format!("it does not list its tools: {message}"),
            "the server itself has a problem",
        ),
        Err(ProbeFailure::Late) => failed(
            format!("no answer within {limit:?}"),
            "a slow server may still work, because its own limits are longer",
        ),
    }
}

/// Refuses what no probe may connect to.
async fn refusal(
    settings: &ServerSettings,
    allow_commands: bool,
    limit: Duration,
) -> Option<ProbeReport> {
    match &settings.connect {
        ConnectTarget::Misconfigured { reason } => {
            return Some(failed(reason.clone(), "correct its settings"));
        }
        ConnectTarget::Stdio { .. }
        | ConnectTarget::Socket(SocketAddress::Unix(_))
        | ConnectTarget::Http {
            socket: Some(_), ..
        }
        | ConnectTarget::Http {
            auth: ServerAuth::Command(_),
            ..
        } if !allow_commands => {
            return Some(not_allowed());
        }
        _ => {}
    }
    // Redirects need no check: they are followed within the origin only.
    let is_refused = settings.metadata == MetadataAccess::Refused;
    (is_refused && is_metadata_target(&settings.connect, limit).await).then(|| {
        let message = "this is the address of a cloud metadata service, which Moongate never \
                       connects to from here";
        failed(message.to_owned(), "enter the address of an MCP server")
    })
}

fn not_allowed() -> ProbeReport {
    failed(
        "it starts a program or uses a file on this machine".to_owned(),
        "`admin.allow_commands` would allow it",
    )
}

fn failed(message: String, hint: &str) -> ProbeReport {
    // A server may quote what it was sent.
    ProbeReport::Failed {
        message: logs::redact(&message),
        hint: hint.to_owned(),
    }
}
