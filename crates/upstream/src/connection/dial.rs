//! Dial of one connection: opens the link, and negotiates the revision. Owns the fallback to
//! HTTP+SSE. Does not set up links (`link_opener.rs`), and does not retry or time attempts
//! (`supervisor`, `reconnect_backoff.rs`). Invariant: link and handshake end within
//! `start_timeout`, and a failed dial closes its link.

mod link_opener;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8};

use tokio::time::Instant;

use crate::all_servers::UpstreamRuntime;
use crate::connection::UpstreamConnection;
use crate::connection::dial::link_opener::DialOpener;
use crate::settings::{ConnectTarget, HttpTransport, ServerSettings};
use moongate_jsonrpc::json::RawJson;
use moongate_model::{Caller, ClientChannel, PrincipalKey};
use moongate_protocol::{
    self, CallTimeouts, ConnectError, ConnectOptions, Era, LegacyGreeting, NegotiatedServer,
    SeenInputFlag,
};
use moongate_telemetry::logs;
use moongate_transport::LinkError;
use moongate_transport::credential_source::CredentialSource;
use moongate_transport::socket::SocketAddress;
use moongate_transport::stderr::StderrTail;

/// Identity and state that a connection is opened with.
pub struct ConnectIdentity {
    /// Capabilities to declare.
    pub capabilities: RawJson,
    /// `clientInfo` to send.
    pub info: RawJson,
    /// Era to use without a probe.
    pub era: Option<Era>,
    /// Form of the handshake that the server took before.
    pub greeting: Option<LegacyGreeting>,
    /// Era to try first on a pipe, if none is known.
    pub first_era: Option<Era>,
    /// Session that a previous process persisted.
    pub persisted_session: Option<RawJson>,
    /// True if the server was connected before.
    pub was_connected: bool,
    /// Receiver of the program's stderr.
    pub stderr: StderrTail,
    /// Record of what the server asks for.
    pub seen_input: SeenInputFlag,
    /// True if several clients use the connection.
    pub is_shared: bool,
    /// Way to the only client that uses it, outside of its calls.
    pub client: Option<ClientChannel>,
    /// Person that it is for. `None`: it is for several.
    pub person: Option<PrincipalKey>,
}

impl ConnectIdentity {
    /// Creates the identity of a connection for all clients.
    pub fn for_all(era: Option<Era>) -> Self {
        let capabilities = moongate_protocol::shared_capabilities();
        let info = moongate_protocol::gateway_info();
        ConnectIdentity::new(capabilities, info, era)
    }

    fn new(capabilities: RawJson, info: RawJson, era: Option<Era>) -> Self {
        ConnectIdentity {
            capabilities,
            info,
            era,
            greeting: None,
            first_era: None,
            persisted_session: None,
            was_connected: false,
            stderr: StderrTail::default(),
            seen_input: SeenInputFlag::default(),
            is_shared: false,
            client: None,
            person: None,
        }
    }

    /// Creates the identity of a connection for one client, with the client's own info and
    /// capabilities.
    pub fn for_caller(caller: &Caller, era: Option<Era>) -> Self {
        // A client need not name itself, but a server expects somebody.
        let info = caller
            .client_info
            .clone()
            .unwrap_or_else(moongate_protocol::gateway_info);
        ConnectIdentity::new(caller.declared_capabilities.clone(), info, era)
    }
}

/// Opens a connection within `start_timeout`.
pub async fn open_connection(
    settings: &ServerSettings,
    common: &UpstreamRuntime,
    connect_identity: ConnectIdentity,
) -> Result<UpstreamConnection, ConnectError> {
    let timeouts = Arc::new(CallTimeouts::new(
        settings.live.timeout.0,
        settings.input_timeout,
    ));
    dial(settings, common, connect_identity, timeouts).await
}

/// Opens a connection whose call timeouts the caller can change later.
pub(crate) async fn dial(
    settings: &ServerSettings,
    common: &UpstreamRuntime,
    connect_identity: ConnectIdentity,
    timeouts: Arc<CallTimeouts>,
) -> Result<UpstreamConnection, ConnectError> {
    let credentials = common.find_credentials(settings, connect_identity.person.as_ref());
    let seen_input = connect_identity.seen_input.clone();
    let stderr = connect_identity.stderr.clone();
    let was_reached = connect_identity.was_connected;
    let options = ConnectOptions {
        accepts_login: accepts_login(settings, common, credentials.as_deref()),
        ..connect_options(settings, common, connect_identity, timeouts)
    };
    let deadline = Instant::now() + settings.live.start_timeout.0;
    let falls_back = match &settings.connect {
        ConnectTarget::Http {
            transport: HttpTransport::Sse,
            ..
        } => {
            let opener = DialOpener {
                credentials,
                ..DialOpener::new(settings, common, StderrTail::default())
            };
            return over_http_sse(opener, options, deadline, seen_input).await;
        }
        ConnectTarget::Http { transport, .. } => *transport == HttpTransport::Auto,
        // A pipe has no fallback to another transport.
        ConnectTarget::Stdio { .. }
        | ConnectTarget::Socket(_)
        | ConnectTarget::Misconfigured { .. } => false,
    };
    let opener = DialOpener {
        was_reached,
        credentials: credentials.clone(),
        ..DialOpener::new(settings, common, stderr.clone())
    };
    // All links and handshakes share one deadline: a slow start must not get the time twice.
    let connecting = moongate_protocol::connect(&opener, seen_input.clone(), options.clone());
    let error = match within_deadline(deadline, settings, connecting).await {
        Ok(connected) => {
            return Ok(UpstreamConnection {
                stderr,
                ..into_connection(connected, &opener)
            });
        }
        Err(error) => error,
    };
    // Closed before the fallback opens another link to the same server.
    opener.close().await;
    // Only the errors that an HTTP+SSE server causes lead to the fallback.
    if falls_back && moongate_protocol::may_be_http_sse(&error, &options) {
        let sse = DialOpener {
            credentials,
            ..DialOpener::new(settings, common, StderrTail::default())
        };
        return match over_http_sse(sse, options, deadline, seen_input).await {
            // The error that says more is returned: the server spoke this transport.
            Err(over_sse) if says_more(&over_sse) => Err(over_sse),
            Err(_) => Err(error),
            opened => opened,
        };
    }
    Err(explain_failure(error, &opener).await)
}

/// True if `moongate login` is the way out where this credential is refused.
fn accepts_login(
    settings: &ServerSettings,
    common: &UpstreamRuntime,
    credential: Option<&dyn CredentialSource>,
) -> bool {
    // It gives nobody a login that is theirs alone.
    let is_personal = credential.is_some_and(|source| source.is_personal());
    settings.accepts_login() && common.has_credentials() && !is_personal
}

/// Returns the options of the handshake for this identity.
fn connect_options(
    settings: &ServerSettings,
    common: &UpstreamRuntime,
    connect_identity: ConnectIdentity,
    timeouts: Arc<CallTimeouts>,
) -> ConnectOptions {
    ConnectOptions {
        server: settings.name.clone(),
        accepts_login: false,
        revision: settings
            .protocol
            .as_deref()
            .and_then(moongate_protocol::supported_revision),
        era: connect_identity.era,
        greeting: connect_identity.greeting,
        preferred_era: connect_identity.first_era.or(settings.first_era),
        capabilities: connect_identity.capabilities,
        is_shared: connect_identity.is_shared,
        client: connect_identity.client,
        client_info: connect_identity.info,
        timeouts,
        max_backlog: settings.options.max_backlog.0,
        metrics: common.metrics.clone(),
        closing: common.closing.clone(),
        persisted_session: connect_identity.persisted_session,
    }
}

/// Adds what the server wrote about its end to the error of its start.
async fn explain_failure(error: ConnectError, opener: &DialOpener<'_>) -> ConnectError {
    let error = if opener.starts_process() {
        with_exit_reason(error, &opener.stderr).await
    } else {
        error
    };
    let mistake = *opener.mistake.lock();
    match mistake {
        Some(mistake) => with_mistake(error, mistake),
        None => error,
    }
}

async fn over_http_sse(
    opener: DialOpener<'_>,
    options: ConnectOptions,
    deadline: Instant,
    seen_input: SeenInputFlag,
) -> Result<UpstreamConnection, ConnectError> {
    let opener = DialOpener {
        is_http_sse: true,
        ..opener
    };
    let connecting = moongate_protocol::connect_http_sse(&opener, seen_input, options);
    match within_deadline(deadline, opener.settings, connecting).await {
        Ok(connected) => Ok(UpstreamConnection {
            is_http_sse: true,
            ..into_connection(connected, &opener)
        }),
        Err(error) => {
            opener.close().await;
            Err(error)
        }
    }
}

/// True for errors over HTTP+SSE that come from a server of that transport.
fn says_more(error: &ConnectError) -> bool {
    let needs_login = matches!(
        error,
        ConnectError::Link(LinkError::Status {
            status: 401 | 403,
            ..
        })
    );
    needs_login
        || matches!(
            error,
            ConnectError::Answered(_) | ConnectError::NoCommonRevision(_)
        )
}

/// Adds a known mistake in the server's output to the error of its start.
fn with_mistake(error: ConnectError, mistake: &str) -> ConnectError {
    match error {
        ConnectError::Link(LinkError::Closed(reason)) => {
            LinkError::Closed(format!("{mistake}; {reason}")).into()
        }
        ConnectError::Link(LinkError::Timeout(reason)) => {
            LinkError::Timeout(format!("{mistake}; {reason}")).into()
        }
        error => error,
    }
}

async fn within_deadline<T>(
    deadline: Instant,
    settings: &ServerSettings,
    opening: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::time::timeout_at(deadline, opening)
        .await
        .unwrap_or_else(|_| {
            let name = &settings.name;
            let limit = settings.live.start_timeout.0;
            Err(LinkError::Timeout(format!(
                "not ready within {limit:?} (servers.{name}.start_timeout)"
            ))
            .into())
        })
}

fn into_connection(connected: NegotiatedServer, opener: &DialOpener<'_>) -> UpstreamConnection {
    let NegotiatedServer {
        server,
        link,
        calls,
        revision,
        era,
        greeting,
    } = connected;
    UpstreamConnection {
        server,
        link,
        revision,
        era,
        greeting,
        stderr: StderrTail::default(),
        is_http_sse: false,
        is_personal: opener.is_personal(),
        calls,
        opened_at: Instant::now(),
        is_called: AtomicBool::new(false),
        new_calls: AtomicU8::new(0),
        is_persisted: AtomicBool::new(false),
        metrics: opener.common.metrics.clone(),
        translated: Mutex::default(),
    }
}

/// Adds the last lines on stderr to the error of a child that failed to start.
async fn with_exit_reason(error: ConnectError, stderr: &StderrTail) -> ConnectError {
    match error {
        ConnectError::Link(LinkError::Closed(reason) | LinkError::NotSent(reason)) => {
            LinkError::Closed(with_stderr_line(reason, stderr.likely_exit_reason().await)).into()
        }
        ConnectError::Link(LinkError::Timeout(reason)) => {
            LinkError::Timeout(with_stderr_line(reason, stderr.likely_exit_reason().await)).into()
        }
        error => error,
    }
}

fn with_stderr_line(reason: String, line: Option<String>) -> String {
    match line {
        // Programs print their arguments and environment when they fail, with the keys in them.
        Some(line) => format!("{reason}; it wrote: {}", logs::redact(&line)),
        None => reason,
    }
}

/// Returns the transport in a word: of the connection, else of the config.
pub fn transport_name(
    target: &ConnectTarget,
    connection: Option<&UpstreamConnection>,
) -> &'static str {
    match target {
        _ if connection.is_some_and(|connection| connection.is_http_sse) => "sse",
        ConnectTarget::Misconfigured { .. } => "none",
        ConnectTarget::Stdio { .. } => "stdio",
        ConnectTarget::Socket(SocketAddress::Tcp(_)) => "tcp",
        ConnectTarget::Socket(SocketAddress::Unix(_)) => "unix",
        ConnectTarget::Http {
            transport: HttpTransport::WebSocket,
            ..
        } => "ws",
        ConnectTarget::Http {
            transport: HttpTransport::Sse,
            ..
        } => "sse",
        ConnectTarget::Http {
            transport: HttpTransport::Auto | HttpTransport::Streamable,
            ..
        } => "http",
    }
}

#[cfg(test)]
mod tests;
