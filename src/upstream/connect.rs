//! One connection to a server: the link, and what is spoken on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::json::Raw;
use crate::link::duplex::OnGarbage;
use crate::link::http::{HttpLink, HttpSettings, tls_without_roots};
use crate::link::stdio::{StderrTail, StdioLink, StdioSettings};
use crate::link::{Link, LinkError};
use crate::model::Server;
use crate::revision::{self, Calls, ConnectError, Connected, Era, Hello};
use crate::telemetry::{Counter, Metrics, logs};
use crate::upstream::{Connect, ServerSettings, Shared};

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
    pub stderr: Option<StderrTail>,
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
}

impl For {
    /// For everybody: what some client may be able to answer is declared, and refused where the one who calls cannot.
    /// Roots are not: they belong to one client.
    pub fn everybody(era: Option<Era>) -> Self {
        let capabilities = Raw::literal(r#"{"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}}}"#);
        For { capabilities, info: revision::implementation(), era }
    }
}

/// Opens a connection, within the time that the settings give.
pub async fn open(settings: &ServerSettings, shared: &Shared, whom: For) -> Result<Active, ConnectError> {
    let calls = Calls::default();
    let (link, stderr) = link(settings, shared, &calls)?;
    let hello = Hello {
        server: settings.name.clone(),
        revision: settings.protocol.as_deref().and_then(revision::by_name),
        era: whom.era,
        capabilities: whom.capabilities,
        info: whom.info,
        timeout: settings.timeout,
        ask_timeout: settings.ask_timeout,
        metrics: shared.metrics.clone(),
    };
    let limit = settings.start_timeout;
    let connected = tokio::time::timeout(limit, revision::connect(link.clone(), calls, hello)).await;
    let connected = connected.unwrap_or_else(|_| {
        let name = &settings.name;
        Err(LinkError::Timeout(format!("not ready within {limit:?} (servers.{name}.start_timeout)")).into())
    });
    match connected {
        Ok(Connected { server, revision, era }) => {
            let (metrics, translated) = (shared.metrics.clone(), Mutex::default());
            Ok(Active { server, link, revision, era, stderr, metrics, translated })
        }
        Err(error) => {
            link.close(Vec::new()).await;
            Err(with_last_words(error, stderr.as_ref()))
        }
    }
}

/// The end of a child that failed to start is explained by what it wrote last.
fn with_last_words(error: ConnectError, stderr: Option<&StderrTail>) -> ConnectError {
    match (error, stderr.and_then(|tail| tail.lines().pop())) {
        (ConnectError::Link(LinkError::Gone(reason)), Some(line)) => {
            LinkError::Gone(format!("{reason}; its last line on stderr: {}", logs::redact(&line))).into()
        }
        (error, _) => error,
    }
}

fn link(
    settings: &ServerSettings,
    shared: &Shared,
    calls: &Calls,
) -> Result<(Arc<dyn Link>, Option<StderrTail>), LinkError> {
    let on_garbage = on_garbage(&settings.name, &shared.metrics);
    match &settings.connect {
        Connect::Stdio { command, args, env, cwd } => {
            let link = StdioLink::start(StdioSettings {
                name: settings.name.clone(),
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
                cwd: cwd.clone(),
                max_message: settings.max_message,
                correlate: calls.correlate(),
                on_garbage,
                guard: shared.guard.clone(),
            })?;
            let stderr = link.stderr();
            Ok((Arc::new(link), Some(stderr)))
        }
        Connect::Http { url, headers, .. } => {
            let http = HttpSettings {
                url: url.clone(),
                headers: headers.clone(),
                connect_timeout: settings.connect_timeout,
                max_message: settings.max_message,
                on_garbage,
            };
            let tls = if http.url.scheme() == "https" { shared.tls() } else { tls_without_roots() };
            Ok((Arc::new(HttpLink::new(http, tls)?), None))
        }
    }
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
