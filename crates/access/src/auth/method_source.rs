//! The seam between [`AuthMethods`](super::AuthMethods) and methods that other crates implement.
//!
//! Owns how such methods follow the config. Does not know any of them. Invariant: each version of
//! the config has its own methods, so a preview never changes those in use.

use std::sync::Arc;

use crate::auth::auth_settings::AuthSettings;
use crate::auth::authenticator::Authenticator;
use crate::auth::principal_table::PrincipalTable;

/// Source of methods that the config sets up but that crates above this one implement.
pub trait MethodSource: Send + Sync {
    /// Creates the methods for these settings. They intern their principals in this table. A
    /// preview creates some, too, so this must not change the methods in use.
    fn methods(
        &self,
        settings: &AuthSettings,
        principals: &Arc<PrincipalTable>,
    ) -> Vec<Arc<dyn Authenticator>>;
}
