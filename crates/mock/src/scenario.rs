//! Flows: scripted steps of a tool or a prompt.
//!
//! Owns how steps run, the placeholders in results, and the check of input responses. Does not
//! encode input requests: the call does. Invariant: one flow means the same in every revision.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::{
    call::{CallOutcome, CallStop, MockCall},
    revision::Revision,
    scripted_flow::{FlowRequest, FlowStep, ScriptedFlow, UndeclaredPolicy},
    server::MockServer,
    wire::{ResultBody, RpcFailure, WireRequest},
};

/// Finds the flow that answers this request.
pub(super) fn flow_of<'a>(
    server: &'a MockServer,
    request: &WireRequest,
) -> Option<&'a ScriptedFlow> {
    let named = matches!(request.method.as_str(), "tools/call" | "prompts/get");
    named
        .then(|| server.script.flows.get(request.params["name"].as_str()?))
        .flatten()
}

/// Runs the flow and returns its result.
pub(super) async fn run_flow(call: &MockCall, flow: &ScriptedFlow) -> CallOutcome {
    let mut answers = if call.input_responses.is_object() {
        call.input_responses.clone()
    } else {
        json!({})
    };
    let modern = call.revision.is_modern();
    // A modern retry runs the whole call again. Steps before the last answered request would be
    // repeated.
    let done = flow
        .steps
        .iter()
        .rposition(|step| modern && is_answered(call, step, &answers))
        .unwrap_or(0);
    for step in &flow.steps[done..] {
        match step {
            // 2026-07-28/basic/patterns/mrtr.mdx: "Servers MUST NOT assume that clients will
            // fulfill the `inputRequests` or retry the original request."
            FlowStep::Ask(all) if modern => collect(call, flow, all, &answers)?,
            FlowStep::Ask(all) => request_inputs(call, all, &mut answers).await?,
            FlowStep::Progress(done, total) => call.progress(*done, *total).await,
            FlowStep::Log(level, data) => call.log(level, data).await,
            FlowStep::WaitMs(ms) => sleep(Duration::from_millis(*ms)).await,
            FlowStep::Change(list) => {
                call.server.change(if list == "prompts" {
                    "prompts"
                } else {
                    "tools"
                });
            }
        }
    }
    let known = json!({"arguments": call.request.params["arguments"], "answers": answers});
    let text = fill_placeholders(&flow.result, &known).to_string();
    Ok(ResultBody::verbatim(&text)
        .ok_or_else(|| RpcFailure::new(-32603, "the script's result is no object"))?)
}

/// Returns true for a step whose input requests all have a response.
fn is_answered(call: &MockCall, step: &FlowStep, answers: &Value) -> bool {
    match step {
        FlowStep::Ask(all) => all
            .iter()
            .all(|(key, request)| !answers[key].is_null() || is_skipped(call, request)),
        _ => false,
    }
}

/// Collects the input requests that a modern caller has not answered yet, to send them together.
fn collect(
    call: &MockCall,
    flow: &ScriptedFlow,
    all: &BTreeMap<String, FlowRequest>,
    answers: &Value,
) -> Result<(), CallStop> {
    let mut missing = json!({});
    for (key, request) in all.iter().filter(|(_, request)| !is_skipped(call, request)) {
        check_declared(call, request)?;
        match &answers[key] {
            Value::Null => {
                missing[key] = json!({"method": request.method, "params": params(request)})
            }
            answer if !is_valid_response(request, answer) => {
                return Err(RpcFailure::params(format!("the answer to `{key}` is none")).into());
            }
            _ => {}
        }
    }
    // All missing ones go out together: each round trip costs the client a whole call.
    let settled = missing.as_object().is_none_or(serde_json::Map::is_empty);
    if settled {
        Ok(())
    } else {
        Err(CallStop::InputRequired(missing, flow.state))
    }
}

/// Sends one request for each entry to a legacy caller, all before any response.
async fn request_inputs(
    call: &MockCall,
    all: &BTreeMap<String, FlowRequest>,
    answers: &mut Value,
) -> Result<(), CallStop> {
    let wanted: Vec<_> = all
        .iter()
        .filter(|(_, request)| !is_skipped(call, request))
        .collect();
    for (_, request) in &wanted {
        if !matches!(
            request.unable,
            UndeclaredPolicy::Ask | UndeclaredPolicy::Insist
        ) {
            check_declared(call, request)?;
        }
    }
    // Together, so that a gateway is tested with several open requests of one call.
    let replies = join_all(wanted.iter().map(|(_, request)| async {
        let patience = request.withdraw_ms.map(Duration::from_millis);
        call.request_within(
            &request.method,
            params(request),
            patience.or(request.later.then_some(Duration::ZERO)),
        )
        .await
    }))
    .await;
    for ((key, request), reply) in wanted.into_iter().zip(replies) {
        match reply {
            Ok(answer) if is_valid_response(request, &answer) => answers[key] = answer,
            Ok(_) => return Err(CallStop::Failed(format!("the answer to `{key}` is none"))),
            Err(CallStop::Failed(_))
                if matches!(
                    request.unable,
                    UndeclaredPolicy::Skip | UndeclaredPolicy::Insist
                ) || request.later
                    || request.withdraw_ms.is_some() => {}
            Err(stop) => return Err(stop),
        }
    }
    Ok(())
}

fn params(request: &FlowRequest) -> Value {
    if request.params.is_object() {
        request.params.clone()
    } else {
        json!({})
    }
}

/// Returns the capability that an input request needs, and the first revision that has it.
fn required_capability(request: &FlowRequest) -> (Value, Revision) {
    match (request.method.as_str(), request.params["mode"].as_str()) {
        ("sampling/createMessage", _) => (json!({"sampling": {}}), Revision::V2024_11_05),
        ("roots/list", _) => (json!({"roots": {}}), Revision::V2024_11_05),
        (_, Some("url")) => (json!({"elicitation": {"url": {}}}), Revision::V2025_11_25),
        _ => (json!({"elicitation": {}}), Revision::V2025_06_18),
    }
}

fn is_declared(call: &MockCall, request: &FlowRequest) -> bool {
    let caps = &call.capabilities;
    match (request.method.as_str(), request.params["mode"].as_str()) {
        ("sampling/createMessage", _) => caps["sampling"].is_object(),
        ("roots/list", _) => caps["roots"].is_object(),
        (_, Some("url")) => caps["elicitation"]["url"].is_object(),
        _ => {
            let caps = &caps["elicitation"];
            // An empty object declares form mode only (2025-11-25, client/elicitation).
            caps.is_object() && (caps["form"].is_object() || !caps["url"].is_object())
        }
    }
}

fn is_skipped(call: &MockCall, request: &FlowRequest) -> bool {
    request.unable == UndeclaredPolicy::Skip && !is_declared(call, request)
}

fn check_declared(call: &MockCall, request: &FlowRequest) -> Result<(), CallStop> {
    let (required, since) = required_capability(request);
    call.check_declared(is_declared(call, request), since, required)
}

/// True if the response fits the request: a result of its method, and a form with its required
/// fields.
fn is_valid_response(request: &FlowRequest, answer: &Value) -> bool {
    match request.method.as_str() {
        "sampling/createMessage" => {
            answer["role"].is_string()
                && answer["model"].is_string()
                && !answer["content"].is_null()
        }
        "roots/list" => answer["roots"].is_array(),
        _ => match answer["action"].as_str() {
            Some("accept") => is_valid_form(&request.params["requestedSchema"], &answer["content"]),
            action => matches!(action, Some("decline" | "cancel")),
        },
    }
}

fn is_valid_form(schema: &Value, content: &Value) -> bool {
    let required = schema["required"].as_array().into_iter().flatten();
    required.filter_map(Value::as_str).all(|key| {
        let value = &content[key];
        match schema["properties"][key]["type"].as_str() {
            Some("string") => value.is_string(),
            Some("number") => value.is_number(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("boolean") => value.is_boolean(),
            Some("array") => value.is_array(),
            _ => !value.is_null(),
        }
    })
}

/// Fills the placeholders in the texts of a value. One that names nothing stays as it is.
pub(super) fn fill_placeholders(value: &Value, known: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(fill_text(text, known)),
        Value::Array(all) => all
            .iter()
            .map(|one| fill_placeholders(one, known))
            .collect(),
        Value::Object(all) => all
            .iter()
            .map(|(key, one)| (key.clone(), fill_placeholders(one, known)))
            .collect(),
        other => other.clone(),
    }
}

fn fill_text(text: &str, known: &Value) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        // A brace without its partner is plain text, as in the JSON of an example.
        let Some((path, behind)) = after.split_once('}') else {
            break;
        };
        // The path becomes a JSON pointer, so arrays may be indexed too.
        let pointer = format!("/{}", path.replace('.', "/"));
        let Some(found) = known.pointer(&pointer).filter(|found| !found.is_null()) else {
            out.push_str(before);
            out.push('{');
            rest = after;
            continue;
        };
        out.push_str(before);
        out.push_str(
            &found
                .as_str()
                .map_or_else(|| found.to_string(), str::to_owned),
        );
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Matches a URI against a template, a variable for each part between slashes. Returns the
/// variables.
pub(super) fn match_template(template: &str, uri: &str) -> Option<Value> {
    let parts = template.split('/');
    let given = uri.split('/');
    // A variable never spans a slash (RFC 6570, section 3.2.2: reserved characters are encoded).
    if parts.clone().count() != given.clone().count() {
        return None;
    }
    let mut variables = json!({});
    for (part, given) in parts.zip(given) {
        match part
            .strip_prefix('{')
            .and_then(|name| name.strip_suffix('}'))
        {
            Some(name) if !given.is_empty() => variables[name] = json!(given),
            Some(_) => return None,
            None if part == given => {}
            None => return None,
        }
    }
    Some(variables)
}

/// True if the server lists this template.
pub(super) fn lists_template(server: &MockServer, template: &str) -> bool {
    server
        .contents
        .lock()
        .templates
        .iter()
        .any(|one| one.key == template)
}
