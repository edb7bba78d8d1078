//! One connection to a server: the link, and what is spoken on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::json::Raw;
use crate::link::duplex::{Duplex, DuplexSettings, OnGarbage};
use crate::link::http::{HttpLink, HttpSettings};
use crate::link::socket::{Address, SocketLink, SocketSettings};
use crate::link::sse::SseLink;
use crate::link::stderr::StderrTail;
use crate::link::stdio::{StdioLink, StdioSettings};
use crate::link::trust::tls_without_roots;
use crate::link::ws::{WsLink, WsSettings};
use crate::link::{Backlog, Dial, Link, LinkError};
use crate::model::{Caller, Server};
use crate::revision::{self, AskRecord, Calls, ConnectError, Connected, Era, Hello, Times};
use crate::telemetry::{Counter, Metrics, logs};
use crate::upstream::{Connect, HttpTransport, NetworkSettings, ServerSettings, Shared, Upstream};

/// An open connection to a server.
pub struct Active {
    /// To call it.
    pub server: Arc<dyn Server>,
    /// What carries it.
    pub link: Arc<dyn Link>,
    /// The revision that it speaks.
    pub revision: &'static str,
    /// Its era, to remember.
    pub era: Era,
    /// Its last words, if it is a child.
    pub(super) stderr: StderrTail,
    /// Whether it is reached over HTTP+SSE.
    pub is_http_sse: bool,
    /// What is open on it.
    pub calls: Calls,
    /// Whether a client has called on it.
    pub(super) is_called: AtomicBool,
    /// Whether another run may go on with it.
    pub(super) is_kept: AtomicBool,
    metrics: Arc<Metrics>,
    /// Counters of calls by the client's revision; as many as there are revisions.
    translated: Mutex<Vec<(&'static str, Counter)>>,
}

/// Whom a connection is opened for.
pub struct For {
    /// The capabilities to declare.
    pub capabilities: Raw,
    /// Who we say we are.
    pub info: Raw,
    /// The era to try without a probe.
    pub era: Option<Era>,
    /// The era to begin with on a pipe, where none is known.
    pub first: Option<Era>,
    /// What an earlier process left of the connection.
    pub handed_over: Option<Raw>,
    /// Takes what a program writes to its stderr.
    pub stderr: StderrTail,
    /// Where it is noted that the server asks.
    pub record: AskRecord,
}

impl For {
    /// For everybody.
    pub fn everybody(era: Option<Era>) -> Self {
        let (capabilities, info) = (revision::shared_capabilities(), revision::implementation());
        let (stderr, record) = (StderrTail::default(), AskRecord::default());
        For { capabilities, info, era, first: None, handed_over: None, stderr, record }
    }
}

impl For {
    /// For one client: as it says of itself.
    pub fn one(caller: &Caller, era: Option<Era>) -> Self {
        let info = caller.info.clone().unwrap_or_else(revision::implementation);
        let (stderr, record) = (StderrTail::default(), AskRecord::default());
        let capabilities = caller.capabilities.clone();
        For { capabilities, info, era, first: None, handed_over: None, stderr, record }
    }
}

/// Opens a connection, within the time that the settings give.
pub async fn open(settings: &ServerSettings, shared: &Shared, whom: For) -> Result<Active, ConnectError> {
    let times = Arc::new(Times::new(settings.timeout, settings.ask_timeout));
    open_with(settings, shared, whom, times).await
}

/// The same, with the times of calls in other hands.
pub(super) async fn open_with(
    settings: &ServerSettings,
    shared: &Shared,
    whom: For,
    times: Arc<Times>,
) -> Result<Active, ConnectError> {
    let record = whom.record;
    let hello = Hello {
        server: settings.name.clone(),
        revision: settings.protocol.as_deref().and_then(revision::by_name),
        era: whom.era,
        first: whom.first,
        capabilities: whom.capabilities,
        info: whom.info,
        times,
        max_backlog: settings.max_backlog,
        metrics: shared.metrics.clone(),
        closing: shared.closing.clone(),
        handed_over: whom.handed_over,
    };
    let transport = match &settings.connect {
        Connect::Http { transport, .. } => *transport,
        Connect::Stdio { .. } | Connect::Socket(_) | Connect::Misconfigured { .. } => HttpTransport::Streamable,
    };
    let deadline = Instant::now() + settings.start_timeout;
    if transport == HttpTransport::Sse {
        return over_http_sse(settings, shared, hello, deadline, record).await;
    }
    let calls = Calls::recording(record.clone());
    let opening = async { Ok(link(settings, shared, &calls, &whom.stderr).await?) };
    let (link, stderr) = until(deadline, settings, opening).await?;
    let connecting = revision::connect(link.clone(), calls.clone(), hello.clone());
    let error = match until(deadline, settings, connecting).await {
        Ok(connected) => return Ok(Active { stderr: whom.stderr, ..active(connected, link, calls, shared) }),
        Err(error) => error,
    };
    link.close(Vec::new()).await;
    if transport == HttpTransport::Auto
        && revision::may_be_http_sse(&error, &hello)
        && let Ok(active) = over_http_sse(settings, shared, hello, deadline, record).await
    {
        return Ok(active);
    }
    Err(match stderr {
        Some(stderr) => with_last_words(error, &stderr).await,
        None => error,
    })
}

async fn over_http_sse(
    settings: &ServerSettings,
    shared: &Shared,
    hello: Hello,
    deadline: Instant,
    record: AskRecord,
) -> Result<Active, ConnectError> {
    let calls = Calls::recording(record);
    let opening = async {
        let (http, tls) = http(settings, shared)?;
        Ok(SseLink::open(http, tls, calls.correlate(), backlog(settings, shared)).await?)
    };
    let link: Arc<dyn Link> = Arc::new(until(deadline, settings, opening).await?);
    match until(deadline, settings, revision::connect_http_sse(link.clone(), calls.clone(), hello)).await {
        Ok(connected) => Ok(Active { is_http_sse: true, ..active(connected, link, calls, shared) }),
        Err(error) => {
            link.close(Vec::new()).await;
            Err(error)
        }
    }
}

async fn until<T>(
    deadline: Instant,
    settings: &ServerSettings,
    opening: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::time::timeout_at(deadline, opening).await.unwrap_or_else(|_| {
        let (name, limit) = (&settings.name, settings.start_timeout);
        Err(LinkError::Timeout(format!("not ready within {limit:?} (servers.{name}.start_timeout)")).into())
    })
}

fn active(connected: Connected, link: Arc<dyn Link>, calls: Calls, shared: &Shared) -> Active {
    let Connected { server, revision, era } = connected;
    let (metrics, translated) = (shared.metrics.clone(), Mutex::default());
    let (is_called, is_kept) = (AtomicBool::new(false), AtomicBool::new(false));
    Active {
        server,
        link,
        revision,
        era,
        stderr: StderrTail::default(),
        is_http_sse: false,
        calls,
        is_called,
        is_kept,
        metrics,
        translated,
    }
}

/// A child that failed to start is explained by what it wrote last.
async fn with_last_words(error: ConnectError, stderr: &StderrTail) -> ConnectError {
    let explain = |reason: String, explanation: Option<String>| match explanation {
        Some(line) => format!("{reason}; it wrote: {}", logs::redact(&line)),
        None => reason,
    };
    match error {
        ConnectError::Link(LinkError::Gone(reason) | LinkError::Unsent(reason)) => {
            LinkError::Gone(explain(reason, stderr.last_words().await)).into()
        }
        ConnectError::Link(LinkError::Timeout(reason)) => {
            LinkError::Timeout(explain(reason, stderr.last_words().await)).into()
        }
        error => error,
    }
}

async fn link(
    settings: &ServerSettings,
    shared: &Shared,
    calls: &Calls,
    stderr: &StderrTail,
) -> Result<(Arc<dyn Link>, Option<StderrTail>), LinkError> {
    let is_http =
        matches!(&settings.connect, Connect::Http { transport, .. } if *transport != HttpTransport::WebSocket);
    if let Connect::Misconfigured { reason } = &settings.connect {
        return Err(LinkError::Unstartable(reason.clone()));
    }
    if let Some(dial) = shared.dialer.as_ref().filter(|_| !is_http) {
        let (reader, writer) = dial(&settings.name)?;
        let duplex = DuplexSettings {
            max_message: settings.max_message,
            correlate: calls.correlate(),
            on_garbage: on_garbage(&settings.name, &shared.metrics),
            backlog: backlog(settings, shared),
            closed: "the server closed the pipe",
            explain: None,
        };
        return Ok((Arc::new(Duplex::start(reader, writer, duplex)), None));
    }
    match &settings.connect {
        Connect::Stdio { command, args, env, cwd } => {
            let link = StdioLink::start(StdioSettings {
                name: settings.name.clone(),
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
                cwd: cwd.clone(),
                max_message: settings.max_message,
                backlog: backlog(settings, shared),
                correlate: calls.correlate(),
                on_garbage: on_garbage(&settings.name, &shared.metrics),
                guard: shared.guard.clone(),
                stderr: stderr.clone(),
            })?;
            Ok((Arc::new(link), Some(stderr.clone())))
        }
        Connect::Misconfigured { reason } => Err(LinkError::Unstartable(reason.clone())),
        Connect::Socket(address) => {
            let link = SocketLink::open(SocketSettings {
                address: address.clone(),
                connect_timeout: settings.connect_timeout,
                max_message: settings.max_message,
                backlog: backlog(settings, shared),
                correlate: calls.correlate(),
                on_garbage: on_garbage(&settings.name, &shared.metrics),
            });
            Ok((Arc::new(link.await?), None))
        }
        Connect::Http { url, headers, transport: HttpTransport::WebSocket, network, .. } => {
            let link = WsSettings {
                url: url.clone(),
                proxy: shared.proxy(url, &network.proxy),
                headers: headers.clone(),
                connect_timeout: settings.connect_timeout,
                max_message: settings.max_message,
                ping: settings.websocket_ping,
                backlog: backlog(settings, shared),
                correlate: calls.correlate(),
                on_garbage: on_garbage(&settings.name, &shared.metrics),
            };
            Ok((Arc::new(WsLink::open(link, &tls(shared, url, network)).await?), None))
        }
        Connect::Http { .. } => {
            let (http, tls) = http(settings, shared)?;
            Ok((Arc::new(HttpLink::new(http, tls)?), None))
        }
    }
}

fn http(settings: &ServerSettings, shared: &Shared) -> Result<(HttpSettings, Arc<rustls::ClientConfig>), LinkError> {
    let Connect::Http { url, socket, headers, network, .. } = &settings.connect else {
        return Err(LinkError::Unstartable("there is no URL".to_owned()));
    };
    let resumed = shared.metrics.server_resumed.with_label_values(&[&settings.name]);
    let http = HttpSettings {
        url: url.clone(),
        socket: socket.clone(),
        proxy: shared.proxy(url, &network.proxy).filter(|_| socket.is_none()),
        headers: headers.clone(),
        connect_timeout: settings.connect_timeout,
        max_message: settings.max_message,
        on_garbage: on_garbage(&settings.name, &shared.metrics),
        on_resume: Arc::new(move || resumed.inc()),
        dial: shared.dialer.clone().map(|dialer| {
            let name = settings.name.clone();
            Arc::new(move || dialer(&name)) as Dial
        }),
    };
    Ok((http, tls(shared, url, network)))
}

fn tls(shared: &Shared, url: &url::Url, network: &NetworkSettings) -> Arc<rustls::ClientConfig> {
    match url.scheme() {
        "https" | "wss" => shared.tls(network.ca.as_ref()),
        _ => tls_without_roots(),
    }
}

fn backlog(settings: &ServerSettings, shared: &Shared) -> Arc<Backlog> {
    Backlog::new(settings.max_backlog, &settings.name, &shared.metrics)
}

/// Counts each line that is no message, and logs one a minute.
fn on_garbage(server: &str, metrics: &Metrics) -> OnGarbage {
    const QUIET: Duration = Duration::from_secs(60);
    let counter = metrics.garbage.with_label_values(&[server]);
    let server = server.to_owned();
    let logged = Mutex::new(None::<tokio::time::Instant>);
    let seen = AtomicU64::new(0);
    Arc::new(move |line| {
        counter.inc();
        let seen = seen.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= QUIET) {
            *logged = Some(tokio::time::Instant::now());
            tracing::warn!(server, seen, sample = logs::sample(line), "the server sent what is no message; skipped");
        }
    })
}

impl Upstream {
    /// The transport in a word: as it is connected, else as it is configured.
    pub fn transport(&self) -> &'static str {
        let configured = || match &self.settings.connect {
            Connect::Misconfigured { .. } => "none",
            Connect::Stdio { .. } => "stdio",
            Connect::Socket(Address::Tcp(_)) => "tcp",
            Connect::Socket(Address::Unix(_)) => "unix",
            Connect::Http { transport: HttpTransport::WebSocket, .. } => "ws",
            Connect::Http { transport: HttpTransport::Sse, .. } => "sse",
            Connect::Http { .. } => "http",
        };
        match self.connections.main() {
            Some(active) if active.is_http_sse => "sse",
            _ => configured(),
        }
    }
}

impl Active {
    /// Counts a call from a client of `revision`.
    pub(super) fn count(&self, from: &'static str) {
        if from.is_empty() {
            return;
        }
        let mut translated = self.translated.lock().unwrap_or_else(PoisonError::into_inner);
        match translated.iter().find(|(known, _)| *known == from) {
            Some((_, counter)) => counter.inc(),
            None => {
                let counter = self.metrics.translated.with_label_values(&[from, self.revision]);
                counter.inc();
                translated.push((from, counter));
            }
        }
    }
}
