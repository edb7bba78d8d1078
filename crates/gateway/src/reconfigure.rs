//! Reconfiguration, from one generation to the next: servers that stay, come, go, or are replaced.
//!
//! Owns the replacement servers until they are ready. Does not read configs (`config`). Invariant:
//! a connected server keeps serving until its replacement is ready, unless its credential is gone or
//! another target asks for one. A server whose connection need not change keeps it.

use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use crate::Gateway;
use crate::current_generation::CurrentGeneration;
use crate::events::GatewayEvent;
use crate::generation::Generation;
use crate::pending_replacements::{ReplacementReason, ReplacementServer};
use crate::running_server::RunningServer;
use crate::settings::GatewaySettings;
use moongate_model::{ItemKind, UpstreamState};
use moongate_session::store::StoreTable;
use moongate_upstream::{EventSink, ServerSettings, Upstream};

/// Status of a replacement server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacementStatus {
    /// State of its connection.
    pub state: UpstreamState,
    /// Reason of the state.
    pub reason: String,
}

/// Outcome of a restart.
#[derive(Debug, PartialEq, Eq)]
pub enum RestartOutcome {
    /// Replaced by a new server, with its process if it is one.
    Replaced(Option<u32>),
    /// Failed to come up. `old_still_serves` says whether the old server serves on.
    Failed {
        /// Reason of the failure.
        reason: String,
        /// True if an old server still serves.
        old_still_serves: bool,
    },
    /// Refused, because another restart of this server is under way.
    Busy,
    /// Disabled by the config.
    Disabled,
    /// Unknown server.
    Unknown,
}

/// Work that follows once the next generation is published.
#[derive(Default)]
struct FollowUpWork {
    started: Vec<Arc<Upstream>>,
    replaced: Vec<(Arc<Upstream>, Arc<Upstream>)>,
}

impl Gateway {
    /// Applies other settings. New requests see all of them at once.
    pub fn apply(self: &Arc<Self>, settings: GatewaySettings) {
        let _held = self.lock_changes();
        // A stopped gateway starts no servers.
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        let before = self.generation();
        self.drain_ms.store(settings.drain_ms(), Ordering::Relaxed);
        self.context.call_log.set(settings.call_log);
        self.context
            .uri_max
            .store(settings.uri_max, Ordering::Relaxed);
        let mut follow_up = FollowUpWork::default();
        let mut servers = Vec::new();
        for settings in settings.servers {
            let settings = Arc::new(settings);
            let upstream = self.reuse_or_replace(&before, &settings, &mut follow_up);
            servers.push(Arc::new(RunningServer { settings, upstream }));
        }
        let next = Generation::new(servers, settings.names, settings.access, settings.views);
        let generation = Generation {
            disabled: settings.disabled,
            schema: settings.schema,
            search: settings.search,
            ..next
        };
        let generation = self.publish(generation, &before);
        // Those that are still disabled are reported again right after this.
        for server in before
            .disabled
            .iter()
            .filter(|server| generation.find_server(&server.name).is_none())
        {
            self.forget_server(&server.name);
        }
        self.report_disabled(&generation);
        // Revoked after the new generation serves: no call can start by the old rules in between.
        self.context.in_flight.revoke_removed();
        for (old, new) in &follow_up.replaced {
            self.switch_over(old, new);
        }
        for upstream in follow_up.started {
            // A server that was removed for a moment has subscribers that did not notice.
            self.context.events.move_subscriptions(&upstream);
            tokio::spawn(upstream.run());
        }
        self.close_connections_of_removed(&generation);
        for removed in before
            .servers
            .iter()
            .filter(|entry| generation.find_server(&entry.settings.name).is_none())
        {
            self.replacements.cancel(&removed.settings.name);
            self.retire(removed.upstream.clone());
        }
    }

    /// Ends the calls and connections of principals that are no longer admitted.
    pub fn revoke_removed(&self) {
        self.context.in_flight.revoke_removed();
        self.close_connections_of_removed(&self.current.load().generation);
    }

    fn close_connections_of_removed(&self, generation: &Generation) {
        for entry in &generation.servers {
            let upstream = entry.upstream.clone();
            let admitted = self.context.principals.ids();
            // In a task, because connections take time to close, and the lock on changes may be
            // held here.
            tokio::spawn(async move {
                upstream
                    .revoke_principals(&|id| !admitted.contains(&id))
                    .await
            });
        }
    }

    /// Returns the server for the next settings: the running one, or a new one.
    fn reuse_or_replace(
        self: &Arc<Self>,
        before: &Generation,
        settings: &Arc<ServerSettings>,
        follow_up: &mut FollowUpWork,
    ) -> Arc<Upstream> {
        let name = &settings.name;
        let Some(entry) = before.find_server(name) else {
            let upstream = self.new_upstream(settings);
            follow_up.started.push(upstream.clone());
            return upstream;
        };
        let serving = &entry.upstream;
        // Settings that need no new connection hold at once.
        serving.apply_settings(settings);
        match self.replacements.find(name) {
            // A replacement with the same connection continues.
            Some((candidate, _)) if settings.same_connection(&candidate.settings) => {
                candidate.apply_settings(settings);
                return serving.clone();
            }
            Some(_) => self.replacements.cancel(name),
            None => {}
        }
        if settings.same_connection(&serving.settings) {
            return serving.clone();
        }
        // A connected server serves until its replacement is ready.
        if serving.is_connected() {
            self.start_replacement(settings, ReplacementReason::NewSettings);
            return serving.clone();
        }
        // Only its lists are worth keeping.
        let upstream = self.new_upstream(settings);
        upstream.copy_lists_from(serving);
        follow_up.started.push(upstream.clone());
        follow_up.replaced.push((serving.clone(), upstream.clone()));
        upstream
    }

    fn new_upstream(&self, settings: &ServerSettings) -> Arc<Upstream> {
        Upstream::new(
            settings.clone(),
            self.context.upstreams.clone(),
            self.sink.clone(),
        )
    }

    /// Publishes the next generation, and notifies subscribers.
    fn publish(self: &Arc<Self>, generation: Generation, before: &Generation) -> Arc<Generation> {
        let snapshot = self.build(&generation);
        self.log_excluded(&before.snapshot.load(), &snapshot);
        generation.snapshot.store(Arc::new(snapshot));
        let generation = Arc::new(generation);
        self.current.store(Arc::new(CurrentGeneration::new(
            &self.host(),
            generation.clone(),
        )));
        self.context.events.publish(GatewayEvent::Reconfigured);
        // An event that came while this generation was made may be in neither.
        self.sink.lists_changed();
        generation
    }

    /// Connects a replacement server, which takes over the name as soon as it is ready.
    fn start_replacement(
        self: &Arc<Self>,
        settings: &ServerSettings,
        reason: ReplacementReason,
    ) -> Arc<Upstream> {
        let upstream = self.new_upstream(settings);
        // Two upstreams of one name must not write the same metrics.
        upstream.mute_metrics();
        let candidate = ReplacementServer {
            upstream: upstream.clone(),
            reason,
        };
        if let Some(before) = self
            .replacements
            .lock()
            .insert(settings.name.clone(), candidate)
        {
            tokio::spawn(async move { before.upstream.stop().await });
        }
        tokio::spawn(upstream.clone().run());
        let gateway = self.clone();
        let proposed = upstream.clone();
        tokio::spawn(async move {
            let mut status = proposed.watch();
            let is_settled = status
                .wait_for(|status| {
                    proposed.is_stopping() || gateway.can_replace(&proposed, status.state)
                })
                .await
                .is_ok();
            if is_settled && !proposed.is_stopping() {
                gateway.promote(&proposed);
            }
        });
        upstream
    }

    /// Returns true if a server in this state can replace the one that serves.
    fn can_replace(&self, candidate: &Upstream, state: UpstreamState) -> bool {
        match state {
            UpstreamState::Ready => true,
            // A degraded replacement is better than a server that is not ready, and worse than a
            // ready one.
            UpstreamState::Degraded => {
                let generation = self.generation();
                let serving = generation.find_server(&candidate.settings.name);
                serving.is_none_or(|entry| entry.status().state != UpstreamState::Ready)
            }
            // Only a person can change that, so the old connection would serve without end, with a
            // target or a credential that the config no longer has.
            UpstreamState::NeedsLogin => {
                let generation = self.generation();
                let serving = generation.find_server(&candidate.settings.name);
                serving.is_some_and(|entry| {
                    entry.upstream.settings.connect != candidate.settings.connect
                })
            }
            _ => false,
        }
    }

    fn promote(self: &Arc<Self>, candidate: &Arc<Upstream>) {
        let _held = self.lock_changes();
        // Another change may have cancelled this replacement meanwhile.
        if self.stopped.load(Ordering::Acquire) || !self.replacements.take(candidate) {
            return;
        }
        let before = self.generation();
        let Some(entry) = before.find_server(&candidate.settings.name) else {
            return;
        };
        let old = entry.upstream.clone();
        let status = candidate.status();
        let needs_login = status.state == UpstreamState::NeedsLogin;
        if needs_login {
            // It has listed nothing, and calls of known tools say what to do.
            candidate.copy_lists_from(&old);
        }
        let entry = RunningServer {
            settings: entry.settings.clone(),
            upstream: candidate.clone(),
        };
        self.publish(before.with_server(&Arc::new(entry)), &before);
        if status.pid.is_some() {
            candidate.count_restart();
        }
        let server = candidate.settings.name.as_str();
        if needs_login {
            tracing::warn!(
                server,
                reason = status.reason,
                "server replaced: the new connection is refused, and the old one ends"
            );
        } else {
            tracing::info!(
                server,
                pid = status.pid,
                "server replaced: the new connection serves"
            );
        }
        self.switch_over(&old, candidate);
    }

    /// Directs new calls to `new`. `old` ends with its calls.
    fn switch_over(self: &Arc<Self>, old: &Arc<Upstream>, new: &Arc<Upstream>) {
        // Redirected first: a call that found the old one then starts at the new one. Retired last,
        // since that closes the old one.
        old.redirect_to(new);
        self.context.events.move_subscriptions(new);
        self.retire(old.clone());
    }

    fn forget_server(&self, server: &str) {
        self.context.metrics.forget_server(
            server,
            &UpstreamState::ALL.map(UpstreamState::name),
            &ItemKind::ALL.map(ItemKind::member),
        );
    }

    fn retire(self: &Arc<Self>, upstream: Arc<Upstream>) {
        upstream.mute_metrics();
        let gateway = self.clone();
        let bound = Duration::from_millis(self.drain_ms.load(Ordering::Relaxed));
        tokio::spawn(async move {
            upstream.drain(bound).await;
            let name = &upstream.settings.name;
            let _held = gateway.lock_changes();
            // The name may have been configured again during the drain.
            if gateway.generation().find_server(name).is_none() {
                // Before the metrics: whoever sees that the server has left may stop the gateway, and
                // its rows would come back.
                let row = Bytes::copy_from_slice(name.as_bytes());
                let store = &gateway.context.upstreams.store;
                store.remove(StoreTable::SlowStarts, row.clone());
                store.remove(StoreTable::Catalog, row);
                gateway.forget_server(name);
                gateway.report_disabled(&gateway.generation());
            }
        });
    }

    /// Restarts a server. The old one serves until the new one is ready, and stays if that does not
    /// come up.
    pub async fn restart(self: &Arc<Self>, name: &str) -> RestartOutcome {
        let candidate = {
            let _held = self.lock_changes();
            let generation = self.generation();
            let Some(entry) = generation.find_server(name) else {
                let disabled = generation
                    .disabled
                    .iter()
                    .any(|disabled| disabled.name == *name);
                return if disabled {
                    RestartOutcome::Disabled
                } else {
                    RestartOutcome::Unknown
                };
            };
            // A restart overrides a replacement for new settings, but not another restart.
            if self
                .replacements
                .find(name)
                .is_some_and(|(_, reason)| reason == ReplacementReason::Restart)
            {
                return RestartOutcome::Busy;
            }
            self.start_replacement(&entry.settings, ReplacementReason::Restart)
        };
        // The lock is released by now: a change of the config must not wait until a server is up.
        let mut status = candidate.watch();
        let tried = status.wait_for(|status| status.state != UpstreamState::Starting);
        let end = match tried.await {
            Ok(status) => (*status).clone(),
            Err(_) => candidate.status(),
        };
        // The watcher in `start_replacement` may be first: the second `promote` does nothing.
        if self.can_replace(&candidate, end.state) {
            self.promote(&candidate);
        }
        let generation = self.generation();
        let entry = generation.find_server(name);
        // One that needs a login may have taken over, and serves nothing.
        if end.state != UpstreamState::NeedsLogin
            && entry.is_some_and(|entry| Arc::ptr_eq(&entry.upstream, &candidate))
        {
            return RestartOutcome::Replaced(end.pid);
        }
        let reason = match end.state {
            UpstreamState::Stopped => {
                "the config has changed in the meantime, or the gateway is stopping".to_owned()
            }
            state if end.reason.is_empty() => state.name().to_owned(),
            _ => end.reason,
        };
        let old_still_serves = entry.is_some_and(|entry| entry.is_connected());
        if self.replacements.take(&candidate) {
            candidate.stop().await;
            self.resume_replacement(name);
        }
        RestartOutcome::Failed {
            reason,
            old_still_serves,
        }
    }

    /// Replaces a server at once, whether or not the new connection comes up. The old one takes no
    /// new call, because the credential that it was opened with is gone. Returns false for an
    /// unknown server.
    pub fn replace_at_once(self: &Arc<Self>, name: &str) -> bool {
        let _held = self.lock_changes();
        // A stopped gateway starts no servers.
        if self.stopped.load(Ordering::Acquire) {
            return false;
        }
        let before = self.generation();
        let Some(entry) = before.find_server(name) else {
            return false;
        };
        self.replacements.cancel(name);
        let old = entry.upstream.clone();
        let upstream = self.new_upstream(&entry.settings);
        upstream.copy_lists_from(&old);
        let entry = RunningServer {
            settings: entry.settings.clone(),
            upstream: upstream.clone(),
        };
        self.publish(before.with_server(&Arc::new(entry)), &before);
        self.switch_over(&old, &upstream);
        tokio::spawn(upstream.run());
        true
    }

    /// Resumes the replacement of a server whose settings had changed before the restart.
    fn resume_replacement(self: &Arc<Self>, name: &str) {
        let _held = self.lock_changes();
        let generation = self.generation();
        if let Some(entry) = generation.find_server(name)
            && !entry.settings.same_connection(&entry.upstream.settings)
            && self.replacements.find(name).is_none()
            && !self.stopped.load(Ordering::Acquire)
        {
            self.start_replacement(&entry.settings, ReplacementReason::NewSettings);
        }
    }

    /// Returns the status of a pending replacement.
    pub fn replacement_status(&self, name: &str) -> Option<ReplacementStatus> {
        let (upstream, _) = self.replacements.find(name)?;
        let status = upstream.status();
        Some(ReplacementStatus {
            state: status.state,
            reason: status.reason,
        })
    }

    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.change_lock.lock()
    }
}
