//! OpenAPI 3.1 description of the API: the file `openapi.json`.
//!
//! Owns its handler, and the test that generates the file from the routes and their types. Does not
//! declare routes (`routes.rs`). Invariant: the file describes every route of the API and nothing
//! else.

use axum::body::Body as AxumBody;
use axum::response::Response;
use http::{HeaderValue, header};

use crate::operator_check::Viewer;

/// Description, as the tests made it.
const DESCRIPTION: &str = include_str!("openapi.json");

/// Handles `GET /api/v1/openapi.json`.
pub(super) async fn openapi(Viewer(_): Viewer) -> Response {
    let mut response = Response::new(AxumBody::from(DESCRIPTION));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests {
    use moongate_access::auth::AdminRole;
    use moongate_api::{ApiError, EditRefusal};
    use schemars::SchemaGenerator;
    use schemars::generate::SchemaSettings;
    use serde_json::{Map, Value, json};

    use crate::routes::{ApiRoute, ROUTES};

    /// Errors of edits, by their status.
    const EDIT_ERRORS: [(&str, &str); 5] = [
        (
            "400",
            "bad_body, bad_value or bad_name: the request is invalid.",
        ),
        (
            "403",
            "read_only, commands_not_allowed or address_not_allowed: this cannot be done from \
             here.",
        ),
        (
            "409",
            "already_there, overridden, no_file, busy or locked: this cannot be done now, or would \
             change nothing.",
        ),
        ("412", "changed: the file does not have the expected etag."),
        (
            "422",
            "problems, unknown_tool, cannot_edit or read_only: nothing was written.",
        ),
    ];

    /// Schemas of bodies, which may lack members, and of answers, which have all.
    struct Schemas {
        bodies: SchemaGenerator,
        answers: SchemaGenerator,
    }

    impl Schemas {
        fn new() -> Self {
            Schemas {
                bodies: schema_settings().into_generator(),
                answers: schema_settings().for_serialize().into_generator(),
            }
        }

        /// Returns what all schemas refer to.
        fn definitions(mut self) -> Map<String, Value> {
            let mut all = self.answers.take_definitions(true);
            all.extend(self.bodies.take_definitions(true));
            all.values_mut().for_each(without_defaults);
            all
        }
    }

    fn schema_settings() -> SchemaSettings {
        let path = "/components/schemas".into();
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = path)
    }

    /// Takes defaults out of a schema: a reader's, and nothing that the API promises. Joins the
    /// lines of descriptions, which are as wide as the source.
    fn without_defaults(schema: &mut Value) {
        match schema {
            Value::Object(members) => {
                if let Some(Value::String(text)) = members.get_mut("description") {
                    *text = text.replace('\n', " ");
                }
                members.retain(|key, value| {
                    key != "default" || value.is_object() && value.get("type").is_some()
                });
                members.values_mut().for_each(without_defaults);
            }
            Value::Array(items) => items.iter_mut().for_each(without_defaults),
            _ => {}
        }
    }

    fn description() -> Value {
        let mut schemas = Schemas::new();
        let mut paths: Map<String, Value> = Map::new();
        for route in ROUTES {
            let path = paths.entry(route.path).or_insert_with(|| json!({}));
            path[route.method.to_ascii_lowercase()] = operation(route, &mut schemas);
        }
        json!({
            "openapi": "3.1.0",
            "info": { "title": "Moongate admin API", "version": env!("CARGO_PKG_VERSION") },
            "paths": paths,
            "components": {
                "securitySchemes": {
                    "key": { "type": "http", "scheme": "bearer",
                        "description": "A key from admin.keys." },
                    "session": { "type": "apiKey", "in": "cookie", "name": "moongate_admin",
                        "description": "Over TLS, __Host-moongate." },
                },
                "schemas": schemas.definitions(),
            },
            // The empty alternative is a loopback listener without `admin.keys`.
            "security": [{ "key": [] }, { "session": [] }, {}],
        })
    }

    fn operation(route: &ApiRoute, schemas: &mut Schemas) -> Value {
        let mut operation = json!({
            "summary": route.summary,
            "parameters": parameters(route),
            "x-role": route.role.map_or("none", AdminRole::name),
            "responses": responses(route, schemas),
        });
        if let Some(body) = route.types.body {
            let content = json!({ "application/json": { "schema": body(&mut schemas.bodies) } });
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        operation
    }

    fn parameters(route: &ApiRoute) -> Vec<Value> {
        let text = json!({ "type": "string" });
        let in_path = route
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = in_path
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
        let in_query = route.query.iter().map(|(name, meaning)| {
            json!({ "name": name, "in": "query", "description": meaning,
                    "schema": text })
        });
        let tag = route.is_edit.then(|| {
            let meaning =
                "The etag that the file must have. Without it, the file is changed whatever its \
                 contents are.";
            json!({ "name": "If-Match", "in": "header", "description": meaning, "schema": text })
        });
        in_path.chain(in_query).chain(tag).collect()
    }

    fn responses(route: &ApiRoute, schemas: &mut Schemas) -> Value {
        let answer = match route.types.answer {
            Some(answer) => {
                json!({ "application/json": { "schema": answer(&mut schemas.answers) } })
            }
            None if route.path.ends_with("/openapi.json") => {
                json!({ "application/json": { "schema": { "type": "object" } } })
            }
            None => json!({ "text/event-stream": {} }),
        };
        let error = schemas.answers.subschema_for::<ApiError>();
        let refusal = schemas.answers.subschema_for::<EditRefusal>();
        let mut responses =
            json!({ "default": failed_response("An error, with a message for people.", &error) });
        responses[route.done.to_string()] = json!({ "description": "Done.", "content": answer });
        for (status, meaning) in EDIT_ERRORS.iter().filter(|_| route.is_edit) {
            responses[*status] = failed_response(meaning, &refusal);
        }
        responses
    }

    fn failed_response(meaning: &str, schema: &schemars::Schema) -> Value {
        json!({ "description": meaning,
            "content": { "application/json": { "schema": schema } } })
    }

    #[test]
    fn the_file_is_what_is_derived() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/openapi.json");
        let derived = serde_json::to_string_pretty(&description()).unwrap() + "\n";
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            return std::fs::write(&path, derived).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let differs = text
            .lines()
            .zip(derived.lines())
            .find(|(old, new)| old != new);
        let how = "the API has changed: UPDATE_EXPECTED=1 cargo test -p moongate-admin openapi";
        assert!(text == derived, "{how}\n{differs:#?}");
    }

    #[test]
    fn each_route_is_described_with_its_parameters() {
        let all = description();
        let described = all["paths"]
            .as_object()
            .unwrap()
            .values()
            .map(|path| path.as_object().unwrap().len());
        assert_eq!(
            described.sum::<usize>(),
            ROUTES.len(),
            "no route is declared twice"
        );
        for route in ROUTES {
            let operation = &all["paths"][route.path][route.method.to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.summary);
            let in_path = operation["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|p| p["in"] == "path")
                .count();
            assert_eq!(in_path, route.path.matches('{').count(), "{}", route.path);
            assert!(
                operation["responses"][route.done.to_string()].is_object(),
                "{}",
                route.path
            );
            assert_eq!(
                operation["requestBody"].is_object(),
                route.types.body.is_some(),
                "{}",
                route.path
            );
            assert_eq!(
                operation["responses"]["412"].is_object(),
                route.is_edit,
                "{}",
                route.path
            );
        }
    }
}
