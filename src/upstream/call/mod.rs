//! Call at a server, from start to end. Owns its concurrency permit, its connection and its retries. Does not encode
//! the call (`revision`). Invariant: a call is retried only before any of its events arrived, and its client sees one
//! attempt.

pub(in crate::upstream) mod circuit_breaker;
pub(in crate::upstream) mod concurrency;
pub(in crate::upstream) mod notification_quota;
pub(in crate::upstream) mod retry;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;

use crate::model::{Caller, Error, Exchange, ExchangeEvent, McpErrorKind, Notification, Outcome, Retryable};
use crate::upstream::call::circuit_breaker::{BreakerPermit, CallClass};
use crate::upstream::call::concurrency::ConcurrencyPermit;
use crate::upstream::call::notification_quota::NotificationQuota;
use crate::upstream::call::retry::{RetryDecision, RetryableCall};
use crate::upstream::pool::CheckedOut;
use crate::upstream::supervisor::idle::CallActivityGuard;
use crate::upstream::supervisor::replace::CallGuard;

/// Shortest queue time that an error mentions.
const QUEUE_TIME_SHOWN: Duration = Duration::from_millis(100);

/// Call that has its connection and its permits.
pub(in crate::upstream) struct StartedCall {
    pub(in crate::upstream) exchange: Exchange,
    pub(in crate::upstream) checked_out: CheckedOut,
    pub(in crate::upstream) is_multiplexed: bool,
    pub(in crate::upstream) revision: &'static str,
    /// Time in the concurrency queue.
    pub(in crate::upstream) queue_time: Duration,
    pub(in crate::upstream) permit: Option<ConcurrencyPermit>,
    pub(in crate::upstream) breaker_permit: BreakerPermit,
}

/// Call in progress.
pub(in crate::upstream) struct ActiveCall {
    pub(in crate::upstream) upstream: CallGuard,
    pub(in crate::upstream) step: CallStep,
    pub(in crate::upstream) permit: Option<ConcurrencyPermit>,
    pub(in crate::upstream) breaker_permit: Option<BreakerPermit>,
    pub(in crate::upstream) checked_out: CheckedOut,
    pub(in crate::upstream) is_multiplexed: bool,
    /// Revision of the call's connection. Empty before there is one.
    pub(in crate::upstream) revision: &'static str,
    /// Time in the concurrency queue, of all attempts.
    pub(in crate::upstream) queue_time: Duration,
    /// Copy of the call for a retry, while one is possible.
    pub(in crate::upstream) retryable: Option<Box<RetryableCall>>,
    /// True if the client brought its own credentials. A refusal of those says nothing about other clients.
    pub(in crate::upstream) own_credentials: bool,
    pub(in crate::upstream) deadline: Instant,
    pub(in crate::upstream) quota: NotificationQuota,
    /// Guard that keeps a lazy server running.
    pub(in crate::upstream) activity: Option<CallActivityGuard>,
}

/// Stream of the events of one call.
pub struct ServerCall(CallStart);

/// State at the start: most calls run, a refused one has ended before.
enum CallStart {
    Refused(Option<Error>),
    Running(Box<ActiveCall>),
}

impl ServerCall {
    pub(in crate::upstream) fn refused(error: Error) -> Self {
        ServerCall(CallStart::Refused(Some(error)))
    }

    pub(in crate::upstream) fn running(run: ActiveCall) -> Self {
        ServerCall(CallStart::Running(Box::new(run)))
    }

    /// Returns the revision of the call's connection. Empty as long as there is none.
    pub fn revision(&self) -> &'static str {
        match &self.0 {
            CallStart::Refused(_) => "",
            CallStart::Running(run) => run.revision,
        }
    }
}

impl Stream for ServerCall {
    type Item = ExchangeEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ExchangeEvent>> {
        match &mut self.get_mut().0 {
            CallStart::Refused(error) => Poll::Ready(error.take().map(|error| ExchangeEvent::Done(Err(error)))),
            CallStart::Running(run) => run.poll_next_unpin(cx),
        }
    }
}

/// Progress of a call.
pub(in crate::upstream) enum CallStep {
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
                    Ok(begun) => this.on_started(begun),
                    Err(error) => {
                        this.finish();
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

impl ActiveCall {
    fn on_started(&mut self, begun: StartedCall) {
        let StartedCall {
            exchange,
            checked_out: held,
            is_multiplexed: is_pipe,
            revision,
            queue_time: queued,
            permit: slot,
            breaker_permit: pass,
        } = begun;
        (self.step, self.checked_out, self.is_multiplexed) = (CallStep::Running(exchange), held, is_pipe);
        self.revision = revision;
        self.queue_time += queued;
        (self.permit, self.breaker_permit) = (slot, Some(pass));
    }

    fn finish(&mut self) {
        (self.step, self.permit, self.breaker_permit, self.retryable) = (CallStep::Finished, None, None, None);
        self.checked_out = CheckedOut::default();
        self.activity = None;
    }

    fn on_event(&mut self, event: ExchangeEvent) -> Option<ExchangeEvent> {
        match event {
            ExchangeEvent::Notification(notice) => {
                // The client has seen an event of this attempt. A second attempt would repeat it.
                self.retryable = None;
                return self.admit_notification(&notice).then_some(ExchangeEvent::Notification(notice));
            }
            // A user's time is no load on the server. The permit is released, and the call goes on later without
            // another one.
            ExchangeEvent::InputRequired(_) => (self.retryable, self.permit) = (None, None),
            ExchangeEvent::Done(end) => {
                // Recorded before a retry: the failed attempt counts for the breaker.
                self.record_outcome(&end);
                if let Err(error) = &end
                    && self.try_retry(error)
                {
                    return None;
                }
                self.finish();
                return Some(ExchangeEvent::Done(end.map_err(|error| self.with_queue_time(error))));
            }
        }
        Some(event)
    }

    /// Returns true if a notification is within the quota of one call.
    fn admit_notification(&mut self, notice: &Notification) -> bool {
        let (upstream, size) = (&self.upstream, notice.size_hint());
        let admitted = self.quota.admit(size, upstream.live_settings.load().max_notifications, Instant::now());
        if !admitted {
            upstream.context.metrics.dropped.with_label_values(&["call_notification"]).inc();
        }
        admitted
    }

    /// Adds the queue time to a timeout: the server may have had little of the call's time.
    fn with_queue_time(&self, mut error: Error) -> Error {
        if error.kind == McpErrorKind::ServerTimeout && self.queue_time >= QUEUE_TIME_SHOWN {
            let (name, queued) = (&self.upstream.settings.name, self.queue_time.as_secs_f64());
            let max = self.upstream.live_settings().max_concurrency;
            error.message = format!(
                "{}; for {queued:.1} s of that it waited for its turn (servers.{name}.max_concurrency = {max})",
                error.message
            )
            .into();
        }
        error
    }

    /// Feeds the outcome to the retry budget, the circuit breaker and the supervisor.
    fn record_outcome(&mut self, end: &Result<Outcome, Error>) {
        let upstream = &self.upstream;
        let verdict = classify(end, self.is_multiplexed, self.own_credentials);
        // Only calls that could be retried earn retries.
        if verdict == CallClass::Success && self.retryable.is_some() {
            upstream.retry_budget.deposit();
        }
        upstream.breaker.record(verdict, &self.breaker_permit.take().unwrap_or_default());
        match end {
            Err(error) if error.kind == McpErrorKind::ServerDown => upstream.connection_suspect.notify_one(),
            // The cause may be this call alone, or credentials of the gateway that expired.
            Err(error) if is_refused(error) && !self.own_credentials => upstream.call_refused.notify_one(),
            Ok(Outcome { task: Some(task), .. }) => {
                // A task outlives its call, and needs the server until its end.
                if self.activity.is_some() {
                    upstream.activity.track_task(task);
                }
                self.checked_out.track_task(task);
            }
            _ => {}
        }
    }

    /// Starts another attempt, if a retry is allowed. Returns false if not.
    fn try_retry(&mut self, error: &Error) -> bool {
        let Some(mut spare) = self.retryable.take() else { return false };
        let upstream = Arc::clone(&self.upstream);
        let name = upstream.settings.name.as_str();
        let count = |outcome: &str| upstream.context.metrics.retries.with_label_values(&[name, outcome]).inc();
        let pause = match spare.decide(error, &upstream.retry_budget, self.deadline) {
            RetryDecision::No => return false,
            RetryDecision::OverBudget => {
                count("over_budget");
                return false;
            }
            RetryDecision::After(pause) => pause,
        };
        count("sent");
        let Some(call) = spare.call.clone_for_retry() else { return false };
        let caller: Arc<Caller> = spare.caller.clone();
        self.retryable = Some(spare);
        // The next attempt may choose another connection, so that this one is returned to the pool.
        self.checked_out = CheckedOut::default();
        let (slot, deadline) = (self.permit.take(), self.deadline);
        self.step = CallStep::Starting(Box::pin(async move {
            tokio::time::sleep(pause).await;
            // The breaker may have opened since the first attempt.
            let pass = upstream.check_breaker()?;
            upstream.connect_and_start(&caller, call, slot, pass, deadline).await
        }));
        true
    }
}

/// Returns true if the host refused for good: for its credentials, its path or its method.
pub(in crate::upstream) fn is_refused(error: &Error) -> bool {
    error.kind == McpErrorKind::ServerRefused && error.retryable == Retryable::No
}

/// Classifies the end of a call for the circuit breaker.
fn classify(end: &Result<Outcome, Error>, is_pipe: bool, own_credentials: bool) -> CallClass {
    let Err(error) = end else { return CallClass::Success };
    let fault = |wait| CallClass::Failure(error.message.to_string(), wait);
    match (&error.kind, error.retryable) {
        (McpErrorKind::ServerError(_), _) => CallClass::Success,
        // A closed pipe is handled by reconnect backoff.
        (McpErrorKind::ServerDown, _) if is_pipe => CallClass::Ignored,
        (McpErrorKind::ServerDown | McpErrorKind::ServerTimeout, _) => fault(None),
        (McpErrorKind::ServerRefused, Retryable::After(wait)) if !own_credentials => fault(wait),
        _ => CallClass::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::{JsonObject, RawJson};
    use crate::jsonrpc::RpcError;
    use crate::model::{Call, LogFilter, McpMethod};
    use crate::upstream::testing::{dialing, settings};
    use crate::upstream::{ServerSettings, Upstream, UpstreamState};
    use moongate_testing as testing;

    #[tokio::test(start_paused = true)]
    async fn the_notifications_of_a_call_are_bounded_and_its_answer_comes() {
        let few = ServerSettings { max_notifications: 10_000, ..settings() };
        let shared = dialing(|talk, message| {
            if message["method"] != "tools/call" {
                talk.serve_legacy(message);
                return;
            }
            // No more at once than one call has room for.
            for _ in 0..40 {
                let params = json!({"level": "error", "data": "x".repeat(400)});
                talk.send(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}));
            }
            talk.answer(message, &json!({"content": []}));
        });
        let upstream = Upstream::new(few, shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        upstream.watch().wait_for(|status| status.state == UpstreamState::Ready).await.unwrap();
        let params = JsonObject::new().with("name", RawJson::string("t"));
        let caller =
            Arc::new(Caller { log_filter: LogFilter::ServerDecides, ..(*testing::caller(1, Some("s"))).clone() });
        let mut exchange = upstream.call(&caller, Call::new(McpMethod::CallTool, params));
        let mut told = 0;
        let end = loop {
            match exchange.next_event().await {
                ExchangeEvent::Notification(_) => told += 1,
                ExchangeEvent::InputRequired(_) => panic!("it asks nothing"),
                ExchangeEvent::Done(end) => break end,
            }
        };
        assert!(end.is_ok() && (20..=30).contains(&told), "{told}");
        let dropped = upstream.context.metrics.dropped.with_label_values(&["call_notification"]).get();
        assert_eq!(dropped + told, 40);
    }

    #[test]
    fn only_transport_faults_count_against_a_server() {
        let with = |reason, again| Err(Error { retryable: again, ..Error::new(reason, "why") });
        let answered = |code| RpcError { code, message: "no".into(), data: None };
        let good = [
            Ok(Outcome::from_result(JsonObject::new())),
            with(McpErrorKind::ServerError(answered(-32602)), Retryable::No),
        ];
        for end in good {
            assert_eq!(classify(&end, false, false), CallClass::Success);
        }
        let wait = Some(Duration::from_secs(2));
        let fault = |wait| CallClass::Failure("why".to_owned(), wait);
        assert_eq!(classify(&with(McpErrorKind::ServerRefused, Retryable::After(wait)), false, false), fault(wait));
        assert_eq!(
            classify(&with(McpErrorKind::ServerRefused, Retryable::After(wait)), false, true),
            CallClass::Ignored
        );
        assert_eq!(classify(&with(McpErrorKind::ServerRefused, Retryable::No), false, false), CallClass::Ignored);
        assert_eq!(classify(&with(McpErrorKind::ServerTimeout, Retryable::No), true, false), fault(None));
        assert_eq!(classify(&with(McpErrorKind::ServerDown, Retryable::NotSent), false, false), fault(None));
        assert_eq!(classify(&with(McpErrorKind::ServerDown, Retryable::After(None)), true, false), CallClass::Ignored);
        for reason in [
            McpErrorKind::Cancelled,
            McpErrorKind::InvalidParams,
            McpErrorKind::Overloaded,
            McpErrorKind::ServerProtocol,
        ] {
            assert_eq!(classify(&with(reason, Retryable::No), false, false), CallClass::Ignored);
        }
    }
}
