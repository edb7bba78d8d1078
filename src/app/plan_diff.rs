//! Difference between two plans. Owns which changes apply to a running gateway, and which need a restart.
//!
//! Does not apply anything: all functions are pure. Invariant: every part of a plan is compared, since a part that is
//! not named here does not compile.

use serde::Serialize;

use moongate_config::{Plan, PlanLimits};

/// Effect of a config change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanDiff {
    /// Servers that are new and get connected.
    pub added: Vec<String>,
    /// Servers that are closed after their calls.
    pub removed: Vec<String>,
    /// Servers that get a new connection or process. The old one serves until the new one is ready.
    pub replaced: Vec<String>,
    /// Servers with another presentation or other limits. Their connections stay.
    pub changed: Vec<String>,
    /// Other settings that change.
    pub settings: Vec<String>,
    /// Settings that differ and apply only after a restart.
    pub needs_restart: Vec<String>,
}

impl PlanDiff {
    /// True if there is nothing to apply.
    pub fn is_empty(&self) -> bool {
        let PlanDiff { added, removed, replaced, changed, settings, needs_restart: _ } = self;
        [added, removed, replaced, changed, settings].iter().all(|part| part.is_empty())
    }

    /// Returns the difference as one line.
    pub fn line(&self) -> String {
        let parts = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("replaced", &self.replaced),
            ("changed in place", &self.changed),
            ("settings", &self.settings),
            ("needs a restart", &self.needs_restart),
        ];
        let said = parts.iter().filter(|(_, names)| !names.is_empty());
        let said: Vec<String> = said.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
        if said.is_empty() { "nothing is different".to_owned() } else { said.join("; ") }
    }
}

/// Compares two plans.
pub fn diff_plans(from: &Plan, to: &Plan) -> PlanDiff {
    let mut out = diff_servers(from, to);
    let Plan {
        listen,
        admin,
        admin_access,
        sockets,
        tls,
        public_url,
        allowed_hosts,
        allowed_origins,
        drain,
        keep_alive,
        ask_timeout,
        state,
        catalog_age,
        reload,
        schema,
        names,
        servers: _,
        disabled,
        views,
        keys,
        limits,
        log,
    } = from;
    let applied = [
        ("gateway.public_url", *public_url != to.public_url),
        ("gateway.allowed_hosts", *allowed_hosts != to.allowed_hosts),
        ("gateway.allowed_origins", *allowed_origins != to.allowed_origins),
        ("gateway.keep_alive", *keep_alive != to.keep_alive),
        ("gateway.ask_timeout", *ask_timeout != to.ask_timeout),
        ("gateway.reload", (reload.watch, reload.interval) != (to.reload.watch, to.reload.interval)),
        ("servers.enabled", switched_off(disabled, to) != switched_off(&to.disabled, from)),
        ("gateway.schema", *schema != to.schema),
        ("names", *names != to.names),
        ("views", *views != to.views),
        ("auth.keys", *keys != to.keys),
        ("admin.keys", admin_access.keys != to.admin_access.keys),
        ("admin.metrics", admin_access.metrics != to.admin_access.metrics),
        ("telemetry.log", log.filter != to.log.filter),
        ("telemetry.calls", log.calls != to.log.calls),
    ];
    let owed = [
        ("gateway.listen", *listen != to.listen),
        ("gateway.admin", *admin != to.admin),
        ("gateway.socket_mode", sockets.mode != to.sockets.mode),
        ("gateway.reuse_port", sockets.reuse_port != to.sockets.reuse_port),
        ("gateway.tls", *tls != to.tls),
        // The file of the state has the port in its name, so a new address changes both.
        ("gateway.state", *state != to.state && *listen == to.listen),
        ("gateway.catalog_age", *catalog_age != to.catalog_age),
        ("gateway.drain", *drain != to.drain),
        ("gateway.reload.signal", reload.signal != to.reload.signal),
        ("telemetry.log_format", log.json != to.log.json),
    ];
    let (limits_applied, limits_owed) = diff_limits(limits, &to.limits);
    let named = |all: &[(&str, bool)]| -> Vec<String> {
        all.iter().filter(|(_, differs)| *differs).map(|(name, _)| (*name).to_owned()).collect()
    };
    out.settings = named(&[&applied[..], &limits_applied].concat());
    out.needs_restart = named(&[&owed[..], &limits_owed].concat());
    out
}

fn diff_servers(from: &Plan, to: &Plan) -> PlanDiff {
    let mut out = PlanDiff::default();
    for server in &to.servers {
        let name = server.name.clone();
        match from.servers.iter().find(|other| other.name == server.name) {
            None => out.added.push(name),
            Some(before) if before == server => {}
            Some(before) if server.same_connection(before) => out.changed.push(name),
            Some(_) => out.replaced.push(name),
        }
    }
    let gone = from.servers.iter().filter(|server| !to.servers.iter().any(|other| other.name == server.name));
    out.removed = gone.map(|server| server.name.clone()).collect();
    out
}

/// Returns the servers that one plan disables and the other lacks. Those that the other enables are added or removed.
fn switched_off<'a>(disabled: &'a [String], other: &Plan) -> Vec<&'a String> {
    disabled.iter().filter(|name| !other.servers.iter().any(|server| server.name == **name)).collect()
}

/// Names of limits, with true for those that differ.
type LimitDifferences = Vec<(&'static str, bool)>;

fn diff_limits(from: &PlanLimits, to: &PlanLimits) -> (LimitDifferences, LimitDifferences) {
    let PlanLimits {
        rate,
        calls_per_key,
        memory,
        sessions,
        session_idle,
        streams,
        parked,
        stream_time,
        replay,
        replay_total,
        replay_events,
        replay_time,
        outbox,
        outbox_total,
        subscriptions,
        connections,
        admin_connections,
        head,
        body,
        batch,
        uri,
        calls,
        read_timeout,
        write_timeout,
    } = from;
    let applied = vec![
        ("limits.rate", *rate != to.rate),
        ("limits.calls_per_key", *calls_per_key != to.calls_per_key),
        ("limits.sessions", *sessions != to.sessions),
        ("limits.session_idle", *session_idle != to.session_idle),
        ("limits.streams", *streams != to.streams),
        ("limits.parked", *parked != to.parked),
        ("limits.stream_time", *stream_time != to.stream_time),
        ("limits.subscriptions", *subscriptions != to.subscriptions),
        ("limits.batch", *batch != to.batch),
        ("limits.uri", *uri != to.uri),
        ("limits.body", *body != to.body),
        ("limits.calls", *calls != to.calls),
    ];
    let owed = vec![
        ("limits.memory", *memory != to.memory),
        ("limits.outbox", *outbox != to.outbox),
        ("limits.outbox_total", *outbox_total != to.outbox_total),
        ("limits.head", *head != to.head),
        ("limits.replay", *replay != to.replay),
        ("limits.replay_total", *replay_total != to.replay_total),
        ("limits.replay_events", *replay_events != to.replay_events),
        ("limits.replay_time", *replay_time != to.replay_time),
        ("limits.connections", *connections != to.connections),
        ("limits.admin_connections", *admin_connections != to.admin_connections),
        ("limits.read_timeout", *read_timeout != to.read_timeout),
        ("limits.write_timeout", *write_timeout != to.write_timeout),
    ];
    (applied, owed)
}

/// Returns the plan that a running gateway can adopt: settings that need a restart keep their value.
pub(super) fn applicable(running: &Plan, new: Plan) -> Plan {
    let (old, limits) = (running.clone(), running.limits.clone());
    Plan {
        listen: old.listen,
        admin: old.admin,
        sockets: old.sockets,
        tls: old.tls,
        state: old.state,
        catalog_age: old.catalog_age,
        drain: old.drain,
        reload: moongate_config::ReloadSettings { signal: old.reload.signal, ..new.reload },
        log: moongate_config::LogSettings { json: old.log.json, ..new.log },
        limits: PlanLimits {
            memory: limits.memory,
            outbox: limits.outbox,
            outbox_total: limits.outbox_total,
            head: limits.head,
            replay: limits.replay,
            replay_total: limits.replay_total,
            replay_events: limits.replay_events,
            replay_time: limits.replay_time,
            connections: limits.connections,
            admin_connections: limits.admin_connections,
            read_timeout: limits.read_timeout,
            write_timeout: limits.write_timeout,
            ..new.limits
        },
        ..new
    }
}
