//! The seam between [`AuthMethods`](super::AuthMethods) and methods that other crates implement.
//!
//! Owns how such methods follow the config. Does not know any of them. Invariant: each version of
//! the config has its own methods, so a preview changes none that is in use.

use std::sync::Arc;

use crate::auth::{AuthSettings, Authenticator, PrincipalTable};

/// Source of methods whose settings are described in the config, but which are implemented above
/// this crate.
pub trait MethodSource: Send + Sync {
    /// Creates the methods for these settings. They intern their principals in this table. A
    /// preview creates some, too, so nothing of the methods in use may change here.
    fn methods(
        &self,
        settings: &AuthSettings,
        principals: &Arc<PrincipalTable>,
    ) -> Vec<Arc<dyn Authenticator>>;
}
