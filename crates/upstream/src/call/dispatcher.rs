//! Dispatcher of one server's calls: breaker, concurrency permit and connection, in this order.
//! Owns the limits that all calls of the server share. Does not follow a started call (`call`).
//! Invariant: a call gets its connection within its own deadline, or one clear error.

use moongate_telemetry::{Limit, RetryOutcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::call::circuit_breaker::{BreakerPermit, CircuitBreaker};
use crate::call::concurrency::{ConcurrencyLimit, ConcurrencyPermit};
use crate::call::open_call_count::OpenCallCount;
use crate::call::retry::RetryBudget;
use crate::connection::idle_tracker::IdleTracker;
use crate::lists::polls::ListUse;
use crate::pool::isolation::CallTraits;
use crate::pool::{CheckedOut, CheckoutRequest, ConnectionPool};
use crate::server_context::{ServerContext, seconds};
use crate::settings::{ConnectTarget, ServerSettings};
use moongate_jsonrpc::json::ByteString;
use moongate_model::{Call, Caller, Error, Exchange, McpErrorKind};

/// Dispatcher of the calls of one server.
pub(crate) struct CallDispatcher {
    pub(super) server: Arc<ServerContext>,
    pub(super) pool: Arc<ConnectionPool>,
    pub(crate) concurrency: ConcurrencyLimit,
    pub(crate) breaker: Arc<CircuitBreaker>,
    pub(super) retry_budget: RetryBudget,
    /// Limit of attempts of one call.
    attempts: AtomicU32,
    /// Activity that keeps a lazy server running.
    pub(crate) activity: IdleTracker,
    pub(crate) open_calls: Arc<OpenCallCount>,
}

/// Connection of one call, as far as the call knows it.
#[derive(Default)]
pub(super) struct CallConnection {
    pub(super) checked_out: CheckedOut,
    pub(super) is_multiplexed: bool,
    /// True if it carries the credential of one person, as the shared one never does.
    pub(super) is_personal: bool,
    /// Revision of the connection. Empty before there is one.
    pub(super) revision: &'static str,
}

/// Call that has its connection and its permits.
pub(super) struct StartedCall {
    pub(super) exchange: Exchange,
    pub(super) connection: CallConnection,
    /// Time in the concurrency queue.
    pub(super) queue_time: Duration,
    /// Time until there was a connection.
    pub(super) connect_time: Duration,
    pub(super) permit: Option<ConcurrencyPermit>,
    pub(super) breaker_permit: BreakerPermit,
}

impl CallDispatcher {
    pub(crate) fn new(server: Arc<ServerContext>, pool: Arc<ConnectionPool>) -> Arc<Self> {
        let settings = &server.settings;
        Arc::new(CallDispatcher {
            concurrency: ConcurrencyLimit::new(settings),
            breaker: CircuitBreaker::new(settings.options.breaker),
            retry_budget: RetryBudget::default(),
            attempts: AtomicU32::new(settings.live.retry.attempts),
            activity: IdleTracker::default(),
            open_calls: Arc::default(),
            server,
            pool,
        })
    }

    /// Returns the record of what clients do with the server.
    pub(super) fn list_use(&self) -> &ListUse {
        &self.pool.lists.uses
    }

    /// Applies the limits that can change while calls run.
    pub(crate) fn apply_settings(&self, before: &ServerSettings, settings: &ServerSettings) {
        self.attempts
            .store(settings.live.retry.attempts, Ordering::Relaxed);
        self.concurrency
            .resize(before.live.max_concurrency, settings.live.max_concurrency);
    }

    /// Returns the limit of attempts of one call.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Admits a call, or returns the error of an open circuit breaker.
    pub(super) fn check_breaker(&self) -> Result<BreakerPermit, Error> {
        self.breaker.admit().map_err(|open_state| {
            self.server.metrics().calls.refused.inc(Limit::Breaker);
            let name = &self.server.settings.name;
            let when = match open_state.remaining {
                left if left.is_zero() => {
                    "another call is testing whether it has recovered".to_owned()
                }
                left => format!("calls resume in {}", seconds(left)),
            };
            let message = format!(
                "Server \"{name}\" keeps failing, so this call was not sent \
                 (servers.{name}.breaker); {when}. Last failure: {}",
                open_state.reason
            );
            Error::new(McpErrorKind::ServerDown, message)
        })
    }

    /// Waits for a permit, and returns it with the time in the queue.
    pub(super) async fn queue(
        &self,
        deadline: Instant,
    ) -> Result<(ConcurrencyPermit, Duration), Error> {
        let queued_at = Instant::now();
        let settings = self.server.live_settings();
        let permit = self
            .concurrency
            .acquire(&settings, self.server.metrics(), deadline)
            .await?;
        Ok((permit, queued_at.elapsed()))
    }

    /// Starts a call on its connection, once there is one, within the call's own deadline.
    pub(super) async fn connect_and_start(
        &self,
        caller: &Arc<Caller>,
        call: Call,
        permit: Option<ConcurrencyPermit>,
        breaker_permit: BreakerPermit,
        deadline: Instant,
    ) -> Result<StartedCall, Error> {
        let began = Instant::now();
        let settings = self.server.live_settings();
        let mut queued_permit =
            self.concurrency
                .queued_permit(permit, &settings, self.server.metrics(), deadline);
        let era = self.pool.wanted_era(caller, &call);
        let mut request = CheckoutRequest::new(caller, era, &call);
        request.exceeds_client =
            self.pool
                .is_mistaken_for_able(caller, CallTraits::of(&call), &call);
        let started = async {
            loop {
                let (connection, checked_out) =
                    self.pool.checkout(&mut request, &mut queued_permit).await?;
                // The checkout may have released the permit to wait for a dial. The call must not
                // run without one.
                queued_permit.reacquire().await?;
                // Another client may have begun a call there since the checkout. The second round
                // isolates this call, and is the last.
                let Some(_lock) = self
                    .pool
                    .begin_start(&connection, &checked_out, &mut request)
                else {
                    continue;
                };
                let connect_time = began.elapsed();
                let exchange = connection.open_call(caller, call);
                let is_multiplexed = connection.link.is_multiplexed();
                let permit = queued_permit.permit.take();
                let revision = connection.revision;
                return Ok(StartedCall {
                    exchange,
                    connection: CallConnection {
                        checked_out,
                        is_multiplexed,
                        is_personal: connection.is_personal,
                        revision,
                    },
                    queue_time: Duration::ZERO,
                    connect_time,
                    permit,
                    breaker_permit,
                });
            }
        };
        tokio::time::timeout_at(deadline, started)
            .await
            .unwrap_or_else(|_| Err(self.pool.checkout_timeout()))
    }

    pub(super) fn count_retry(&self, outcome: RetryOutcome) {
        let server = self.server.settings.name.as_str();
        self.server.metrics().servers.retries.inc((server, outcome));
    }

    /// Returns the caller with the headers that this server's config forwards, under the server's
    /// names, and no others.
    pub(super) fn with_forwarded_headers(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        // The common case shares the caller. A copy would cost an allocation in every call.
        if caller.forwarded_headers.is_empty() {
            return caller.clone();
        }
        let wanted: &[_] = match &self.server.settings.connect {
            ConnectTarget::Http {
                forward_headers, ..
            } => forward_headers,
            // A pipe has no headers for a single call.
            ConnectTarget::Stdio { .. }
            | ConnectTarget::Socket(_)
            | ConnectTarget::Misconfigured { .. } => &[],
        };
        let headers = wanted.iter().filter_map(|(from, to)| {
            let mut sent = caller.forwarded_headers.iter();
            let (_, value) = sent.find(|(name, _)| name.as_str() == from.as_str())?;
            Some((ByteString::from(to.as_str()), value.clone()))
        });
        Arc::new(Caller {
            forwarded_headers: headers.collect(),
            ..(**caller).clone()
        })
    }
}
