//! Logins that appear or disappear while the gateway runs.
//!
//! Owns which servers reconnect because of them. Does not watch the files (`moongate_oauth`) or
//! connect. Invariant: each change of a login leads to a connection that was opened after it.

use std::sync::Arc;
use std::time::Duration;

use moongate_gateway::{Gateway, RestartOutcome};
use moongate_oauth::{LoginDirectory, LoginState};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Pause before another attempt, if a restart was under way already.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Reconnects servers when their logins appear or disappear. Ends with the gateway.
pub(crate) async fn follow_logins(
    logins: Arc<LoginDirectory>,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
) {
    // Dropped at the end, along with the restarts.
    let mut restarts = JoinSet::new();
    loop {
        let changed = tokio::select! {
            changed = logins.changed() => changed,
            () = stop.cancelled() => return,
        };
        while restarts.try_join_next().is_some() {}
        for server in changed {
            tracing::info!(server, "login changed, so the server is reconnected");
            match logins.login_state(&server) {
                // Each in its own task, since a server may be slow to start.
                LoginState::LoggedIn { .. } => {
                    restarts.spawn(restart(gateway.clone(), server));
                }
                // A restart would keep using the old connection, which no longer has a login.
                LoginState::None | LoginState::Ended => {
                    gateway.replace_at_once(&server);
                }
            }
        }
    }
}

/// Restarts a server whose connection serves until the new one is ready.
async fn restart(gateway: Arc<Gateway>, server: String) {
    // A restart that is already running may have started without the login.
    while gateway.restart(&server).await == RestartOutcome::Busy {
        tokio::time::sleep(BUSY_PAUSE).await;
    }
}
