//! Bearer tokens that the mock demands.
//!
//! Owns which tokens are good, and the challenge for all others. Does not read requests. Invariant:
//! without a rule, every request passes.

use std::sync::Arc;

use parking_lot::Mutex;

use super::script::HttpRules;

/// Check of a token. Returns true if it is good.
pub(super) type TokenCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Rule for bearer tokens, which may change while the server runs.
pub(super) struct BearerGate(Mutex<Option<BearerRule>>);

#[derive(Clone)]
struct BearerRule {
    is_good: TokenCheck,
    challenge: String,
}

impl BearerGate {
    /// Reads the rule of a script: one fixed token, or none.
    pub(super) fn of(http: &HttpRules) -> Self {
        let gate = BearerGate(Mutex::new(None));
        if let Some(bearer) = http.bearer.clone() {
            let challenge = http.challenge.clone().unwrap_or_else(|| "Bearer".into());
            gate.set(Arc::new(move |given: &str| given == bearer), challenge);
        }
        gate
    }

    /// Replaces the rule.
    pub(super) fn set(&self, is_good: TokenCheck, challenge: String) {
        *self.0.lock() = Some(BearerRule { is_good, challenge });
    }

    /// Returns the challenge for a request that this `Authorization` header does not let in.
    pub(super) fn refuse(&self, authorization: Option<&str>) -> Option<String> {
        // Copied out of the lock: the check is a test's, which may change the rule meanwhile.
        let rule = self.0.lock().clone()?;
        let given = authorization.and_then(|value| value.strip_prefix("Bearer "));
        let is_good = given.is_some_and(|token| (rule.is_good)(token));
        (!is_good).then_some(rule.challenge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_the_script_is_good_until_another_rule_comes() {
        let http = HttpRules {
            bearer: Some("one".into()),
            ..HttpRules::default()
        };
        let gate = BearerGate::of(&http);
        assert_eq!(gate.refuse(Some("Bearer one")), None);
        for wrong in [None, Some("Bearer two"), Some("one"), Some("Basic one")] {
            assert_eq!(gate.refuse(wrong).as_deref(), Some("Bearer"), "{wrong:?}");
        }
        gate.set(Arc::new(|given: &str| given == "two"), "Bearer x=1".into());
        assert_eq!(gate.refuse(Some("Bearer two")), None);
        let refused = gate.refuse(Some("Bearer one"));
        assert_eq!(refused.as_deref(), Some("Bearer x=1"));
    }

    #[test]
    fn without_a_rule_every_request_passes() {
        assert_eq!(BearerGate::of(&HttpRules::default()).refuse(None), None);
    }
}
