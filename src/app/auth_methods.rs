//! Authentication methods of a running gateway, including access tokens.
//!
//! Owns the order in which sources of methods are asked. Does not verify tokens (`moongate_tokens`,
//! `moongate_broker`) or open the secrets of people (`broker_parts.rs`). Invariant: a reload asks
//! the sources of the start.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::app::broker_parts::PeopleLogins;
use crate::app::login_parts::LoginParts;
use moongate_access::auth::{
    AuthMethods, AuthSettings, Authenticator, MethodSource, PrincipalTable,
};
use moongate_access::policy::AccessTable;
use moongate_broker::BrokerMethodSource;
use moongate_config::Plan;
use moongate_tokens::TokenMethodSource;

/// Sources of methods, in the order in which these are asked.
struct MethodSources(Vec<Arc<dyn MethodSource>>);

impl MethodSource for MethodSources {
    fn methods(
        &self,
        settings: &AuthSettings,
        principals: &Arc<PrincipalTable>,
    ) -> Vec<Arc<dyn Authenticator>> {
        let sources = self.0.iter();
        sources
            .flat_map(|source| source.methods(settings, principals))
            .collect()
    }
}

/// Creates the methods of a gateway with listeners at these addresses, and the table of what each
/// role may use.
pub(super) fn open_methods(
    plan: &Plan,
    login: &LoginParts,
    own: Vec<SocketAddr>,
    people: &PeopleLogins,
) -> (Arc<AuthMethods>, AccessTable) {
    login.principals.set_people_max(plan.limits.principals);
    let tokens = TokenMethodSource::new(own, &people.person_secret());
    let mut sources: Vec<Arc<dyn MethodSource>> = vec![Arc::new(tokens)];
    if let Some(broker) = &people.broker {
        sources.push(Arc::new(BrokerMethodSource(broker.clone())));
    }
    AuthMethods::with_source(
        login.principals.clone(),
        login.methods.clone(),
        Some(Arc::new(MethodSources(sources))),
        &plan.auth,
    )
}
