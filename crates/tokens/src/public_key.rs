//! Public keys of issuers.
//!
//! Owns how a key is read from a JSON Web Key, and the check of its signatures. Does not fetch
//! keys. Invariant: a key verifies only with algorithms of its type, so a public key is never used
//! as a shared secret.

use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moongate_access::auth::SignatureAlgorithm;
use serde::Deserialize;

/// Shortest modulus of an RSA key, in bits.
const RSA_BITS_MIN: usize = 2048;

/// JSON Web Key, with the members that signatures need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JsonWebKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Public key of an issuer.
#[derive(Debug)]
pub(crate) struct PublicKey {
    /// Name of the key in its set.
    pub(crate) kid: Option<String>,
    /// Only algorithm that it may be used with.
    algorithm: Option<SignatureAlgorithm>,
    material: KeyMaterial,
}

#[derive(Debug)]
enum KeyMaterial {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Reads a key. `None`: it works with none of our algorithms.
    pub(crate) fn of(key: JsonWebKey) -> Option<Self> {
        let is_for_signatures = key
            .purpose
            .as_deref()
            .is_none_or(|purpose| purpose == "sig");
        let may_verify = key
            .key_ops
            .as_ref()
            .is_none_or(|uses| uses.iter().any(|operation| operation == "verify"));
        if !is_for_signatures || !may_verify {
            return None;
        }
        let algorithm = match key.alg.as_deref() {
            Some(name) => Some(SignatureAlgorithm::parse(name)?),
            None => None,
        };
        let material = KeyMaterial::of(&key)?;
        Some(PublicKey {
            kid: key.kid,
            algorithm,
            material,
        })
    }

    /// Returns true if this key can make signatures with an algorithm.
    pub(crate) fn supports(&self, algorithm: SignatureAlgorithm) -> bool {
        self.algorithm.is_none_or(|own| own == algorithm) && self.material.supports(algorithm)
    }

    /// Returns true if this key made a signature.
    pub(crate) fn verifies(
        &self,
        algorithm: SignatureAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        if !self.supports(algorithm) {
            return false;
        }
        match &self.material {
            KeyMaterial::Rsa(key) => rsa_parameters(algorithm)
                .is_some_and(|parameters| key.verify(parameters, message, signature).is_ok()),
            KeyMaterial::P256(point) => {
                verify_point(&ECDSA_P256_SHA256_FIXED, point, message, signature)
            }
            KeyMaterial::P384(point) => {
                verify_point(&ECDSA_P384_SHA384_FIXED, point, message, signature)
            }
            KeyMaterial::Ed25519(point) => verify_point(&ED25519, point, message, signature),
        }
    }
}

impl KeyMaterial {
    fn of(key: &JsonWebKey) -> Option<Self> {
        match (key.kty.as_str(), key.crv.as_deref()) {
            ("RSA", _) => {
                let n = without_zeros(decode(key.n.as_deref())?);
                let e = without_zeros(decode(key.e.as_deref())?);
                let is_long_enough = bits(&n) >= RSA_BITS_MIN;
                is_long_enough.then_some(KeyMaterial::Rsa(RsaPublicKeyComponents { n, e }))
            }
            ("EC", Some("P-256")) => curve_point(key, 32).map(KeyMaterial::P256),
            ("EC", Some("P-384")) => curve_point(key, 48).map(KeyMaterial::P384),
            ("OKP", Some("Ed25519")) => {
                let point = decode(key.x.as_deref())?;
                (point.len() == 32).then_some(KeyMaterial::Ed25519(point))
            }
            _ => None,
        }
    }

    fn supports(&self, algorithm: SignatureAlgorithm) -> bool {
        match self {
            KeyMaterial::Rsa(_) => rsa_parameters(algorithm).is_some(),
            KeyMaterial::P256(_) => algorithm == SignatureAlgorithm::Es256,
            KeyMaterial::P384(_) => algorithm == SignatureAlgorithm::Es384,
            KeyMaterial::Ed25519(_) => algorithm == SignatureAlgorithm::EdDsa,
        }
    }
}

/// Returns how an RSA key verifies. `None`: the algorithm is not for RSA keys.
fn rsa_parameters(algorithm: SignatureAlgorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        SignatureAlgorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        SignatureAlgorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        SignatureAlgorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        SignatureAlgorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        SignatureAlgorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        SignatureAlgorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        SignatureAlgorithm::Es256 | SignatureAlgorithm::Es384 | SignatureAlgorithm::EdDsa => None,
    }
}

fn verify_point(
    algorithm: &'static dyn VerificationAlgorithm,
    point: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(algorithm, point)
        .verify(message, signature)
        .is_ok()
}

/// Returns the uncompressed point of a key on a curve whose coordinates have this many bytes.
fn curve_point(key: &JsonWebKey, size: usize) -> Option<Vec<u8>> {
    let x = decode(key.x.as_deref())?;
    let y = decode(key.y.as_deref())?;
    // RFC 7518, section 6.2.1.2: "The length of this octet string MUST be the full size of a
    // coordinate for the curve".
    if x.len() != size || y.len() != size {
        return None;
    }
    Some([&[4][..], x.as_slice(), y.as_slice()].concat())
}

fn decode(member: Option<&str>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(member?).ok()
}

/// Removes zeros at the start, which some issuers write but the library refuses.
fn without_zeros(number: Vec<u8>) -> Vec<u8> {
    number.into_iter().skip_while(|byte| *byte == 0).collect()
}

/// Returns the length of a number in bits.
fn bits(number: &[u8]) -> usize {
    number.first().map_or(0, |first| {
        let unused = usize::try_from(first.leading_zeros()).unwrap_or_default();
        number.len() * 8 - unused
    })
}
