//! Description of the API in OpenAPI 3.1, made of the table of routes.
//!
//! Owns its form. Does not declare routes (`routes.rs`). Invariant: each route is in it, and nothing else.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::json_answer::json;
use crate::operator_check::Viewer;
use crate::routes::{ApiRoute, ROUTES};
use moongate_access::auth::AdminRole;

/// Errors of edits, by their status.
const EDIT_ERRORS: [(&str, &str); 5] = [
    ("400", "bad_body, bad_value or bad_name: the request is not as it should be."),
    ("403", "read_only, commands_not_allowed or address_not_allowed: it is not done from here."),
    ("409", "already_there, overridden, no_file, busy or locked: it cannot be done now, or would do nothing."),
    ("412", "changed: the file is another one than expected."),
    ("422", "problems, unknown_tool, cannot_edit or read_only: nothing was written."),
];

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
                "properties": {
                    "error": { "type": "string", "description": "A word for programs." },
                    "message": { "type": "string", "description": "For people." },
                    "setting": { "type": ["string", "null"], "description": "The setting that decides." },
                    "snippet": { "type": ["string", "null"], "description": "Lines to paste into the file instead." },
                    "problems": { "type": "array", "items": { "type": "object" } },
                },
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
    let tag = route.is_edit.then(|| {
        let meaning = "The etag that the file must have. Without it, the file is changed as it is.";
        json!({ "name": "If-Match", "in": "header", "description": meaning, "schema": { "type": "string" } })
    });
    let parameters: Vec<Value> = in_path.chain(in_query).chain(tag).collect();
    let error = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
    let body = match route.path.ends_with("/events") || route.path.ends_with("/try") {
        true => json!({ "text/event-stream": {} }),
        false => json!({ "application/json": { "schema": { "type": "object" } } }),
    };
    let failed = |meaning: &str| json!({ "description": meaning, "content": error });
    let mut responses = json!({ "default": failed("An error, with a message for people.") });
    responses[route.done.to_string()] = json!({ "description": "Done.", "content": body });
    let of_edits = EDIT_ERRORS.iter().filter(|_| route.is_edit);
    of_edits.for_each(|(status, meaning)| responses[*status] = failed(meaning));
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "x-role": route.role.map_or("none", AdminRole::name),
        "responses": responses,
    });
    if !route.body.is_empty() {
        let members = route.body.iter();
        let members: Map<String, Value> = members
            .map(|(name, kind, meaning)| ((*name).to_owned(), json!({ "type": kind, "description": meaning })))
            .collect();
        let schema = json!({ "type": "object", "properties": members });
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
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
            assert!(operation["responses"][route.done.to_string()].is_object(), "{}", route.path);
            assert_eq!(operation["requestBody"].is_object(), !route.body.is_empty(), "{}", route.path);
            assert_eq!(operation["responses"]["412"].is_object(), route.is_edit, "{}", route.path);
        }
    }
}
