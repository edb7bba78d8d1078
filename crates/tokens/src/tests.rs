//! Tests of whole tokens, which real keys have signed.

mod method;
mod signed_token;
mod token_matrix;
