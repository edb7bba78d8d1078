//! One row of the fault matrix. Owns its form. Does not list the faults (`rows.rs`).

/// One fault.
pub(crate) struct FaultRow {
    /// Its number.
    pub(crate) id: &'static str,
    /// What goes wrong.
    pub(crate) fault: &'static str,
    /// What the gateway does.
    pub(crate) does: &'static str,
    /// The tests that show it.
    pub(crate) tests: &'static [&'static str],
    /// What no test shows yet, and why.
    pub(crate) lacks: &'static str,
}

pub(super) const fn row(
    id: &'static str,
    fault: &'static str,
    does: &'static str,
    tests: &'static [&'static str],
    lacks: &'static str,
) -> FaultRow {
    FaultRow {
        id,
        fault,
        does,
        tests,
        lacks,
    }
}
