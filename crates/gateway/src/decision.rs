//! Rules that decide about an item, as a recorder sees them.
//!
//! Owns the names of the rules. Does not decide (`permitted.rs`). Invariant: a decision without a recorder does no more
//! than compare.

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
    /// Records what a rule says. Returns true if the decision goes on.
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
