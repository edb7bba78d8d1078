//! Links of one dial, over the transport that the server's settings name.
//!
//! Owns the settings of each transport, and the close of a link before the next one. Does not
//! negotiate a revision or choose a fallback (`dial.rs`). Invariant: at most one link of a dial is
//! open.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use http::header::AUTHORIZATION;

use crate::all_servers::{ServerDialer, UpstreamRuntime};
use crate::connection::installer;
use crate::settings::{ConnectTarget, HttpTransport, NetworkSettings, ServerSettings};
use moongate_protocol::{LinkOpener, PendingCalls};
use moongate_telemetry::{MemoryHolder, MemoryShare, Metrics, logs};
use moongate_transport::credential_source::CredentialSource;
use moongate_transport::http_settings::HttpSettings;
use moongate_transport::http_sse::SseLink;
use moongate_transport::rpc_pipe::{OnGarbage, RpcPipe, RpcPipeSettings};
use moongate_transport::socket::{SocketLink, SocketSettings};
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

/// Opener of the links of one dial.
pub(super) struct DialOpener<'a> {
    /// Settings of the server.
    pub(super) settings: &'a ServerSettings,
    /// Runtime of all servers.
    pub(super) common: &'a UpstreamRuntime,
    /// Receiver of a child's stderr.
    pub(super) stderr: StderrTail,
    /// True if links are of HTTP+SSE.
    pub(super) is_http_sse: bool,
    /// True if the server was connected before.
    pub(super) was_reached: bool,
    /// Source of the credential that requests carry.
    pub(super) credentials: Option<Arc<dyn CredentialSource>>,
    /// Link that was opened last.
    pub(super) open: Mutex<Option<Arc<dyn Link>>>,
    /// Known mistake in the output of an earlier link.
    pub(super) mistake: Mutex<Option<&'static str>>,
}

impl<'a> DialOpener<'a> {
    /// Creates the opener of a server that was not connected before.
    pub(super) fn new(
        settings: &'a ServerSettings,
        common: &'a UpstreamRuntime,
        stderr: StderrTail,
    ) -> Self {
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
    pub(super) fn is_personal(&self) -> bool {
        self.credentials
            .as_ref()
            .is_some_and(|source| source.is_personal())
    }

    /// Closes the link that was opened last.
    pub(super) async fn close(&self) {
        let open = self.open.lock().take();
        if let Some(link) = open {
            if let Some(mistake) = link.output_mistake() {
                self.mistake.lock().get_or_insert(mistake);
            }
            link.close(Vec::new()).await;
        }
    }

    /// Returns true if links are child processes.
    pub(super) fn starts_process(&self) -> bool {
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
                .live
                .start_timeout
                .0
                .saturating_sub(SECOND_START)
                .max(self.settings.live.start_timeout.0 / 2),
        )
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
        ..
    } = opener;
    if let Some(dialer) = replacing_dialer(settings, common) {
        return open_memory_pipe(opener, calls, dialer);
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
                max_message: settings.options.max_message.0,
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
                connect_timeout: settings.live.connect_timeout.0,
                max_message: settings.options.max_message.0,
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
        } => open_websocket(opener, calls, (url, headers, network)).await,
        ConnectTarget::Http {
            transport: HttpTransport::Auto | HttpTransport::Streamable | HttpTransport::Sse,
            ..
        } => {
            let (http, tls) = http_settings(opener)?;
            Ok(Arc::new(HttpLink::new(http, tls)?))
        }
    }
}

/// Returns the dialer of tests, where it replaces the transport. For HTTP it is a parameter of the
/// client.
fn replacing_dialer<'a>(
    settings: &ServerSettings,
    common: &'a UpstreamRuntime,
) -> Option<&'a ServerDialer> {
    match &settings.connect {
        ConnectTarget::Http { transport, .. } if !transport.is_websocket() => None,
        ConnectTarget::Misconfigured { .. } => None,
        ConnectTarget::Http { .. } | ConnectTarget::Stdio { .. } | ConnectTarget::Socket(_) => {
            common.dialer.as_ref()
        }
    }
}

fn open_memory_pipe(
    opener: &DialOpener<'_>,
    calls: &PendingCalls,
    dialer: &ServerDialer,
) -> Result<Arc<dyn Link>, LinkError> {
    let DialOpener {
        settings, common, ..
    } = opener;
    let (reader, writer) = dialer(&settings.name)?;
    let pipe_settings = RpcPipeSettings {
        max_message: settings.options.max_message.0,
        correlate: calls.correlate(),
        on_garbage: on_garbage(&settings.name, &common.metrics),
        backlog: byte_budget(settings, common),
        closed: "the server closed the pipe",
        explain: None,
    };
    Ok(Arc::new(RpcPipe::start(reader, writer, pipe_settings)))
}

async fn open_websocket(
    opener: &DialOpener<'_>,
    calls: &PendingCalls,
    endpoint: (&url::Url, &HeaderList, &NetworkSettings),
) -> Result<Arc<dyn Link>, LinkError> {
    let Some(source) = &opener.credentials else {
        return connect_websocket(opener, calls, endpoint).await;
    };
    // One request opens the connection, and no other follows.
    let (url, headers, network) = endpoint;
    let sent = source.authorization().await?;
    let authorized = with_credential(headers, sent.clone());
    let opened = connect_websocket(opener, calls, (url, &authorized, network)).await;
    let challenge = match &opened {
        Err(LinkError::Status {
            challenge: Some(challenge),
            ..
        }) => challenge.clone(),
        _ => return opened,
    };
    if !source.on_refusal(sent.as_ref(), &challenge).await {
        return opened;
    }
    let authorized = with_credential(headers, source.authorization().await?);
    connect_websocket(opener, calls, (url, &authorized, network)).await
}

/// Returns the headers of the config, with the credential instead of one of the config.
fn with_credential(headers: &HeaderList, credential: Option<HeaderValue>) -> HeaderList {
    let configured = headers.iter().filter(|(name, _)| *name != AUTHORIZATION);
    let credential = credential.map(|value| (AUTHORIZATION, value));
    configured.cloned().chain(credential).collect()
}

async fn connect_websocket(
    opener: &DialOpener<'_>,
    calls: &PendingCalls,
    endpoint: (&url::Url, &HeaderList, &NetworkSettings),
) -> Result<Arc<dyn Link>, LinkError> {
    let DialOpener {
        settings, common, ..
    } = opener;
    let (url, _, network) = endpoint;
    let link = websocket_settings(settings, common, calls, endpoint);
    Ok(Arc::new(
        WsLink::open(link, &tls(common, url, network)).await?,
    ))
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
        connect_timeout: settings.live.connect_timeout.0,
        max_message: settings.options.max_message.0,
        ping: settings.options.websocket_ping.into(),
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
        connect_timeout: settings.live.connect_timeout.0,
        max_message: settings.options.max_message.0,
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
        settings.options.max_backlog.0,
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

/// Returns a handler that counts each line that is not a message, and logs one a minute.
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
                "server sent a line that is not a message; skipped"
            );
        }
    })
}
