//! Settings for access tokens from the operator's own issuers.
//!
//! Owns the issuers, and whom each role is for. Does not verify tokens (`moongate_tokens`).
//! Invariant: no algorithm here uses a shared secret.

use std::collections::BTreeMap;

use url::Url;

/// Settings for access tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSettings {
    /// URL of this gateway, with which all resources start.
    pub public_url: Url,
    /// Issuers, at least one.
    pub issuers: Vec<TokenIssuer>,
}

/// Issuer whose tokens are accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenIssuer {
    /// Identifier, exactly as tokens have it in `iss`.
    pub issuer: String,
    /// Audiences that open every endpoint. `None`: the audience is the URL of the called endpoint.
    pub audience: Option<Vec<String>>,
    /// Algorithms that signatures may have.
    pub algorithms: Vec<SignatureAlgorithm>,
    /// URL of its keys.
    pub jwks_url: Url,
    /// Scope that a token must have.
    pub scope: String,
}

/// Algorithm of a signature (RFC 7518, section 3.1; RFC 8037). None of them uses a shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// RSA PKCS #1 with SHA-256.
    Rs256,
    /// RSA PKCS #1 with SHA-384.
    Rs384,
    /// RSA PKCS #1 with SHA-512.
    Rs512,
    /// RSA PSS with SHA-256.
    Ps256,
    /// RSA PSS with SHA-384.
    Ps384,
    /// RSA PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl SignatureAlgorithm {
    /// All algorithms.
    pub const ALL: [SignatureAlgorithm; 9] = [
        SignatureAlgorithm::Rs256,
        SignatureAlgorithm::Rs384,
        SignatureAlgorithm::Rs512,
        SignatureAlgorithm::Ps256,
        SignatureAlgorithm::Ps384,
        SignatureAlgorithm::Ps512,
        SignatureAlgorithm::Es256,
        SignatureAlgorithm::Es384,
        SignatureAlgorithm::EdDsa,
    ];

    /// Parses a name. Names are case-sensitive (RFC 7515, section 4.1.1).
    pub fn parse(name: &str) -> Option<SignatureAlgorithm> {
        SignatureAlgorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Returns the name that tokens and configs have.
    pub fn name(self) -> &'static str {
        match self {
            SignatureAlgorithm::Rs256 => "RS256",
            SignatureAlgorithm::Rs384 => "RS384",
            SignatureAlgorithm::Rs512 => "RS512",
            SignatureAlgorithm::Ps256 => "PS256",
            SignatureAlgorithm::Ps384 => "PS384",
            SignatureAlgorithm::Ps512 => "PS512",
            SignatureAlgorithm::Es256 => "ES256",
            SignatureAlgorithm::Es384 => "ES384",
            SignatureAlgorithm::EdDsa => "EdDSA",
        }
    }
}

/// People whom a role is for: those who match every part that is set.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleMatch {
    /// Name of the role.
    pub role: String,
    /// Issuer of their tokens.
    pub issuer: String,
    /// True if everybody with a token of the issuer has the role. The other parts are then empty.
    pub anyone: bool,
    /// Claims by path, each with values of which a token must have one.
    pub claims: BTreeMap<String, Vec<String>>,
    /// Email addresses, or `*@` and a domain. The issuer must have verified the address.
    pub emails: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_have_their_exact_names_and_none_is_symmetric() {
        for algorithm in SignatureAlgorithm::ALL {
            assert_eq!(SignatureAlgorithm::parse(algorithm.name()), Some(algorithm));
        }
        for name in [
            "none", "None", "HS256", "HS384", "HS512", "rs256", "ES512", "",
        ] {
            assert_eq!(SignatureAlgorithm::parse(name), None, "{name}");
        }
    }
}
