//! Outcome of a decision about an item, and the rules behind it as a recorder sees them.
//!
//! Owns what each outcome means, and the names of the rules. Does not decide (`permitted.rs`).
//! Invariant: a decision without a recorder does no more than compare.

/// Outcome of a decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The principal may see and use the item.
    Allow,
    /// The principal may see the item, and a person has to agree to each use.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no rule of the config asks yet")
    )]
    Ask,
    /// The item looks unknown.
    Deny,
}

impl Decision {
    /// Returns true if lists and explanations show the item.
    pub(super) fn is_visible(self) -> bool {
        match self {
            Decision::Allow | Decision::Ask => true,
            Decision::Deny => false,
        }
    }

    /// Returns what is allowed. An item that somebody has to be asked about is not, before the
    /// answer.
    pub(super) fn allowed<T>(self, item: impl FnOnce() -> T) -> Option<T> {
        match self {
            Decision::Allow => Some(item()),
            Decision::Ask | Decision::Deny => None,
        }
    }
}

/// Rule that takes part in the decision about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecisionRule {
    /// Servers of the endpoint.
    Servers,
    /// Tools of the endpoint.
    Tools,
    /// Tools of the principal.
    Principal,
}

/// Observer of a decision.
pub(super) trait DecisionRecorder {
    /// Records what a rule says. Returns true if the decision continues.
    fn record(&mut self, rule: DecisionRule, allows: bool) -> bool;
}

/// Recorder of real calls: the first refusal ends the decision.
impl DecisionRecorder for () {
    fn record(&mut self, _: DecisionRule, allows: bool) -> bool {
        allows
    }
}

/// Recorder of all rules, also those behind the first refusal.
#[derive(Default)]
pub(super) struct RecordedDecision(pub(super) Vec<(DecisionRule, bool)>);

impl DecisionRecorder for RecordedDecision {
    fn record(&mut self, rule: DecisionRule, allows: bool) -> bool {
        self.0.push((rule, allows));
        true
    }
}

impl RecordedDecision {
    /// Returns true if no rule refused.
    pub(super) fn allows(&self) -> bool {
        self.0.iter().all(|(_, allows)| *allows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_to_ask_about_is_seen_and_not_yet_allowed() {
        for (decision, visible, allowed) in [
            (Decision::Allow, true, Some(1)),
            (Decision::Ask, true, None),
            (Decision::Deny, false, None),
        ] {
            assert_eq!(decision.is_visible(), visible, "{decision:?}");
            assert_eq!(decision.allowed(|| 1), allowed, "{decision:?}");
        }
    }
}
