//! Description of the API in OpenAPI 3.1, made of the table of routes.
//!
//! Owns its form. Does not declare routes (`routes.rs`). Invariant: each route is in it, and nothing else.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::actions::Viewer;
use crate::json;
use crate::routes::{ApiRoute, ROUTES};
use moongate_access::auth::AdminRole;

/// Handles `GET /api/v1/openapi.json`.
pub(super) async fn openapi(Viewer(_): Viewer) -> Response {
    json(StatusCode::OK, &description())
}

fn description() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Moongate admin API", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer", "description": "A key of admin.keys." },
                "session": { "type": "apiKey", "in": "cookie", "name": "moongate_admin", "description": "Over TLS __Host-moongate." },
            },
            "schemas": { "Error": {
                "type": "object",
                "required": ["error", "message"],
                "properties": { "error": { "type": "string" }, "message": { "type": "string" } },
            } },
        },
        // The empty alternative is a loopback listener without `admin.keys`.
        "security": [{ "key": [] }, { "session": [] }, {}],
    })
}

fn operation(route: &ApiRoute) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path =
        in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let in_query = route.query.iter().map(
        |(name, meaning)| json!({ "name": name, "in": "query", "description": meaning, "schema": { "type": "string" } }),
    );
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let error = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
    let body = match route.path.ends_with("/events") || route.path.ends_with("/try") {
        true => json!({ "text/event-stream": {} }),
        false => json!({ "application/json": { "schema": { "type": "object" } } }),
    };
    json!({
        "summary": route.summary,
        "parameters": parameters,
        "x-role": route.role.map_or("none", AdminRole::name),
        "responses": {
            "200": { "description": "Done.", "content": body },
            "default": { "description": "An error, with a message for people.", "content": error },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_described_with_its_parameters() {
        let all = description();
        let described = all["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len());
        assert_eq!(described.sum::<usize>(), ROUTES.len(), "no route is declared twice");
        for route in ROUTES {
            let operation = &all["paths"][route.path][route.method.to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary);
            let in_path = operation["parameters"].as_array().unwrap().iter().filter(|p| p["in"] == "path").count();
            assert_eq!(in_path, route.path.matches('{').count(), "{}", route.path);
        }
    }
}
