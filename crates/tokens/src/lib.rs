//! Tokens that others have signed.
//!
//! Owns the verification of JSON Web Tokens, the key sets of their issuers, and the metadata that
//! leads clients to those issuers. Does not log anybody in, and does not decide what a role may
//! use. Invariant: a token opens nothing unless its signature, issuer, audience and times are
//! valid.

mod assertion;
mod claims;
mod compact_token;
mod id_token;
mod issuer_keys;
mod jwk_set;
mod person_mark;
mod public_key;
mod resource_names;
mod role_matches;
mod token_fault;
mod token_method;
mod token_method_source;
mod token_subject;
mod verify;

#[cfg(test)]
mod tests;

pub use assertion::{AssertionUse, VerifiedAssertion, verify_assertion};
pub use claims::{ClaimSet, ClaimValue};
pub use id_token::{IdTokenUse, verify_id_token};
pub use issuer_keys::IssuerKeys;
pub use jwk_set::JwkSet;
pub use person_mark::{PersonKey, SubjectKind, log_name, person_mark};
pub use resource_names::{ResourceDocument, ResourceNames, is_endpoint_name};
pub use role_matches::{RoleClaims, roles_of};
pub use token_fault::TokenFault;
pub use token_method::PEOPLE;
pub use token_method_source::TokenMethodSource;
pub use token_subject::{EntraTenant, lacks_groups};
