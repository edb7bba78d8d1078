//! Negotiation of a server's revision, and the opening of the connection.
//!
//! Owns the probe. Does not repeat it; that is the supervisor's part (`upstream`). Invariant: a server that was once
//! opened in an era is opened in it again without a probe, until that fails.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::era::Era;
use crate::{PendingCalls, legacy, v2026_07_28};
use moongate_model::Connection;
use moongate_transport::{Link, LinkError, ProbeState};

/// Open server.
pub struct NegotiatedServer {
    /// Handle for calls.
    pub server: Arc<dyn Connection>,
    /// Negotiated revision.
    pub revision: &'static str,
    /// Era, to be remembered.
    pub era: Era,
}

/// Time for which a pipe may be silent on the probe before the handshake is sent as well.
///
/// The probe's response still counts: a server that is slow to start answers both, late.
// Some legacy servers ignore the probe. Each of their starts takes this much longer.
const PROBE_ALONE: Duration = Duration::from_secs(2);

/// Opens the server on `link`, in the era that is forced, remembered or found by a probe.
pub async fn connect(
    link: Arc<dyn Link>,
    calls: PendingCalls,
    options: ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    // The config comes first: an operator forces a revision where the probe decides wrongly.
    let forced = options.revision.map(super::era_of);
    match forced.or(options.era) {
        Some(Era::Modern) => connect_modern(&link, &calls, &options).await,
        Some(Era::Legacy) => connect_legacy(&link, &calls, &options).await,
        None if link.is_multiplexed() && options.preferred_era == Some(Era::Legacy) => {
            open_legacy_first(&link, &calls, &options).await
        }
        None if link.is_multiplexed() => probe_pipe(&link, &calls, &options).await,
        None => probe_http(&link, &calls, &options).await,
    }
}

/// True if the failure over Streamable HTTP may mean that the server has only the HTTP transport before it.
///
/// 2025-11-25/basic/transports.mdx, Backwards Compatibility: "If it fails with the following HTTP status codes "400 Bad
/// Request", "404 Not Found" or "405 Method Not Allowed": Issue a GET request to the server URL, expecting that this
/// will open an SSE stream and return an `endpoint` event as the first event."
pub fn may_be_http_sse(error: &ConnectError, options: &ConnectOptions) -> bool {
    // The modern revision was never spoken over HTTP+SSE, so a server forced to it is not tried.
    let legacy = options.revision != Some(v2026_07_28::REVISION) && options.era != Some(Era::Modern);
    legacy && matches!(error, ConnectError::Link(LinkError::Status { status: 400 | 404 | 405, .. }))
}

/// Opens the server over HTTP+SSE, which only the legacy revisions have.
pub async fn connect_http_sse(
    link: Arc<dyn Link>,
    calls: PendingCalls,
    options: ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    connect(link, calls, ConnectOptions { era: Some(Era::Legacy), ..options }).await
}

async fn connect_legacy(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    let opened = legacy::open(link, calls, options).await?;
    let revision = opened.revision();
    let server = legacy::LegacyHandle::attach(link.clone(), calls.clone(), options.clone(), opened);
    Ok(NegotiatedServer { server, revision, era: Era::Legacy })
}

async fn connect_modern(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    let description = v2026_07_28::discover(link, calls, options).await?;
    Ok(attach_modern(link, calls, options, description))
}

fn attach_modern(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
    description: moongate_model::ServerDescription,
) -> NegotiatedServer {
    let server = v2026_07_28::ModernHandle::attach(link.clone(), calls.clone(), options.clone(), description);
    NegotiatedServer { server, revision: v2026_07_28::REVISION, era: Era::Modern }
}

/// Probes a server over HTTP.
///
/// 2026-07-28/basic/transports/streamable-http.mdx, Backward Compatibility: "If the body is empty or is not a
/// recognized modern JSON-RPC error, fall back to `initialize`".
async fn probe_http(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    match v2026_07_28::discover(link, calls, options).await {
        Ok(description) => Ok(attach_modern(link, calls, options, description)),
        // An error that only a modern server sends settles the era: the handshake could only fail once more.
        Err(error) if v2026_07_28::is_modern(&error) || is_unreachable(&error) => Err(error),
        Err(_) => connect_legacy(link, calls, options).await,
    }
}

fn is_unreachable(error: &ConnectError) -> bool {
    match error {
        // These statuses come from the host or a proxy and say nothing about the revision.
        ConnectError::Link(LinkError::Status { status, .. }) => matches!(status, 401 | 403 | 429),
        // Nobody read the probe, so a second attempt with the handshake would tell no more.
        ConnectError::Link(LinkError::Unreachable(_) | LinkError::Spawn(_)) => true,
        _ => false,
    }
}

/// Probes a server on a pipe.
///
/// 2026-07-28/basic/transports/stdio.mdx, Backward Compatibility: "The server returns any other error, or does not
/// respond within a reasonable timeout: the server is legacy. Fall back to the `initialize` handshake."
async fn probe_pipe(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    link.set_probe_state(ProbeState::Sent);
    let discovering = async {
        let discovered = v2026_07_28::discover(link, calls, options).await;
        // A legacy server may complain about the probe on stderr. The link must know that this is no news.
        let refused = discovered.as_ref().is_err_and(|error| !v2026_07_28::is_modern(error) && !is_link_broken(error));
        link.set_probe_state(if refused { ProbeState::Refused } else { ProbeState::Settled });
        discovered
    };
    let probe = std::pin::pin!(discovering);
    let alone = std::pin::pin!(tokio::time::sleep(PROBE_ALONE));
    let probe = match select(probe, alone).await {
        Either::Left((Ok(description), _)) => return Ok(attach_modern(link, calls, options, description)),
        Either::Left((Err(error), _)) if v2026_07_28::is_modern(&error) || is_link_broken(&error) => return Err(error),
        Either::Left((Err(_), _)) => return connect_legacy(link, calls, options).await,
        Either::Right(((), probe)) => probe,
    };
    let handshake = std::pin::pin!(connect_legacy(link, calls, options));
    // Both are on the way now. The first success decides the era.
    match select(probe, handshake).await {
        Either::Left((Ok(description), _)) => Ok(attach_modern(link, calls, options, description)),
        Either::Left((Err(_), handshake)) => handshake.await,
        Either::Right((Ok(connected), _)) => {
            // A late response to the probe needs no handling.
            link.set_probe_state(ProbeState::Refused);
            Ok(connected)
        }
        Either::Right((Err(error), probe)) => match probe.await {
            Ok(description) => Ok(attach_modern(link, calls, options, description)),
            Err(_) => Err(error),
        },
    }
}

/// Opens a server in the legacy era first, because its clients use that. A refusal leads to the modern era on the
/// same pipe.
///
/// A probe would choose the modern era for as long as the process runs.
///
/// 2026-07-28/basic/versioning.mdx: "An `initialize` request selects legacy semantics, scoped to the stdio process".
async fn open_legacy_first(
    link: &Arc<dyn Link>,
    calls: &PendingCalls,
    options: &ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    match connect_legacy(link, calls, options).await {
        // The first error is reported if both fail: it comes from the era that the clients use.
        Err(error) if !is_link_broken(&error) => connect_modern(link, calls, options).await.map_err(|_| error),
        opened => opened,
    }
}

fn is_link_broken(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Link(LinkError::Closed(_) | LinkError::NotSent(_) | LinkError::QueueFull(_)))
}
