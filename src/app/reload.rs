//! Config reload of a running gateway. Owns the steps from a config that was read to one that is in
//! use.
//!
//! Does not decide when to reload (`watch_files.rs`, SIGHUP, an operator). Invariant: one reload at
//! a time. A config with a problem changes nothing, unless it concerns only servers that the
//! gateway runs without already.

mod change_config;
pub(super) mod editor;
pub(super) mod examine;
mod new_servers;
mod revoke;
mod undo_rights;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::app::doctor::LoginTrouble;
use crate::app::file_digests::{FileDigests, WatchedFiles};
use crate::app::logins::login_servers;
use crate::app::plan_diff::{self, applicable, diff_plans};
use crate::app::plan_settings::{
    admission_settings, downstream_state_of, gateway_settings, guard_children, hosts,
    parked_call_settings, request_limits,
};
use moongate_access::auth::AdminAccess;
use moongate_admin::{ConfigStatus, Reloader, SignInState};
use moongate_api::{ConfigDifference, PlanReport, ReloadReport, ToolAccessChange};
use moongate_broker::Broker;
use moongate_config::edit::ConfigOperation;
use moongate_config::{
    ConfigLocations, ConfigProblems, LoadOptions, LoadedConfig, Plan, ReloadSettings,
};
use moongate_gateway::Gateway;
use moongate_listener::{ListenerState, ListenerTls, SharedListenerState};
use moongate_oauth::LoginDirectory;
use moongate_session::store::unix_now;
use moongate_telemetry::{ConfigReload, Metrics, logs};
use moongate_upstream::{ConnectTarget, ServerSettings, UpstreamRuntime};

/// Time between two reads that must agree. A file that is still being written differs.
const STABLE_INTERVAL: Duration = Duration::from_millis(100);
/// Number of reads after which a file that keeps changing is taken as it is.
const STABLE_CHECKS_MAX: u32 = 20;
/// Number of reads after which an empty file is taken as intended. Many writers truncate a file
/// first.
const BLANK_CHECKS_MAX: u32 = 10;

/// Source of the config.
pub struct ReloadSource {
    /// Reads the config. Problems of these servers cost only them: the gateway runs without them
    /// already, or an edit adds them.
    pub load: Box<dyn Fn(Vec<String>) -> Result<LoadedConfig, ConfigProblems> + Send + Sync>,
    /// Returns the options that it is read with, for edits.
    pub options: Box<dyn Fn() -> LoadOptions<'static> + Send + Sync>,
    /// Files that the config came from.
    pub files: Vec<PathBuf>,
    /// Places in them.
    pub places: ConfigLocations,
}

/// Outcome of a reload.
#[derive(Debug)]
pub enum ReloadOutcome {
    /// New config is in use.
    Applied(ConfigDifference),
    /// Config has no change, or only changes that need a restart.
    Unchanged(ConfigDifference),
    /// Config cannot be used, for this reason. Nothing changed.
    Refused(String),
}

impl ReloadOutcome {
    fn name(&self) -> &'static str {
        match self {
            ReloadOutcome::Applied(_) => "applied",
            ReloadOutcome::Unchanged(_) => "unchanged",
            ReloadOutcome::Refused(_) => "refused",
        }
    }

    /// Returns the report for operators.
    fn report(&self) -> ReloadReport {
        match self {
            ReloadOutcome::Applied(changes) => ReloadReport::Applied {
                changes: changes.clone(),
            },
            ReloadOutcome::Unchanged(changes) => ReloadReport::Unchanged {
                changes: changes.clone(),
            },
            ReloadOutcome::Refused(message) => ReloadReport::Refused {
                message: message.clone(),
            },
        }
    }
}

/// Effects that a reload would have.
pub struct ReloadPreview {
    /// Changes of servers and settings.
    pub diff: ConfigDifference,
    /// Changes of what each key may call, as far as the tools are known.
    pub tool_access: Vec<ToolAccessChange>,
}

/// Parts of the gateway that a reload changes.
pub(super) struct ReloadTargets {
    pub(super) program: Option<PathBuf>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) listener_state: SharedListenerState,
    pub(super) shared: Arc<UpstreamRuntime>,
    pub(super) tls: Option<Arc<ListenerTls>>,
    /// Address of a listener that other machines may reach.
    pub(super) open_listener: Option<String>,
    /// Keys of the admin listener.
    pub(super) admin_access: Arc<ArcSwap<AdminAccess>>,
    /// Sessions and tickets of operators. All admin listeners share them: a ticket of one opens the
    /// page of another.
    pub(super) sign_in: Arc<SignInState>,
    /// Logins of the servers. `None`: their credentials come from elsewhere.
    pub(super) logins: Option<Arc<LoginDirectory>>,
    /// Broker with people's logins. `None`: the config had none at the start.
    pub(super) broker: Option<Arc<Broker>>,
}

impl ReloadTargets {
    /// Takes the logins of a plan's servers, people's roles, and the proxies in front of people.
    /// Reads one small file for each new server.
    fn replace_logins(&self, plan: &Plan) {
        if let Some(logins) = &self.logins {
            logins.replace(login_servers(plan));
        }
        if let Some(broker) = &self.broker {
            broker.replace_roles(plan.auth.matches.clone());
            broker.replace_proxies(plan.trusted_proxies.clone());
        }
    }
}

/// Reload of a running gateway's config.
pub struct ConfigReloader {
    source: Option<ReloadSource>,
    pub(super) targets: ReloadTargets,
    /// Plan in use. Locked while a reload runs.
    running: tokio::sync::Mutex<RunningPlan>,
    settings: ArcSwap<ReloadSettings>,
    watched: WatchedFiles,
    /// Number of reload requests so far.
    requests: AtomicU64,
    /// Config in use, for operators.
    status: ArcSwap<ConfigStatus>,
    /// Notified of each plan that is applied: its keys may expire at other times.
    keys_changed: Notify,
    self_ref: Weak<ConfigReloader>,
    metrics: Arc<Metrics>,
}

struct RunningPlan {
    plan: Plan,
    /// Servers whose problems were accepted by a change that is written and not in use yet.
    accepted: Vec<String>,
    /// Number of requests when the last reload began, with its outcome.
    last: Option<(u64, Arc<ReloadOutcome>)>,
}

impl ConfigReloader {
    /// Returns the problems of the servers' logins. Reads their files, and blocks for as long.
    pub(crate) fn login_problems(&self) -> Vec<LoginTrouble> {
        let problems = self.targets.logins.iter().flat_map(|it| it.problems());
        problems
            .map(|(server, problem)| LoginTrouble {
                server: Some(server),
                problem,
            })
            .collect()
    }

    pub(super) fn new(plan: Plan, source: Option<ReloadSource>, parts: ReloadTargets) -> Arc<Self> {
        let metrics = parts.shared.metrics.clone();
        metrics.config.reloaded_at.set(now());
        Arc::new_cyclic(|own| ConfigReloader {
            watched: WatchedFiles::new(
                source
                    .as_ref()
                    .map(|source| source.files.clone())
                    .unwrap_or_default(),
            ),
            status: ArcSwap::from_pointee(ConfigStatus {
                places: source
                    .as_ref()
                    .map(|source| source.places.clone())
                    .unwrap_or_default(),
                edits: plan.admin_edits,
                client_keys: plan.auth.keys.clone(),
                keys_required: plan.auth.required,
                admits_people: plan.auth.admits_people(),
                at: timestamp(),
                in_use_since: timestamp(),
                outcome: "applied",
                ..ConfigStatus::default()
            }),
            source,
            targets: parts,
            settings: ArcSwap::from_pointee(plan.reload.clone()),
            running: tokio::sync::Mutex::new(RunningPlan {
                plan,
                accepted: Vec::new(),
                last: None,
            }),
            requests: AtomicU64::new(0),
            keys_changed: Notify::new(),
            self_ref: own.clone(),
            metrics,
        })
    }

    pub(super) fn settings(&self) -> Arc<ReloadSettings> {
        self.settings.load_full()
    }

    pub(super) fn watched(&self) -> &WatchedFiles {
        &self.watched
    }

    /// Reads the config again and applies it. Requests during a reload share the next one. With
    /// `is_final` a problem is logged. Otherwise only the caller learns of it.
    pub async fn reload(&self, is_final: bool) -> Arc<ReloadOutcome> {
        let number = self.requests.fetch_add(1, Ordering::AcqRel) + 1;
        // Held over all awaits below. No request takes this lock, so only reloads wait for each
        // other.
        let mut running = self.running.lock().await;
        // A request that came before the last reload started to read shares its outcome.
        if let Some((began, outcome)) = &running.last
            && *began >= number
        {
            return outcome.clone();
        }
        // Requests up to here are covered by this reload, since it has read nothing yet.
        let began = self.requests.load(Ordering::Acquire);
        self.reload_certificate().await;
        let (read, loaded) = self.load_when_stable(&running).await;
        let outcome = match loaded {
            Ok(loaded) => self.adopt(&mut running, loaded),
            Err(refused) => ReloadOutcome::Refused(refused),
        };
        if !matches!(outcome, ReloadOutcome::Refused(_)) {
            running.accepted.clear();
        }
        if is_final || !matches!(outcome, ReloadOutcome::Refused(_)) {
            self.watched.record(&read).await;
            self.log_outcome(&outcome);
        }
        let outcome = Arc::new(outcome);
        // An outcome that was not logged isn't an answer for other callers.
        running.last = is_final.then(|| (began, outcome.clone()));
        outcome
    }

    /// Applies a config that was read, and follows its files.
    fn adopt(&self, running: &mut RunningPlan, loaded: LoadedConfig) -> ReloadOutcome {
        // Replaced even if the plan is refused below: these are the files that a correction goes
        // into.
        self.watched.add(&loaded.files, true);
        let warnings = loaded
            .warnings
            .iter()
            .map(|warning| warning.render("warning"));
        warnings.for_each(|warning| {
            tracing::warn!("config reloaded with a warning: {}", warning.trim_end())
        });
        self.update_status(|status| status.places = loaded.locations);
        self.apply(running, loaded.plan)
    }

    fn update_status(&self, change: impl FnOnce(&mut ConfigStatus)) {
        let mut next = ConfigStatus::clone(&self.status.load());
        next.version += 1;
        change(&mut next);
        self.status.store(Arc::new(next));
    }

    /// Checks the certificate's files now instead of at the next interval.
    pub async fn reload_certificate(&self) {
        if let Some(tls) = self.targets.tls.clone() {
            // A panic in the check changes nothing: the certificate in use stays.
            let _ = tokio::task::spawn_blocking(move || tls.reload()).await;
        }
    }

    /// Applies a plan that was not read from files.
    pub async fn apply_plan(&self, plan: Plan) -> ReloadOutcome {
        let mut running = self.running.lock().await;
        let outcome = self.apply(&mut running, plan);
        self.log_outcome(&outcome);
        outcome
    }

    /// Reports the effects that a reload would have now.
    pub async fn preview(&self) -> Result<ReloadPreview, String> {
        // Held to the end, so that no reload changes the plan that is compared.
        let running = self.running.lock().await;
        let plan = self.load_when_stable(&running).await.1?.plan;
        self.check_open(&running.plan, &plan)?;
        let difference = diff_plans(&running.plan, &plan);
        let plan = applicable(&running.plan, plan);
        let auth = self.targets.listener_state.load().auth.clone();
        let (next, access) = auth.preview(&plan.auth);
        let changed = auth.principals().changes_to(next.principals());
        let tool_access = self
            .targets
            .gateway
            .tool_access_changes(gateway_settings(&plan, access), &changed);
        Ok(ReloadPreview {
            diff: difference,
            tool_access,
        })
    }

    /// Reads the config once its files are stable. Returns also the digests from before the read.
    async fn load_when_stable(
        &self,
        running: &RunningPlan,
    ) -> (FileDigests, Result<LoadedConfig, String>) {
        let mut checks = 0;
        loop {
            let before = self.watched.current().await;
            let loaded = self.load(failing_servers(running)).await;
            // Without files, nothing can be half written.
            if before.is_nothing() {
                return (before, loaded);
            }
            tokio::time::sleep(STABLE_INTERVAL).await;
            checks += 1;
            let is_stable = self.watched.current().await.is_same(&before)
                && (!before.blank || checks >= BLANK_CHECKS_MAX);
            // A writer in place may have truncated and filled the file between two digests, during
            // the read. Two equal reads show the real contents.
            if is_stable {
                let reread = self.load(failing_servers(running)).await;
                if checks >= STABLE_CHECKS_MAX || is_same(&loaded, &reread) {
                    return (before, reread);
                }
            } else if checks >= STABLE_CHECKS_MAX {
                return (before, loaded);
            }
        }
    }

    /// Reads the config. Problems of these servers cost only them.
    async fn load(&self, failing: Vec<String>) -> Result<LoadedConfig, String> {
        let Some(own) = self.self_ref.upgrade().filter(|own| own.source.is_some()) else {
            return Err(
                "this gateway was started without a config that could be read again".to_owned(),
            );
        };
        // `spawn_blocking`: reading the config does file I/O.
        let reading = tokio::task::spawn_blocking(move || {
            own.source.as_ref().map(|source| (source.load)(failing))
        });
        match reading.await {
            Ok(Some(Ok(loaded))) => Ok(loaded),
            Ok(Some(Err(problems))) => {
                // Both sets of files are watched: the mistake may be in the new ones, and the old
                // ones were right.
                self.watched.add(&problems.files, false);
                Err(problems.to_string())
            }
            Ok(None) | Err(_) => Err("the config could not be read".to_owned()),
        }
    }

    fn apply(&self, running: &mut RunningPlan, plan: Plan) -> ReloadOutcome {
        if let Err(refused) = self.check_open(&running.plan, &plan) {
            return ReloadOutcome::Refused(refused);
        }
        let difference = diff_plans(&running.plan, &plan);
        let plan = applicable(&running.plan, plan);
        if plan_diff::is_empty(&difference) {
            return ReloadOutcome::Unchanged(difference);
        }
        guard_children(
            &plan,
            self.targets.program.as_deref(),
            &self.targets.shared.reaper,
        );
        // First of all: an operator whose key was removed loses access at once.
        // Unchanged keys stay as they are, since a new set ends the event streams.
        if **self.targets.admin_access.load() != plan.admin_access {
            self.targets
                .admin_access
                .store(Arc::new(plan.admin_access.clone()));
        }
        self.targets.sign_in.end_removed(&plan.admin_access);
        let before = self.targets.listener_state.load_full();
        if plan.auth.is_open() && !before.auth.is_open() {
            tracing::warn!(
                "endpoint opened: no key is left, so every program on this machine may use it"
            );
        }
        let (auth, access) = before.auth.reloaded(&plan.auth);
        auth.principals().set_people_max(plan.limits.principals);
        // Before the servers are connected, so that a new one finds its login.
        self.targets.replace_logins(&plan);
        // The access table comes before the keys: a removed principal finds nothing, and a new one
        // gets in a moment later.
        self.targets
            .gateway
            .apply(gateway_settings(&plan, access.clone()));
        let after = ListenerState {
            endpoints: self.targets.gateway.endpoints(),
            admission: before.admission.reloaded(
                admission_settings(&plan),
                &access,
                auth.principals(),
            ),
            auth,
            downstream: Arc::new(downstream_state_of(&plan, &before.downstream)),
            hosts: hosts(&plan),
            limits: request_limits(&plan),
            // Kept across a reload: each has state about clients that are connected now.
            stall_detector: before.stall_detector.clone(),
            refused_keys: before.refused_keys.clone(),
        };
        let downstream = after.downstream.clone();
        self.targets.listener_state.store(Arc::new(after));
        downstream.sessions.adjust(
            plan.limits.sessions,
            plan.limits.session_idle.0,
            plan.limits.subscriptions,
        );
        downstream.parked_calls.adjust(parked_call_settings(&plan));
        self.revoke_removed_twice();
        if running.plan.log.filter != plan.log.filter {
            logs::change(&plan.log.filter);
        }
        self.settings.store(Arc::new(plan.reload.clone()));
        self.update_status(|status| {
            (status.edits, status.client_keys) = (plan.admin_edits, plan.auth.keys.clone());
            status.keys_required = plan.auth.required;
            status.admits_people = plan.auth.admits_people();
        });
        self.keys_changed.notify_one();
        running.plan = plan;
        ReloadOutcome::Applied(difference)
    }

    /// Refuses a plan that is not safe with the listeners of the running one. They do not change at
    /// a reload.
    fn check_open(&self, running: &Plan, plan: &Plan) -> Result<(), String> {
        if applicable(running, plan.clone()).lets_everybody_command() {
            return Err(
                "error: with `admin.allow_commands` and without `[[admin.keys]]`, every \
                        user of this machine could \
                        run programs as the gateway's user: `gateway.admin` changes only at a \
                        restart\n = fix: `moongate \
                        key new NAME --admin --write` adds a key\n"
                    .to_owned(),
            );
        }
        match &self.targets.open_listener {
            Some(address) if plan.auth.is_open() => Err(format!(
                "error: without `[[auth.keys]]` anybody could use this gateway: it listens on \
                 {address}\n = fix: keep a \
                 key, or restart the gateway with a `gateway.listen` on loopback\n"
            )),
            _ => Ok(()),
        }
    }

    fn log_outcome(&self, outcome: &ReloadOutcome) {
        self.update_status(|status| {
            (status.at, status.outcome) = (timestamp(), outcome.name());
            match outcome {
                ReloadOutcome::Refused(problems) => status.message = Some(problems.clone()),
                ReloadOutcome::Applied(difference) | ReloadOutcome::Unchanged(difference) => {
                    status.message = None;
                    status.in_use_since.clone_from(&status.at);
                    status.needs_restart.clone_from(&difference.needs_restart);
                }
            }
        });
        let (label, difference) = match outcome {
            ReloadOutcome::Refused(problems) => {
                self.metrics.config.reload_failed.set(1);
                tracing::error!(
                    "config not reloaded, the previous one stays in use:\n{}",
                    problems.trim_end()
                );
                (ConfigReload::Refused, None)
            }
            ReloadOutcome::Applied(difference) => {
                tracing::info!("config reloaded: {}", plan_diff::line(difference));
                (ConfigReload::Applied, Some(difference))
            }
            ReloadOutcome::Unchanged(difference) => {
                tracing::info!("config read again: nothing to change");
                (ConfigReload::Unchanged, Some(difference))
            }
        };
        self.metrics.config.reloads.inc(label);
        let Some(difference) = difference else { return };
        self.metrics.config.reload_failed.set(0);
        self.metrics.config.reloaded_at.set(now());
        if !difference.needs_restart.is_empty() {
            let names = difference.needs_restart.join(", ");
            tracing::warn!(
                "some changed settings need a gateway restart; the old values stay in effect until \
                 then: {names}"
            );
        }
    }
}

fn is_misconfigured(server: &ServerSettings) -> bool {
    matches!(server.connect, ConnectTarget::Misconfigured { .. })
}

/// Returns the servers that the gateway runs without, since their entries have problems.
fn failing_servers(running: &RunningPlan) -> Vec<String> {
    let failing = running
        .plan
        .servers
        .iter()
        .filter(|server| is_misconfigured(server));
    failing
        .map(|server| server.name.clone())
        .chain(running.accepted.iter().cloned())
        .collect()
}

/// Returns the servers of a plan whose entries have no problem.
fn working_servers(plan: &Plan) -> Vec<String> {
    plan.servers
        .iter()
        .filter(|server| !is_misconfigured(server))
        .map(|server| server.name.clone())
        .collect()
}

/// Returns the servers that the gateway runs without: those that fail, and those that operations
/// add.
fn failing_with_new(running: &RunningPlan, operations: &[ConfigOperation]) -> Vec<String> {
    let mut names = failing_servers(running);
    // A server that runs must not be lost to an entry that a file gets next to it.
    let servers = &running.plan.servers;
    let new = operations
        .iter()
        .filter_map(ConfigOperation::added_server)
        .filter(|name| !servers.iter().any(|server| server.name == *name));
    names.extend(new.map(str::to_owned));
    names
}

/// True if two reads gave the same result.
fn is_same(one: &Result<LoadedConfig, String>, other: &Result<LoadedConfig, String>) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.is_same(other),
        (Err(one), Err(other)) => one == other,
        _ => false,
    }
}

fn timestamp() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

fn now() -> f64 {
    unix_now() as f64
}

impl Reloader for ConfigReloader {
    fn reload(&self) -> BoxFuture<'_, ReloadReport> {
        Box::pin(async { ConfigReloader::reload(self, true).await.report() })
    }

    fn plan(&self) -> BoxFuture<'_, PlanReport> {
        Box::pin(async {
            match self.preview().await {
                Ok(ReloadPreview { diff, tool_access }) => PlanReport::Fine {
                    changes: diff,
                    keys: tool_access,
                },
                Err(message) => PlanReport::Refused { message },
            }
        })
    }

    fn config(&self) -> Arc<ConfigStatus> {
        self.status.load_full()
    }
}
