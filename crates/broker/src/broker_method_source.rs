//! Source of the broker's method, which makes a method for each version of the config.
//!
//! Decides if the config has one. Does not authenticate (`broker_method.rs`). Invariant: without
//! `[auth.oauth]` there is no method, so OAuth is invisible.

use std::sync::Arc;

use moongate_access::auth::{AuthSettings, Authenticator, MethodSource, PrincipalTable};

use crate::broker::Broker;
use crate::broker_method::BrokerMethod;

/// Source of the method for the broker's access tokens.
pub struct BrokerMethodSource(pub Arc<Broker>);

impl MethodSource for BrokerMethodSource {
    fn methods(
        &self,
        settings: &AuthSettings,
        principals: &Arc<PrincipalTable>,
    ) -> Vec<Arc<dyn Authenticator>> {
        let method = settings.broker.as_ref().map(|_| {
            Arc::new(BrokerMethod {
                broker: self.0.clone(),
                matches: settings.matches.clone(),
                principals: principals.clone(),
            }) as Arc<dyn Authenticator>
        });
        method.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_broker::TestBroker;

    #[tokio::test]
    async fn there_is_a_method_only_with_a_broker_in_the_config() {
        let test = TestBroker::in_memory();
        let source = BrokerMethodSource(test.broker.clone());
        let with_broker = test.auth_settings();
        assert_eq!(source.methods(&with_broker, &test.principals).len(), 1);
        let without = AuthSettings::default();
        assert!(source.methods(&without, &test.principals).is_empty());
    }
}
