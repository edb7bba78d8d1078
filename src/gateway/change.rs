//! From one generation to the next: servers that stay, come, go, or are replaced.
//!
//! Owns the servers that are to take another's place. Does not read configs (`config`). Invariant: what serves goes on
//! serving until what replaces it is ready; a server whose connection need not change is not touched.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::gateway::generation::{Current, Generation, Member};
use crate::gateway::hub::Happened;
use crate::gateway::{Gateway, GatewaySettings};
use crate::model::Kind;
use crate::store::Table;
use crate::upstream::{ServerSettings, State, Upstream};

/// Servers that are being connected to take another's place, by name.
#[derive(Default)]
pub(super) struct Candidates(Mutex<BTreeMap<String, Candidate>>);

struct Candidate {
    upstream: Arc<Upstream>,
    /// Somebody waits for it: it has one attempt.
    restart: bool,
}

/// How a server is that is to take another's place.
pub struct Pending {
    /// Its state.
    pub state: State,
    /// Why.
    pub reason: String,
}

/// What became of a restart.
#[derive(Debug, PartialEq, Eq)]
pub enum Restarted {
    /// The new one serves; its process, if it is one.
    Done(Option<u32>),
    /// The new one did not come up. `kept`: the old one serves on.
    Failed {
        /// Why.
        reason: String,
        /// Whether there is one that serves.
        kept: bool,
    },
    /// Another restart of this server is under way.
    Busy,
    /// The config switches it off.
    Disabled,
    /// There is no such server.
    Unknown,
}

impl Candidates {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Candidate>> {
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

    fn give_up(&self, name: &str) {
        if let Some(candidate) = self.lock().remove(name) {
            tokio::spawn(async move { candidate.upstream.stop().await });
        }
    }

    /// Takes out all.
    pub(super) fn give_up_all(&self) -> Vec<Arc<Upstream>> {
        std::mem::take(&mut *self.lock()).into_values().map(|candidate| candidate.upstream).collect()
    }
}

/// What is done once the next generation is in place.
#[derive(Default)]
struct After {
    started: Vec<Arc<Upstream>>,
    replaced: Vec<(Arc<Upstream>, Arc<Upstream>)>,
}

impl Gateway {
    /// Changes to other settings; for new requests all at once.
    pub fn apply(self: &Arc<Self>, settings: GatewaySettings) {
        let _held = self.changing();
        if self.stopped.load(Ordering::Acquire) {
            return;
        }
        let before = self.generation();
        self.drain_ms.store(settings.drain_ms(), Ordering::Relaxed);
        self.calls.set(settings.calls);
        self.uri_max.store(settings.uri_max, Ordering::Relaxed);
        let mut after = After::default();
        let mut servers = Vec::new();
        for settings in settings.servers {
            let settings = Arc::new(settings);
            let upstream = self.carried(&before, &settings, &mut after);
            servers.push(Arc::new(Member { settings, upstream }));
        }
        self.shares_logs.store(settings.access.principals() <= 1, Ordering::Relaxed);
        let next = Generation::new(servers, settings.names, settings.access, settings.views);
        let generation = self.put(Generation { disabled: settings.disabled, schema: settings.schema, ..next }, &before);
        for name in before.disabled.iter().filter(|name| generation.member(name).is_none()) {
            self.forget(name);
        }
        self.show_disabled(&generation);
        self.inflight.follow(&generation.access);
        for (old, new) in &after.replaced {
            self.hand_over(old, new);
        }
        for upstream in after.started {
            // One that was gone for a moment has listeners that did not notice.
            self.hub.move_to(&upstream);
            tokio::spawn(upstream.run());
        }
        for member in &generation.servers {
            let (upstream, generation) = (member.upstream.clone(), generation.clone());
            tokio::spawn(async move { upstream.forget(&|id| !generation.access.knows(id)).await });
        }
        for gone in before.servers.iter().filter(|m| generation.member(&m.settings.name).is_none()) {
            self.candidates.give_up(&gone.settings.name);
            self.retire(gone.upstream.clone());
        }
    }

    /// What serves a server under its next settings.
    fn carried(
        self: &Arc<Self>,
        before: &Generation,
        settings: &Arc<ServerSettings>,
        after: &mut After,
    ) -> Arc<Upstream> {
        let name = &settings.name;
        let Some(member) = before.member(name) else {
            let upstream = self.upstream(settings);
            after.started.push(upstream.clone());
            return upstream;
        };
        let serving = &member.upstream;
        serving.tune(settings);
        match self.candidates.find(name) {
            Some((candidate, _)) if settings.same_connection(&candidate.settings) => {
                candidate.tune(settings);
                return serving.clone();
            }
            Some(_) => self.candidates.give_up(name),
            None => {}
        }
        if settings.same_connection(&serving.settings) {
            return serving.clone();
        }
        if serving.is_connected() {
            self.propose(settings, false);
            return serving.clone();
        }
        // There is nothing to keep but what it listed.
        let upstream = self.upstream(settings);
        upstream.inherit(serving);
        after.started.push(upstream.clone());
        after.replaced.push((serving.clone(), upstream.clone()));
        upstream
    }

    fn upstream(&self, settings: &ServerSettings) -> Arc<Upstream> {
        Upstream::new(settings.clone(), self.shared.clone(), self.sink.clone())
    }

    /// Puts the next generation in place, and tells those who listen.
    fn put(self: &Arc<Self>, generation: Generation, before: &Generation) -> Arc<Generation> {
        let fresh = self.build(&generation);
        self.note_left_out(&before.snapshot.load(), &fresh);
        generation.snapshot.store(Arc::new(fresh));
        let generation = Arc::new(generation);
        self.current.store(Arc::new(Current::new(self, generation.clone())));
        self.hub.publish(Happened::Reloaded);
        // What a server told while this one was made may be in neither.
        self.dirty.notify_one();
        generation
    }

    /// Connects a server that takes the place of the one of its name as soon as it is ready.
    fn propose(self: &Arc<Self>, settings: &ServerSettings, restart: bool) -> Arc<Upstream> {
        let upstream = self.upstream(settings);
        upstream.hide();
        let candidate = Candidate { upstream: upstream.clone(), restart };
        if let Some(before) = self.candidates.lock().insert(settings.name.clone(), candidate) {
            tokio::spawn(async move { before.upstream.stop().await });
        }
        tokio::spawn(upstream.clone().run());
        let (gateway, proposed) = (self.clone(), upstream.clone());
        tokio::spawn(async move {
            let mut status = proposed.watch();
            let over = status
                .wait_for(|status| proposed.is_stopping() || gateway.is_fit(&proposed, status.state))
                .await
                .is_ok();
            if over && !proposed.is_stopping() {
                gateway.promote(&proposed);
            }
        });
        upstream
    }

    /// Whether a server in this state can take the place of the one that serves.
    fn is_fit(&self, candidate: &Upstream, state: State) -> bool {
        let serving = || self.generation().member(&candidate.settings.name).map(|member| member.status().state);
        match state {
            State::Ready => true,
            State::Degraded => serving() != Some(State::Ready),
            _ => false,
        }
    }

    fn promote(self: &Arc<Self>, candidate: &Arc<Upstream>) {
        let _held = self.changing();
        if self.stopped.load(Ordering::Acquire) || !self.candidates.take(candidate) {
            return;
        }
        let before = self.generation();
        let Some(member) = before.member(&candidate.settings.name) else { return };
        let old = member.upstream.clone();
        let member = Member { settings: member.settings.clone(), upstream: candidate.clone() };
        self.put(before.with(&Arc::new(member)), &before);
        let status = candidate.status();
        if status.pid.is_some() {
            candidate.count_restart();
        }
        tracing::info!(server = candidate.settings.name, pid = status.pid, "replaced: the new one serves");
        self.hand_over(&old, candidate);
    }

    /// New calls go to `new`; `old` ends with its calls.
    fn hand_over(self: &Arc<Self>, old: &Arc<Upstream>, new: &Arc<Upstream>) {
        old.give_way_to(new);
        self.hub.move_to(new);
        self.retire(old.clone());
    }

    fn forget(&self, server: &str) {
        self.metrics.forget_server(server, &State::ALL.map(State::name), &Kind::ALL.map(Kind::member));
    }

    fn retire(self: &Arc<Self>, upstream: Arc<Upstream>) {
        upstream.hide();
        let gateway = self.clone();
        let bound = Duration::from_millis(self.drain_ms.load(Ordering::Relaxed));
        tokio::spawn(async move {
            upstream.drain(bound).await;
            let name = &upstream.settings.name;
            let _held = gateway.changing();
            if gateway.generation().member(name).is_none() {
                gateway.forget(name);
                gateway.show_disabled(&gateway.generation());
                gateway.shared.store.remove(Table::Catalog, Bytes::copy_from_slice(name.as_bytes()));
            }
        });
    }

    /// Starts a server anew: the old one serves until the new one is ready, and goes on if that does not come up.
    pub async fn restart(self: &Arc<Self>, name: &str) -> Restarted {
        let candidate = {
            let _held = self.changing();
            let generation = self.generation();
            let Some(member) = generation.member(name) else {
                let disabled = generation.disabled.iter().any(|disabled| disabled == name);
                return if disabled { Restarted::Disabled } else { Restarted::Unknown };
            };
            if self.candidates.find(name).is_some_and(|(_, restart)| restart) {
                return Restarted::Busy;
            }
            self.propose(&member.settings, true)
        };
        let mut status = candidate.watch();
        let tried = |state| !matches!(state, State::Starting);
        let end = match status.wait_for(|status| tried(status.state)).await {
            Ok(status) => (*status).clone(),
            Err(_) => candidate.status(),
        };
        if self.is_fit(&candidate, end.state) {
            self.promote(&candidate);
        }
        let generation = self.generation();
        let member = generation.member(name);
        if member.is_some_and(|member| Arc::ptr_eq(&member.upstream, &candidate)) {
            return Restarted::Done(end.pid);
        }
        let reason = match end.state {
            State::Stopped => "the config changed meanwhile, or the gateway stops".to_owned(),
            state if end.reason.is_empty() => state.name().to_owned(),
            _ => end.reason,
        };
        let kept = member.is_some_and(|member| member.is_connected());
        if self.candidates.take(&candidate) {
            candidate.stop().await;
            self.reconsider(name);
        }
        Restarted::Failed { reason, kept }
    }

    /// A server that was to be replaced anyway goes on being.
    fn reconsider(self: &Arc<Self>, name: &str) {
        let _held = self.changing();
        let generation = self.generation();
        if let Some(member) = generation.member(name)
            && !member.settings.same_connection(&member.upstream.settings)
            && self.candidates.find(name).is_none()
            && !self.stopped.load(Ordering::Acquire)
        {
            self.propose(&member.settings, false);
        }
    }

    /// What is to take a server's place and does not yet.
    pub fn pending(&self, name: &str) -> Option<Pending> {
        let (upstream, _) = self.candidates.find(name)?;
        let status = upstream.status();
        Some(Pending { state: status.state, reason: status.reason })
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GatewaySettings {
    pub(super) fn drain_ms(&self) -> u64 {
        u64::try_from(self.drain.as_millis()).unwrap_or(u64::MAX)
    }
}
