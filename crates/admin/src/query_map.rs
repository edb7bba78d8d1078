//! Query of a request, as names and values.
//!
//! Owns its reading. Does not know names. Invariant: of a name that comes twice, the last value counts.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

/// Query of a request.
pub(super) struct QueryMap(HashMap<String, String>);

impl QueryMap {
    /// Returns a value. `None` if the name is not there.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a value, or an empty text if the name is not there.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

impl<S: Sync> FromRequestParts<S> for QueryMap {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(QueryMap(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}
