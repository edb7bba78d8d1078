//! Retry policy of calls, with a budget for each server. Owns the decision and the delay. Does not
//! send (`call`). Invariant: a call that may have run is retried only if it is read-only or
//! idempotent. Retries that may reach the server twice are at most a tenth of its successful calls,
//! plus five.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::call::circuit_breaker::OPEN_TIME_MAX;
use moongate_jsonrpc::json::JsonObject;
use moongate_model::{Call, Caller, Error, McpMethod, Retryable, TaskMethod};

/// Delay before a retry if the server named none.
pub(crate) const DEFAULT_DELAY: Duration = Duration::from_millis(100);
/// Deposit of each successful call, in hundredths of a retry.
// Ten successes pay for one retry: retries add a tenth to the load of a failing server at most.
const DEPOSIT: u32 = 10;
/// Largest balance, in hundredths of a retry.
const BALANCE_MAX: u32 = 1000;
// Five retries, so that the first calls of a process can be retried, too.
const BALANCE_START: u32 = 500;

/// Call that may be retried.
pub(crate) struct RetryableCall {
    pub(crate) caller: Arc<Caller>,
    pub(crate) call: Call,
    /// Retries left.
    attempts_left: u32,
}

/// Budget of retries of one server.
pub(crate) struct RetryBudget(Mutex<u32>);

/// Decision after a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RetryDecision {
    /// No retry.
    No,
    /// A retry was allowed, but the budget is used up.
    OverBudget,
    /// Retry after this time.
    After(Duration),
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget(Mutex::new(BALANCE_START))
    }
}

impl RetryBudget {
    /// Deposits for a successful call.
    pub(crate) fn deposit(&self) {
        let mut hundredths = self.0.lock();
        *hundredths = (*hundredths + DEPOSIT).min(BALANCE_MAX);
    }

    fn withdraw(&self) -> bool {
        let mut hundredths = self.0.lock();
        let enough = *hundredths >= 100;
        if enough {
            *hundredths -= 100;
        }
        enough
    }
}

impl RetryableCall {
    /// Copies the call, if it can be retried at all.
    pub(crate) fn of(
        caller: &Arc<Caller>,
        call: &Call,
        attempts: u32,
    ) -> Option<Box<RetryableCall>> {
        let left = attempts.checked_sub(1).filter(|left| *left > 0)?;
        let call = call.clone_for_retry()?;
        Some(Box::new(RetryableCall {
            caller: caller.clone(),
            call,
            attempts_left: left,
        }))
    }

    /// Decides whether to retry after this failure. A retry must start before `deadline`.
    pub(crate) fn decide(
        &mut self,
        error: &Error,
        budget: &RetryBudget,
        deadline: Instant,
    ) -> RetryDecision {
        if self.attempts_left == 0 {
            return RetryDecision::No;
        }
        let wait = match error.retryable {
            Retryable::No => return RetryDecision::No,
            Retryable::NotSent => None,
            Retryable::After(_) if !is_safe(&self.call) => return RetryDecision::No,
            Retryable::After(wait) => wait,
        };
        // Jitter keeps calls that failed together from returning together.
        let byte: [u8; 1] = moongate_random::random_bytes();
        let delay = DEFAULT_DELAY
            .mul_f64(0.5 + f64::from(byte[0]) / 255.0)
            .max(wait.unwrap_or_default());
        // A retry that cannot start in time would only hide the error.
        if delay > OPEN_TIME_MAX || Instant::now() + delay >= deadline {
            return RetryDecision::No;
        }
        // A request that never reached the server costs it nothing.
        if error.retryable != Retryable::NotSent && !budget.withdraw() {
            return RetryDecision::OverBudget;
        }
        self.attempts_left -= 1;
        RetryDecision::After(delay)
    }
}

/// Returns true if a call that may have run can be repeated: it only reads, or it is idempotent.
///
/// 2025-11-25/schema.ts, ToolAnnotations: `readOnlyHint`: "If true, the tool does not modify its
/// environment." `idempotentHint`: "If true, calling the tool repeatedly with the same arguments
/// will have no additional effect on its environment." Both hints are the server's own promise
/// about its own environment.
fn is_safe(call: &Call) -> bool {
    match &call.method {
        McpMethod::List(_)
        | McpMethod::ReadResource
        | McpMethod::GetPrompt
        | McpMethod::Complete => true,
        McpMethod::Task(task) => matches!(task, TaskMethod::Get | TaskMethod::List),
        McpMethod::CallTool => {
            let hints = call
                .definition
                .as_ref()
                .and_then(|tool| tool.get_object("annotations"));
            hints.is_some_and(|hints| {
                is_hinted(&hints, "readOnlyHint") || is_hinted(&hints, "idempotentHint")
            })
        }
        // Nothing is known of such a method, so that it may change something.
        McpMethod::Other(_) => false,
    }
}

fn is_hinted(hints: &JsonObject, hint: &str) -> bool {
    hints
        .get(hint)
        .is_some_and(|value| value.bytes() == &b"true"[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_model::McpErrorKind;
    use moongate_testing as testing;

    fn error(again: Retryable) -> Error {
        Error {
            retryable: again,
            ..Error::new(McpErrorKind::ServerRefused, "HTTP status 503")
        }
    }

    fn retry_after(seconds: u64) -> Error {
        error(Retryable::After(Some(Duration::from_secs(seconds))))
    }

    fn tool(annotations: &str) -> Call {
        let definition = format!(r#"{{"name":"t","annotations":{annotations}}}"#);
        let definition = moongate_jsonrpc::json::RawJson::parse(definition.into())
            .unwrap()
            .as_object()
            .unwrap();
        Call {
            definition: Some(Arc::new(definition)),
            ..Call::new(McpMethod::CallTool, JsonObject::new())
        }
    }

    fn decide_retry(call: &Call, error: &Error, budget: &RetryBudget) -> RetryDecision {
        let mut spare = RetryableCall::of(&testing::caller(1, None), call, 2).unwrap();
        spare.decide(error, budget, Instant::now() + Duration::from_secs(60))
    }

    fn is_retried(decision: RetryDecision) -> bool {
        matches!(decision, RetryDecision::After(_))
    }

    fn made_again(call: &Call, error: &Error) -> bool {
        is_retried(decide_retry(call, error, &RetryBudget::default()))
    }

    #[tokio::test]
    async fn only_what_is_safe_is_made_again() {
        let later = error(Retryable::After(None));
        for method in [
            McpMethod::ReadResource,
            McpMethod::GetPrompt,
            McpMethod::Complete,
        ] {
            assert!(made_again(&Call::new(method, JsonObject::new()), &later));
        }
        assert!(!made_again(
            &Call::for_task(TaskMethod::Cancel, "1"),
            &later
        ));
        assert!(made_again(&tool(r#"{"readOnlyHint":true}"#), &later));
        assert!(made_again(
            &tool(r#"{"readOnlyHint":false,"idempotentHint": true}"#),
            &later
        ));
        // Neither absent nor malformed hints make a call safe.
        for hints in [
            "{}",
            "null",
            r#"{"readOnlyHint":"true"}"#,
            r#"{"idempotentHint":false}"#,
            r#"{"destructiveHint":false}"#,
        ] {
            assert!(!made_again(&tool(hints), &later), "{hints}");
            assert!(
                made_again(&tool(hints), &error(Retryable::NotSent)),
                "{hints}: it never left"
            );
        }
        assert!(!made_again(
            &Call::new(McpMethod::ReadResource, JsonObject::new()),
            &error(Retryable::No)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn within_its_own_time_and_as_often_as_the_setting_says() {
        let read = Call::new(McpMethod::ReadResource, JsonObject::new());
        let caller = testing::caller(1, None);
        assert!(
            RetryableCall::of(&caller, &read, 1).is_none(),
            "it is switched off"
        );
        let mut spare = RetryableCall::of(&caller, &read, 3).unwrap();
        let budget = RetryBudget::default();
        let deadline = Instant::now() + Duration::from_secs(5);
        assert_eq!(
            spare.decide(&retry_after(6), &budget, deadline),
            RetryDecision::No,
            "its time would be over"
        );
        assert_eq!(
            spare.decide(&retry_after(2), &budget, deadline),
            RetryDecision::After(Duration::from_secs(2))
        );
        assert!(is_retried(spare.decide(&retry_after(0), &budget, deadline)));
        assert_eq!(
            spare.decide(&retry_after(0), &budget, deadline),
            RetryDecision::No,
            "three attempts"
        );
    }

    #[tokio::test]
    async fn a_tenth_of_the_calls_at_most() {
        let budget = RetryBudget::default();
        let read = Call::new(McpMethod::ReadResource, JsonObject::new());
        let mut retries = 0;
        for n in 0..1000 {
            // Every other call fails.
            if n % 2 == 0 {
                budget.deposit();
            } else if is_retried(decide_retry(&read, &error(Retryable::After(None)), &budget)) {
                retries += 1;
            }
        }
        assert!((40..=100).contains(&retries), "{retries}");
        // Uses up the rest of the balance.
        while decide_retry(&read, &error(Retryable::After(None)), &budget)
            != RetryDecision::OverBudget
        {}
        assert!(
            is_retried(decide_retry(&read, &error(Retryable::NotSent), &budget)),
            "that costs the server nothing"
        );
    }
}
