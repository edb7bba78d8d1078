//! Pages of the four lists.
//!
//! Owns cursors, honest or not. Does not own the items. Invariant: an honest list shows each item
//! once, in the order of the contents.

use serde_json::{Value, json};

use super::{
    call::{CallOutcome, MockCall},
    contents::ListItem,
    script::{CursorMode, EraRule},
    wire::{ResultBody, RpcFailure},
};

pub(super) fn tools(call: &MockCall) -> CallOutcome {
    let script = &call.server.script;
    let mut tools = call.server.contents.lock().tools.clone();
    tools.retain(|tool| match script.eras.get(&tool.key) {
        Some(EraRule::Legacy) => !call.revision.is_modern(),
        Some(EraRule::Modern) => call.revision.is_modern(),
        Some(EraRule::Wrapped) | None => true,
    });
    for tool in tools.iter_mut().filter(|tool| is_wrapped(call, &tool.key)) {
        let mut definition = tool.value();
        let schema = definition["outputSchema"].take();
        definition["outputSchema"] =
            json!({"type": "object", "properties": {"result": schema}, "required": ["result"]});
        *tool = ListItem::from_script("name", &definition);
    }
    page(call, "tools", &tools)
}

/// Returns true if a tool's output is wrapped for this client.
pub(super) fn is_wrapped(call: &MockCall, tool: &str) -> bool {
    !call.revision.is_modern() && call.server.script.eras.get(tool) == Some(&EraRule::Wrapped)
}

pub(super) fn resources(call: &MockCall) -> CallOutcome {
    page(call, "resources", &call.server.contents.lock().resources)
}

pub(super) fn templates(call: &MockCall) -> CallOutcome {
    page(
        call,
        "resourceTemplates",
        &call.server.contents.lock().templates,
    )
}

pub(super) fn prompts(call: &MockCall) -> CallOutcome {
    page(call, "prompts", &call.server.contents.lock().prompts)
}

fn page(call: &MockCall, key: &str, items: &[ListItem]) -> CallOutcome {
    let list = &call.server.script.list;
    let size = if list.page_size == 0 {
        items.len().max(1)
    } else {
        list.page_size
    };
    let pages = items.len().div_ceil(size).max(1);
    let requested = match &call.request.params["cursor"] {
        Value::Null => 0,
        Value::String(cursor) => cursor
            .strip_prefix("page-")
            .and_then(|n| n.parse::<usize>().ok())
            .filter(|n| *n < pages || list.cursor == CursorMode::Endless)
            .ok_or_else(|| RpcFailure::params(format!("Invalid cursor: {cursor}")))?,
        _ => return Err(RpcFailure::params("Invalid cursor: not a string").into()),
    };
    // An endless cursor counts on beyond the last page, which it shows again.
    let shown = requested.min(pages - 1);
    let next = match list.cursor {
        CursorMode::Honest => (requested + 1 < pages).then_some(requested + 1),
        CursorMode::Loop => Some((requested + 1) % pages),
        CursorMode::Endless => Some(requested + 1),
    };
    let texts: Vec<String> = items
        .iter()
        .skip(shown * size)
        .take(size)
        .map(|i| i.encode(call.revision))
        .collect();
    let mut body = ResultBody::new().raw(key, format!("[{}]", texts.join(",")));
    if let Some(next) = next {
        body = body.put("nextCursor", &json!(format!("page-{next}")));
    }
    Ok(body)
}
