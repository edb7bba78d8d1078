//! Cheap signs that a server's status may have changed.
//!
//! Owns the receivers of server states. Does not describe servers (`status.rs`). Invariant: a
//! change that leaves no sign affects only numbers, or is found at the next thorough check.

use std::sync::Arc;

use tokio::sync::watch;

use crate::admin_state::AdminState;
use moongate_gateway::{ReplacementStatus, RunningServer, Snapshot};
use moongate_upstream::UpstreamStatus;

/// Signs at the last check.
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

impl WatchedServer {
    /// Returns true if the server is another one now, or may have another state.
    fn has_changed(&self, current: &Arc<RunningServer>, admin: &AdminState) -> bool {
        !Arc::ptr_eq(&self.server, current)
            // A sender that is gone has no more to say.
            || self.status.has_changed().unwrap_or_default()
            || self.replacement != admin.gateway.replacement_status(&current.settings.name)
    }
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

    /// Returns true if a server may have changed since the last check.
    pub(super) fn have_changed(&self, admin: &AdminState) -> bool {
        let servers = admin.gateway.servers();
        servers.len() != self.servers.len()
            || self
                .servers
                .iter()
                .zip(&servers)
                .any(|(watched, server)| watched.has_changed(server, admin))
            || !Arc::ptr_eq(&self.snapshot, &admin.gateway.snapshot())
            || self.config_version != admin.reloader.config().version
    }
}
