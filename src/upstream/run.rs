//! One call at a server, from its start to its end: a slot, a connection, and another attempt where that is allowed.
//!
//! Owns what the call holds meanwhile. Does not spell it (`revision`). Invariant: a call is made again only before
//! anything was heard of it, and its client hears of one attempt.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;

use crate::model::{Again, Caller, Error, Event, Exchange, Notice, Outcome, Reason};
use crate::upstream::breaker::{Pass, Verdict};
use crate::upstream::change::InCall;
use crate::upstream::connections::Held;
use crate::upstream::need::Needed;
use crate::upstream::notification_quota::NotificationQuota;
use crate::upstream::retry::{Decision, Spare};
use crate::upstream::slots::Slot;

/// A shorter wait for a turn is no part of an explanation.
const QUEUED: Duration = Duration::from_millis(100);

/// A call that has what it needs.
pub(super) struct Begun {
    pub(super) exchange: Exchange,
    pub(super) held: Held,
    pub(super) is_pipe: bool,
    pub(super) revision: &'static str,
    /// How long the call waited for its turn.
    pub(super) queued: Duration,
    pub(super) slot: Option<Slot>,
    pub(super) pass: Pass,
}

/// A call in progress.
pub(super) struct Run {
    pub(super) upstream: InCall,
    pub(super) step: Step,
    pub(super) slot: Option<Slot>,
    pub(super) pass: Option<Pass>,
    pub(super) held: Held,
    pub(super) is_pipe: bool,
    /// The revision that its connection speaks; empty before there is one.
    pub(super) revision: &'static str,
    /// How long it waited for its turn.
    pub(super) queued: Duration,
    /// To make it again.
    pub(super) spare: Option<Box<Spare>>,
    /// Whether its client brought credentials of its own: what the server's host says of those is about nobody else.
    pub(super) own_credentials: bool,
    pub(super) deadline: Instant,
    pub(super) quota: NotificationQuota,
    /// Keeps a server up that is started on use.
    pub(super) needed: Option<Needed>,
}

/// A call at a server.
pub struct ServerCall(Begins);

/// Most calls run; one that may not be sent is over before.
enum Begins {
    Refused(Option<Error>),
    Running(Box<Run>),
}

impl ServerCall {
    pub(super) fn refused(error: Error) -> Self {
        ServerCall(Begins::Refused(Some(error)))
    }

    pub(super) fn running(run: Run) -> Self {
        ServerCall(Begins::Running(Box::new(run)))
    }

    /// The revision that its server is spoken to in; empty as long as no connection was found for it.
    pub fn revision(&self) -> &'static str {
        match &self.0 {
            Begins::Refused(_) => "",
            Begins::Running(run) => run.revision,
        }
    }
}

impl Stream for ServerCall {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        match &mut self.get_mut().0 {
            Begins::Refused(error) => Poll::Ready(error.take().map(|error| Event::Done(Err(error)))),
            Begins::Running(run) => run.poll_next_unpin(cx),
        }
    }
}

/// Where it is.
pub(super) enum Step {
    Starting(BoxFuture<'static, Result<Begun, Error>>),
    Running(Exchange),
    Over,
}

impl Stream for Run {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self.get_mut();
        loop {
            match &mut this.step {
                Step::Over => return Poll::Ready(None),
                Step::Starting(start) => match ready!(start.poll_unpin(cx)) {
                    Ok(begun) => this.begin(begun),
                    Err(error) => {
                        this.end();
                        return Poll::Ready(Some(Event::Done(Err(error))));
                    }
                },
                Step::Running(exchange) => {
                    let Some(event) = ready!(exchange.poll_next_unpin(cx)) else {
                        this.end();
                        return Poll::Ready(None);
                    };
                    if let Some(event) = this.happened(event) {
                        return Poll::Ready(Some(event));
                    }
                }
            }
        }
    }
}

impl Run {
    fn begin(&mut self, begun: Begun) {
        let Begun { exchange, held, is_pipe, revision, queued, slot, pass } = begun;
        (self.step, self.held, self.is_pipe) = (Step::Running(exchange), held, is_pipe);
        self.revision = revision;
        self.queued += queued;
        (self.slot, self.pass) = (slot, Some(pass));
    }

    fn end(&mut self) {
        (self.step, self.slot, self.pass, self.spare) = (Step::Over, None, None, None);
        self.held = Held::default();
        self.needed = None;
    }

    fn happened(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Notify(notice) => {
                self.spare = None;
                return self.admit(&notice).then_some(Event::Notify(notice));
            }
            // A user's time is no load on the server: a call that waits for an answer keeps nobody out, and goes on
            // afterwards without another turn.
            Event::Ask(_) => (self.spare, self.slot) = (None, None),
            Event::Done(end) => {
                self.learn(&end);
                if let Err(error) = &end
                    && self.again(error)
                {
                    return None;
                }
                self.end();
                return Some(Event::Done(end.map_err(|error| self.with_queue(error))));
            }
        }
        Some(event)
    }

    /// Whether a notification is within what one call may have.
    fn admit(&mut self, notice: &Notice) -> bool {
        let (upstream, size) = (&self.upstream, notice.size_hint());
        let admitted = self.quota.admit(size, upstream.live.load().max_notifications, Instant::now());
        if !admitted {
            upstream.shared.metrics.dropped.with_label_values(&["call_notification"]).inc();
        }
        admitted
    }

    /// A call that ran out of time, and had waited for its turn, says so: the server may have had little of that time.
    fn with_queue(&self, mut error: Error) -> Error {
        if error.reason == Reason::ServerTimeout && self.queued >= QUEUED {
            let (name, queued) = (&self.upstream.settings.name, self.queued.as_secs_f64());
            let max = self.upstream.live().max_concurrency;
            error.message = format!(
                "{}; for {queued:.1} s of that it waited for its turn (servers.{name}.max_concurrency = {max})",
                error.message
            )
            .into();
        }
        error
    }

    /// What the end shows of the server.
    fn learn(&mut self, end: &Result<Outcome, Error>) {
        let upstream = &self.upstream;
        let verdict = verdict(end, self.is_pipe, self.own_credentials);
        if verdict == Verdict::Good && self.spare.is_some() {
            upstream.budget.earn();
        }
        upstream.breaker.record(verdict, &self.pass.take().unwrap_or_default());
        match end {
            Err(error) if error.reason == Reason::ServerDown => upstream.suspect.notify_one(),
            // Perhaps it is that call alone that may not be made, or credentials of ours that are no longer good.
            Err(error) if is_refused(error) && !self.own_credentials => upstream.refused.notify_one(),
            Ok(Outcome { task: Some(task), .. }) => {
                if self.needed.is_some() {
                    upstream.need.task(task);
                }
                self.held.task(task);
            }
            _ => {}
        }
    }

    /// Starts another attempt, if there may be one.
    fn again(&mut self, error: &Error) -> bool {
        let Some(mut spare) = self.spare.take() else { return false };
        let upstream = Arc::clone(&self.upstream);
        let name = upstream.settings.name.as_str();
        let count = |outcome: &str| upstream.shared.metrics.retries.with_label_values(&[name, outcome]).inc();
        let pause = match spare.decide(error, &upstream.budget, self.deadline) {
            Decision::No => return false,
            Decision::Spent => {
                count("over_budget");
                return false;
            }
            Decision::After(pause) => pause,
        };
        count("sent");
        let Some(call) = spare.call.again() else { return false };
        let caller: Arc<Caller> = spare.caller.clone();
        self.spare = Some(spare);
        self.held = Held::default();
        let (slot, deadline) = (self.slot.take(), self.deadline);
        self.step = Step::Starting(Box::pin(async move {
            tokio::time::sleep(pause).await;
            let pass = upstream.admit()?;
            upstream.begin(&caller, call, slot, pass, deadline).await
        }));
        true
    }
}

/// Whether the host refused, and would again: its credentials, its path, its method.
pub(super) fn is_refused(error: &Error) -> bool {
    error.reason == Reason::ServerRefused && error.again == Again::No
}

/// What the end of a call shows of its server as a whole.
fn verdict(end: &Result<Outcome, Error>, is_pipe: bool, own_credentials: bool) -> Verdict {
    let Err(error) = end else { return Verdict::Good };
    let fault = |wait| Verdict::Fault(error.message.to_string(), wait);
    match (&error.reason, error.again) {
        (Reason::Answered(_), _) => Verdict::Good,
        // A pipe that ends is opened anew, which has its own pauses.
        (Reason::ServerDown, _) if is_pipe => Verdict::Nothing,
        (Reason::ServerDown | Reason::ServerTimeout, _) => fault(None),
        (Reason::ServerRefused, Again::Later(wait)) if !own_credentials => fault(wait),
        _ => Verdict::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::{Object, Raw};
    use crate::jsonrpc::RpcError;
    use crate::model::{Call, LogWish, Method, testing};
    use crate::upstream::testing::{dialing, settings};
    use crate::upstream::{ServerSettings, State, Upstream};

    #[tokio::test(start_paused = true)]
    async fn the_notifications_of_a_call_are_bounded_and_its_answer_comes() {
        let few = ServerSettings { max_notifications: 10_000, ..settings() };
        let shared = dialing(|talk, message| {
            if message["method"] != "tools/call" {
                talk.legacy(message);
                return;
            }
            // No more at once than a call has room for.
            for _ in 0..40 {
                let params = json!({"level": "error", "data": "x".repeat(400)});
                talk.say(json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}));
            }
            talk.answer(message, &json!({"content": []}));
        });
        let upstream = Upstream::new(few, shared, Arc::new(|_, _| {}));
        tokio::spawn(upstream.clone().run());
        upstream.watch().wait_for(|status| status.state == State::Ready).await.unwrap();
        let params = Object::new().with("name", Raw::string("t"));
        let caller = Arc::new(Caller { log: LogWish::ServerDecides, ..(*testing::caller(1, Some("s"))).clone() });
        let mut exchange = upstream.call(&caller, Call::new(Method::CallTool, params));
        let mut told = 0;
        let end = loop {
            match exchange.next_event().await {
                Event::Notify(_) => told += 1,
                Event::Ask(_) => panic!("it asks nothing"),
                Event::Done(end) => break end,
            }
        };
        assert!(end.is_ok() && (20..=30).contains(&told), "{told}");
        let dropped = upstream.shared.metrics.dropped.with_label_values(&["call_notification"]).get();
        assert_eq!(dropped + told, 40);
    }

    #[test]
    fn only_transport_faults_count_against_a_server() {
        let with = |reason, again| Err(Error { again, ..Error::new(reason, "why") });
        let answered = |code| RpcError { code, message: "no".into(), data: None };
        let good = [Ok(Outcome::of(Object::new())), with(Reason::Answered(answered(-32602)), Again::No)];
        for end in good {
            assert_eq!(verdict(&end, false, false), Verdict::Good);
        }
        let wait = Some(Duration::from_secs(2));
        let fault = |wait| Verdict::Fault("why".to_owned(), wait);
        assert_eq!(verdict(&with(Reason::ServerRefused, Again::Later(wait)), false, false), fault(wait));
        assert_eq!(verdict(&with(Reason::ServerRefused, Again::Later(wait)), false, true), Verdict::Nothing);
        assert_eq!(verdict(&with(Reason::ServerRefused, Again::No), false, false), Verdict::Nothing);
        assert_eq!(verdict(&with(Reason::ServerTimeout, Again::No), true, false), fault(None));
        assert_eq!(verdict(&with(Reason::ServerDown, Again::Unsent), false, false), fault(None));
        assert_eq!(verdict(&with(Reason::ServerDown, Again::Later(None)), true, false), Verdict::Nothing);
        for reason in [Reason::Cancelled, Reason::InvalidParams, Reason::Overloaded, Reason::ServerProtocol] {
            assert_eq!(verdict(&with(reason, Again::No), false, false), Verdict::Nothing);
        }
    }
}
