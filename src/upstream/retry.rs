//! Which calls are made again, how often and when.
//!
//! Owns that decision and the budget for it. Does not send. Invariant: a call that may have run is made again only where
//! running it twice is as good as once, and a server that fails gets no more than a tenth of its calls (and five) again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::{Again, Call, Caller, Error, Method, TaskMethod};
use crate::random;
use crate::upstream::breaker::WAIT_MAX;

/// Before a call is made again where its server did not say when.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// What each good call adds to the budget, in hundredths of a retry.
const EARNED: u32 = 10;
/// What can be saved, and what a server begins with, in hundredths of a retry.
const SAVED: u32 = 1000;
const FIRST: u32 = 500;

/// A call that may be made again, as it was.
pub(super) struct Spare {
    pub(super) caller: Arc<Caller>,
    pub(super) call: Call,
    /// How often.
    left: u32,
}

/// What a server's retries may cost it.
pub(super) struct Budget(Mutex<u32>);

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Decision {
    /// It is the end.
    No,
    /// It would be made again, but for the budget.
    Spent,
    /// It is made again after this time.
    After(Duration),
}

impl Default for Budget {
    fn default() -> Self {
        Budget(Mutex::new(FIRST))
    }
}

impl Budget {
    /// A call went well.
    pub(super) fn earn(&self) {
        let mut hundredths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *hundredths = (*hundredths + EARNED).min(SAVED);
    }

    fn spend(&self) -> bool {
        let mut hundredths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = *hundredths >= 100;
        if enough {
            *hundredths -= 100;
        }
        enough
    }
}

impl Spare {
    /// A copy of the call, if it can be made again at all.
    pub(super) fn of(caller: &Arc<Caller>, call: &Call, attempts: u32) -> Option<Box<Spare>> {
        let left = attempts.checked_sub(1).filter(|left| *left > 0)?;
        let call = call.again()?;
        Some(Box::new(Spare { caller: caller.clone(), call, left }))
    }

    /// Whether the call is made again after this failure, in its own time: until `deadline`.
    pub(super) fn decide(&mut self, error: &Error, budget: &Budget, deadline: Instant) -> Decision {
        if self.left == 0 {
            return Decision::No;
        }
        let wait = match error.again {
            Again::No => return Decision::No,
            Again::Unsent => None,
            Again::Later(_) if !is_safe(&self.call) => return Decision::No,
            Again::Later(wait) => wait,
        };
        let byte: [u8; 1] = random::bytes();
        let pause = PAUSE.mul_f64(0.5 + f64::from(byte[0]) / 255.0).max(wait.unwrap_or_default());
        if pause > WAIT_MAX || Instant::now() + pause >= deadline {
            return Decision::No;
        }
        // What never reached the server costs it nothing.
        if error.again != Again::Unsent && !budget.spend() {
            return Decision::Spent;
        }
        self.left -= 1;
        Decision::After(pause)
    }
}

/// Whether a call that may have run can be made again: it only reads, or twice is as good as once.
///
/// 2025-11-25/schema.ts, ToolAnnotations: `readOnlyHint`: "If true, the tool does not modify its environment."
/// `idempotentHint`: "If true, calling the tool repeatedly with the same arguments will have no additional effect on its
/// environment." Both are the server's word, and it is the server's environment.
fn is_safe(call: &Call) -> bool {
    match &call.method {
        Method::List(_) | Method::ReadResource | Method::GetPrompt | Method::Complete => true,
        Method::Task(task) => matches!(task, TaskMethod::State | TaskMethod::List),
        Method::CallTool => {
            let hints = call.definition.as_ref().and_then(|tool| tool.object("annotations"));
            hints.is_some_and(|hints| {
                let says = |hint| hints.get(hint).is_some_and(|value| value.bytes() == &b"true"[..]);
                says("readOnlyHint") || says("idempotentHint")
            })
        }
        Method::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Object;
    use crate::model::{Reason, testing};

    fn error(again: Again) -> Error {
        Error { again, ..Error::new(Reason::ServerRefused, "HTTP status 503") }
    }

    fn tool(annotations: &str) -> Call {
        let definition = format!(r#"{{"name":"t","annotations":{annotations}}}"#);
        let definition = crate::json::Raw::parse(definition.into()).unwrap().as_object().unwrap();
        Call { definition: Some(Arc::new(definition)), ..Call::new(Method::CallTool, Object::new()) }
    }

    fn again(call: &Call, error: &Error, budget: &Budget) -> Decision {
        let mut spare = Spare::of(&testing::caller(1, None), call, 2).unwrap();
        spare.decide(error, budget, Instant::now() + Duration::from_secs(60))
    }

    fn is_again(decision: Decision) -> bool {
        matches!(decision, Decision::After(_))
    }

    #[tokio::test]
    async fn only_what_is_safe_is_made_again() {
        let later = error(Again::Later(None));
        let made_again = |call: &Call, error: &Error| is_again(again(call, error, &Budget::default()));
        for method in [Method::ReadResource, Method::GetPrompt, Method::Complete] {
            assert!(made_again(&Call::new(method, Object::new()), &later));
        }
        assert!(!made_again(&Call::of_task(TaskMethod::Cancel, "1"), &later));
        assert!(made_again(&tool(r#"{"readOnlyHint":true}"#), &later));
        assert!(made_again(&tool(r#"{"readOnlyHint":false,"idempotentHint": true}"#), &later));
        for hints in
            ["{}", "null", r#"{"readOnlyHint":"true"}"#, r#"{"idempotentHint":false}"#, r#"{"destructiveHint":false}"#]
        {
            assert!(!made_again(&tool(hints), &later), "{hints}");
            assert!(made_again(&tool(hints), &error(Again::Unsent)), "{hints}: it never left");
        }
        assert!(!made_again(&Call::new(Method::ReadResource, Object::new()), &error(Again::No)));
    }

    #[tokio::test(start_paused = true)]
    async fn within_its_own_time_and_as_often_as_the_setting_says() {
        let read = Call::new(Method::ReadResource, Object::new());
        let caller = testing::caller(1, None);
        assert!(Spare::of(&caller, &read, 1).is_none(), "it is switched off");
        let mut spare = Spare::of(&caller, &read, 3).unwrap();
        let (budget, deadline) = (Budget::default(), Instant::now() + Duration::from_secs(5));
        let asked = |seconds| error(Again::Later(Some(Duration::from_secs(seconds))));
        assert_eq!(spare.decide(&asked(6), &budget, deadline), Decision::No, "its time would be over");
        assert_eq!(spare.decide(&asked(2), &budget, deadline), Decision::After(Duration::from_secs(2)));
        assert!(is_again(spare.decide(&asked(0), &budget, deadline)));
        assert_eq!(spare.decide(&asked(0), &budget, deadline), Decision::No, "three attempts");
    }

    #[tokio::test]
    async fn a_tenth_of_the_calls_at_most() {
        let budget = Budget::default();
        let read = Call::new(Method::ReadResource, Object::new());
        let mut retries = 0;
        for n in 0..1000 {
            // Every other call fails.
            if n % 2 == 0 {
                budget.earn();
            } else if is_again(again(&read, &error(Again::Later(None)), &budget)) {
                retries += 1;
            }
        }
        assert!((40..=100).contains(&retries), "{retries}");
        while again(&read, &error(Again::Later(None)), &budget) != Decision::Spent {}
        assert!(is_again(again(&read, &error(Again::Unsent), &budget)), "that costs the server nothing");
    }
}
