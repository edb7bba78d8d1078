//! Dial of one connection: opens the link, and negotiates the revision. Owns the choice of the
//! transport. Does not retry or time attempts (`supervisor`, `reconnect_backoff.rs`). Invariant:
//! link and handshake end within `start_timeout`, and a failed dial closes its link.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use tokio::time::Instant;

use crate::all_servers::UpstreamRuntime;
use crate::connection::{UpstreamConnection, installer};
use crate::settings::{ConnectTarget, HttpTransport, NetworkSettings, ServerSettings};
use moongate_jsonrpc::json::RawJson;
use moongate_model::{Caller, ClientChannel, PrincipalKey};
use moongate_protocol::{
    self, CallTimeouts, ConnectError, ConnectOptions, Era, LegacyGreeting, LinkOpener,
    NegotiatedServer, PendingCalls, SeenInputFlag,
};
use moongate_telemetry::{MemoryHolder, MemoryShare, Metrics, logs};
use moongate_transport::credential_source::CredentialSource;
use moongate_transport::http_settings::HttpSettings;
use moongate_transport::http_sse::SseLink;
use moongate_transport::rpc_pipe::{OnGarbage, RpcPipe, RpcPipeSettings};
use moongate_transport::socket::{SocketAddress, SocketLink, SocketSettings};
use moongate_transport::stderr::StderrTail;
use moongate_transport::stdio_link::{StdioLink, StdioSettings};
use moongate_transport::streamable_http::HttpLink;
use moongate_transport::trust::tls_without_roots;
use moongate_transport::websocket::{WsLink, WsSettings};
use moongate_transport::{ByteBudget, HeaderList, Link, LinkError, PipeDialer};

/// Part of `start_timeout` that is left for a second start, where the first one may have been a
/// download.
const SECOND_START: Duration = Duration::from_secs(15);
/// Longest wait for the end of a link before the next one is opened.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

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
    let timeouts = Arc::new(CallTimeouts::new(settings.timeout, settings.input_timeout));
    dial(settings, common, connect_identity, timeouts).await
}

/// Opens a connection whose call timeouts the caller can change later.
pub(crate) async fn dial(
    settings: &ServerSettings,
    common: &UpstreamRuntime,
    connect_identity: ConnectIdentity,
    timeouts: Arc<CallTimeouts>,
) -> Result<UpstreamConnection, ConnectError> {
    let seen_input = connect_identity.seen_input;
    let credentials = common.find_credentials(&settings.name, connect_identity.person.as_ref());
    let options = ConnectOptions {
        server: settings.name.clone(),
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
        max_backlog: settings.max_backlog,
        metrics: common.metrics.clone(),
        closing: common.closing.clone(),
        persisted_session: connect_identity.persisted_session,
    };
    let deadline = Instant::now() + settings.start_timeout;
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
    let stderr = connect_identity.stderr;
    let was_reached = connect_identity.was_connected;
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
            // The error that says more is told: the server spoke this transport.
            Err(over_sse) if says_more(&over_sse) => Err(over_sse),
            Err(_) => Err(error),
            opened => opened,
        };
    }
    let error = if opener.starts_process() {
        with_exit_reason(error, &stderr).await
    } else {
        error
    };
    Err(match *opener.mistake.lock() {
        Some(mistake) => with_mistake(error, mistake),
        None => error,
    })
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

/// Opener of the links of one dial.
struct DialOpener<'a> {
    settings: &'a ServerSettings,
    common: &'a UpstreamRuntime,
    stderr: StderrTail,
    is_http_sse: bool,
    /// True if the server was connected before.
    was_reached: bool,
    /// Source of the credential that requests carry.
    credentials: Option<Arc<dyn CredentialSource>>,
    /// Link that was opened last.
    open: Mutex<Option<Arc<dyn Link>>>,
    /// Known mistake in the output of an earlier link.
    mistake: Mutex<Option<&'static str>>,
}

impl<'a> DialOpener<'a> {
    fn new(settings: &'a ServerSettings, common: &'a UpstreamRuntime, stderr: StderrTail) -> Self {
        DialOpener {
            settings,
            common,
            stderr,
            is_http_sse: false,
            was_reached: false,
            credentials: None,
            open: Mutex::default(),
            mistake: Mutex::default(),
        }
    }

    /// Returns true if requests carry the credential of one person.
    fn is_personal(&self) -> bool {
        self.credentials
            .as_ref()
            .is_some_and(|source| source.is_personal())
    }

    /// Closes the link that was opened last.
    async fn close(&self) {
        let open = self.open.lock().take();
        if let Some(link) = open {
            if let Some(mistake) = link.output_mistake() {
                self.mistake.lock().get_or_insert(mistake);
            }
            link.close(Vec::new()).await;
        }
    }

    /// True if links are child processes.
    fn starts_process(&self) -> bool {
        matches!(self.settings.connect, ConnectTarget::Stdio { .. }) && self.common.dialer.is_none()
    }

    async fn open(&self, calls: &PendingCalls) -> Result<Arc<dyn Link>, LinkError> {
        if !self.is_http_sse {
            return open_link(self, calls).await;
        }
        let (http, tls) = http_settings(self)?;
        let budget = byte_budget(self.settings, self.common);
        Ok(Arc::new(
            SseLink::open(http, tls, calls.correlate(), budget).await?,
        ))
    }
}

impl LinkOpener for DialOpener<'_> {
    fn open_link<'a>(
        &'a self,
        calls: &'a PendingCalls,
    ) -> BoxFuture<'a, Result<Arc<dyn Link>, LinkError>> {
        async move {
            // A server that ignores the end of its input must not hold up the next one. It goes on
            // to be ended.
            let _ = tokio::time::timeout(CLOSE_WAIT, self.close()).await;
            let link = self.open(calls).await?;
            *self.open.lock() = Some(link.clone());
            Ok(link)
        }
        .boxed()
    }

    fn install_time(&self) -> Option<Duration> {
        installer::of(&self.settings.connect)?;
        Some(
            self.settings
                .start_timeout
                .saturating_sub(SECOND_START)
                .max(self.settings.start_timeout / 2),
        )
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
            let limit = settings.start_timeout;
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
    let explain = |reason: String, explanation: Option<String>| match explanation {
        // Programs print their arguments and environment when they fail, with the keys in them.
        Some(line) => format!("{reason}; it wrote: {}", logs::redact(&line)),
        None => reason,
    };
    match error {
        ConnectError::Link(LinkError::Closed(reason) | LinkError::NotSent(reason)) => {
            LinkError::Closed(explain(reason, stderr.likely_exit_reason().await)).into()
        }
        ConnectError::Link(LinkError::Timeout(reason)) => {
            LinkError::Timeout(explain(reason, stderr.likely_exit_reason().await)).into()
        }
        error => error,
    }
}

async fn open_link(
    opener: &DialOpener<'_>,
    calls: &PendingCalls,
) -> Result<Arc<dyn Link>, LinkError> {
    let DialOpener {
        settings,
        common,
        stderr,
        credentials,
        ..
    } = opener;
    // The dialer of tests replaces pipes here. For HTTP it is a parameter of the client.
    let dialer = match &settings.connect {
        ConnectTarget::Http { transport, .. } if !transport.is_websocket() => None,
        ConnectTarget::Misconfigured { .. } => None,
        ConnectTarget::Http { .. } | ConnectTarget::Stdio { .. } | ConnectTarget::Socket(_) => {
            common.dialer.as_ref()
        }
    };
    if let Some(dial) = dialer {
        let (reader, writer) = dial(&settings.name)?;
        let pipe_settings = RpcPipeSettings {
            max_message: settings.max_message,
            correlate: calls.correlate(),
            on_garbage: on_garbage(&settings.name, &common.metrics),
            backlog: byte_budget(settings, common),
            closed: "the server closed the pipe",
            explain: None,
        };
        return Ok(Arc::new(RpcPipe::start(reader, writer, pipe_settings)));
    }
    match &settings.connect {
        ConnectTarget::Stdio {
            command,
            args,
            env,
            cwd,
        } => {
            let link = StdioLink::start(StdioSettings {
                name: settings.name.clone(),
                command: command.clone(),
                kind: installer::program_kind(&settings.connect),
                args: args.clone(),
                env: env.clone(),
                cwd: cwd.clone(),
                max_message: settings.max_message,
                backlog: byte_budget(settings, common),
                correlate: calls.correlate(),
                on_garbage: on_garbage(&settings.name, &common.metrics),
                reaper: common.reaper.clone(),
                stderr: stderr.clone(),
            })?;
            Ok(Arc::new(link))
        }
        // A retry cannot help: only another config can, and that makes another connection.
        ConnectTarget::Misconfigured { reason } => Err(LinkError::Spawn(reason.clone())),
        ConnectTarget::Socket(address) => {
            let link = SocketLink::open(SocketSettings {
                address: address.clone(),
                metadata: settings.metadata,
                connect_timeout: settings.connect_timeout,
                max_message: settings.max_message,
                backlog: byte_budget(settings, common),
                correlate: calls.correlate(),
                on_garbage: on_garbage(&settings.name, &common.metrics),
            });
            Ok(Arc::new(link.await?))
        }
        ConnectTarget::Http {
            url,
            headers,
            transport: HttpTransport::WebSocket,
            network,
            ..
        } => {
            let mut link = websocket_settings(settings, common, calls, (url, headers, network));
            // One request opens the connection, and no other follows.
            if let Some(source) = credentials {
                link.headers.extend(
                    source
                        .authorization()
                        .await?
                        .map(|value| (AUTHORIZATION, value)),
                );
            }
            Ok(Arc::new(
                WsLink::open(link, &tls(common, url, network)).await?,
            ))
        }
        ConnectTarget::Http {
            transport: HttpTransport::Auto | HttpTransport::Streamable | HttpTransport::Sse,
            ..
        } => {
            let (http, tls) = http_settings(opener)?;
            Ok(Arc::new(HttpLink::new(http, tls)?))
        }
    }
}

fn websocket_settings(
    settings: &ServerSettings,
    common: &UpstreamRuntime,
    calls: &PendingCalls,
    (url, headers, network): (&url::Url, &HeaderList, &NetworkSettings),
) -> WsSettings {
    WsSettings {
        url: url.clone(),
        proxy: common.proxy(url, &network.proxy),
        metadata: settings.metadata,
        headers: headers.clone(),
        connect_timeout: settings.connect_timeout,
        max_message: settings.max_message,
        ping: settings.websocket_ping,
        backlog: byte_budget(settings, common),
        correlate: calls.correlate(),
        on_garbage: on_garbage(&settings.name, &common.metrics),
    }
}

fn http_settings(
    opener: &DialOpener<'_>,
) -> Result<(HttpSettings, Arc<rustls::ClientConfig>), LinkError> {
    let DialOpener {
        settings,
        common,
        was_reached,
        credentials,
        ..
    } = opener;
    let ConnectTarget::Http {
        url,
        socket,
        headers,
        forward_headers,
        network,
        ..
    } = &settings.connect
    else {
        return Err(LinkError::Spawn("there is no URL".to_owned()));
    };
    let resumed = common.metrics.servers.resumed.series(&settings.name);
    let mended = common.metrics.servers.mended.series(&settings.name);
    let http = HttpSettings {
        url: url.clone(),
        socket: socket.clone(),
        // A Unix socket is local. No proxy leads there.
        proxy: common
            .proxy(url, &network.proxy)
            .filter(|_| socket.is_none()),
        metadata: settings.metadata,
        headers: headers.clone(),
        credentials: credentials.clone(),
        forwards_credentials: !forward_headers.is_empty(),
        connect_timeout: settings.connect_timeout,
        max_message: settings.max_message,
        memory: memory_share(settings, common),
        on_garbage: on_garbage(&settings.name, &common.metrics),
        on_mended: Arc::new(move || mended.inc()),
        was_reached: *was_reached,
        on_resume: Arc::new(move || resumed.inc()),
        dial: common.dialer.clone().map(|dialer| {
            let name = settings.name.clone();
            Arc::new(move || dialer(&name)) as PipeDialer
        }),
    };
    Ok((http, tls(common, url, network)))
}

fn tls(
    common: &UpstreamRuntime,
    url: &url::Url,
    network: &NetworkSettings,
) -> Arc<rustls::ClientConfig> {
    match url.scheme() {
        "https" | "wss" => common.tls(network.ca.as_ref()),
        // Plain connections must not wait until the system's certificates are read.
        _ => tls_without_roots(),
    }
}

fn byte_budget(settings: &ServerSettings, common: &UpstreamRuntime) -> Arc<ByteBudget> {
    ByteBudget::within(
        settings.max_backlog,
        &settings.name,
        &common.metrics,
        memory_share(settings, common),
    )
}

fn memory_share(settings: &ServerSettings, common: &UpstreamRuntime) -> MemoryShare {
    common
        .memory
        .share(MemoryHolder::Server(settings.name.as_str().into()))
}

/// Returns a handler that counts each line that is no message, and logs one a minute.
fn on_garbage(server: &str, metrics: &Metrics) -> OnGarbage {
    // The counter has every line. The log needs only a sample.
    const QUIET: Duration = Duration::from_secs(60);
    let counter = metrics.servers.garbage.series(server);
    let server = server.to_owned();
    // The lock makes one of several threads the one that logs.
    let logged = Mutex::new(None::<tokio::time::Instant>);
    let seen = AtomicU64::new(0);
    Arc::new(move |line| {
        counter.inc();
        let seen = seen.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = logged.lock();
        if logged.is_none_or(|last| last.elapsed() >= QUIET) {
            *logged = Some(tokio::time::Instant::now());
            tracing::warn!(
                server,
                seen,
                sample = logs::sample(line),
                "server sent a line that is no message; skipped"
            );
        }
    })
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
