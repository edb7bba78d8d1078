//! Grant from a login at a server.
//!
//! Owns the fields that a refresh needs, and when it is due. Does not store or renew grants.
//! Invariant: a grant is refreshed without discovery, by the client that it was issued to, so
//! neither changed metadata nor a later registration can break it.

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::secret_text::SecretText;

/// Fraction of a token's lifetime after which it is renewed, without jitter.
const REFRESH_SHARE: f64 = 0.8;
/// Fraction of a token's lifetime by which jitter may bring the renewal forward. It keeps processes
/// that share a login, and logins after one restart, from renewing at the same moment.
const JITTER_SHARE: f64 = 0.1;

/// Login at a server, with everything that a refresh needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoginGrant {
    /// Authorization server.
    pub issuer: Url,
    /// Its token endpoint.
    pub token_endpoint: Url,
    /// Its revocation endpoint, if it has one.
    pub revocation_endpoint: Option<Url>,
    /// Client that the tokens were issued to.
    pub client: ClientIdentity,
    /// Requested scope, which may be more than was granted.
    pub scope_asked: Option<String>,
    /// Resource that requests name. `None` for servers that refuse the parameter.
    pub resource: Option<String>,
    /// Access token.
    pub access: SecretText,
    /// Refresh token, if there is one.
    pub refresh: Option<SecretText>,
    /// Time at which the access token was obtained.
    pub obtained: Timestamp,
    /// Time at which the access token expires, if the server said so.
    pub expires: Option<Timestamp>,
    /// Number of refreshes of this login.
    pub renewal: u64,
    /// True if the authorization server refused the refresh for good. It is never tried again.
    pub ended: bool,
    /// Number of authorizations for more scope, at most 3.
    pub step_ups: u8,
}

impl LoginGrant {
    /// Computes the time of the next refresh: after 80 % of the token's lifetime, or up to a tenth
    /// of the lifetime earlier with a `jitter` from 0 to 1. `None` if only a 401 can cause one, or
    /// nothing can.
    pub fn refresh_at(&self, jitter: f64) -> Option<Timestamp> {
        let can_refresh = self.refresh.is_some() && !self.ended;
        let expires = self.expires.filter(|_| can_refresh)?;
        let life = expires.duration_since(self.obtained).as_secs_f64().max(0.0);
        let share = REFRESH_SHARE - JITTER_SHARE * jitter.clamp(0.0, 1.0);
        let wait = SignedDuration::try_from_secs_f64(life * share).ok()?;
        self.obtained.checked_add(wait).ok()
    }

    /// Builds the value of `Authorization`. `None` if no header can carry the token. The token may
    /// have expired. The sender checks that, because the clock can be set back later.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let token = self.access.expose();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return None;
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// Client that we log in as at an authorization server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// Client id.
    pub id: String,
    /// Client secret, if it has one.
    pub secret: Option<SecretText>,
    /// Method by which the client authenticates.
    pub method: ClientAuthMethod,
    /// Redirect address that it was registered with.
    pub redirect: Url,
}

/// Method by which a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuthMethod {
    /// None, only the client id.
    #[serde(rename = "none")]
    None,
    /// HTTP Basic.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// Secret in the form.
    #[serde(rename = "client_secret_post")]
    Post,
}

impl ClientAuthMethod {
    /// Chooses the method of a client with a secret, of those that a server lists.
    pub(crate) fn for_secret(listed: &[String]) -> Option<Self> {
        let lists = |method: &str| listed.iter().any(|other| other == method);
        // RFC 8414, section 2: "If omitted, the default is `client_secret_basic`".
        if listed.is_empty() || lists("client_secret_basic") {
            Some(ClientAuthMethod::Basic)
        } else if lists("client_secret_post") {
            Some(ClientAuthMethod::Post)
        } else {
            None
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn second(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    pub(crate) fn grant() -> LoginGrant {
        LoginGrant {
            issuer: url("https://auth.example.com"),
            token_endpoint: url("https://auth.example.com/token"),
            revocation_endpoint: None,
            client: ClientIdentity {
                id: "client".to_owned(),
                secret: Some(SecretText::new("hush-client")),
                method: ClientAuthMethod::Basic,
                redirect: url("http://127.0.0.1:8080/oauth/callback/abc"),
            },
            scope_asked: Some("read".to_owned()),
            resource: Some("https://mcp.example.com/mcp".to_owned()),
            access: SecretText::new("hush-access"),
            refresh: Some(SecretText::new("hush-refresh")),
            obtained: second(1_000),
            expires: Some(second(2_000)),
            renewal: 0,
            ended: false,
            step_ups: 0,
        }
    }

    #[test]
    fn a_refresh_is_due_at_80_percent_or_a_little_before() {
        let grant = grant();
        assert_eq!(grant.refresh_at(0.0), Some(second(1_800)));
        assert_eq!(grant.refresh_at(1.0), Some(second(1_700)));
        assert_eq!(grant.refresh_at(7.0), Some(second(1_700)));
        let half = grant.refresh_at(0.5).unwrap();
        assert!(half > second(1_700) && half < second(1_800), "{half}");
    }

    #[test]
    fn an_expired_token_makes_the_refresh_due_at_once() {
        let mut grant = grant();
        grant.expires = Some(second(900));
        assert_eq!(grant.refresh_at(0.0), Some(second(1_000)));
    }

    #[test]
    fn without_an_expiry_a_refresh_token_or_a_login_nothing_is_due() {
        let endless = LoginGrant {
            expires: None,
            ..grant()
        };
        let fixed = LoginGrant {
            refresh: None,
            ..grant()
        };
        let ended = LoginGrant {
            ended: true,
            ..grant()
        };
        for grant in [endless, fixed, ended] {
            assert_eq!(grant.refresh_at(0.5), None);
        }
    }

    #[test]
    fn the_header_is_sensitive_and_absent_if_none_can_carry_the_token() {
        let value = grant().authorization().unwrap();
        assert_eq!(value, "Bearer hush-access");
        assert!(value.is_sensitive());
        for token in ["", "a b", "a\r\nHost: b", "t\u{f6}ken"] {
            let odd = LoginGrant {
                access: SecretText::new(token),
                ..grant()
            };
            assert_eq!(odd.authorization(), None, "{token:?}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", grant());
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[test]
    fn a_grant_survives_a_json_round_trip() {
        let json = serde_json::to_string(&grant()).unwrap();
        assert!(json.contains("\"client_secret_basic\""), "{json}");
        let read: LoginGrant = serde_json::from_str(&json).unwrap();
        assert_eq!(read, grant());
    }
}
