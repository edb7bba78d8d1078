//! Prompts and completion.
//!
//! Owns the texts of prompts and the values of completion. Does not own the list. Invariant: a
//! required argument that is missing is an error, never an empty text.

use serde_json::{Value, json};

use super::{
    call::{CallOutcome, MockCall},
    scenario,
    wire::{ResultBody, RpcFailure},
};

/// Values that complete the standard arguments.
const NAMES: [&str; 4] = ["Ada", "Alan", "Barbara", "Edsger"];

pub(super) async fn get(call: &MockCall) -> CallOutcome {
    let name = call.request.params["name"]
        .as_str()
        .ok_or_else(|| RpcFailure::params("`name` is missing"))?;
    let prompt = call
        .server
        .contents
        .lock()
        .prompts
        .iter()
        .find(|p| p.key == name)
        .map(super::contents::ListItem::value);
    let prompt = prompt.ok_or_else(|| RpcFailure::params(format!("Unknown prompt: {name}")))?;
    for argument in prompt["arguments"].as_array().into_iter().flatten() {
        let key = argument["name"].as_str().unwrap_or_default();
        if argument["required"] == true && call.argument(key).as_str().is_none() {
            return Err(RpcFailure::params(format!("The argument `{key}` is required")).into());
        }
    }
    let body = match &prompt["description"] {
        description @ Value::String(_) => ResultBody::new().put("description", description),
        _ => ResultBody::new(),
    };
    // After the check of arguments: a flow must not hide a missing one.
    if let Some(flow) = scenario::flow_of(&call.server, &call.request) {
        return scenario::run_flow(call, flow).await;
    }
    let text = match name {
        "greet" => format!("Please greet {} warmly.", call.text_argument("name", "")),
        "interview" => format!(
            "The user answered: {}",
            call.elicit("who", "What is your name?").await?
        ),
        "tour" => format!(
            "Call each tool of this demonstration once and explain what it did, in {}.",
            call.text_argument("language", "English")
        ),
        _ => format!("This is the prompt {name}."),
    };
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Ok(body.put("messages", &json!([message])))
}

pub(super) fn complete(call: &MockCall) -> CallOutcome {
    let (params, argument) = (&call.request.params, &call.request.params["argument"]);
    let typed = argument["value"]
        .as_str()
        .ok_or_else(|| RpcFailure::params("`argument.value` is missing"))?;
    let contents = call.server.contents.lock();
    let of = &params["ref"];
    let (known, values): (bool, Vec<String>) = match of["type"].as_str() {
        Some("ref/prompt") => (
            contents
                .prompts
                .iter()
                .any(|p| of["name"] == p.key.as_str()),
            NAMES.map(str::to_owned).to_vec(),
        ),
        Some("ref/resource") => (
            contents
                .templates
                .iter()
                .any(|t| of["uri"] == t.key.as_str()),
            (1..=20).map(|n| n.to_string()).collect(),
        ),
        _ => {
            return Err(RpcFailure::params(
                "`ref.type` is neither `ref/prompt` nor `ref/resource`",
            )
            .into());
        }
    };
    if !known {
        return Err(RpcFailure::params("`ref` names nothing that is here").into());
    }
    let fits: Vec<_> = values
        .into_iter()
        .filter(|v| v.to_lowercase().starts_with(&typed.to_lowercase()))
        .collect();
    Ok(ResultBody::new().put(
        "completion",
        &json!({"values": fits, "total": fits.len(), "hasMore": false}),
    ))
}
