//! JSON Schema of the config file for editors.
//!
//! Owns what it adds to the schema of the checks: the forms of clients. Does not check a config.
//! Invariant: it accepts every config that `load` accepts without a warning.

use serde_json::json;

use super::client_formats;
use super::schema::ConfigSchema;

/// Returns the JSON Schema (2020-12) of the config file, for editors.
pub fn json_schema() -> String {
    let mut schema = ConfigSchema::read().into_value();
    let servers = schema["properties"]["servers"].clone();
    let root = &mut schema["properties"];
    root["$schema"] = json!({ "type": "string", "description": "This schema, for editors." });
    // A gateway also reads files of clients, so an editor must not mark their keys as mistakes.
    for name in client_formats::SERVER_MAPS {
        root[name] = json!({
            "type": ["object", "array"],
            "description": "Servers in the format of a client's file.",
        });
    }
    for name in ["mcp", "mcp.servers"] {
        root[name] = json!({
            "type": ["object", "array"],
            "description": "Servers in the format of a client's file.",
        });
    }
    root["mcpServers"] = json!({ "anyOf": [servers, { "type": ["object", "array"] }] });
    let server = &mut schema["$defs"]["Server"]["properties"];
    for (name, key) in client_formats::ALIASES {
        server[name] = json!({ "description": format!("The same as `{key}`.") });
    }
    server["disabled"] = json!({ "type": "boolean", "description": "The opposite of `enabled`." });
    server["isActive"] = json!({ "type": "boolean", "description": "The same as `enabled`." });
    server["type"] =
        json!({ "enum": client_formats::type_names(), "description": "Kind of server." });
    server["protocol"]["description"] = json!(
        "`auto` for the era of each client, `newest` for one era, or the protocol revision to \
         speak (a date)."
    );
    schema["patternProperties"] = json!({ "^x-": {} });
    let mut text = serde_json::to_string_pretty(&schema).expect("a JSON value can be written");
    text.push('\n');
    text
}
