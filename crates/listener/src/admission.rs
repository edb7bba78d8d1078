//! Admission control: bounds that hold before a request starts anything. Owns the limits of memory,
//! of calls in total and by key, and of request rates.
//!
//! Does not count calls (`gateway`). Invariant: a refused request has cost only its reading. Its
//! response names the setting that refused it and the time to retry.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::request_rates::RequestRates;
use crate::uploads::{ArrivingBody, UploadTable};
use moongate_access::auth::PrincipalTable;
use moongate_access::policy::{ANONYMOUS, AccessTable, RequestRate};
use moongate_gateway::EndpointDirectory;
use moongate_model::{Error, McpErrorKind, Principal};
use moongate_protocol::body::Body;
use moongate_telemetry::{GatewayMemory, Limit, MemoryHolder, MemoryReservation, Metrics};

/// Retry delay where the time until there is room is unknown.
pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of requests that wait for a fetch of their authentication.
const FETCHES_MAX: usize = 64;

/// Limits on what may be started.
pub struct AdmissionControl {
    calls: usize,
    calls_per_key: usize,
    rates: RequestRates,
    memory: GatewayMemory,
    /// Bodies that arrive.
    uploads: Arc<UploadTable>,
    /// Room for requests that wait for a fetch of their authentication.
    fetches: Arc<Semaphore>,
}

/// Limits of admission control.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionSettings {
    /// Maximum number of concurrent calls of all clients.
    pub calls: usize,
    /// Maximum number of concurrent calls of one key.
    pub calls_per_key: usize,
    /// Request rate of a key that sets none.
    pub rate: Option<RequestRate>,
}

/// Refusal with the time to retry.
pub(super) struct AdmissionRejection {
    limit: Limit,
    status: StatusCode,
    pub(super) error: Error,
    retry_after: Duration,
}

impl AdmissionControl {
    /// Creates admission control for these principals.
    pub fn new(
        settings: AdmissionSettings,
        access: &AccessTable,
        principals: &PrincipalTable,
        memory: GatewayMemory,
    ) -> Self {
        let uploads = Arc::<UploadTable>::default();
        memory.budget.relieved_by(uploads.clone());
        let fetches = Arc::new(Semaphore::new(FETCHES_MAX));
        let none = AdmissionControl {
            calls: 0,
            calls_per_key: 0,
            rates: RequestRates::none(),
            memory,
            uploads,
            fetches,
        };
        none.reloaded(settings, access, principals)
    }

    /// Returns the control after a change of principals or limits. An unchanged rate keeps what was
    /// used of it.
    pub fn reloaded(
        &self,
        settings: AdmissionSettings,
        access: &AccessTable,
        principals: &PrincipalTable,
    ) -> Self {
        AdmissionControl {
            calls: settings.calls,
            calls_per_key: settings.calls_per_key,
            rates: self.rates.reloaded(settings.rate, access, principals),
            memory: self.memory.clone(),
            uploads: self.uploads.clone(),
            fetches: self.fetches.clone(),
        }
    }

    /// Takes a slot among the requests that wait for a fetch. `None`: too many wait.
    pub(super) fn begin_fetch(&self) -> Option<SemaphorePermit<'_>> {
        self.fetches.try_acquire().ok()
    }

    /// Begins a reservation for a message of a client.
    pub(super) fn reserve(&self, holder: MemoryHolder) -> MemoryReservation {
        self.memory.budget.share(holder).begin()
    }

    /// Begins the body of a client's request.
    pub(super) fn begin_upload(&self, holder: MemoryHolder) -> ArrivingBody {
        self.uploads.begin(holder.clone(), self.reserve(holder))
    }

    /// Refuses large bodies and new calls while memory is over its limit.
    pub(super) fn check_memory(&self) -> Result<(), AdmissionRejection> {
        let Some(limit) = self
            .memory
            .watch
            .limit
            .filter(|_| self.memory.watch.is_over_limit())
        else {
            return Ok(());
        };
        let message = format!(
            "The gateway uses more than nine tenths of its memory limit of {limit} bytes \
             (limits.memory)"
        );
        Err(AdmissionRejection::at_capacity(Limit::Memory, message))
    }

    /// Checks the limits for `count` requests of a principal.
    pub(super) fn check_limits(
        &self,
        principal: &Principal,
        count: usize,
        endpoints: &EndpointDirectory,
    ) -> Result<(), AdmissionRejection> {
        // Memory first: no other limit matters while the process may be killed for it.
        self.check_memory()?;
        // Read without a lock: requests at once may exceed the limit by their own number. An exact
        // count would serialise all calls.
        let (calls, principal_calls) = endpoints.in_flight(principal);
        if calls.saturating_add(count) > self.calls {
            let message = format!(
                "The limit of {} concurrent calls is reached (limits.calls)",
                self.calls
            );
            return Err(AdmissionRejection::at_capacity(Limit::Calls, message));
        }
        // Without keys all clients are one principal: only the total limit applies.
        if principal.id != ANONYMOUS && principal_calls.saturating_add(count) > self.calls_per_key {
            let most = self.calls_per_key;
            let message = format!(
                "The limit of {most} concurrent calls for this key is reached \
                 (limits.calls_per_key)"
            );
            return Err(AdmissionRejection {
                // 429 where the limit is the client's own, 503 where others have used it up.
                status: StatusCode::TOO_MANY_REQUESTS,
                ..AdmissionRejection::at_capacity(Limit::CallsPerKey, message)
            });
        }
        self.rates.take(principal, count)
    }
}

impl AdmissionRejection {
    /// Refuses requests above a rate.
    pub(super) fn over_rate(message: String, retry_after: Duration) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        AdmissionRejection {
            status,
            retry_after,
            ..AdmissionRejection::at_capacity(Limit::Rate, message)
        }
    }

    fn at_capacity(limit: Limit, message: String) -> Self {
        let error = Error::new(McpErrorKind::Overloaded, message);
        AdmissionRejection {
            limit,
            status: StatusCode::SERVICE_UNAVAILABLE,
            error,
            retry_after: DEFAULT_RETRY_AFTER,
        }
    }

    /// Counts the refusal of a client without HTTP. Returns the error, which says everything.
    pub(super) fn record(self, metrics: &Metrics) -> Error {
        metrics.calls.refused.inc(self.limit);
        let seconds = self.seconds();
        Error {
            message: format!("{}; try again in {seconds} s", self.error.message).into(),
            ..self.error
        }
    }

    fn seconds(&self) -> u64 {
        // Never zero: that would ask for an immediate retry.
        (self.retry_after.as_secs() + u64::from(self.retry_after.subsec_nanos() > 0)).max(1)
    }

    /// Counts the refusal, and sets status and Retry-After of the response.
    pub(super) fn apply_to(
        self,
        mut response: Response<Body>,
        metrics: &Metrics,
    ) -> Response<Body> {
        metrics.calls.refused.inc(self.limit);
        *response.status_mut() = self.status;
        // Whole seconds (RFC 9110, Retry-After).
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(self.seconds()));
        response
    }
}
