//! Parts of a login that the config does not describe: methods, principals, people's routes and
//! servers' credentials.
//!
//! Owns how they are joined with the logins of a plan. Does not log in (`logins/`). Invariant: the
//! default adds nothing to the config.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::app::logins::{callback_routes, open_logins};
use moongate_access::auth::{Authenticator, PrincipalTable};
use moongate_config::Plan;
use moongate_listener::PeopleRoutes;
use moongate_oauth::LoginDirectory;
use moongate_transport::credential_source::CredentialDirectory;

/// Parts of a login that the config does not describe. By default, there are none.
#[derive(Default)]
pub struct LoginParts {
    /// Principals, among which the methods intern theirs.
    pub principals: Arc<PrincipalTable>,
    /// Authentication methods, which are tried before the keys in the config.
    pub methods: Vec<Arc<dyn Authenticator>>,
    /// Routes for people on the clients' listeners.
    pub people: PeopleRoutes,
    /// Credentials for servers that are not in the config.
    pub credentials: Option<Arc<dyn CredentialDirectory>>,
}

impl LoginParts {
    /// Returns true if a gateway with this plan admits every caller.
    pub(super) fn leaves_open(&self, plan: &Plan) -> bool {
        plan.auth.is_open() && self.methods.is_empty()
    }

    /// Adds routes for people.
    pub(super) fn with_people(self, routes: PeopleRoutes) -> Self {
        LoginParts {
            people: self.people.merge(routes),
            ..self
        }
    }

    /// Adds the logins of a plan's servers, unless the credentials come from elsewhere. `own` are
    /// the gateway's listener addresses.
    pub(super) async fn with_logins_of(
        self,
        plan: &Plan,
        own: Vec<SocketAddr>,
    ) -> anyhow::Result<(Self, Option<Arc<LoginDirectory>>)> {
        if self.credentials.is_some() {
            return Ok((self, None));
        }
        let plan = plan.clone();
        let opened = tokio::task::spawn_blocking(move || open_logins(&plan, own));
        let logins = opened.await??;
        let login = LoginParts {
            people: self.people.merge(callback_routes(logins.clone())),
            credentials: Some(logins.clone()),
            ..self
        };
        Ok((login, Some(logins)))
    }
}
