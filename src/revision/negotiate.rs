//! Finding out what a server speaks, and opening it.
//!
//! Owns the probe. Does not repeat it: that is the supervisor's business (`upstream`). Invariant: a server that was
//! once opened in an era is opened in it again without a probe, until that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::json::RawJson;
use crate::jsonrpc::RpcError;
use crate::link::{Link, LinkError, ProbeState};
use crate::model::Server;
use crate::revision::side_traffic::SideTraffic;
use crate::revision::{PendingCalls, legacy, v2026_07_28};
use crate::telemetry::Metrics;
use crate::timer_pool::TimerPool;

/// How we introduce ourselves to a server.
#[derive(Clone)]
pub struct ConnectOptions {
    /// The server's name in the config, for messages.
    pub server: String,
    /// A revision to speak, whatever a probe would say; one of [`SUPPORTED`](super::SUPPORTED).
    pub revision: Option<&'static str>,
    /// What the era was last time.
    pub era: Option<Era>,
    /// The era to begin with on a pipe, where none is known.
    pub preferred_era: Option<Era>,
    /// The capabilities to declare where they are declared once for all: a JSON object.
    pub capabilities: RawJson,
    /// Who we say we are: an `Implementation`.
    pub client_info: RawJson,
    /// How long calls may take.
    pub timeouts: Arc<CallTimeouts>,
    /// Bytes of what the server said that may wait for clients: of its tasks' questions, too.
    pub max_backlog: usize,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Sessions that are being ended.
    pub closing: tokio_util::task::TaskTracker,
    /// What an earlier process left of the connection.
    pub persisted_session: Option<RawJson>,
}

/// What all connections to a server have in common: how long calls may take, and the room for messages beside them.
/// What is changed holds for the calls that begin afterwards.
#[derive(Debug)]
pub struct CallTimeouts {
    call_ms: AtomicU64,
    input_ms: AtomicU64,
    timers: Arc<TimerPool>,
    side_traffic: SideTraffic,
}

impl CallTimeouts {
    /// `call`: a call, from sending it to its end. `ask`: a user's answer to what the server asks.
    pub fn new(call: Duration, ask: Duration) -> Self {
        let (call_ms, ask_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let times =
            CallTimeouts { call_ms, input_ms: ask_ms, timers: Arc::default(), side_traffic: SideTraffic::default() };
        times.update(call, ask);
        times
    }

    /// Changes both.
    pub fn update(&self, call: Duration, ask: Duration) {
        let whole = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        self.call_ms.store(whole(call), Ordering::Relaxed);
        self.input_ms.store(whole(ask), Ordering::Relaxed);
    }

    /// The timers of its calls.
    pub fn timers(&self) -> &Arc<TimerPool> {
        &self.timers
    }

    /// The messages that no call waits for.
    pub(super) fn side_traffic(&self) -> &SideTraffic {
        &self.side_traffic
    }

    /// Longest time for a call.
    pub fn call(&self) -> Duration {
        Duration::from_millis(self.call_ms.load(Ordering::Relaxed))
    }

    /// Longest time for a user to answer what the server asks.
    pub fn input(&self) -> Duration {
        Duration::from_millis(self.input_ms.load(Ordering::Relaxed))
    }
}

/// Whether a server keeps sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// It needs a handshake.
    Legacy,
    /// Every request says everything.
    Modern,
}

/// An open server.
pub struct NegotiatedServer {
    /// To call it.
    pub server: Arc<dyn Server>,
    /// The revision that it speaks.
    pub revision: &'static str,
    /// The era, to remember.
    pub era: Era,
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The link failed.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// The server refused.
    #[error("it refused the handshake: {} (code {})", .0.message, .0.code)]
    Answered(RpcError),
    /// It speaks nothing that we speak.
    #[error("{0}")]
    NoCommonRevision(String),
}

/// How long a pipe may be silent on the probe before the handshake is sent as well. The probe is still listened to:
/// a server that is slow to start answers both, late.
const PROBE_ALONE: Duration = Duration::from_secs(2);

/// Opens the server on `link`, in the era that was forced, remembered or found by a probe.
pub async fn connect(
    link: Arc<dyn Link>,
    calls: PendingCalls,
    hello: ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    let forced = hello.revision.map(super::era_of);
    match forced.or(hello.era) {
        Some(Era::Modern) => connect_modern(&link, &calls, &hello).await,
        Some(Era::Legacy) => connect_legacy(&link, &calls, &hello).await,
        None if link.is_multiplexed() && hello.preferred_era == Some(Era::Legacy) => {
            open_legacy_first(&link, &calls, &hello).await
        }
        None if link.is_multiplexed() => probe_pipe(&link, &calls, &hello).await,
        None => probe_http(&link, &calls, &hello).await,
    }
}

/// Whether the failure to open a server over Streamable HTTP may mean that it has only the HTTP transport before that.
///
/// 2025-11-25/basic/transports.mdx, Backwards Compatibility: "If it fails with the following HTTP status codes "400 Bad
/// Request", "404 Not Found" or "405 Method Not Allowed": Issue a GET request to the server URL, expecting that this
/// will open an SSE stream and return an `endpoint` event as the first event."
pub fn may_be_http_sse(error: &ConnectError, hello: &ConnectOptions) -> bool {
    let legacy = hello.revision != Some(v2026_07_28::NAME) && hello.era != Some(Era::Modern);
    legacy && matches!(error, ConnectError::Link(LinkError::Status { status: 400 | 404 | 405, .. }))
}

/// Opens the server on a link of the HTTP transport that only the revisions with a handshake have.
pub async fn connect_http_sse(
    link: Arc<dyn Link>,
    calls: PendingCalls,
    hello: ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    connect(link, calls, ConnectOptions { era: Some(Era::Legacy), ..hello }).await
}

async fn connect_legacy(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    let opened = legacy::open(link, calls, hello).await?;
    let revision = opened.revision();
    let server = legacy::LegacyConnection::attach(link.clone(), calls.clone(), hello.clone(), opened);
    Ok(NegotiatedServer { server, revision, era: Era::Legacy })
}

async fn connect_modern(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    let face = v2026_07_28::discover(link, calls, hello).await?;
    Ok(attach_modern(link, calls, hello, face))
}

fn attach_modern(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
    face: crate::model::ServerDescription,
) -> NegotiatedServer {
    let server = v2026_07_28::ModernHandle::attach(link.clone(), calls.clone(), hello.clone(), face);
    NegotiatedServer { server, revision: v2026_07_28::NAME, era: Era::Modern }
}

/// 2026-07-28/basic/transports/streamable-http.mdx, Backward Compatibility: "If the body is empty or is not a
/// recognized modern JSON-RPC error, fall back to `initialize`".
async fn probe_http(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    match v2026_07_28::discover(link, calls, hello).await {
        Ok(face) => Ok(attach_modern(link, calls, hello, face)),
        Err(error) if v2026_07_28::is_modern(&error) || is_unreachable(&error) => Err(error),
        Err(_) => connect_legacy(link, calls, hello).await,
    }
}

fn is_unreachable(error: &ConnectError) -> bool {
    match error {
        ConnectError::Link(LinkError::Status { status, .. }) => matches!(status, 401 | 403 | 429),
        ConnectError::Link(LinkError::Unreachable(_) | LinkError::Spawn(_)) => true,
        _ => false,
    }
}

/// 2026-07-28/basic/transports/stdio.mdx, Backward Compatibility: "The server returns any other error, or does not
/// respond within a reasonable timeout: the server is legacy. Fall back to the `initialize` handshake."
async fn probe_pipe(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    link.set_probe_state(ProbeState::Sent);
    let discovering = async {
        let discovered = v2026_07_28::discover(link, calls, hello).await;
        let refused = discovered.as_ref().is_err_and(|error| !v2026_07_28::is_modern(error) && !is_link_broken(error));
        link.set_probe_state(if refused { ProbeState::Refused } else { ProbeState::Settled });
        discovered
    };
    let probe = std::pin::pin!(discovering);
    let alone = std::pin::pin!(tokio::time::sleep(PROBE_ALONE));
    let probe = match select(probe, alone).await {
        Either::Left((Ok(face), _)) => return Ok(attach_modern(link, calls, hello, face)),
        Either::Left((Err(error), _)) if v2026_07_28::is_modern(&error) || is_link_broken(&error) => return Err(error),
        Either::Left((Err(_), _)) => return connect_legacy(link, calls, hello).await,
        Either::Right(((), probe)) => probe,
    };
    let handshake = std::pin::pin!(connect_legacy(link, calls, hello));
    match select(probe, handshake).await {
        Either::Left((Ok(face), _)) => Ok(attach_modern(link, calls, hello, face)),
        Either::Left((Err(_), handshake)) => handshake.await,
        Either::Right((Ok(connected), _)) => {
            // Its answer to the probe, if there is any, is no news.
            link.set_probe_state(ProbeState::Refused);
            Ok(connected)
        }
        Either::Right((Err(error), probe)) => match probe.await {
            Ok(face) => Ok(attach_modern(link, calls, hello, face)),
            Err(_) => Err(error),
        },
    }
}

/// Opens a server that its clients meet in the legacy era, if it speaks that: a probe would choose the other one for as
/// long as the process runs. One that refuses is asked for the newer era on the same pipe.
///
/// 2026-07-28/basic/versioning.mdx: "An `initialize` request selects legacy semantics, scoped to the stdio process".
async fn open_legacy_first(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    hello: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    match connect_legacy(link, calls, hello).await {
        Err(error) if !is_link_broken(&error) => connect_modern(link, calls, hello).await.map_err(|_| error),
        opened => opened,
    }
}

fn is_link_broken(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Link(LinkError::Closed(_) | LinkError::NotSent(_) | LinkError::QueueFull(_)))
}
