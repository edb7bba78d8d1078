//! Name of the server in a request's path.
//!
//! Owns the reading of it. Does not know which servers there are. Invariant: a server called
//! `preview` is found, although its path is also that of the preview.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

/// Server whose path has no parameter, since another route has that path.
const PREVIEW: &str = "preview";

/// Name of the server that a path is about.
pub(super) struct ServerName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for ServerName {
    type Rejection = RawPathParamsRejection;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<Self, RawPathParamsRejection> {
        let params = RawPathParams::from_request_parts(parts, state).await?;
        let name = params
            .iter()
            .find(|(param, _)| *param == "name")
            .map(|(_, name)| name);
        // Only the path of the preview has no parameter.
        Ok(ServerName(name.unwrap_or(PREVIEW).to_owned()))
    }
}
