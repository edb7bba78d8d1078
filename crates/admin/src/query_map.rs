//! Query parameters of a request, by name.
//!
//! Owns their parsing, and refuses names that the route does not declare. Does not declare names
//! (`routes.rs`). Invariant: no name is ignored, and if a name comes twice, the last value counts.

use std::collections::HashMap;

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use moongate_listener::json_response;

/// Query parameters of a route, as an extension of its requests: each name with its meaning.
#[derive(Clone, Copy)]
pub(super) struct DeclaredQuery(pub(super) &'static [(&'static str, &'static str)]);

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

    /// Returns false if the query asks for another value of a member.
    pub(super) fn admits(&self, name: &str, value: &str) -> bool {
        self.get(name).is_none_or(|wanted| wanted == value)
    }
}

impl<S: Sync> FromRequestParts<S> for QueryMap {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let query = parts.uri.query().unwrap_or_default();
        let query: HashMap<String, String> = url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let declared = parts
            .extensions
            .get::<DeclaredQuery>()
            .map_or(&[][..], |declared| declared.0);
        // A filter that is ignored would answer with all there is.
        match query
            .keys()
            .filter(|name| declared.iter().all(|(known, _)| known != name))
            .min()
        {
            None => Ok(QueryMap(query)),
            Some(unknown) => {
                let known: Vec<String> = declared
                    .iter()
                    .map(|(name, _)| format!("`{name}`"))
                    .collect();
                let message = format!(
                    "There is no parameter {unknown:?} here; the parameters are {}",
                    known.join(", ")
                );
                Err(json_response(
                    StatusCode::BAD_REQUEST,
                    "bad_query",
                    &message,
                ))
            }
        }
    }
}
