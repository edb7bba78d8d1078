//! Objects of the admin API, as Rust types. Owns their members. Does not make them (`moongate_admin`) or show them.
//!
//! Invariant: each object is declared once, and is written, read, compared and drawn as that type.

mod call_row;
mod server_status;
mod session_row;

pub use call_row::{CallError, CallList, CallRow, ClientName};
pub use server_status::{
    CallCounts, EntrySource, GatewayStatus, LastError, PendingReplacement, ServerCondition, ServerCounters,
    ServerFindings, ServerIdentity, ServerStatus, ServerVersion, SharedConnection, StatusHint, ToolOwner,
};
pub use session_row::{SessionList, SessionRow, StatelessClient};
