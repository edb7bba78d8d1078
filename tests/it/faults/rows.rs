//! The faults that a gateway must stand, what ours does about each, and the tests that show it.
//!
//! The numbers are the project's fault matrix. A test that is new is named in its row; a row
//! without one says why.

mod clients;
mod machine;
mod servers;

use super::fault_row::FaultRow;

/// All rows, in order.
pub(crate) fn rows() -> impl Iterator<Item = &'static FaultRow> {
    [servers::SERVERS, clients::CLIENTS, machine::MACHINE]
        .into_iter()
        .flatten()
}
