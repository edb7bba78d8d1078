//! Access tokens of the operator's own issuers.
//!
//! Owns the verification of JSON Web Tokens, the key sets of their issuers, and the metadata that
//! leads clients to those issuers. Does not log anybody in, and does not decide what a role may
//! use. Invariant: a token opens nothing unless its signature, issuer, audience and times are
//! valid.

mod claims;
mod compact_token;
mod issuer_keys;
mod jwk_set;
mod person_mark;
mod public_key;
mod resource_names;
mod role_matches;
mod token_fault;
mod token_method;
mod token_methods;
mod token_subject;
mod verify;

#[cfg(test)]
mod tests;

pub use token_methods::TokenMethods;
