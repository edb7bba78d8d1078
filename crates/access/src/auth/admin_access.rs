//! Admin keys with their roles, and access to the metrics.
//!
//! Owns these settings, and how a request's key is compared with the configured ones. Does not
//! decide which route needs which role (`moongate_admin`). Invariant: client keys never open the
//! admin listener, and admin keys never open the gateway.

use http::HeaderMap;

use crate::auth::api_keys::bearer;
use crate::auth::authenticator::AuthError;
use crate::auth::named_key::KeyHash;

/// Access to the admin listener, as the config has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdminAccess {
    /// Keys of operators. Empty: loopback needs no key, and other addresses get almost nothing.
    pub keys: Vec<AdminKey>,
    /// Access to `/metrics`.
    pub metrics: MetricsAccess,
}

/// Named key of an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminKey {
    /// Name in messages.
    pub name: String,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Role that the key gives.
    pub role: AdminRole,
}

/// Role of an operator. The later role includes the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminRole {
    /// Reads the status.
    View,
    /// Also changes what runs.
    Operate,
}

/// Access to `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// No key is needed: scrapers often send none.
    #[default]
    Open,
    /// Any admin key.
    Key,
}

impl AdminRole {
    /// Parses the name in the config.
    pub fn parse(name: &str) -> Option<AdminRole> {
        let roles = [AdminRole::View, AdminRole::Operate];
        roles.into_iter().find(|role| role.name() == name)
    }

    /// Returns the name in the config.
    pub fn name(self) -> &'static str {
        match self {
            AdminRole::View => "view",
            AdminRole::Operate => "operate",
        }
    }
}

impl AdminAccess {
    /// Finds a key by its hash.
    pub fn find(&self, hash: &KeyHash) -> Option<&AdminKey> {
        // Every key is compared, in constant time, so the time does not reveal a near match.
        self.keys.iter().fold(None, |found, key| {
            if key.hash.matches(hash) {
                Some(key)
            } else {
                found
            }
        })
    }
}

/// Returns the hash of the key that a request carries in `Authorization: Bearer`.
pub fn bearer_hash(headers: &HeaderMap) -> Result<KeyHash, AuthError> {
    Ok(KeyHash::of(bearer(headers)?.ok_or(AuthError::Missing)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::api_keys::UNKNOWN_KEY;

    fn key(name: &str, role: AdminRole) -> AdminKey {
        AdminKey {
            name: name.to_owned(),
            hash: KeyHash::of(name),
            role,
        }
    }

    /// Returns the role of a request with this header.
    fn role_of(
        access: &AdminAccess,
        header: &'static str,
        value: &str,
    ) -> Result<AdminRole, AuthError> {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static(header),
            value.parse().unwrap(),
        )]);
        let hash = bearer_hash(&headers)?;
        access.find(&hash).map(|key| key.role).ok_or(UNKNOWN_KEY)
    }

    #[test]
    fn a_key_has_its_role_and_comes_as_bearer_only() {
        let keys = vec![
            key("viewer", AdminRole::View),
            key("operator", AdminRole::Operate),
        ];
        let access = AdminAccess {
            keys,
            metrics: MetricsAccess::Open,
        };
        assert_eq!(
            role_of(&access, "authorization", "Bearer viewer"),
            Ok(AdminRole::View)
        );
        assert_eq!(
            role_of(&access, "authorization", "bearer operator"),
            Ok(AdminRole::Operate)
        );
        for wrong in [
            "Bearer viewe",
            "Bearer viewer2",
            "Bearer",
            "Bearer ",
            "Basic viewer",
            "viewer",
        ] {
            assert!(
                matches!(
                    role_of(&access, "authorization", wrong),
                    Err(AuthError::Invalid(_))
                ),
                "{wrong}"
            );
        }
        assert_eq!(
            role_of(&access, "x-api-key", "operator"),
            Err(AuthError::Missing)
        );
        assert!(AdminRole::View < AdminRole::Operate);
    }
}
