//! End of what belongs to principals that are no longer admitted: by a reload, since their keys
//! expired or their logins ended.
//!
//! Owns the sweeps, and the timer for the next principal that expires. Does not decide who is
//! admitted (`moongate_access`). Invariant: one timer, whatever the number of principals.

use std::sync::Arc;
use std::time::Duration;

use super::ConfigReloader;

/// Time after a change for requests that began under the old rules. What they created is then
/// revoked by a second sweep.
const REVOKE_SWEEP_DELAY: Duration = Duration::from_secs(5);
/// Longest wait for a key to expire. The clock may be set meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

impl ConfigReloader {
    /// Ends what belongs to principals when they are removed, or expire. Runs until it is dropped.
    pub(in crate::app) async fn end_expired_keys(self: Arc<Self>) {
        // One table for all configs: a reload changes what is in it.
        let principals = self.targets.listener_state.load().auth.principals().clone();
        let mut looked = jiff::Timestamp::now();
        loop {
            let next = principals.expiry_after(looked);
            let wait = next.map(|at| {
                Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default()
            });
            let is_removed = tokio::select! {
                () = principals.removed() => true,
                () = principals.expiry_changed() => false,
                () = self.keys_changed.notified() => false,
                () = tokio::time::sleep(wait.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)),
                    if wait.is_some() => false,
            };
            let now = jiff::Timestamp::now();
            // Looked up again: who came meanwhile may have expired already.
            if is_removed || principals.expiry_after(looked).is_some_and(|at| at <= now) {
                self.targets.gateway.revoke_removed();
                self.revoke_removed_twice();
            }
            looked = now;
        }
    }

    /// Ends it now, and again what requests in flight still create.
    pub(super) fn revoke_removed_twice(&self) {
        self.revoke_removed();
        let own = self.self_ref.clone();
        // Requests in flight may still create sessions under the old keys. The second sweep finds
        // those.
        tokio::spawn(async move {
            tokio::time::sleep(REVOKE_SWEEP_DELAY).await;
            if let Some(own) = own.upgrade() {
                own.revoke_removed();
            }
        });
    }

    /// Ends what belongs to principals and endpoints that are no longer valid.
    fn revoke_removed(&self) {
        let listener_state = self.targets.listener_state.load();
        let principals = listener_state.auth.principals();
        let ended = listener_state.downstream.sessions.retain(
            |key| listener_state.auth.standing(key),
            |principal, scope| {
                principals.admits(principal) && listener_state.endpoints.allows(scope, principal)
            },
        );
        if ended > 0 {
            tracing::info!(
                ended,
                "sessions ended: their keys or endpoints are no longer valid"
            );
        }
        listener_state
            .downstream
            .parked_calls
            .retain(|principal| principals.admits(principal));
    }
}
