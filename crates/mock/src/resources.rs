//! Contents of resources.
//!
//! Owns reading resources. Does not own their list. Invariant: a URI that is not listed and fits no
//! template is not found, with the revision's error code.

use serde_json::{Value, json};

use super::{
    call::{CallOutcome, MockCall},
    scenario,
    wire::{ResultBody, RpcFailure},
};

pub(super) async fn read(call: &MockCall) -> CallOutcome {
    let uri = call.request.params["uri"]
        .as_str()
        .ok_or_else(|| RpcFailure::params("`uri` is missing"))?;
    let contents = match uri {
        // A modern caller retries the read with its response. A legacy one answers while the read
        // runs.
        "mock://private" if is_known(call, uri) => {
            let answer = call.elicit("who", "Who wants to read this?").await?;
            json!({"uri": uri, "mimeType": "application/json", "text": answer.to_string()})
        }
        _ => contents(call, uri).ok_or_else(|| missing(call, uri))?,
    };
    Ok(ResultBody::new().put("contents", &json!([contents])))
}

/// Contents of a resource that needs no input from its reader.
pub(super) fn contents(call: &MockCall, uri: &str) -> Option<Value> {
    if let Some(contents) = scripted(call, uri) {
        return Some(contents);
    }
    if let Some(id) = uri.strip_prefix("mock://item/").filter(|id| !id.is_empty())
        && templated(call)
    {
        return Some(plain_text(uri, &format!("item {id}")));
    }
    if !is_known(call, uri) {
        return None;
    }
    Some(match uri {
        // All bytes from 0 to 255, so a test sees if each of them arrives.
        "mock://static/blob" => {
            json!({"uri": uri, "mimeType": "application/octet-stream", "blob": every_byte()})
        }
        "mock://static/text" => plain_text(uri, "Hello, wörld.\nA second line."),
        "demo://about" => plain_text(
            uri,
            "This is the demonstration server of Moongate: it shows that everything works.",
        ),
        _ => plain_text(uri, uri),
    })
}

fn plain_text(uri: &str, text: &str) -> Value {
    json!({"uri": uri, "mimeType": "text/plain", "text": text})
}

/// Contents that the script has for this URI, or for a template that the URI fits.
fn scripted(call: &MockCall, uri: &str) -> Option<Value> {
    let all = &call.server.script.contents;
    let (contents, variables) = match all.get(uri) {
        Some(contents) => (contents, json!({})),
        None => all.iter().find_map(|(template, contents)| {
            let variables =
                scenario::match_template(template, uri).filter(|found| *found != json!({}))?;
            scenario::lists_template(&call.server, template).then_some((contents, variables))
        })?,
    };
    Some(match scenario::fill_placeholders(contents, &variables) {
        Value::String(text) => plain_text(uri, &text),
        mut other => {
            other["uri"] = json!(uri);
            other
        }
    })
}

fn every_byte() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode((0..=255_u8).collect::<Vec<_>>())
}

fn is_known(call: &MockCall, uri: &str) -> bool {
    call.server
        .contents
        .lock()
        .resources
        .iter()
        .any(|r| r.key == uri)
}

fn templated(call: &MockCall) -> bool {
    call.server
        .contents
        .lock()
        .templates
        .iter()
        .any(|t| t.key == "mock://item/{id}")
}

pub(super) fn missing(call: &MockCall, uri: &str) -> RpcFailure {
    // 2026-07-28 changed "resource not found" from -32002 to -32602 (changelog).
    let code = if call.revision.is_modern() {
        -32602
    } else {
        -32002
    };
    RpcFailure::new(code, "Resource not found").data(json!({"uri": uri}))
}
