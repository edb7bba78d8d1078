//! Progress of a server's first request for roots on a connection of one client.
//!
//! Owns what the first calls wait for. Does not wait (`settle_roots.rs`). Invariant: the wait is
//! over for good once it ended.
//!
//! A server of files asks as soon as it is initialized. Directly, its client calls a tool only
//! seconds later. Here the first call opens the connection, and would find the server without the
//! client's directories.

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use moongate_model::InputKind;

/// Progress of the first request for roots.
#[derive(Default)]
pub(crate) struct FirstRoots {
    pub(super) requested: Notify,
    pub(super) responded: Notify,
    /// Cancelled when calls need not wait any more. `None` if they never had to.
    pub(super) settled: Option<CancellationToken>,
}

impl FirstRoots {
    /// Creates the wait. `is_expected`: true if the server may ask for roots, and the connection
    /// declares some.
    pub(crate) fn new(is_expected: bool) -> Self {
        FirstRoots {
            settled: is_expected.then(CancellationToken::new),
            ..FirstRoots::default()
        }
    }

    /// Records a server's request, if it is one for roots.
    pub(crate) fn record_request(&self, kind: InputKind) {
        if kind == InputKind::Roots {
            self.requested.notify_one();
        }
    }

    /// Returns the end of the wait, if a call must wait for it.
    pub(crate) fn pending(&self) -> Option<&CancellationToken> {
        self.settled
            .as_ref()
            .filter(|settled| !settled.is_cancelled())
    }
}
