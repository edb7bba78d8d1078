//! Metrics for people's logins.
//!
//! Owns their names and help texts. Does not decide when something is counted. Invariant: no label
//! names a person, a client or a host.

use super::family::CounterFamily;
use super::labels::{BrokerLimit, LoginEnd, ProviderOutcome};
use super::registration::MetricRegistrar;
use super::{CounterHandle, GaugeHandle};

/// Metrics for people's logins.
#[allow(missing_docs)] // each is described by its help text below, which is what users read
pub struct BrokerMetrics {
    pub logins: GaugeHandle,
    pub refused: CounterFamily<(BrokerLimit,)>,
    pub ended: CounterFamily<(LoginEnd,)>,
    pub replays: CounterHandle,
    pub provider: CounterFamily<(ProviderOutcome,)>,
}

impl BrokerMetrics {
    pub(super) fn register(r: &MetricRegistrar) -> Self {
        BrokerMetrics {
            logins: r.gauge("moongate_logins", "People's logins."),
            refused: r.counters(
                "moongate_broker_refused_total",
                "Login requests that were refused because a limit was reached.",
            ),
            ended: r.counters("moongate_logins_ended_total", "Logins that ended."),
            replays: r.counter(
                "moongate_token_replays_total",
                "Logins that ended because an old refresh token was used again.",
            ),
            provider: r.counters(
                "moongate_provider_requests_total",
                "Requests to the company login.",
            ),
        }
    }
}
