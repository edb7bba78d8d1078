//! From one generation to the next: servers that stay, come, go, or are replaced.
//!
//! Owns the servers that are to take another's place. Does not read configs (`config`). Invariant: what serves goes on
//! serving until what replaces it is ready; a server whose connection need not change is not touched.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::gateway::events::GatewayEvent;
use crate::gateway::generation::{CurrentGeneration, Generation, ServerEntry};
use crate::gateway::{Gateway, GatewaySettings};
use crate::model::ItemKind;
use crate::store::StoreTable;
use crate::upstream::{ServerSettings, Upstream, UpstreamState};

/// Servers that are being connected to take another's place, by name.
#[derive(Default)]
pub(super) struct PendingReplacements(Mutex<BTreeMap<String, ReplacementServer>>);

struct ReplacementServer {
    upstream: Arc<Upstream>,
    /// Somebody waits for it: it has one attempt.
    restart: bool,
}

/// How a server is that is to take another's place.
pub struct ReplacementStatus {
    /// Its state.
    pub state: UpstreamState,
    /// Why.
    pub reason: String,
}

/// What became of a restart.
#[derive(Debug, PartialEq, Eq)]
pub enum RestartOutcome {
    /// The new one serves; its process, if it is one.
    Replaced(Option<u32>),
    /// The new one did not come up. `kept`: the old one serves on.
    Failed {
        /// Why.
        reason: String,
        /// Whether there is one that serves.
        old_still_serves: bool,
    },
    /// Another restart of this server is under way.
    Busy,
    /// The config switches it off.
    Disabled,
    /// There is no such server.
    Unknown,
}

impl PendingReplacements {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ReplacementServer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Option<(Arc<Upstream>, bool)> {
        self.lock().get(name).map(|candidate| (candidate.upstream.clone(), candidate.restart))
    }

    /// Takes it out, if it is still the one.
    fn take(&self, upstream: &Arc<Upstream>) -> bool {
        let mut table = self.lock();
        let there = table.get(upstream.settings.name.as_str()).is_some_and(|c| Arc::ptr_eq(&c.upstream, upstream));
        if there {
            table.remove(upstream.settings.name.as_str());
        }
        there
    }

    fn cancel(&self, name: &str) {
        if let Some(candidate) = self.lock().remove(name) {
            tokio::spawn(async move { candidate.upstream.stop().await });
        }
    }

    /// Takes out all.
    pub(super) fn take_all(&self) -> Vec<Arc<Upstream>> {
        std::mem::take(&mut *self.lock()).into_values().map(|candidate| candidate.upstream).collect()
    }
}

/// What is done once the next generation is in place.
#[derive(Default)]
struct FollowUpWork {
    started: Vec<Arc<Upstream>>,
    replaced: Vec<(Arc<Upstream>, Arc<Upstream>)>,
}

impl Gateway {
    /// Changes to other settings; for new requests all at once.
    pub fn apply(self: &Arc<Self>, settings: GatewaySettings) {
        let _held = self.lock_changes();
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        let before = self.generation();
        self.drain_ms.store(settings.drain_ms(), Ordering::Relaxed);
        self.call_log.set(settings.call_log);
        self.uri_max.store(settings.uri_max, Ordering::Relaxed);
        let mut after = FollowUpWork::default();
        let mut servers = Vec::new();
        for settings in settings.servers {
            let settings = Arc::new(settings);
            let upstream = self.reuse_or_replace(&before, &settings, &mut after);
            servers.push(Arc::new(ServerEntry { settings, upstream }));
        }
        self.shares_logs.store(settings.access.principal_count() <= 1, Ordering::Relaxed);
        let next = Generation::new(servers, settings.names, settings.access, settings.views);
        let generation =
            self.publish(Generation { disabled: settings.disabled, schema: settings.schema, ..next }, &before);
        for name in before.disabled.iter().filter(|name| generation.find_server(name).is_none()) {
            self.forget_server(name);
        }
        self.report_disabled(&generation);
        self.in_flight.apply_access(&generation.access);
        for (old, new) in &after.replaced {
            self.switch_over(old, new);
        }
        for upstream in after.started {
            // One that was gone for a moment has listeners that did not notice.
            self.events.move_subscriptions(&upstream);
            tokio::spawn(upstream.run());
        }
        for member in &generation.servers {
            let (upstream, generation) = (member.upstream.clone(), generation.clone());
            tokio::spawn(async move { upstream.revoke_principals(&|id| !generation.access.contains(id)).await });
        }
        for gone in before.servers.iter().filter(|m| generation.find_server(&m.settings.name).is_none()) {
            self.replacements.cancel(&gone.settings.name);
            self.retire(gone.upstream.clone());
        }
    }

    /// What serves a server under its next settings.
    fn reuse_or_replace(
        self: &Arc<Self>,
        before: &Generation,
        settings: &Arc<ServerSettings>,
        after: &mut FollowUpWork,
    ) -> Arc<Upstream> {
        let name = &settings.name;
        let Some(member) = before.find_server(name) else {
            let upstream = self.new_upstream(settings);
            after.started.push(upstream.clone());
            return upstream;
        };
        let serving = &member.upstream;
        serving.apply_settings(settings);
        match self.replacements.find(name) {
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
        if serving.is_connected() {
            self.start_replacement(settings, false);
            return serving.clone();
        }
        // There is nothing to keep but what it listed.
        let upstream = self.new_upstream(settings);
        upstream.copy_lists_from(serving);
        after.started.push(upstream.clone());
        after.replaced.push((serving.clone(), upstream.clone()));
        upstream
    }

    fn new_upstream(&self, settings: &ServerSettings) -> Arc<Upstream> {
        Upstream::new(settings.clone(), self.shared.clone(), self.sink.clone())
    }

    /// Puts the next generation in place, and tells those who listen.
    fn publish(self: &Arc<Self>, generation: Generation, before: &Generation) -> Arc<Generation> {
        let fresh = self.build(&generation);
        self.log_excluded(&before.snapshot.load(), &fresh);
        generation.snapshot.store(Arc::new(fresh));
        let generation = Arc::new(generation);
        self.current.store(Arc::new(CurrentGeneration::new(self, generation.clone())));
        self.events.publish(GatewayEvent::Reconfigured);
        // What a server told while this one was made may be in neither.
        self.catalog_dirty.notify_one();
        generation
    }

    /// Connects a server that takes the place of the one of its name as soon as it is ready.
    fn start_replacement(self: &Arc<Self>, settings: &ServerSettings, restart: bool) -> Arc<Upstream> {
        let upstream = self.new_upstream(settings);
        upstream.mute_metrics();
        let candidate = ReplacementServer { upstream: upstream.clone(), restart };
        if let Some(before) = self.replacements.lock().insert(settings.name.clone(), candidate) {
            tokio::spawn(async move { before.upstream.stop().await });
        }
        tokio::spawn(upstream.clone().run());
        let (gateway, proposed) = (self.clone(), upstream.clone());
        tokio::spawn(async move {
            let mut status = proposed.watch();
            let over = status
                .wait_for(|status| proposed.is_stopping() || gateway.can_replace(&proposed, status.state))
                .await
                .is_ok();
            if over && !proposed.is_stopping() {
                gateway.promote(&proposed);
            }
        });
        upstream
    }

    /// Whether a server in this state can take the place of the one that serves.
    fn can_replace(&self, candidate: &Upstream, state: UpstreamState) -> bool {
        let serving = || self.generation().find_server(&candidate.settings.name).map(|member| member.status().state);
        match state {
            UpstreamState::Ready => true,
            UpstreamState::Degraded => serving() != Some(UpstreamState::Ready),
            _ => false,
        }
    }

    fn promote(self: &Arc<Self>, candidate: &Arc<Upstream>) {
        let _held = self.lock_changes();
        if self.stopped.load(Ordering::Acquire) || !self.replacements.take(candidate) {
            return;
        }
        let before = self.generation();
        let Some(member) = before.find_server(&candidate.settings.name) else { return };
        let old = member.upstream.clone();
        let member = ServerEntry { settings: member.settings.clone(), upstream: candidate.clone() };
        self.publish(before.with_server(&Arc::new(member)), &before);
        let status = candidate.status();
        if status.pid.is_some() {
            candidate.count_restart();
        }
        tracing::info!(server = candidate.settings.name, pid = status.pid, "replaced: the new one serves");
        self.switch_over(&old, candidate);
    }

    /// New calls go to `new`; `old` ends with its calls.
    fn switch_over(self: &Arc<Self>, old: &Arc<Upstream>, new: &Arc<Upstream>) {
        old.redirect_to(new);
        self.events.move_subscriptions(new);
        self.retire(old.clone());
    }

    fn forget_server(&self, server: &str) {
        self.metrics.forget_server(
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
            if gateway.generation().find_server(name).is_none() {
                gateway.forget_server(name);
                gateway.report_disabled(&gateway.generation());
                gateway.shared.store.remove(StoreTable::Catalog, Bytes::copy_from_slice(name.as_bytes()));
            }
        });
    }

    /// Starts a server anew: the old one serves until the new one is ready, and goes on if that does not come up.
    pub async fn restart(self: &Arc<Self>, name: &str) -> RestartOutcome {
        let candidate = {
            let _held = self.lock_changes();
            let generation = self.generation();
            let Some(member) = generation.find_server(name) else {
                let disabled = generation.disabled.iter().any(|disabled| disabled == name);
                return if disabled { RestartOutcome::Disabled } else { RestartOutcome::Unknown };
            };
            if self.replacements.find(name).is_some_and(|(_, restart)| restart) {
                return RestartOutcome::Busy;
            }
            self.start_replacement(&member.settings, true)
        };
        let mut status = candidate.watch();
        let tried = |state| !matches!(state, UpstreamState::Starting);
        let end = match status.wait_for(|status| tried(status.state)).await {
            Ok(status) => (*status).clone(),
            Err(_) => candidate.status(),
        };
        if self.can_replace(&candidate, end.state) {
            self.promote(&candidate);
        }
        let generation = self.generation();
        let member = generation.find_server(name);
        if member.is_some_and(|member| Arc::ptr_eq(&member.upstream, &candidate)) {
            return RestartOutcome::Replaced(end.pid);
        }
        let reason = match end.state {
            UpstreamState::Stopped => "the config changed meanwhile, or the gateway stops".to_owned(),
            state if end.reason.is_empty() => state.name().to_owned(),
            _ => end.reason,
        };
        let kept = member.is_some_and(|member| member.is_connected());
        if self.replacements.take(&candidate) {
            candidate.stop().await;
            self.resume_replacement(name);
        }
        RestartOutcome::Failed { reason, old_still_serves: kept }
    }

    /// A server that was to be replaced anyway goes on being.
    fn resume_replacement(self: &Arc<Self>, name: &str) {
        let _held = self.lock_changes();
        let generation = self.generation();
        if let Some(member) = generation.find_server(name)
            && !member.settings.same_connection(&member.upstream.settings)
            && self.replacements.find(name).is_none()
            && !self.stopped.load(Ordering::Acquire)
        {
            self.start_replacement(&member.settings, false);
        }
    }

    /// What is to take a server's place and does not yet.
    pub fn replacement_status(&self, name: &str) -> Option<ReplacementStatus> {
        let (upstream, _) = self.replacements.find(name)?;
        let status = upstream.status();
        Some(ReplacementStatus { state: status.state, reason: status.reason })
    }

    fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.change_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatewaySettings {
    pub(super) fn drain_ms(&self) -> u64 {
        u64::try_from(self.drain.as_millis()).unwrap_or(u64::MAX)
    }
}
