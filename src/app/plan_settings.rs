//! Settings of each part of the gateway, as a plan gives them.
//!
//! Owns the translation, for the start and for reloads. Does not decide what a reload may change
//! (`plan_diff.rs`). Invariant: a start and a reload read a plan in the same way.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use moongate_access::auth::sent_key;
use moongate_config::{DiscoveryMode, DiscoverySettings, LimitSettings, Plan, ViewSettings};
use moongate_gateway::{GatewaySettings, NameRules, SearchRules, ViewRules};
use moongate_listener::{AdmissionSettings, HostRules, RequestLimits};
use moongate_protocol::DownstreamState;
use moongate_session::store::StateStore;
use moongate_session::{
    ParkedCallSettings, ParkedCalls, ReplaySettings, SessionSettings, Sessions,
};
use moongate_telemetry::{MemoryBudget, Metrics};
use moongate_transport::reaper::Reaper;
use moongate_upstream::ConnectTarget;

pub(super) fn admission_settings(plan: &Plan) -> AdmissionSettings {
    let LimitSettings {
        calls,
        calls_per_key,
        rate,
        ..
    } = plan.limits;
    AdmissionSettings {
        calls,
        calls_per_key,
        rate: rate.0,
    }
}

/// Starts the reaper if any server is a child process.
pub(super) fn guard_children(plan: &Plan, program: Option<&Path>, guard: &Reaper) {
    let children = plan
        .servers
        .iter()
        .any(|server| matches!(server.connect, ConnectTarget::Stdio { .. }));
    // Only a warning: the gateway ends its children itself unless it is killed.
    if let Some(Err(e)) = program
        .filter(|_| children)
        .map(|program| guard.ensure(program))
    {
        tracing::warn!("reaper not started; children may outlive a kill -9 of the gateway: {e}");
    }
}

pub(super) fn request_limits(plan: &Plan) -> RequestLimits {
    let limits = &plan.limits;
    RequestLimits {
        body: limits.body.0,
        read_timeout: limits.read_timeout.0,
        batch: limits.batch,
    }
}

pub(super) fn gateway_settings(
    plan: &Plan,
    access: moongate_access::policy::AccessTable,
) -> GatewaySettings {
    GatewaySettings {
        names: NameRules {
            separator: plan.names.separator.clone(),
            max_length: plan.names.max_length,
        },
        servers: plan.servers.clone(),
        disabled: plan.disabled.clone(),
        views: plan.views.iter().cloned().map(view_rules).collect(),
        access,
        drain: plan.times.drain.0,
        call_log: plan.log.calls,
        recent_calls: plan.admin_limits.recent_calls,
        uri_max: plan.limits.uri.0,
        schema: plan.schema,
        search: search_rules(&plan.discovery),
    }
}

fn view_rules(view: ViewSettings) -> ViewRules {
    ViewRules {
        search: search_rules(&view.discovery),
        name: view.name,
        servers: view.servers,
        tools: view.tools,
        schema: view.schema,
    }
}

fn search_rules(settings: &DiscoverySettings) -> Option<SearchRules> {
    let DiscoverySettings {
        mode,
        always,
        search,
    } = settings;
    (*mode == DiscoveryMode::Search).then(|| SearchRules {
        always: always.clone(),
        resources: search.resources,
        split_calls: search.split_calls,
    })
}

pub(super) fn downstream_state(
    plan: &Plan,
    metrics: &Arc<Metrics>,
    draining: &CancellationToken,
    store: &StateStore,
    memory: &MemoryBudget,
) -> DownstreamState {
    let limits = &plan.limits;
    let replay = ReplaySettings {
        bytes: limits.replay.0,
        total: memory.set_aside(limits.replay_total.0),
        events: limits.replay_events,
        time: limits.replay_time.0,
    };
    let sessions = SessionSettings {
        max: limits.sessions,
        idle: limits.session_idle.0,
        replay,
        outbox: limits.outbox.0,
        outbox_total: memory.set_aside(limits.outbox_total.0),
        subscriptions: limits.subscriptions,
    };
    DownstreamState {
        parked_calls: Arc::new(ParkedCalls::new(
            parked_call_settings(plan),
            metrics.clone(),
        )),
        seal: Arc::default(),
        input_timeout: plan.times.input_timeout.0,
        sessions: Arc::new(Sessions::persistent(
            sessions,
            metrics.clone(),
            store.clone(),
        )),
        metrics: metrics.clone(),
        keep_alive: plan.times.keep_alive.0,
        streams_max: plan.limits.streams,
        subscriptions_max: limits.subscriptions,
        forwarded_headers: forwarded_headers(plan),
        sent_key: (!plan.auth.is_open()).then_some(sent_key),
        stream_lifetime: limits.stream_time.0,
        timers: Arc::default(),
        draining: draining.clone(),
    }
}

/// Builds the state after a configuration change. Sessions and parked calls are carried over.
pub(super) fn downstream_state_of(plan: &Plan, before: &DownstreamState) -> DownstreamState {
    DownstreamState {
        // The same seal and the same calls: a client may answer a question from before the reload.
        parked_calls: before.parked_calls.clone(),
        seal: before.seal.clone(),
        input_timeout: plan.times.input_timeout.0,
        sessions: before.sessions.clone(),
        metrics: before.metrics.clone(),
        keep_alive: plan.times.keep_alive.0,
        streams_max: plan.limits.streams,
        subscriptions_max: plan.limits.subscriptions,
        forwarded_headers: forwarded_headers(plan),
        sent_key: (!plan.auth.is_open()).then_some(sent_key),
        stream_lifetime: plan.limits.stream_time.0,
        timers: before.timers.clone(),
        draining: before.draining.clone(),
    }
}

pub(super) fn parked_call_settings(plan: &Plan) -> ParkedCallSettings {
    ParkedCallSettings {
        max: plan.limits.parked,
        input_timeout: plan.times.input_timeout.0,
    }
}

/// Returns the client headers that some server's configuration forwards.
fn forwarded_headers(plan: &Plan) -> Vec<http::HeaderName> {
    let mut forwarded = Vec::new();
    for server in &plan.servers {
        if let ConnectTarget::Http {
            forward_headers, ..
        } = &server.connect
        {
            forwarded.extend(forward_headers.iter().map(|(from, _)| from.clone()));
        }
    }
    forwarded.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    // Several servers may get one header; it is stored once for each request.
    forwarded.dedup();
    forwarded
}

pub(super) fn hosts(plan: &Plan) -> HostRules {
    let own = plan
        .public_url
        .as_ref()
        .and_then(|url| url.host_str())
        .map(str::to_owned);
    let mut hosts = lowercased(&plan.allowed_hosts);
    hosts.extend(own);
    HostRules {
        hosts,
        origins: lowercased(&plan.allowed_origins),
    }
}

fn lowercased(names: &[String]) -> Vec<String> {
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}
