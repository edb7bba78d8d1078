//! Parts of the gateway that its endpoints use for every call.
//!
//! Owns the meters, the calls in flight, the events and what was learned about URIs. Does not know
//! servers or rules (`generation.rs`). Invariant: it outlives every generation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;

use crate::events::EventBus;
use crate::in_flight::InFlightCalls;
use crate::output_fit::TaskOutputs;
use crate::recent_calls::RecentCalls;
use crate::rewrite_links::LearnedUris;
use crate::search_mode::item_index::ItemIndexes;
use moongate_access::auth::PrincipalTable;
use moongate_model::{ItemKind, TaskMethod};
use moongate_telemetry::{CallLogSwitch, CallMeter, MeterFactory, Metrics};
use moongate_upstream::UpstreamRuntime;

/// Parts of the gateway that all endpoints share.
pub(super) struct EndpointContext {
    /// Parts that all servers share.
    pub(super) upstreams: Arc<UpstreamRuntime>,
    pub(super) events: Arc<EventBus>,
    pub(super) learned_uris: LearnedUris,
    pub(super) task_outputs: TaskOutputs,
    pub(super) in_flight: InFlightCalls,
    /// Principals that are admitted now.
    pub(super) principals: Arc<PrincipalTable>,
    pub(super) metrics: Arc<Metrics>,
    /// Meters of calls without an item of the catalogue.
    pub(super) method_meters: MethodMeters,
    pub(super) call_log: CallLogSwitch,
    pub(super) recent_calls: RecentCalls,
    /// Indexes of search mode.
    pub(super) item_indexes: ItemIndexes,
    /// Longest URI that is looked up, in bytes.
    pub(super) uri_max: AtomicUsize,
}

impl EndpointContext {
    /// Returns the longest URI that is looked up, in bytes.
    pub(super) fn uri_max(&self) -> usize {
        self.uri_max.load(Ordering::Relaxed)
    }
}

/// Meters by the names of their methods.
// No peer chooses these names, so a fast hash will do.
pub(super) type MethodMeters = HashMap<&'static str, Arc<CallMeter>, RandomState>;

/// Builds a meter for each method.
pub(super) fn build_method_meters(meters: &MeterFactory) -> MethodMeters {
    let methods = [
        "tools/call",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "_OTHER",
    ];
    let tasks = TaskMethod::ALL.map(TaskMethod::name);
    let lists = ItemKind::ALL.map(ItemKind::list_method);
    let all = methods.into_iter().chain(lists).chain(tasks);
    all.map(|method| (method, Arc::new(meters.shared_meter(method, "", ""))))
        .collect()
}
