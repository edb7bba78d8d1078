//! Access and refresh tokens, sealed.
//!
//! Owns their form. Does not know if a login has ended (`login_store.rs`). Invariant: a token opens
//! only as the kind that it was sealed as, and contains nothing that names a person.

use jiff::Timestamp;
use moongate_oauth::{RootSecrets, SealRing, SecretText};

use crate::login_id::LoginId;

/// Prefix of access tokens.
pub(crate) const ACCESS_PREFIX: &str = "mga_";
/// Prefix of refresh tokens.
pub(crate) const REFRESH_PREFIX: &str = "mgr_";

/// Purpose of the access token key.
const ACCESS_PURPOSE: &str = "broker access tokens";
/// Purpose of the refresh token key.
const REFRESH_PURPOSE: &str = "broker refresh tokens";
/// Longest token, in bytes. A token for an endpoint with a name of 64 characters has about 190.
const LENGTH_MAX: usize = 512;

/// Contents of an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessClaims {
    /// Login.
    pub(crate) login: LoginId,
    /// Number of the refresh token that it was issued with.
    pub(crate) generation: u32,
    /// Time from which it is refused, in whole seconds.
    pub(crate) expires: Timestamp,
    /// Endpoint that it opens.
    pub(crate) endpoint: String,
}

/// Contents of a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefreshClaims {
    /// Login.
    pub(crate) login: LoginId,
    /// Number of the token.
    pub(crate) generation: u32,
}

/// Seals of tokens.
pub(crate) struct TokenSeals {
    access: SealRing,
    refresh: SealRing,
}

impl TokenSeals {
    /// Derives the seals from the root secrets.
    pub(crate) fn new(secrets: &RootSecrets) -> Self {
        TokenSeals {
            access: secrets.seal_ring(ACCESS_PURPOSE),
            refresh: secrets.seal_ring(REFRESH_PURPOSE),
        }
    }

    /// Seals an access token.
    pub(crate) fn seal_access(&self, claims: &AccessClaims) -> SecretText {
        let mut plain = write_head(claims.login, claims.generation);
        plain.extend(claims.expires.as_second().to_be_bytes());
        plain.extend(claims.endpoint.as_bytes());
        let sealed = self.access.seal(ACCESS_PREFIX, &plain);
        SecretText::new(format!("{ACCESS_PREFIX}{sealed}"))
    }

    /// Opens an access token, even an expired one.
    pub(crate) fn open_access(&self, token: &str) -> Option<AccessClaims> {
        let plain = open(&self.access, ACCESS_PREFIX, token)?;
        let (login, generation, rest) = read_head(&plain)?;
        let (expires, endpoint) = rest.split_first_chunk()?;
        Some(AccessClaims {
            login,
            generation,
            expires: Timestamp::from_second(i64::from_be_bytes(*expires)).ok()?,
            endpoint: str::from_utf8(endpoint).ok()?.to_owned(),
        })
    }

    /// Seals a refresh token.
    pub(crate) fn seal_refresh(&self, claims: &RefreshClaims) -> SecretText {
        let plain = write_head(claims.login, claims.generation);
        let sealed = self.refresh.seal(REFRESH_PREFIX, &plain);
        SecretText::new(format!("{REFRESH_PREFIX}{sealed}"))
    }

    /// Opens a refresh token.
    pub(crate) fn open_refresh(&self, token: &str) -> Option<RefreshClaims> {
        let plain = open(&self.refresh, REFRESH_PREFIX, token)?;
        let (login, generation, rest) = read_head(&plain)?;
        rest.is_empty()
            .then_some(RefreshClaims { login, generation })
    }
}

/// Opens the sealed part after a prefix.
fn open(seals: &SealRing, prefix: &str, token: &str) -> Option<Vec<u8>> {
    if token.len() > LENGTH_MAX {
        return None;
    }
    seals.open(prefix, token.strip_prefix(prefix)?)
}

/// Writes the header that both kinds of tokens share.
fn write_head(login: LoginId, generation: u32) -> Vec<u8> {
    [&login.bytes()[..], &generation.to_be_bytes()].concat()
}

/// Reads the header that both kinds of tokens share. Also returns the rest.
fn read_head(plain: &[u8]) -> Option<(LoginId, u32, &[u8])> {
    let (login, rest) = plain.split_first_chunk()?;
    let (generation, rest) = rest.split_first_chunk()?;
    Some((LoginId::of(*login), u32::from_be_bytes(*generation), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(secret: u8) -> TokenSeals {
        TokenSeals::new(&RootSecrets::of_bytes(&[secret; 32]))
    }

    fn access() -> AccessClaims {
        AccessClaims {
            login: LoginId::of([3; 16]),
            generation: 7,
            expires: Timestamp::from_second(1_800_000_000).unwrap(),
            endpoint: "files".to_owned(),
        }
    }

    fn refresh() -> RefreshClaims {
        RefreshClaims {
            login: LoginId::of([4; 16]),
            generation: 8,
        }
    }

    #[test]
    fn no_kind_opens_as_the_other_and_no_other_secret_opens_any() {
        let seals = seals(7);
        let access = seals.seal_access(&access());
        let refresh = seals.seal_refresh(&refresh());
        assert_eq!(seals.open_refresh(access.expose()), None);
        assert_eq!(seals.open_access(refresh.expose()), None);
        let disguised = refresh.expose().replace(REFRESH_PREFIX, ACCESS_PREFIX);
        assert_eq!(seals.open_access(&disguised), None);
        let disguised = access.expose().replace(ACCESS_PREFIX, REFRESH_PREFIX);
        assert_eq!(seals.open_refresh(&disguised), None);
        let others = self::seals(8);
        assert_eq!(others.open_access(access.expose()), None);
        assert_eq!(others.open_refresh(refresh.expose()), None);
    }

    #[test]
    fn no_altered_token_opens() {
        let seals = seals(7);
        let token = seals.seal_access(&access()).expose().to_owned();
        for at in 0..token.len() {
            let mut altered = token.clone();
            let other = if &token[at..=at] == "A" { "B" } else { "A" };
            altered.replace_range(at..=at, other);
            // The last character has unused bits, which the decoder requires to be zero.
            assert_eq!(seals.open_access(&altered), None, "character {at}");
            assert_eq!(seals.open_access(&token[..at]), None, "cut at {at}");
        }
        let long = format!("{token}{}", "A".repeat(LENGTH_MAX));
        for text in ["", ACCESS_PREFIX, "mga_AAAA", &format!("{token}A"), &long] {
            assert_eq!(seals.open_access(text), None, "{text}");
        }
    }

    #[test]
    fn tokens_open_as_they_were_sealed_and_show_nothing() {
        let seals = seals(7);
        let token = seals.seal_access(&access());
        assert!(token.expose().len() < 256);
        assert_eq!(seals.open_access(token.expose()), Some(access()));
        let everything = AccessClaims {
            endpoint: String::new(),
            ..access()
        };
        let token = seals.seal_access(&everything);
        assert_eq!(seals.open_access(token.expose()), Some(everything));
        let token = seals.seal_refresh(&refresh());
        assert_eq!(seals.open_refresh(token.expose()), Some(refresh()));
        assert_ne!(seals.seal_refresh(&refresh()), token);
    }
}
