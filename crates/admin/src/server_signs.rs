//! Signs that the status of a server may have changed, which cost little to read.
//!
//! Owns the receivers of the servers' states. Does not describe servers (`status.rs`). Invariant: a
//! change without a sign is one of numbers, or is found at the next thorough look.

use std::sync::Arc;

use tokio::sync::watch;

use crate::admin_state::AdminState;
use moongate_gateway::{ReplacementStatus, RunningServer, Snapshot};
use moongate_upstream::UpstreamStatus;

/// Signs at the last look.
pub(super) struct ServerSigns {
    servers: Vec<WatchedServer>,
    /// Catalogue, which is another one after each change of a list.
    snapshot: Arc<Snapshot>,
    config_version: u64,
}

/// Server whose state is followed.
struct WatchedServer {
    server: Arc<RunningServer>,
    status: watch::Receiver<UpstreamStatus>,
    replacement: Option<ReplacementStatus>,
}

impl ServerSigns {
    /// Reads the signs. Changes from now on count.
    pub(super) fn read(admin: &AdminState) -> Self {
        let servers = admin
            .gateway
            .servers()
            .into_iter()
            .map(|server| WatchedServer {
                status: server.watch(),
                replacement: admin.gateway.replacement_status(&server.settings.name),
                server,
            });
        ServerSigns {
            servers: servers.collect(),
            snapshot: admin.gateway.snapshot(),
            config_version: admin.reloader.config().version,
        }
    }

    /// Returns true if a server may have changed since the last look.
    pub(super) fn have_changed(&self, admin: &AdminState) -> bool {
        let servers = admin.gateway.servers();
        let is_changed = |watched: &WatchedServer, server: &Arc<RunningServer>| {
            !Arc::ptr_eq(&watched.server, server)
                // A sender that is gone has no more to say.
                || watched.status.has_changed().unwrap_or_default()
                || watched.replacement != admin.gateway.replacement_status(&server.settings.name)
        };
        servers.len() != self.servers.len()
            || self
                .servers
                .iter()
                .zip(&servers)
                .any(|(watched, server)| is_changed(watched, server))
            || !Arc::ptr_eq(&self.snapshot, &admin.gateway.snapshot())
            || self.config_version != admin.reloader.config().version
    }
}
