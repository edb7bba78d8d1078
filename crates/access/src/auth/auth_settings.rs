//! Settings of authentication, as the config has them.
//!
//! Owns which methods are set up. Does not authenticate (`auth_methods.rs`). Invariant: a gateway
//! is open only if nothing at all asks for credentials.

use crate::auth::broker_settings::BrokerSettings;
use crate::auth::named_key::KeySettings;
use crate::auth::token_settings::{RoleMatch, TokenSettings};
use crate::policy::RoleAccess;

/// Settings of all methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthSettings {
    /// API keys.
    pub keys: Vec<KeySettings>,
    /// True if clients need a key even if none is configured.
    pub required: bool,
    /// Roles of people, for the methods that admit people.
    pub roles: Vec<RoleAccess>,
    /// People whom each of these roles is for.
    pub matches: Vec<RoleMatch>,
    /// Access tokens of the operator's own issuers, for a
    /// [`MethodSource`](crate::auth::MethodSource). `None`: none are accepted.
    pub tokens: Option<TokenSettings>,
    /// Logins of people at the gateway itself, for a [`MethodSource`](crate::auth::MethodSource).
    /// `None`: nobody can log in.
    pub broker: Option<BrokerSettings>,
}

impl AuthSettings {
    /// Returns true if no method is set up. The gateway then admits every caller, and listens on
    /// loopback only.
    pub fn is_open(&self) -> bool {
        let AuthSettings {
            keys,
            required,
            roles: _,
            matches: _,
            tokens,
            broker,
        } = self;
        keys.is_empty() && !required && tokens.is_none() && broker.is_none()
    }

    /// Returns true if people get in without a key, with a login or an access token.
    pub fn admits_people(&self) -> bool {
        self.tokens.is_some() || self.broker.is_some()
    }
}
