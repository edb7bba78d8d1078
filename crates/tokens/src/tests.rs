//! Tests of complete tokens, signed with real keys.

mod id_token;
mod method;
pub(crate) mod signed_token;
mod token_matrix;
