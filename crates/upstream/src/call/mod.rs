//! Call at a server, from start to end. Owns its concurrency permit, its connection and its
//! retries. Does not encode the call (`protocol`). Invariant: a call is retried only before any of
//! its events arrived, and its client sees one attempt.

pub(crate) mod circuit_breaker;
pub(crate) mod concurrency;
pub(crate) mod dispatcher;
mod notification_quota;
pub(crate) mod open_call_count;
pub(crate) mod retry;

use moongate_telemetry::{DroppedItem, RetryOutcome};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;

use crate::call::circuit_breaker::{BreakerPermit, CallClass};
use crate::call::concurrency::ConcurrencyPermit;
use crate::call::dispatcher::{CallConnection, CallDispatcher, StartedCall};
use crate::call::notification_quota::NotificationQuota;
use crate::call::open_call_count::OpenCallGuard;
use crate::call::retry::{RetryDecision, RetryableCall};
use crate::connection::idle_tracker::CallActivityGuard;
use crate::pool::CheckedOut;
use crate::pool::isolation::{CallTraits, own_capabilities};
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{
    Call, Caller, ClientCapabilities, Error, Exchange, ExchangeEvent, InputRequired, McpErrorKind,
    McpMethod, Notification, Outcome, Retryable, ServerStart, TaskMode,
};
use moongate_protocol::{CallAdvice, Era, era_of};

/// Shortest queue time that an error mentions.
const QUEUE_TIME_SHOWN: Duration = Duration::from_millis(100);

/// Call in progress.
struct ActiveCall {
    dispatcher: Arc<CallDispatcher>,
    _open: OpenCallGuard,
    step: CallStep,
    permit: Option<ConcurrencyPermit>,
    breaker_permit: Option<BreakerPermit>,
    connection: CallConnection,
    /// Time in the concurrency queue, of all attempts.
    queue_time: Duration,
    /// Time until there was a connection, of all attempts that had to wait for one. The queue is
    /// not part of it.
    connect_time: Duration,
    /// Attempts after the first one.
    retries: u32,
    /// True if an attempt that failed may have run.
    may_have_run: bool,
    /// Copy of the call for a retry, while one is possible.
    retryable: Option<Box<RetryableCall>>,
    /// Definition of the called tool.
    tool: Option<Arc<JsonObject>>,
    /// Era in which the call should go to the server.
    era: Era,
    /// What the client can answer, if it can have a connection that declares just that.
    own_capabilities: Option<ClientCapabilities>,
    /// True if the server asked for what the client cannot answer.
    was_asked_in_vain: bool,
    /// True if the client brought its own credentials.
    own_credentials: bool,
    deadline: Instant,
    quota: NotificationQuota,
    /// Guard that keeps a lazy server running.
    activity: Option<CallActivityGuard>,
}

/// Stream of the events of one call.
pub struct UpstreamCall(CallStart);

/// State at the start: most calls run, a refused one has ended before.
enum CallStart {
    Refused(Option<Error>),
    Running(Box<ActiveCall>),
}

impl UpstreamCall {
    fn refused(error: Error) -> Self {
        UpstreamCall(CallStart::Refused(Some(
            error.with_retryable(Retryable::NotSent),
        )))
    }

    fn running(call: ActiveCall) -> Self {
        UpstreamCall(CallStart::Running(Box::new(call)))
    }

    /// Returns the revision of the call's connection. Empty as long as there is none.
    pub fn revision(&self) -> &'static str {
        match &self.0 {
            CallStart::Refused(_) => "",
            CallStart::Running(call) => call.connection.revision,
        }
    }

    /// Returns the time in the queue and until there was a connection. None for a call that never
    /// got one.
    pub fn wait(&self) -> Option<Duration> {
        match &self.0 {
            CallStart::Running(call) if !call.connection.revision.is_empty() => {
                Some(call.queue_time + call.connect_time)
            }
            _ => None,
        }
    }

    /// Returns the number of attempts after the first one.
    pub fn retries(&self) -> u32 {
        match &self.0 {
            CallStart::Refused(_) => 0,
            CallStart::Running(call) => call.retries,
        }
    }
}

impl Stream for UpstreamCall {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        match &mut self.get_mut().0 {
            CallStart::Refused(error) => {
                Poll::Ready(error.take().map(|error| ExchangeEvent::Done(Err(error))))
            }
            CallStart::Running(call) => call.poll_next_unpin(cx),
        }
    }
}

/// Progress of a call.
enum CallStep {
    Starting(BoxFuture<'static, Result<StartedCall, Error>>),
    Running(Exchange),
    Finished,
}

impl Stream for ActiveCall {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        let this = self.get_mut();
        loop {
            match &mut this.step {
                CallStep::Finished => return Poll::Ready(None),
                CallStep::Starting(start) => match ready!(start.poll_unpin(cx)) {
                    Ok(started) => this.on_started(started),
                    Err(error) => {
                        this.finish();
                        let error =
                            this.with_sent_attempts(error.with_retryable(Retryable::NotSent));
                        return Poll::Ready(Some(ExchangeEvent::Done(Err(error))));
                    }
                },
                CallStep::Running(exchange) => {
                    let Some(event) = ready!(exchange.poll_next_unpin(cx)) else {
                        this.finish();
                        return Poll::Ready(None);
                    };
                    if let Some(event) = this.on_event(event) {
                        return Poll::Ready(Some(event));
                    }
                }
            }
        }
    }
}

impl CallDispatcher {
    /// Starts a call. [`UpstreamCall::revision`] returns the revision of its connection.
    pub(crate) fn start(self: &Arc<Self>, caller: &Arc<Caller>, mut call: Call) -> UpstreamCall {
        let caller = self.with_forwarded_headers(caller);
        let era = self.pool.wanted_era(&caller, &call);
        // A task in another era than its client's could not be found again.
        if era != era_of(caller.revision) && call.task_mode == TaskMode::Allowed {
            call.task_mode = TaskMode::Never;
        }
        let breaker_permit = match self.check_breaker() {
            Ok(breaker_permit) => breaker_permit,
            Err(error) => return UpstreamCall::refused(error),
        };
        let deadline = call.received + self.server.timeouts.call();
        self.list_use().record_use();
        let mut active_call = ActiveCall {
            dispatcher: self.clone(),
            _open: self.open_calls.begin(),
            step: CallStep::Finished,
            permit: None,
            breaker_permit: None,
            connection: CallConnection::default(),
            queue_time: Duration::ZERO,
            connect_time: Duration::ZERO,
            retries: 0,
            may_have_run: false,
            retryable: RetryableCall::of(&caller, &call, self.attempts()),
            tool: call
                .definition
                .clone()
                .filter(|_| call.method == McpMethod::CallTool),
            era,
            own_capabilities: own_capabilities(&caller, CallTraits::of(&call)),
            was_asked_in_vain: false,
            own_credentials: !caller.forwarded_headers.is_empty(),
            deadline,
            quota: NotificationQuota::default(),
            // An eager server never stops for idleness, so that its calls need no tracking.
            activity: (self.server.settings.options.start == ServerStart::Lazy)
                .then(|| self.activity.track_call()),
        };
        // Hot path: with a free permit and the shared connection at hand, the call needs no
        // separate future.
        let permit = self.concurrency.try_acquire();
        let checked_out = permit
            .as_ref()
            .and_then(|_| self.pool.try_checkout(&caller, era, &call));
        if let Some(connection) = checked_out
            .as_ref()
            .and_then(|checked_out| checked_out.connection())
        {
            (active_call.permit, active_call.breaker_permit) = (permit, Some(breaker_permit));
            active_call.connection.is_multiplexed = connection.link.is_multiplexed();
            active_call.connection.revision = connection.revision;
            active_call.step = CallStep::Running(connection.open_call(&caller, call));
            return UpstreamCall::running(active_call);
        }
        // Releases the lock on the shared connection: the slow path takes it again, and no lock is
        // held over a wait.
        drop(checked_out);
        let dispatcher = self.clone();
        active_call.step = CallStep::Starting(Box::pin(async move {
            let (permit, queue_time) = match permit {
                Some(permit) => (permit, Duration::ZERO),
                None => dispatcher.queue(deadline).await?,
            };
            let started = dispatcher
                .connect_and_start(&caller, call, Some(permit), breaker_permit, deadline)
                .await;
            started.map(|started| StartedCall {
                queue_time,
                ..started
            })
        }));
        UpstreamCall::running(active_call)
    }
}

impl ActiveCall {
    fn on_started(&mut self, started: StartedCall) {
        let StartedCall {
            exchange,
            connection,
            queue_time,
            connect_time,
            permit,
            breaker_permit,
        } = started;
        (self.step, self.connection) = (CallStep::Running(exchange), connection);
        self.queue_time += queue_time;
        self.connect_time += connect_time;
        (self.permit, self.breaker_permit) = (permit, Some(breaker_permit));
    }

    fn finish(&mut self) {
        (self.step, self.permit, self.breaker_permit, self.retryable) =
            (CallStep::Finished, None, None, None);
        self.connection.checked_out = CheckedOut::default();
        self.activity = None;
        self.dispatcher.list_use().record_call();
    }

    fn on_event(&mut self, event: ExchangeEvent) -> Option<ExchangeEvent> {
        match event {
            ExchangeEvent::Notification(notification) => {
                // The client has seen an event of this attempt. A second attempt would repeat it.
                self.retryable = None;
                self.admit_notification(&notification)
                    .then_some(ExchangeEvent::Notification(notification))
            }
            ExchangeEvent::InputRequired(input) => {
                // A request that the client can't answer doesn't reach it, so the call may still be
                // repeated.
                if !self.learn_requests(&input) {
                    self.retryable = None;
                    // A user's time does not load the server, so the call goes on later without a
                    // permit.
                    self.permit = None;
                }
                Some(ExchangeEvent::InputRequired(input))
            }
            ExchangeEvent::Done(mut end) => {
                // Recorded before a retry: the failed attempt counts for the breaker.
                self.record_outcome(&end);
                if let Some(advice) = self.learn_advice(&end) {
                    // The tool may have done something before it wanted to ask.
                    let failure = Error::new(
                        McpErrorKind::ServerProtocol,
                        "the tool cannot request input on this connection",
                    );
                    if self.try_retry(&Error {
                        retryable: Retryable::After(None),
                        ..failure
                    }) {
                        return None;
                    }
                    moongate_protocol::advise_another_call(&mut end, advice);
                }
                if let Err(error) = &end
                    && self.try_retry(error)
                {
                    return None;
                }
                self.finish();
                Some(ExchangeEvent::Done(end.map_err(|error| {
                    self.with_sent_attempts(self.with_queue_time(error))
                })))
            }
        }
    }

    /// Learns what the tool asks its client for. Returns true if this client can answer none of it.
    fn learn_requests(&mut self, input: &InputRequired) -> bool {
        let pool = &self.dispatcher.pool;
        let Some(capabilities) = self.own_capabilities.filter(|_| pool.may_declare_own()) else {
            return false;
        };
        let Some(name) = self.tool.as_ref().and_then(|tool| tool.get_string("name")) else {
            return false;
        };
        for (_, request) in &input.requests {
            pool.asking_tools.record(&name, request.kind);
        }
        let is_vain = input
            .requests
            .iter()
            .all(|(_, request)| !capabilities.supports(request.kind));
        self.was_asked_in_vain |= is_vain;
        is_vain
    }

    /// Learns from a failure how the tool has to be called. Returns the advice for the client, if
    /// that is new.
    fn learn_advice(&self, end: &Result<Outcome, Error>) -> Option<CallAdvice> {
        // Its own connection declares what the client has, and the server still asked.
        let is_mistaken = self.was_asked_in_vain && !self.connection.checked_out.is_final();
        if is_mistaken && moongate_protocol::has_failed(end) {
            return Some(CallAdvice::OwnCapabilities);
        }
        self.learn_era(end).then_some(CallAdvice::EarlierRevision)
    }

    /// Learns from a failure that the tool has to be called in the other era. Returns true if that
    /// is new.
    fn learn_era(&self, end: &Result<Outcome, Error>) -> bool {
        // The cheap comparison first: nearly all calls succeed.
        if self.era != Era::Modern || !moongate_protocol::cannot_ask(end) {
            return false;
        }
        let Some(tool) = &self.tool else { return false };
        let pool = &self.dispatcher.pool;
        // The words are of servers that speak both eras. Of others they mean nothing.
        era_of(self.connection.revision) == Era::Modern
            && pool.is_open_in(Era::Legacy)
            && tool
                .get_string("name")
                .is_some_and(|name| pool.legacy_tools.record(&name))
    }

    /// Returns true if a notification is within the quota of one call.
    fn admit_notification(&mut self, notification: &Notification) -> bool {
        let server = &self.dispatcher.server;
        let size = notification.size_hint();
        let admitted = self.quota.admit(
            size,
            server.peek_live_settings().live.max_notifications.0,
            Instant::now(),
        );
        if !admitted {
            server
                .metrics()
                .calls
                .dropped
                .inc(DroppedItem::CallNotification);
        }
        admitted
    }

    /// Adds the queue time to a timeout: the server may have had little of the call's time.
    fn with_queue_time(&self, mut error: Error) -> Error {
        if error.kind == McpErrorKind::ServerTimeout && self.queue_time >= QUEUE_TIME_SHOWN {
            let name = &self.dispatcher.server.settings.name;
            let queued = self.queue_time.as_secs_f64();
            let max = self
                .dispatcher
                .server
                .peek_live_settings()
                .live
                .max_concurrency;
            error.message = format!(
                "{}; the call spent {queued:.1} s of that in the queue \
                 (servers.{name}.max_concurrency = {max})",
                error.message
            )
            .into();
        }
        error
    }

    /// Takes back that a call was not sent if an earlier attempt was: the error describes only the
    /// last one.
    fn with_sent_attempts(&self, error: Error) -> Error {
        let claims_unsent = error.retryable == Retryable::NotSent;
        if claims_unsent && self.may_have_run {
            error.with_retryable(Retryable::No)
        } else {
            error
        }
    }

    /// Feeds the outcome to the retry budget, the circuit breaker and the supervisor.
    fn record_outcome(&mut self, end: &Result<Outcome, Error>) {
        let dispatcher = &self.dispatcher;
        let own_credentials = self.own_credentials || self.connection.is_personal;
        let class = classify(end, self.connection.is_multiplexed, own_credentials);
        // Only calls that could be retried earn retries.
        if class == CallClass::Success && self.retryable.is_some() {
            dispatcher.retry_budget.deposit();
        }
        dispatcher
            .breaker
            .record(class, &self.breaker_permit.take().unwrap_or_default());
        match end {
            Err(error) => dispatcher
                .pool
                .liveness_triggers
                .record_failure(error, own_credentials),
            Ok(Outcome {
                task: Some(task), ..
            }) => {
                // A task outlives its call, and needs the server until its end.
                if self.activity.is_some() {
                    dispatcher.activity.track_task(task);
                }
                dispatcher
                    .pool
                    .track_task(&self.connection.checked_out, task);
            }
            Ok(_) => {}
        }
    }

    /// Starts another attempt, if a retry is allowed. Returns false if not.
    fn try_retry(&mut self, error: &Error) -> bool {
        let Some(mut retryable) = self.retryable.take() else {
            return false;
        };
        let dispatcher = self.dispatcher.clone();
        let delay = match retryable.decide(error, &dispatcher.retry_budget, self.deadline) {
            RetryDecision::No => return false,
            RetryDecision::OverBudget => {
                dispatcher.count_retry(RetryOutcome::OverBudget);
                return false;
            }
            RetryDecision::After(delay) => delay,
        };
        dispatcher.count_retry(RetryOutcome::Sent);
        let Some(call) = retryable.call.clone_for_retry() else {
            return false;
        };
        self.retries += 1;
        self.may_have_run |= error.retryable != Retryable::NotSent;
        let caller: Arc<Caller> = retryable.caller.clone();
        self.retryable = Some(retryable);
        // The next attempt may choose another connection, so that this one is returned to the pool.
        self.connection.checked_out = CheckedOut::default();
        // The deadline stays: a retry does not prolong the call.
        let permit = self.permit.take();
        let deadline = self.deadline;
        self.step = CallStep::Starting(Box::pin(async move {
            tokio::time::sleep(delay).await;
            // The breaker may have opened since the first attempt.
            let breaker_permit = dispatcher.check_breaker()?;
            dispatcher
                .connect_and_start(&caller, call, permit, breaker_permit, deadline)
                .await
        }));
        true
    }
}

/// Classifies the end of a call for the circuit breaker.
fn classify(
    end: &Result<Outcome, Error>,
    is_multiplexed: bool,
    own_credentials: bool,
) -> CallClass {
    let Err(error) = end else {
        return CallClass::Success;
    };
    match (&error.kind, error.retryable) {
        // A JSON-RPC error proves that the server works.
        (McpErrorKind::ServerError(_), _) => CallClass::Success,
        // A closed pipe is handled by reconnect backoff.
        (McpErrorKind::ServerDown, _) if is_multiplexed => CallClass::Ignored,
        (McpErrorKind::ServerDown | McpErrorKind::ServerTimeout, _) => {
            CallClass::Failure(error.message.to_string(), None)
        }
        // A refusal of the client's own credentials says nothing about other clients.
        (McpErrorKind::ServerRefused, Retryable::After(wait)) if !own_credentials => {
            CallClass::Failure(error.message.to_string(), wait)
        }
        _ => CallClass::Ignored,
    }
}

#[cfg(test)]
mod tests;
