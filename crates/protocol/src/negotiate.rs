//! Negotiation of a server's revision: what is needed for it, and what comes of it.
//!
//! Owns the entry. Does not choose the steps (`ladder.rs`) or repeat them; that is the supervisor's
//! part (`upstream`). Invariant: a server that was once opened in an era is opened in it again
//! without a probe, until that fails.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::connect_error::ConnectError;
use crate::connect_options::ConnectOptions;
use crate::era::Era;
use crate::ladder::Ladder;
use crate::legacy::LegacyGreeting;
use crate::seen_input_flag::SeenInputFlag;
use crate::{PendingCalls, v2026_07_28};
use moongate_model::Connection;
use moongate_transport::{Link, LinkError};

/// Opener of links to one server.
///
/// A negotiation may need several: some servers end at a first message that they do not know.
pub trait LinkOpener: Send + Sync {
    /// Opens a link. The one that was opened before is closed first.
    fn open_link<'a>(
        &'a self,
        calls: &'a PendingCalls,
    ) -> BoxFuture<'a, Result<Arc<dyn Link>, LinkError>>;

    /// Returns the time for which the server may be silent since it is still being downloaded.
    /// `None` if it is not. Ending it earlier would throw the download away.
    fn install_time(&self) -> Option<Duration>;
}

/// Open server.
pub struct NegotiatedServer {
    /// Handle for calls.
    pub server: Arc<dyn Connection>,
    /// Link that the server was opened on.
    pub link: Arc<dyn Link>,
    /// Calls on that link.
    pub calls: PendingCalls,
    /// Negotiated revision.
    pub revision: &'static str,
    /// Era, to be remembered.
    pub era: Era,
    /// Form of the handshake that the server took, to be remembered.
    pub greeting: Option<LegacyGreeting>,
}

/// Opens a server.
pub async fn connect(
    opener: &dyn LinkOpener,
    seen_input: SeenInputFlag,
    options: ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    Ladder::new(opener, seen_input, options).climb().await
}

/// True if the failure over Streamable HTTP may mean that the server has only the HTTP transport
/// before it.
///
/// 2025-11-25/basic/transports.mdx, Backwards Compatibility: "If it fails with the following HTTP
/// status codes "400 Bad Request", "404 Not Found" or "405 Method Not Allowed": Issue a GET request
/// to the server URL, expecting that this will open an SSE stream and return an `endpoint` event as
/// the first event."
pub fn may_be_http_sse(error: &ConnectError, options: &ConnectOptions) -> bool {
    // The modern revision was never spoken over HTTP+SSE, so a server forced to it is not tried.
    let legacy =
        options.revision != Some(v2026_07_28::REVISION) && options.era != Some(Era::Modern);
    legacy
        && !v2026_07_28::is_modern(error)
        && matches!(
            error,
            ConnectError::Link(LinkError::Status {
                status: 400 | 404 | 405,
                ..
            })
        )
}

/// Opens a server over HTTP+SSE, which only the legacy revisions have.
pub async fn connect_http_sse(
    opener: &dyn LinkOpener,
    seen_input: SeenInputFlag,
    options: ConnectOptions,
) -> Result<NegotiatedServer, ConnectError> {
    connect(
        opener,
        seen_input,
        ConnectOptions {
            era: Some(Era::Legacy),
            ..options
        },
    )
    .await
}
