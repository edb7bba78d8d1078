//! Tests of complete tokens, signed with real keys.

mod method;
mod signed_token;
mod token_matrix;
