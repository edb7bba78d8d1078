//! Reading resources.
//!
//! Owns the contents of resources. Does not own their list. Invariant: a URI that is neither listed nor matches a
//! template is not found, in the words of the revision.

use serde_json::{Value, json};

use super::{
    call::{CallOutcome, MockCall},
    record::lock,
    scenario,
    wire::{ResultBody, RpcFailure},
};

pub(super) async fn read(call: &MockCall) -> CallOutcome {
    let uri = call.request.params["uri"].as_str().ok_or_else(|| RpcFailure::params("`uri` is missing"))?;
    let contents = match uri {
        "mock://private" if known(call, uri) => {
            let answer = call.elicit("who", "Who wants to read this?").await?;
            json!({"uri": uri, "mimeType": "application/json", "text": answer.to_string()})
        }
        _ => contents(call, uri).ok_or_else(|| missing(call, uri))?,
    };
    Ok(ResultBody::new().put("contents", &json!([contents])))
}

/// The contents of a resource that needs nothing from its reader.
pub(super) fn contents(call: &MockCall, uri: &str) -> Option<Value> {
    let plain = |text: &str| json!({"uri": uri, "mimeType": "text/plain", "text": text});
    if let Some(contents) = scripted(call, uri) {
        return Some(contents);
    }
    if let Some(id) = uri.strip_prefix("mock://item/").filter(|id| !id.is_empty())
        && templated(call)
    {
        return Some(plain(&format!("item {id}")));
    }
    if !known(call, uri) {
        return None;
    }
    Some(match uri {
        // The bytes 0 to 255, so that every one of them has to arrive.
        "mock://static/blob" => json!({"uri": uri, "mimeType": "application/octet-stream", "blob": every_byte()}),
        "mock://static/text" => plain("Hello, wörld.\nA second line."),
        "demo://about" => plain("This is the demonstration server of Moongate: it shows that everything works."),
        _ => plain(uri),
    })
}

/// What the script has under this URI, or under that of a template that it matches.
fn scripted(call: &MockCall, uri: &str) -> Option<Value> {
    let all = &call.server.script.contents;
    let (contents, variables) = match all.get(uri) {
        Some(contents) => (contents, json!({})),
        None => all.iter().find_map(|(template, contents)| {
            let variables = scenario::matched(template, uri).filter(|found| *found != json!({}))?;
            scenario::listed(&call.server, template).then_some((contents, variables))
        })?,
    };
    Some(match scenario::filled(contents, &variables) {
        Value::String(text) => json!({"uri": uri, "mimeType": "text/plain", "text": text}),
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

fn known(call: &MockCall, uri: &str) -> bool {
    lock(&call.server.contents).resources.iter().any(|r| r.key == uri)
}

fn templated(call: &MockCall) -> bool {
    lock(&call.server.contents).templates.iter().any(|t| t.key == "mock://item/{id}")
}

pub(super) fn missing(call: &MockCall, uri: &str) -> RpcFailure {
    let code = if call.revision.is_modern() { -32602 } else { -32002 };
    RpcFailure::new(code, "Resource not found").data(json!({"uri": uri}))
}
