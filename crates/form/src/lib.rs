//! Forms from JSON Schemas: the mapping that the terminal and the admin page share.
//!
//! Owns which field a schema becomes. Does not show or validate anything: the server validates.
//! Invariant: the mapping ends, whatever a schema refers to, and a part that is not understood
//! becomes one field for JSON.

mod build;
mod field;
pub mod schema;

pub use build::read_form;
pub use field::{FieldChoice, FieldKind, FieldLimits, FormField};
