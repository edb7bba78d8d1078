//! A changed config, on a running gateway.
//!
//! Owns the way from a config that was read again to one that is in use. Does not know why it is read (`watch`, the
//! signal, an operator). Invariant: one reload at a time; a config with any problem changes nothing.

use std::collections::BTreeSet;
use std::hash::RandomState;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;

use crate::admin::Control;
use crate::app::diff::{Diff, applicable, diff};
use crate::app::watch::seen;
use crate::app::{front_state_of, gate_settings, gateway_settings, guard_children, hosts, request_limits};
use crate::auth::{AdminAccess, KeyRing};
use crate::config::{Loaded, Plan, Problems, ReloadSettings};
use crate::front::{Front, Fronts, Tls};
use crate::gateway::{Gains, Gateway, Who};
use crate::policy::AccessTable;
use crate::store::unix_now;
use crate::telemetry::{Metrics, logs};
use crate::upstream::Shared;

/// Requests that began under the rules before a change have this long to do what a second look should find.
const SECOND_LOOK: Duration = Duration::from_secs(5);

/// Between two looks that must find the same, so that nobody who is still writing is taken at half a word.
const REST: Duration = Duration::from_millis(100);
/// Looks after which a file that never rests is taken as it is.
const RESTS_MAX: u32 = 20;
/// Looks after which an empty file is taken as meant: it is how many writers begin.
const BLANK_MAX: u32 = 10;

/// Where the config comes from.
pub struct Source {
    /// Reads it.
    pub load: Box<dyn Fn() -> Result<Loaded, Problems> + Send + Sync>,
    /// The files that it came from.
    pub files: Vec<PathBuf>,
}

/// What became of a reload.
#[derive(Debug)]
pub enum Outcome {
    /// It is in use.
    Applied(Diff),
    /// It says nothing new; or only what needs a restart.
    Unchanged(Diff),
    /// It cannot be used, for these reasons; nothing changed.
    Refused(String),
}

/// What a reload would do.
pub struct Preview {
    /// To servers and settings.
    pub diff: Diff,
    /// To what each key may call, as far as the tools are known.
    pub gains: Vec<Gains>,
}

/// What a change of the config is applied to.
pub(super) struct Parts {
    pub(super) program: Option<PathBuf>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) fronts: Fronts,
    pub(super) shared: Arc<Shared>,
    pub(super) tls: Option<Arc<Tls>>,
    /// What is listened on that other machines may reach.
    pub(super) open: Option<String>,
    /// Who may use the admin listener.
    pub(super) admin_access: Arc<ArcSwap<AdminAccess>>,
}

/// Reloads the config of a running gateway.
pub struct Reloader {
    source: Option<Source>,
    pub(super) parts: Parts,
    /// The plan in use. Held for as long as a reload takes.
    running: tokio::sync::Mutex<Running>,
    settings: ArcSwap<ReloadSettings>,
    files: Mutex<Vec<PathBuf>>,
    /// Requests for a reload so far.
    asked: AtomicU64,
    own: Weak<Reloader>,
    metrics: Arc<Metrics>,
}

struct Running {
    plan: Plan,
    /// How many had asked when the last reload began, and what became of it.
    last: Option<(u64, Arc<Outcome>)>,
}

impl Reloader {
    pub(super) fn new(plan: Plan, source: Option<Source>, parts: Parts) -> Arc<Self> {
        let metrics = parts.shared.metrics.clone();
        metrics.config_reloaded_at.set(now());
        Arc::new_cyclic(|own| Reloader {
            files: Mutex::new(source.as_ref().map(|source| source.files.clone()).unwrap_or_default()),
            source,
            parts,
            settings: ArcSwap::from_pointee(plan.reload.clone()),
            running: tokio::sync::Mutex::new(Running { plan, last: None }),
            asked: AtomicU64::new(0),
            own: own.clone(),
            metrics,
        })
    }

    pub(super) fn settings(&self) -> Arc<ReloadSettings> {
        self.settings.load_full()
    }

    /// What to look at for a change.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn watch_files(&self, files: &[PathBuf], forget: bool) {
        let mut known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if forget {
            known.clear();
        }
        known.extend_from_slice(files);
        known.sort();
        known.dedup();
    }

    /// Reads the config again and applies it. Who asks while one is being read shares the next one with everybody else
    /// who does. `final`: a problem is told; without, only whoever asked knows.
    pub async fn reload(&self, is_final: bool) -> Arc<Outcome> {
        let place = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut running = self.running.lock().await;
        if let Some((began, outcome)) = &running.last
            && *began >= place
        {
            return outcome.clone();
        }
        let began = self.asked.load(Ordering::Acquire);
        self.reload_certificate().await;
        let outcome = match self.load_at_rest().await {
            Ok(loaded) => {
                self.watch_files(&loaded.files, true);
                let warnings = loaded.warnings.iter().map(|warning| warning.render("warning"));
                warnings.for_each(|warning| tracing::warn!("the config that was read again: {}", warning.trim_end()));
                self.put(&mut running.plan, loaded.plan)
            }
            Err(refused) => Outcome::Refused(refused),
        };
        if is_final || !matches!(outcome, Outcome::Refused(_)) {
            self.tell(&outcome);
        }
        let outcome = Arc::new(outcome);
        // What was kept quiet is nobody else's answer.
        running.last = is_final.then(|| (began, outcome.clone()));
        outcome
    }

    /// Looks at the certificate's files now, instead of within ten seconds.
    pub async fn reload_certificate(&self) {
        if let Some(tls) = self.parts.tls.clone() {
            let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
        }
    }

    /// Applies a plan.
    pub async fn change_to(&self, plan: Plan) -> Outcome {
        let mut running = self.running.lock().await;
        let outcome = self.put(&mut running.plan, plan);
        self.tell(&outcome);
        outcome
    }

    /// What a reload would do now.
    pub async fn preview(&self) -> Result<Preview, String> {
        let running = self.running.lock().await;
        let plan = self.load_at_rest().await?.plan;
        self.check_open(&plan)?;
        let difference = diff(&running.plan, &plan);
        let plan = applicable(&running.plan, plan);
        let front = self.parts.fronts.load_full();
        let (keys, access) = front.keys.followed_by(&plan.keys);
        let who = who(&front.keys, &running.plan, &keys, &plan);
        let gains = self.parts.gateway.gains(gateway_settings(&plan, access), &who);
        Ok(Preview { diff: difference, gains })
    }

    /// Reads the config from files that nobody changes meanwhile.
    async fn load_at_rest(&self) -> Result<Loaded, String> {
        let keys = RandomState::new();
        let mut looks = 0;
        loop {
            let before = seen(self, &keys).await;
            let loaded = self.load().await;
            if before.is_nothing() {
                return loaded;
            }
            tokio::time::sleep(REST).await;
            looks += 1;
            let rests = seen(self, &keys).await.is_same(&before) && (!before.blank || looks >= BLANK_MAX);
            // Whoever writes a file in place may have emptied and filled it between two looks, and in the middle of the
            // reading: what is read twice is what is there.
            if rests {
                let again = self.load().await;
                if looks >= RESTS_MAX || is_same(&loaded, &again) {
                    return again;
                }
            } else if looks >= RESTS_MAX {
                return loaded;
            }
        }
    }

    async fn load(&self) -> Result<Loaded, String> {
        let Some(own) = self.own.upgrade().filter(|own| own.source.is_some()) else {
            return Err("this gateway was started without a config that could be read again".to_owned());
        };
        let read = move || own.source.as_ref().map(|source| (source.load)());
        match tokio::task::spawn_blocking(read).await {
            Ok(Some(Ok(loaded))) => Ok(loaded),
            Ok(Some(Err(problems))) => {
                // What may have been the mistake is looked at, and so is what was right before.
                self.watch_files(&problems.files, false);
                Err(problems.to_string())
            }
            Ok(None) | Err(_) => Err("the config could not be read".to_owned()),
        }
    }

    fn put(&self, running: &mut Plan, plan: Plan) -> Outcome {
        if let Err(refused) = self.check_open(&plan) {
            return Outcome::Refused(refused);
        }
        let difference = diff(running, &plan);
        let plan = applicable(running, plan);
        if difference.is_empty() {
            return Outcome::Unchanged(difference);
        }
        guard_children(&plan, self.parts.program.as_deref(), &self.parts.shared.guard);
        // The first of all: an operator whose key is gone is out at once.
        self.parts.admin_access.store(Arc::new(plan.admin_access.clone()));
        let before = self.parts.fronts.load_full();
        let (keys, access) = before.keys.followed_by(&plan.keys);
        // The table first: whoever is gone finds nothing under its name, and whoever is new comes in a moment later.
        self.parts.gateway.apply(gateway_settings(&plan, access.clone()));
        // Sessions of whoever is new are kept for a restart from the first one on.
        before.state.sessions.know(keys.owners());
        let front = Front {
            endpoints: self.parts.gateway.endpoints(),
            gate: before.gate.followed_by(gate_settings(&plan), &keys, &plan.keys),
            keys,
            state: Arc::new(front_state_of(&plan, &before.state)),
            hosts: hosts(&plan),
            limits: request_limits(&plan),
            unread: before.unread.clone(),
            refused_keys: before.refused_keys.clone(),
        };
        let state = front.state.clone();
        self.parts.fronts.store(Arc::new(front));
        state.sessions.adjust(plan.limits.sessions, plan.limits.session_idle, plan.limits.subscriptions);
        state.parking.adjust(super::parking_settings(&plan));
        self.end_what_is_gone(&access);
        let own = self.own.clone();
        tokio::spawn(async move {
            tokio::time::sleep(SECOND_LOOK).await;
            if let Some(own) = own.upgrade() {
                own.end_what_is_gone(&access);
            }
        });
        if running.log.filter != plan.log.filter {
            logs::change(&plan.log.filter);
        }
        self.settings.store(Arc::new(plan.reload.clone()));
        *running = plan;
        Outcome::Applied(difference)
    }

    /// A gateway that listens beyond loopback is never without keys, whatever the new config would listen on.
    fn check_open(&self, plan: &Plan) -> Result<(), String> {
        match &self.parts.open {
            Some(address) if plan.keys.is_empty() => Err(format!(
                "error: without `[[auth.keys]]` anybody could use this gateway: it listens on {address}\n = fix: keep a \
                 key, or restart the gateway with a `gateway.listen` on loopback\n"
            )),
            _ => Ok(()),
        }
    }

    /// Ends what is kept for principals, and on endpoints, that are no longer there.
    fn end_what_is_gone(&self, access: &AccessTable) {
        let front = self.parts.fronts.load();
        let ended = front.state.sessions.retain(|principal, scope| front.endpoints.allows(scope, principal));
        if ended > 0 {
            tracing::info!(ended, "sessions ended: their keys or endpoints are no longer configured");
        }
        front.state.parking.retain(|principal| access.knows(principal.id));
    }

    fn tell(&self, outcome: &Outcome) {
        let (label, difference) = match outcome {
            Outcome::Refused(problems) => {
                self.metrics.config_reload_failed.set(1);
                tracing::error!(
                    "the config was not reloaded, and the one before stays in use:\n{}",
                    problems.trim_end()
                );
                ("refused", None)
            }
            Outcome::Applied(difference) => {
                tracing::info!("config reloaded: {}", difference.line());
                ("applied", Some(difference))
            }
            Outcome::Unchanged(difference) => {
                tracing::info!("config read again: nothing to change");
                ("unchanged", Some(difference))
            }
        };
        self.metrics.config_reloads.with_label_values(&[label]).inc();
        let Some(difference) = difference else { return };
        self.metrics.config_reload_failed.set(0);
        self.metrics.config_reloaded_at.set(now());
        if !difference.needs_restart.is_empty() {
            let names = difference.needs_restart.join(", ");
            tracing::warn!("{names}: the change needs a restart of the gateway; until then the old value holds");
        }
    }
}

/// Everybody who may come in before a change, or after it; a key that is made anew under its name is the same somebody.
fn who(before: &KeyRing, running: &Plan, after: &KeyRing, plan: &Plan) -> Vec<Who> {
    let of = |ring: &KeyRing, plan: &Plan, name: &str| {
        let key = plan.keys.iter().find(|key| key.name == name)?;
        ring.principal(name, &key.hash)
    };
    let names: BTreeSet<&String> = running.keys.iter().chain(&plan.keys).map(|key| &key.name).collect();
    let key = |name: &String| Who {
        name: Some(name.clone()),
        before: of(before, running, name),
        after: of(after, plan, name),
    };
    let mut who: Vec<Who> = names.into_iter().map(key).collect();
    who.push(Who { name: None, before: before.anybody(), after: after.anybody() });
    who
}

/// Whether two readings came to the same.
fn is_same(one: &Result<Loaded, String>, other: &Result<Loaded, String>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.is_same(other),
        (Err(one), Err(other)) => one == other,
        _ => false,
    }
}

fn now() -> f64 {
    unix_now() as f64
}

impl Control for Reloader {
    fn reload(&self) -> BoxFuture<'_, (bool, serde_json::Value)> {
        Box::pin(async {
            let outcome = Reloader::reload(self, true).await;
            match &*outcome {
                Outcome::Applied(diff) => (true, serde_json::json!({ "outcome": "applied", "changes": diff })),
                Outcome::Unchanged(diff) => (true, serde_json::json!({ "outcome": "unchanged", "changes": diff })),
                Outcome::Refused(why) => (false, serde_json::json!({ "outcome": "refused", "message": why })),
            }
        })
    }

    fn plan(&self) -> BoxFuture<'_, (bool, serde_json::Value)> {
        Box::pin(async {
            match self.preview().await {
                Ok(Preview { diff, gains }) => {
                    (true, serde_json::json!({ "outcome": "fine", "changes": diff, "keys": gains }))
                }
                Err(why) => (false, serde_json::json!({ "outcome": "refused", "message": why })),
            }
        })
    }
}
