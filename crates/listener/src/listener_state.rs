//! State that answers clients.
//!
//! Owns what a reload replaces as a whole. Does not answer requests. Invariant: a request keeps the
//! state that it started with.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::address::PeerAddress;
use crate::admission::AdmissionControl;
use crate::h2_stall::StallDetector;
use crate::host_rules::HostRules;
use crate::refused_keys::RefusedKeys;
use moongate_access::auth::AuthMethods;
use moongate_gateway::EndpointDirectory;
use moongate_protocol::DownstreamState;
use moongate_telemetry::{MemoryHolder, MemoryReservation};

/// State that answers clients.
pub struct ListenerState {
    /// Endpoints that clients can connect to.
    pub endpoints: EndpointDirectory,
    /// Step from a client's credentials to its principal.
    pub auth: Arc<AuthMethods>,
    /// State that the dialects need.
    pub downstream: Arc<DownstreamState>,
    /// Accepted hosts and origins.
    pub hosts: HostRules,
    /// Limits of a request.
    pub limits: RequestLimits,
    /// Limits on what may be started.
    pub admission: AdmissionControl,
    /// Watch that drops HTTP/2 responses which their clients stopped reading.
    pub stall_detector: Arc<StallDetector>,
    /// Log of refused keys.
    pub refused_keys: Arc<RefusedKeys>,
}

/// Current state. A reload replaces it as a whole.
pub type SharedListenerState = Arc<ArcSwap<ListenerState>>;

/// Limits of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestLimits {
    /// Maximum size of a body, in bytes.
    pub body: usize,
    /// Maximum time to receive a body.
    pub read_timeout: Duration,
    /// Maximum number of messages in one batch.
    pub batch: usize,
}

impl ListenerState {
    /// Begins a reservation for a message of an operator at this address.
    pub fn reserve_for_operator(&self, peer: Option<PeerAddress>) -> MemoryReservation {
        self.admission
            .reserve(peer.map_or(MemoryHolder::Local, |PeerAddress(address)| {
                MemoryHolder::Peer(address)
            }))
    }
}
