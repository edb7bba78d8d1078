//! Definition of a tool at an endpoint in search mode, whose list does not have it.
//!
//! Owns the question to the endpoint. Does not call the tool. Invariant: only a gateway in search
//! mode is asked, and no server that has a tool called `describe_tool`.

use std::sync::Arc;

use moongate_jsonrpc::json::{JsonObject, RawJson};
use moongate_model::{Call, ItemKind};
use serde::Serialize;

use super::render_content::first_text;
use super::verb_client::VerbClient;

/// Tools of an endpoint in search mode. All of them are listed there.
const META_TOOLS: [&str; 3] = ["search_tools", DESCRIBE, "call_tool"];
const DESCRIBE: &str = "describe_tool";

/// Arguments of `describe_tool`.
#[derive(Serialize)]
struct DescribeArguments<'a> {
    names: [&'a str; 1],
}

/// Answer of an endpoint in search mode.
pub(super) enum DescribedTool {
    /// Definition of the tool.
    Definition(Arc<JsonObject>),
    /// Text about a name that no tool has.
    Unknown(String),
}

/// Asks for the definition of a tool. `None` if the endpoint is not in search mode, or does not
/// say.
pub(super) async fn describe(
    client: &VerbClient,
    listed: &[Arc<JsonObject>],
    name: &str,
) -> Option<DescribedTool> {
    if !META_TOOLS
        .iter()
        .all(|tool| find_tool(listed, tool).is_some())
    {
        return None;
    }
    let arguments = RawJson::from_value(&DescribeArguments { names: [name] });
    let call = Call {
        definition: find_tool(listed, DESCRIBE).cloned(),
        ..Call::for_tool(DESCRIBE, arguments)
    };
    let outcome = client.finish_call(call).await.ok()?;
    let text = first_text(&outcome.result)?;
    let definition = JsonObject::parse(text.clone().into()).ok();
    let definition = definition.filter(|tool| is_named(tool, name));
    Some(match definition {
        Some(definition) => DescribedTool::Definition(Arc::new(definition)),
        None => DescribedTool::Unknown(text),
    })
}

/// Finds a tool in a list by its name.
pub(super) fn find_tool<'a>(
    listed: &'a [Arc<JsonObject>],
    name: &str,
) -> Option<&'a Arc<JsonObject>> {
    listed.iter().find(|tool| is_named(tool, name))
}

fn is_named(tool: &JsonObject, name: &str) -> bool {
    ItemKind::Tools.key_of(tool).as_deref() == Some(name)
}
